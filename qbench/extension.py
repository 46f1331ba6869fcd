"""What an outside package or a conftest adds to qbench, as one value, and the catalogues of names.

An extension maps names to lazy factories: nothing is imported before a name is used, and no import
registers anything. A name that is defined twice is an error that names both owners.
"""

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from qbench.errors import InputError, QbenchError, UnsupportedError, unknown_name

ENTRY_POINT_GROUP = "qbench.extensions"
OWN = "qbench"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Factory = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Names and lazy factories that one outside package adds.

    The values of the factories are: ``subjects.ZooModel`` and ``subjects.Dataset``,
    ``backends.Backend``, ``quantization.Schema``, a range method of ``calibration``,
    ``metrics.Metric``, ``numerics.Arithmetic``, ``graph.Operator`` (named ``domain::Name``),
    ``passes.Pass``, ``graph.FileFormat`` (named by its suffix, ``abc``), ``graph.Fitter``,
    ``graph.ModuleExporter`` (named by the package of the modules that it exports), and of
    ``quantizers`` the ``pathlib.Path`` of a TOML file (docs/quantizers.md).

    Args:
        name: of the owner, for errors.

    Raises:
        InputError: the name is no text, or one of the others is no table of names and functions
            without arguments.
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
    formats: Mapping[str, Factory] = field(default_factory=dict)
    quantizers: Mapping[str, Factory] = field(default_factory=dict)
    fitters: Mapping[str, Factory] = field(default_factory=dict)
    exporters: Mapping[str, Factory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(
                "Making an Extension",
                found=f"a {type(self.name).__name__} as its name",
                expected="a text",
                remedy="Give it the name of its owner.",
            )
        for table in fields(self):
            if table.name != "name":
                self._check_table(table.name, getattr(self, table.name))

    def _check_table(self, kind: str, table: object) -> None:
        doing = f"Reading '{kind}' of the Extension '{self.name}'"
        expected = "a table of names and functions without arguments, each of which makes one"
        if not isinstance(table, Mapping):
            remedy = f"Write {kind}={{'mine': make_mine}}."
            raise InputError(
                doing, found=f"a {type(table).__name__}", expected=expected, remedy=remedy
            )
        for name, factory in table.items():
            found = _no_factory(factory)
            if not isinstance(name, str):
                found = f"a {type(name).__name__} as a name"
            if found:
                remedy = f"Write {kind}={{'{name}': make_it}} or {{'{name}': lambda: …}}."
                raise InputError(
                    f"{doing}, entry '{name}'", found=found, expected=expected, remedy=remedy
                )


def _no_factory(factory: object) -> str:
    """What ``factory`` is instead of a function that is called without arguments; empty: it is
    one.
    """
    if not callable(factory):
        return f"a {type(factory).__name__} and no function"
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # one written in C does not say what it takes
        return ""
    needed = [one.name for one in signature.parameters.values() if _is_needed(one)]
    return f"a function that needs {', '.join(needed)}" if needed else ""


def _is_needed(parameter: inspect.Parameter) -> bool:
    is_rest = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return not is_rest and parameter.default is inspect.Parameter.empty


def _folder_of(factory: object) -> Path:
    """The folder of the file that defines the function ``factory``; the current one for others."""
    code = getattr(factory, "__code__", None)
    return Path.cwd() if code is None else Path(code.co_filename).parent


_INSTALLED = frozenset(("site-packages", "dist-packages"))


def place_of(error: BaseException, folder: str | Path) -> str:
    """The file below ``folder`` and its line at which ``error`` was raised, as text; empty
    where it was elsewhere, or in an installed package (of an environment in ``folder``).
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ('{os.path.relpath(error.filename)}')"  # the error names the line
    import traceback

    inside, own = os.path.join(folder, ""), os.path.join(Path(__file__).parent, "")
    names = traceback.extract_tb(error.__traceback__)
    frames = [
        frame
        for frame in names
        if frame.filename.startswith(inside)
        and not frame.filename.startswith(own)
        and not _INSTALLED.intersection(Path(frame.filename).parts)
    ]
    return (
        f" ('{os.path.relpath(frames[-1].filename)}', line {frames[-1].lineno})" if frames else ""
    )


def error_of_code(
    doing: str, error: Exception, *, folder: str | Path, expected: str, remedy: str
) -> InputError:
    """The error for an ``error`` that a user's code raised, with its place below ``folder``.

    What qbench refused there keeps its own words.
    """
    place = place_of(error, folder)
    if isinstance(error, QbenchError):
        own = f"{error.doing}, while {doing[0].lower()}{doing[1:]}{place}"
        return InputError(own, found=error.found, expected=error.expected, remedy=error.remedy)
    return InputError(doing, found=f"{raised(error)}{place}", expected=expected, remedy=remedy)


def raised(error: BaseException) -> str:
    """Kind and message of an ``error`` that code of users raised, of a long one the beginning."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def error_of_end(doing: str, error: BaseException) -> InputError:
    """The error for what code of users raised while ``doing``: any exception, a ``SystemExit``, a
    skip or failure of pytest.
    """
    return InputError(
        f"{doing}{place_of(error, Path.cwd())}",
        found=raised(error),
        expected="code that returns a value",
        remedy="Correct that code.",
    )


_LONGEST = 400
"""Characters of a message of other code that a sentence repeats."""


def is_skip_test(error: BaseException) -> bool:
    """Whether ``error`` is a ``unittest.SkipTest``; only who raises one has imported
    ``unittest``.
    """
    case = sys.modules.get("unittest.case")
    return case is not None and isinstance(error, case.SkipTest)


# Code of an extension may look names up while the extension is read: a hook that builds its model,
# for example. It sees the extensions that were there before it, and not itself.

_READING: ContextVar[frozenset[object]] = ContextVar("what is being read", default=frozenset())


@contextlib.contextmanager
def _reading(what: object) -> Iterator[None]:
    token = _READING.set(_READING.get() | {what})
    try:
        yield
    finally:
        _READING.reset(token)


def installed_extensions() -> tuple[Extension, ...]:
    """The extensions of every installed distribution, in the order of their entry-point names;
    read once.

    Raises:
        InputError: an entry point cannot be loaded, or does not name an ``Extension``.
    """
    if ENTRY_POINT_GROUP in _READING.get():
        return ()
    with _reading(ENTRY_POINT_GROUP):
        return read_entry_points()


@functools.cache
def read_entry_points() -> tuple[Extension, ...]:
    """What ``installed_extensions`` keeps."""
    found = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda p: (p.name, p.value)):
        doing = f"Loading the qbench extension '{point.name}' ({point.value})"
        try:
            value = point.load()
        except Exception as error:
            # it is code of another package: whatever it raises is about that
            remedy = "Correct the package, or remove it."
            raise error_of_code(
                doing, error, folder="", expected="an Extension", remedy=remedy
            ) from error
        if not isinstance(value, Extension):
            raise InputError(
                doing,
                found=f"a {type(value).__name__}",
                expected="a qbench.Extension value",
                remedy="Let the entry point name an Extension instance.",
            )
        found.append(value)
    return tuple(found)


