"""A backend in the table of an extension, named by its module and class so that listing it
imports no engine.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbench.backends.protocol import Backend


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """A lazy factory of a backend: what an extension's table holds under its name.

    Args:
        module: which is imported when the backend is made.
        maker: the class or function in it that makes the backend.
        settings: what it is called with, by keyword.
        runs_float: whether the backend runs float graphs. Suites plan no fp32 cell for one that
            does not, and they construct no backend to learn that.
        resources: what a worker must offer for it, in words such as ``gpu``: its jobs are given to
            those that declare them.
    """

    module: str
    maker: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    runs_float: bool = True
    resources: tuple[str, ...] = ()

    def __call__(self) -> "Backend":
        """The backend."""
        made: Backend = getattr(importlib.import_module(self.module), self.maker)(**self.settings)
        return made
