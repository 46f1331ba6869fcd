"""A machine on the command line: a name, or a TOML file that spells its arithmetic."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbench.backends import Backend
    from qbench.numerics import Arithmetic


def choose_arithmetic(text: str) -> "Arithmetic":
    """The arithmetic called ``text``, or the one in the file ``text`` when that ends in ``.toml``.

    Raises:
        InputError: no such name or file, or a file that is no arithmetic.
    """
    from qbench.interpreter import require_known_operators
    from qbench.numerics import get_arithmetic, load_arithmetic

    machine = load_arithmetic(Path(text)) if text.endswith(".toml") else get_arithmetic(text)
    require_known_operators(machine)
    return machine


def choose_backend(text: str) -> "Backend":
    """The backend called ``text``, or the integer machine in the file ``text`` when that ends in ``.toml``.

    Raises:
        InputError: no such name or file, or a file that is no arithmetic.
    """
    from qbench.backends import IntegerBackend, get_backend

    return IntegerBackend(arithmetic=choose_arithmetic(text)) if text.endswith(".toml") else get_backend(text)
