"""What an outside package or a conftest adds to qbench, as one value, and the catalogues of names.

An extension maps names to lazy factories: nothing is imported before a name is used, and no import registers anything.
A name that is defined twice is an error that names both owners.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar

from qbench.errors import InputError, unknown_name

ENTRY_POINT_GROUP = "qbench.extensions"
OWN = "qbench"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Factory = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Names and lazy factories that one outside package adds.

    The values of the factories are: ``subjects.ZooModel`` and ``subjects.Dataset``, ``backends.Backend``,
    ``quantization.Schema``, a range method of ``calibration``, ``metrics.Metric``, ``numerics.Arithmetic``,
    ``graph.Operator`` (named ``domain::Name``), ``passes.Pass``.

    Args:
        name: of the owner, for errors.
    """

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


_NAMED: ContextVar[Callable[[], tuple[Extension, ...]]] = ContextVar("extensions of a command", default=tuple)


@contextlib.contextmanager
def named_also(load: Callable[[], tuple[Extension, ...]]) -> Iterator[None]:
    """Inside the block the extensions that ``load`` returns are known, too; it is called when a name is looked up."""
    token = _NAMED.set(functools.cache(load))
    try:
        yield
    finally:
        _NAMED.reset(token)


def known_extensions() -> tuple[Extension, ...]:
    """The installed extensions and those of the running command.

    Raises:
        InputError: one of them cannot be loaded.
    """
    return _with(installed_extensions(), _NAMED.get()())


def with_known(extensions: Iterable[Extension]) -> tuple[Extension, ...]:
    """The known extensions and those of ``extensions`` that are not: a user may also name an installed one."""
    return _with(known_extensions(), extensions)


def _with(known: tuple[Extension, ...], others: Iterable[Extension]) -> tuple[Extension, ...]:
    return (*known, *(extension for extension in others if extension not in known))


class Grammar(Protocol[T_co]):
    """Names that are built by rules, because there are too many to list; ``form`` shows the rules."""

    @property
    def form(self) -> str:
        """How a name is built, for people."""
        ...

    def maker(self, name: str) -> Callable[[], T_co] | None:
        """The factory of the value called ``name``; None when that is not a name of this grammar."""
        ...

    def unknown(self, doing: str, name: str, listed: Iterable[str]) -> InputError:
        """The error for a ``name`` that is neither of this grammar nor among those ``listed``."""
        ...


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[T]):
    """All values of one kind (``backend``, ``metric``, …) by name.

    ``own`` is the table of qbench, the usual names first; ``added`` are the tables of extensions as (owner, names →
    factories); ``grammar`` makes further names of qbench, which are not listed; ``also_called`` are names that others
    use for those of qbench, in lower case, which are suggested.
    """

    kind: str
    own: Mapping[str, Callable[[], T]]
    added: tuple[tuple[str, Mapping[str, Callable[[], T]]], ...] = ()
    grammar: Grammar[T] | None = None
    also_called: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        owners: dict[str, str] = dict.fromkeys(self.own, OWN)
        for owner, table in self.added:
            for name in table:
                if self._by_grammar(name):
                    owners.setdefault(name, OWN)
                if name in owners:
                    raise InputError(
                        f"Adding the {self.kind} '{name}' of '{owner}'",
                        found=f"that '{owners[name]}' defines the same name",
                        expected="one owner per name",
                        remedy="Rename one of the two.",
                    )
                owners[name] = owner

    def extended(self, extensions: Iterable[Extension]) -> "Catalogue[T]":
        """This catalogue and what ``extensions`` add to its kind (the field named by its plural)."""
        plural = f"{self.kind}es" if self.kind.endswith("s") else f"{self.kind}s"
        tables = tuple((e.name, getattr(e, plural)) for e in extensions)
        added = self.added + tuple(table for table in tables if table[1])
        return Catalogue(self.kind, self.own, added, self.grammar, self.also_called)

    def names(self) -> tuple[str, ...]:
        """Every name that is listed, sorted."""
        return tuple(sorted({*self.own, *(n for _, table in self.added for n in table)}))

    def owner(self, name: str) -> str:
        """The owner of ``name``: ``qbench`` or the name of an extension."""
        for owner, table in self.added:
            if name in table:
                return owner
        return OWN

    def factory(self, name: str) -> Callable[[], T] | None:
        """The factory of the listed ``name``; None where it is not listed."""
        return next((table[name] for table in self._tables() if name in table), None)

    def knows(self, name: str) -> bool:
        """Whether ``get`` finds ``name``: it is listed, or a name of the grammar."""
        return any(name in table for table in self._tables()) or self._by_grammar(name) is not None

    def get(self, name: str, *, doing: str | None = None) -> T:
        """A new value for ``name``.

        Raises:
            InputError: an unknown name (the nearest one is suggested), or a value that is not a text.
        """
        if not isinstance(name, str):
            raise InputError(
                doing or self._looking,
                found=f"something of type {type(name).__name__}",
                expected=f"the name of one: {', '.join(self.names()[:6])}, …",
                remedy=f"Give the name of the {self.kind} as a text.",
            )
        for table in self._tables():
            if name in table:
                return table[name]()
        make = self._by_grammar(name)
        if make is None:
            raise self.unknown(name, doing or self._looking)
        return make()

    @property
    def _looking(self) -> str:
        return f"Looking up {'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def unknown(self, name: str, doing: str) -> InputError:
        """The error for a name that ``get`` does not find."""
        if self.grammar is not None:
            return self.grammar.unknown(doing, name, self.names())
        meant = self.also_called.get(name.lower())
        return unknown_name(
            doing, self.kind, name, self.names(), preferred=self._users_names(), first=self.own, meant=meant
        )

    def _users_names(self) -> tuple[str, ...]:
        """Names of extensions that are not installed: those of the user's own folder or conftest."""
        installed = {extension.name for extension in installed_extensions()}
        return tuple(name for owner, table in self.added if owner not in installed for name in table)

    def _tables(self) -> tuple[Mapping[str, Callable[[], T]], ...]:
        return (self.own, *(table for _, table in self.added))

    def _by_grammar(self, name: str) -> Callable[[], T] | None:
        return None if self.grammar is None else self.grammar.maker(name)
