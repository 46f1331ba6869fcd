"""Every operator subject by its id; numbers and words only, so that listing them loads nothing."""

import fnmatch
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from qbench.errors import InputError, unknown_name
from qbench.zoo.operators.pointwise import pointwise_subjects
from qbench.zoo.operators.products import product_subjects
from qbench.zoo.operators.subject import OperatorSubject

PREFIX = "op."

T = TypeVar("T")


def list_operators(pattern: str = "*") -> tuple[str, ...]:
    """The ids of the operator subjects that match ``pattern`` (``op.conv.*``), in the order of their table.

    Raises:
        InputError: none does; the nearest id is suggested.
    """
    found = tuple(name for name in _subjects() if fnmatch.fnmatchcase(name, pattern))
    if not found:
        raise unknown_name("Listing operator subjects", "operator subject", pattern, _subjects())
    return found


def get_operator(name: str) -> OperatorSubject:
    """The operator subject called ``name``.

    Raises:
        InputError: there is none; the nearest id is suggested.
    """
    if name not in _subjects():
        raise unknown_name("Looking up an operator subject", "operator subject", name, _subjects())
    return _subjects()[name]


@dataclass(frozen=True, slots=True)
class OperatorNames(Generic[T]):
    """Their ids as a catalogue's further names: known, and not listed among trained networks.

    Args:
        kind: of the catalogue. make: an operator subject → the catalogue's value.
    """

    kind: str
    make: Callable[[OperatorSubject], T]

    @property
    def form(self) -> str:
        """How a name begins."""
        return f"one operator, {PREFIX}*, which suites/operators.qbench.toml lists"

    def maker(self, name: str) -> Callable[[], T] | None:
        """What makes the value called ``name``; None when that is no operator subject."""
        if not name.startswith(PREFIX) or name not in _subjects():
            return None
        return functools.partial(self.make, _subjects()[name])

    def unknown(self, doing: str, name: str, listed: Iterable[str]) -> InputError:
        """The error for a ``name`` that is neither an operator subject nor among those ``listed``."""
        known = _subjects() if name.startswith(PREFIX) else listed
        return unknown_name(doing, self.kind, name, known)


@functools.cache
def _subjects() -> Mapping[str, OperatorSubject]:
    table: dict[str, OperatorSubject] = {}
    for subject in (*product_subjects(), *pointwise_subjects()):
        if subject.id in table:
            raise ValueError(f"two operator subjects '{subject.id}'")
        table[subject.id] = subject
    return MappingProxyType(table)
