"""What an outside package or a conftest adds to qbench, as one value, and the catalogue it lands in.

An extension maps names to lazy factories; nothing is imported until a name is used, nothing registers by
being imported, and a name defined twice is an error that names both owners.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from qbench.errors import InputError, unknown_name

ENTRY_POINT_GROUP = "qbench.extensions"
OWN = "qbench"

T = TypeVar("T")
Factory = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Names and lazy factories of what one outside package adds; ``name`` is how errors call its owner."""

    name: str
    models: Mapping[str, Factory] = field(default_factory=dict)
    datasets: Mapping[str, Factory] = field(default_factory=dict)
    backends: Mapping[str, Factory] = field(default_factory=dict)
    schemas: Mapping[str, Factory] = field(default_factory=dict)
    range_methods: Mapping[str, Factory] = field(default_factory=dict)
    metrics: Mapping[str, Factory] = field(default_factory=dict)
    arithmetics: Mapping[str, Factory] = field(default_factory=dict)
    operators: Mapping[str, Factory] = field(default_factory=dict)
    passes: Mapping[str, Factory] = field(default_factory=dict)


@functools.cache
def installed_extensions() -> tuple[Extension, ...]:
    """The extensions of every installed distribution, in the order of their entry-point names.

    Raises:
        InputError: an entry point does not name an ``Extension``.
    """
    found = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda p: (p.name, p.value)):
        value = point.load()
        if not isinstance(value, Extension):
            raise InputError(
                f"Loading the qbench extension '{point.name}' ({point.value})",
                found=f"a {type(value).__name__}",
                expected="a qbench.Extension value",
                remedy="Let the entry point name an Extension instance.",
            )
        found.append(value)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[T]):
    """Everything of one kind (``backend``, ``metric``, …) that can be asked for by name.

    ``own`` is the room's table; ``added`` are the tables of extensions as (owner, names → factories).
    """

    kind: str
    own: Mapping[str, Callable[[], T]]
    added: tuple[tuple[str, Mapping[str, Callable[[], T]]], ...] = ()

    def __post_init__(self) -> None:
        owners: dict[str, str] = dict.fromkeys(self.own, OWN)
        for owner, table in self.added:
            for name in table:
                if name in owners:
                    raise InputError(
                        f"Adding the {self.kind} '{name}' of '{owner}'",
                        found=f"that '{owners[name]}' defines the same name",
                        expected="one owner a name",
                        remedy="Rename one of the two.",
                    )
                owners[name] = owner

    def extended(self, extensions: Iterable[Extension]) -> "Catalogue[T]":
        """This catalogue and what ``extensions`` add to its kind (the field named ``<kind>s``)."""
        tables = tuple((e.name, getattr(e, f"{self.kind}s")) for e in extensions)
        return Catalogue(self.kind, self.own, self.added + tuple(t for t in tables if t[1]))

    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        return tuple(sorted({*self.own, *(n for _, table in self.added for n in table)}))

    def owner(self, name: str) -> str:
        """Who defines ``name``: ``qbench`` or the name of an extension."""
        for owner, table in self.added:
            if name in table:
                return owner
        return OWN

    def get(self, name: str, *, doing: str | None = None) -> T:
        """The value called ``name``, made now.

        Raises:
            InputError: no such name; the nearest one is suggested.
        """
        for table in (self.own, *(t for _, t in self.added)):
            if name in table:
                return table[name]()
        raise unknown_name(doing or f"Looking up a {self.kind}", self.kind, name, self.names())
