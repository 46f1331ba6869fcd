"""Another Python as a file spells it, next to the suites that name it:

    like = "ort-cpu"
    requirements = ["onnxruntime==1.17.3"]        # an environment that is made and kept
    python = "…/venv"                             # or one that is there; relative to the file

The file is called as its backend is. Reading it starts no program and installs nothing: that is done by what first
asks for the versions over there or prepares a graph, which is a run of a suite that names the backend.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from qbench.backends.lowered import LoweredOrtBackend
from qbench.backends.ort import OrtBackend
from qbench.backends.protocol import Executor
from qbench.backends.venv.another_python import AnotherPython, mirrored_backend, python_backend
from qbench.backends.venv.creator import EnvironmentMaker, plain_requirement
from qbench.errors import InputError
from qbench.graph import Capabilities
from qbench.storage import read_toml, value_from_table


@dataclass(frozen=True, slots=True, kw_only=True)
class _PythonText:
    """The keys of such a file."""

    like: str = "ort-cpu"
    python: str = ""
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WrittenPython:
    """The backend ``like`` under a Python that nothing has started yet.

    Args:
        name: how results call it. like: which of our backends it mirrors.
        python: the program, or the folder of an environment; None: one with ``requirements`` is made and kept.
    """

    name: str
    like: OrtBackend | LoweredOrtBackend
    python: Path | None = None
    requirements: tuple[str, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """Those of the backend it mirrors."""
        return self.like.capabilities

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the backend it mirrors."""
        return self.like.packages

    @property
    def has_started(self) -> bool:
        """Whether something has asked for what only that Python knows."""
        return "_started" in self.__dict__

    def package_versions(self) -> Mapping[str, str]:
        """Package → its version over there, which is started to be asked.

        Raises:
            InputError: no such Python. UnavailableError: numpy or onnxruntime cannot be had there.
        """
        return self._started.package_versions()

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over ``model`` in a process over there, as ``AnotherPython`` gives it.

        Raises:
            QbenchError: what ``AnotherPython`` raises.
        """
        return self._started.prepare(model, taps=taps, threads=threads)

    @cached_property
    def _started(self) -> AnotherPython:
        where = EnvironmentMaker().make(self.requirements) if self.python is None else self.python
        return python_backend(where, self.like.name, name=self.name)


def load_python(path: Path) -> WrittenPython:
    """The backend that the TOML file at ``path`` spells; no program is started.

    Raises:
        InputError: a wrong key, both of ``python`` and ``requirements`` or neither, a requirement that is more than a
            name with versions, or no such backend.
    """
    text = value_from_table(_PythonText, read_toml(path), f"'{path}'")
    if bool(text.python) == bool(text.requirements):
        raise InputError(
            f"Reading '{path}'",
            found="both of 'python' and 'requirements'" if text.python else "neither 'python' nor 'requirements'",
            expected="one of them: an environment that is there, or what is to be in one",
            remedy='Write requirements = ["onnxruntime==…"], or python = "…".',
        )
    return WrittenPython(
        name=path.stem,
        like=mirrored_backend(text.like, f"Reading '{path}', its like = '{text.like}'"),
        python=path.parent / text.python if text.python else None,
        requirements=tuple(plain_requirement(one, f"Reading '{path}'") for one in text.requirements),
    )
