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


def choose_backend(text: str, python: str | None = None) -> "Backend":
    """The backend called ``text``, or the integer machine in the file ``text`` when that ends in ``.toml``.

    Args:
        text: the name or the file. python: another Python, or the folder of its environment, that is to run it.

    Raises:
        InputError: no such name, file or Python, a file that is no arithmetic, or a backend that no Python's packages
            run.
        UnavailableError: the other Python lacks onnxruntime.
    """
    from qbench.backends import IntegerBackend, get_backend, python_backend

    if python is not None:
        return python_backend(python, text)
    return IntegerBackend(arithmetic=choose_arithmetic(text)) if text.endswith(".toml") else get_backend(text)