def extending_packages() -> dict[str, Path]:
    """Name → folder of each package that an entry point of the installed extensions is in; none
    is imported.
    """
    from importlib.util import find_spec

    names = {point.module.partition(".")[0] for point in entry_points(group=ENTRY_POINT_GROUP)}
    specs = {name: find_spec(name) for name in sorted(names)}
    folders = {name: spec.submodule_search_locations for name, spec in specs.items() if spec}
    return {name: Path(found[0]) for name, found in folders.items() if found}


DISTRIBUTION = "pytest-qbench"
_GUEST = "qbench-"
"""How the names of the distributions begin that extras of qbench install to bring its own
extensions.
"""


def missing_extra(name: str) -> str | None:
    """The extra of qbench that brings what is called ``name``; None: there is none, or it is
    installed.

    An extra has the first word of what it brings as its name: ``acme`` brings ``acme`` and
    ``acme-fast``. Which extras there are, and which of them install a guest, is read from the
    metadata of the installed distribution.
    """
    import re
    from importlib.metadata import PackageNotFoundError, version

    extra = re.split(r"[-_.]", name.lower(), maxsplit=1)[0]
    for guest in _guests_of(extra):
        try:
            version(guest)
        except PackageNotFoundError:
            return extra
    return None


def _guests_of(extra: str) -> list[str]:
    """The distributions of qbench that ``extra`` installs."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    try:
        asked = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:  # a checkout on the path, which has no extras
        return []
    of_extra = [
        one for one in asked if one.marker is not None and one.marker.evaluate({"extra": extra})
    ]
    return [one.name for one in of_extra if one.name.startswith(_GUEST)]


def install_command(extra: str) -> str:
    """What installs ``extra`` next to this qbench, from where this qbench was installed.

    A package index may not have qbench: of a checkout it is the folder, and that of the guest that
    the extra needs; of a wheel its file, and the wheel of the guest next to it; of a repository its
    address.
    pip keeps where a distribution came from in ``direct_url.json`` (PEP 610).
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    named, guests = f"{DISTRIBUTION}[{extra}]", _guests_of(extra)
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:  # a checkout on the path
        return _install_folder(Path(__file__).parents[1], extra, guests, "-e ")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    address = str(origin.get("url", ""))
    if "vcs_info" in origin:
        place = f"{origin['vcs_info']['vcs']}+{address}@{origin['vcs_info']['commit_id']}"
        others = [f"'{guest} @ {place}#subdirectory={_guest_folder(guest)}'" for guest in guests]
        return " ".join(["pip install", f"'{named} @ {place}'", *others])
    if not address.startswith("file:"):
        return f"pip install '{named}'"
    path = Path(unquote(urlsplit(address).path))
    if "dir_info" in origin:
        is_editable = origin["dir_info"].get("editable", False)
        return _install_folder(path, extra, guests, "-e " if is_editable else "")
    wheels = [f"'{path}[{extra}]'", *(str(_guest_wheel(path, guest)) for guest in guests)]
    return " ".join(["pip install", *wheels])


