"""Another Python as a file spells it, beside the suites that name it:

    like = "ort-cpu"
    requirements = ["onnxruntime==1.17.3"]        # an environment that is made and kept
    python = "…/venv"                             # or one that is there; relative to the file

The file is called as its backend is.
"""

from dataclasses import dataclass
from pathlib import Path

from qbench.backends.venv.another_python import AnotherPython, python_backend
from qbench.backends.venv.creator import EnvironmentMaker
from qbench.errors import InputError
from qbench.storage import read_toml, value_from_table


@dataclass(frozen=True, slots=True, kw_only=True)
class _PythonText:
    """The keys of such a file."""

    like: str = "ort-cpu"
    python: str = ""
    requirements: tuple[str, ...] = ()


def load_python(path: Path) -> AnotherPython:
    """The backend that the TOML file at ``path`` spells; its environment is made if need be.

    Raises:
        InputError: a wrong key, both of ``python`` and ``requirements`` or neither, no such Python, or no such backend.
        UnavailableError: numpy or onnxruntime cannot be had there.
    """
    text = value_from_table(_PythonText, read_toml(path), f"'{path}'")
    if bool(text.python) == bool(text.requirements):
        raise InputError(
            f"Reading '{path}'",
            found="both of 'python' and 'requirements'" if text.python else "neither 'python' nor 'requirements'",
            expected="one of them: an environment that is there, or what is to be in one",
            remedy='Write requirements = ["onnxruntime==…"], or python = "…".',
        )
    where = path.parent / text.python if text.python else EnvironmentMaker().make(text.requirements)
    return python_backend(where, text.like, name=path.stem)
