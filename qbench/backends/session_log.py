"""A process that makes one ONNX Runtime session and lets it say on standard error what its optimizers do.

    python -m qbench.backends.session_log MODEL LEVEL PRECISE FACTOR [NAME …]

The engine writes its log to the file descriptor of the process, past Python; in a process of its own nothing else is in
it. FACTOR is that of the size limits; NAME are optimizers to leave out.
"""

import sys
from pathlib import Path

from qbench.backends.optimization import Level, Optimization
from qbench.backends.ort import OrtBackend
from qbench.storage import limits_times


def main(arguments: list[str]) -> None:
    """Make the session that ``arguments`` describe, and no run of it."""
    model, level, precise, factor, *without = arguments
    optimization = Optimization(level=Level(level), without=frozenset(without), told=True)
    backend = OrtBackend(name="session-log", precise=precise == "True", optimization=optimization)
    with limits_times(int(factor)):
        backend.prepare(Path(model)).close()


if __name__ == "__main__":
    main(sys.argv[1:])