def _install_folder(folder: Path, extra: str, guests: Iterable[str], option: str) -> str:
    """What installs the checkout in ``folder`` with its ``guests``, by folders seen from here."""
    here = Path.cwd()
    place = Path() if folder == here else folder
    prefix = "./" if folder == here else ""
    words = [f"{option}'{place}[{extra}]'"]
    words += [f"{option}{prefix}{place / _guest_folder(guest)}" for guest in guests]
    return " ".join(["pip install", *words])


def _guest_wheel(path: Path, guest: str) -> Path:
    """The wheel of ``guest`` next to the one of qbench: they have one version."""
    ours, theirs = (name.replace("-", "_") for name in (DISTRIBUTION, guest))
    return path.with_name(path.name.replace(ours, theirs, 1))


def _guest_folder(guest: str) -> str:
    """The folder of a guest in the repository of qbench."""
    return guest.removeprefix(_GUEST)


_NAMED: ContextVar[Callable[[], tuple[Extension, ...]]] = ContextVar(
    "extensions of a command", default=tuple
)


@contextlib.contextmanager
def named_also(load: Callable[[], tuple[Extension, ...]]) -> Iterator[None]:
    """Inside the block the extensions that ``load`` returns are known, too; it is called when a
    name is looked up.
    """
    kept = functools.cache(load)

    def named() -> tuple[Extension, ...]:
        if kept in _READING.get():
            return ()
        with _reading(kept):
            return kept()

    token = _NAMED.set(named)
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
    """The known extensions and those of ``extensions`` that are not: a user may also name an
    installed one.
    """
    return _with(known_extensions(), extensions)


def _with(known: tuple[Extension, ...], others: Iterable[Extension]) -> tuple[Extension, ...]:
    return (*known, *(extension for extension in others if extension not in known))


_PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "model": ("graphs", "preprocess", "task"),
        "dataset": ("sample_ids", "load"),
        "backend": ("prepare",),
        "schema": ("rules",),
        "metric": ("name",),
        "arithmetic": ("overrides",),
        "operator": ("kernel",),
        "format": ("read", "write"),
        "quantizer": ("suffix", "read_bytes"),
        "fitter": ("fit",),
        "exporter": ("export",),
    }
)
"""Kind → attributes by which a value of it is told from one of another kind, without importing
its class.
"""


