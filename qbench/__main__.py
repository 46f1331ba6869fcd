"""``python -m qbench``: the ``qbench`` program, for computers whose path does not hold it."""

import sys

from qbench.cli import main

sys.exit(main())