class Grammar(Protocol[T_co]):
    """Names that are built by rules, because there are too many to list; ``form`` shows the
    rules.
    """

    @property
    def form(self) -> str:
        """How a name is built, for people."""
        ...

    def maker(self, name: str) -> Callable[[], T_co] | None:
        """The factory of the value called ``name``; None when that is not a name of this
        grammar.
        """
        ...

    def unknown(self, doing: str, name: str, listed: Iterable[str]) -> InputError:
        """The error for a ``name`` that is neither of this grammar nor among those ``listed``."""
        ...


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[T]):
    """All values of one kind (``backend``, ``metric``, …) by name.

    ``own`` is the table of qbench, the usual names first; ``added`` are the tables of extensions as
    (owner, names → factories); ``grammar`` makes further names of qbench, which are not listed;
    ``also_called`` are names that others use for those of qbench, in lower case, which are
    suggested.
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
        """This catalogue and what ``extensions`` add to its kind (the field named by its
        plural).
        """
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
            InputError: an unknown name (the nearest one is suggested), or a value that is not a
                text.
        """
        if not isinstance(name, str):
            raise InputError(
                doing or self._looking,
                found=f"something of type {type(name).__name__}",
                expected=f"the name of one: {', '.join(self.names()[:6])}, …",
                remedy=f"Give the name of the {self.kind} as a text.",
            )
        if name in self.own:
            return self.own[name]()
        for owner, table in self.added:
            if name in table:
                return self._made(owner, name, table[name])
        make = self._by_grammar(name)
        if make is None:
            raise self.unknown(name, doing or self._looking)
        return make()

    def _made(self, owner: str, name: str, factory: Callable[[], T]) -> T:
        """What ``factory`` of ``owner`` makes, which has the parts of its kind."""
        doing = f"Making the {self.kind} '{name}' of '{owner}'"
        expected = f"a {self.kind}, as docs/extending.md describes it"
        folder = _folder_of(factory)
        try:
            made = factory()
        except InputError as error:
            place = place_of(error, folder)
            own = error.doing if place in error.doing else f"{error.doing}{place}"
            raise InputError(
                own, found=error.found, expected=error.expected, remedy=error.remedy
            ) from error
        except QbenchError:  # unsupported or not fetched: its type matters
            raise
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"{doing}{place_of(error, folder)}",
                found=f"no package that provides '{error.name}'",
                expected="it to be installed",
                remedy=f"Install what provides '{error.name}'.",
            ) from error
        except Exception as error:  # it is their code: whatever it raises is about their file
            if is_skip_test(error):
                raise UnsupportedError(
                    f"{doing}{place_of(error, folder)}",
                    found=f"a skip ({' '.join(str(error).split()) or 'no reason'})",
                    expected=f"a {self.kind}",
                    remedy="Install or repair what it needs, or leave its cells out of the suite.",
                ) from error
            remedy = f"Correct the function that makes '{name}'."
            raise error_of_code(
                doing, error, folder=folder, expected=expected, remedy=remedy
            ) from error
        if made is None or not all(hasattr(made, part) for part in _PARTS.get(self.kind, ())):
            remedy = f"Return the {self.kind} from the function that makes '{name}'."
            raise InputError(
                doing, found=f"a {type(made).__name__}", expected=expected, remedy=remedy
            )
        # a range method and a pass may be a class, which takes the settings of their name
        if isinstance(made, type) and self.kind in _PARTS:
            remedy = f"Let the function that makes '{name}' return {made.__name__}(…)."
            raise InputError(
                doing, found=f"the class {made.__name__}", expected=expected, remedy=remedy
            )
        return made

    @property
    def _looking(self) -> str:
        return f"Looking up {'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def unknown(self, name: str, doing: str) -> InputError:
        """The error for a name that ``get`` does not find."""
        if self.grammar is not None:
            return self.grammar.unknown(doing, name, self.names())
        if extra := missing_extra(name):
            return InputError(
                doing,
                found=f"no {self.kind} '{name}': what brings it is not installed",
                expected=f"the extra '{extra}' to be installed",
                remedy=f"Install it: {install_command(extra)}.",
            )
        meant = self.also_called.get(name.lower())
        return unknown_name(
            doing,
            self.kind,
            name,
            self.names(),
            preferred=self._users_names(),
            first=self.own,
            meant=meant,
        )

    def _users_names(self) -> tuple[str, ...]:
        """Names of extensions that are not installed: those of the user's own folder or
        conftest.
        """
        installed = {extension.name for extension in installed_extensions()}
        return tuple(
            name for owner, table in self.added if owner not in installed for name in table
        )

    def _tables(self) -> tuple[Mapping[str, Callable[[], T]], ...]:
        return (self.own, *(table for _, table in self.added))

    def _by_grammar(self, name: str) -> Callable[[], T] | None:
        return None if self.grammar is None else self.grammar.maker(name)
