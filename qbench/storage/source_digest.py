"""SHA-256 over content: bytes, files, arrays, plain values, and the source of code."""

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import json
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.lazy import gc_paused
from qbench.storage.serialize import plain

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    import numpy as np


# SHA-256 over content: bytes, files, arrays and plain values.

_CHUNK = 1 << 20


def digest_bytes(data: bytes) -> str:
    """The digest of raw bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """The digest of a file's bytes, read in pieces.

    Raises:
        OSError: the file cannot be read.
    """
    state = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            state.update(piece)
    return state.hexdigest()


def digest_arrays(arrays: "Mapping[str, np.ndarray[Any, Any]]") -> str:
    """The digest of named arrays: names in sorted order, each with dtype, shape and bytes."""
    import numpy as np

    state = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        state.update(f"{name}|{little.dtype.str}|{array.shape}|".encode())
        state.update(little.tobytes())
    return state.hexdigest()


def digest_plain(value: object) -> str:
    """The digest of a plain value (or a dataclass of such): keys sorted, no blanks."""
    text = json.dumps(plain(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


# The digest of the code that a value runs, so that a cached result is made again when its code changes.
#
#     source files   of the classes and functions of the value, and of modules that these files import from their own
#                    package, or from any file outside the installed packages (a module next to a conftest)
#     versions       of the installed packages that those files import
#     values         that functions close over or have as defaults, where they are plain
#
# qbench's own code enters by source too, not by version: an editable installation keeps its version while its files
# change. Each package of qbench counts as one here, so that a change elsewhere in qbench leaves the digest as it is.
# What code reads at run time (an environment variable, a file of weights) cannot be found: the name of the value states
# it.

_PLAIN = (type(None), bool, int, float, str, bytes)
_OWN, _DISTRIBUTION = "qbench", "pytest-qbench"
_SUBJECTS = "qbench.subjects"
"""What the subjects of other packages are built on: its code is followed from there too."""


def digest_code(*values: object) -> str:
    """The digest of the code that ``values`` (objects with methods, functions) run, and of what it is built on."""
    found = _Found()
    with gc_paused():
        for value in values:
            found.add(value)
    return digest_plain([sorted(found.parts), sorted(found.files.items()), sorted(found.versions.items())])


class _Found:
    """What was met on the way: digests by module, versions by package, and parts that no file has."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.files: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self._seen: dict[int, object] = {}  # kept, so that no other object gets the id

    def add(self, value: object) -> None:
        """The code of ``value``: of a function, of a class and its bases, of an object and its fields."""
        value = inspect.unwrap(value) if callable(value) else getattr(value, "__wrapped__", value)
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, functools.partial):
            for each in (value.func, *value.args, *value.keywords.values()):
                self._add_held(each)
        elif isinstance(value, types.MethodType):
            self.add(value.__func__)
            self.add(value.__self__)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            for one in value.__mro__:
                self._add_module(one.__module__, _file_of_class(one), one.__qualname__)
        else:
            self.add(type(value))
            if dataclasses.is_dataclass(value):
                for field in dataclasses.fields(value):
                    self._add_held(getattr(value, field.name, None), plain=False)

    def _add_held(self, value: object, *, plain: bool = True) -> None:
        """What something else holds: code as code, what is plain by its value, anything else not at all."""
        if isinstance(value, tuple | list):
            for one in value:
                self._add_held(one, plain=plain)
        elif isinstance(value, _PLAIN):
            if plain:
                self.parts.append(repr(value))
        elif callable(value) or dataclasses.is_dataclass(value):
            self.add(value)

    def _add_function(self, function: types.FunctionType) -> None:
        file = Path(function.__code__.co_filename)
        self._add_module(function.__module__ or "", file, function.__qualname__)
        if not file.is_file():
            self.parts.append(_code_text(function.__code__))
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        for value in (*defaults, *_cells(function)):
            self._add_held(value)

    def _add_module(self, name: str, file: Path | None, part: str) -> None:
        self.parts.append(f"{name}:{part}")
        if file is not None and file.is_file() and not _is_standard(file):
            self._follow(name, file)

    def _follow(self, name: str, file: Path) -> None:
        """The file of module ``name``, and of what it imports; installed packages by their versions."""
        if name in self.files:
            return
        status = file.stat()
        digest, imported = _read(file, status.st_mtime_ns, status.st_size, name, _package_of(name, file))
        self.files[name] = digest
        if _is_installed(file):
            self._add_version(name.partition(".")[0])
        for other in imported:
            self._follow_import(other, name)

    def _follow_import(self, other: str, importer: str) -> None:
        top = other.partition(".")[0]
        if top in sys.stdlib_module_names:
            return
        own = _home(other) == _home(importer)
        followed = own or top != _OWN or (_home(other) == _SUBJECTS and not importer.startswith(f"{_OWN}."))
        file = _file_of_module(other) if followed else None
        if file is None or not (own or not (_is_installed(file) or _is_standard(file))):
            if file is not None or _file_of_module(top) is not None:
                self._add_version(top)
            return
        self._follow(other, file)

    def _add_version(self, package: str) -> None:
        if package not in self.versions:
            self.versions[package] = _version_of(package)


def _cells(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that was never bound
            continue


def _code_text(code: types.CodeType) -> str:
    """A code object without a file: its instructions and constants, those of inner functions too."""
    constants = [_code_text(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return "|".join([code.co_code.hex(), *code.co_names, *constants])


def _home(module: str) -> str:
    """The package whose modules belong together: the first name, and of qbench the first two."""
    parts = module.split(".")
    return ".".join(parts[:2] if parts[0] == _OWN else parts[:1])


def _file_of_class(one: type) -> Path | None:
    """Where ``one`` was written: by its methods, as a conftest's module may not be found by name."""
    for value in vars(one).values():
        function = inspect.unwrap(value) if isinstance(value, types.FunctionType) else getattr(value, "fget", None)
        if isinstance(function, types.FunctionType) and function.__module__ == one.__module__:
            file = Path(function.__code__.co_filename)
            if file.is_file():
                return file
    return _file_of_module(one.__module__)


def _file_of_module(name: str) -> Path | None:
    """The source file of module ``name``; None: there is none. Nothing is imported but packages that are already."""
    module = sys.modules.get(name)
    origin = getattr(module, "__file__", None)
    if module is None and (not name.rpartition(".")[0] or name.rpartition(".")[0] in sys.modules):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            spec = None
        origin = None if spec is None else spec.origin
    if origin is None:
        return None
    file = Path(origin)
    return file if file.is_file() else None


def _package_of(name: str, file: Path) -> str:
    return name if file.name == "__init__.py" else name.rpartition(".")[0]


@functools.cache
def _read(file: Path, changed_ns: int, size: int, name: str, package: str) -> tuple[str, tuple[str, ...]]:  # noqa: ARG001
    """The digest of ``file`` as it was changed last, and the modules that it imports anywhere."""
    data = file.read_bytes()
    imported: set[str] = set()
    try:
        tree = ast.parse(data) if file.suffix == ".py" else ast.Module([], [])
    except SyntaxError:
        tree = ast.Module([], [])
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            imported.add(base)
            imported.update(f"{base}.{alias.name}" for alias in node.names)
    known = {each for each in imported if each and (("." not in each) or _file_of_module(each) is not None)}
    return hashlib.sha256(data).hexdigest(), tuple(sorted(known - {name}))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement, inner ones too, without the expressions that ``ast.walk`` spends nine tenths of its time on."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            if isinstance(inner, list):  # the body of a lambda or of an if-expression is an expression
                waiting += inner
        yield node


def _is_installed(file: Path) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in file.parts)


@functools.cache
def _standard_folder() -> Path:
    return Path(sysconfig.get_paths()["stdlib"]).resolve()


def _is_standard(file: Path) -> bool:
    return not _is_installed(file) and _standard_folder() in file.resolve().parents


@functools.cache
def _version_of(package: str) -> str:
    """The version of the distribution that has the top-level ``package``; empty: of none that is known."""
    import importlib.metadata

    try:
        return importlib.metadata.version(_DISTRIBUTION if package == _OWN else package)
    except importlib.metadata.PackageNotFoundError:
        names = {str(one.metadata["Name"]) for one in importlib.metadata.distributions() if _has_package(one, package)}
        return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(names))


def _has_package(distribution: "Distribution", package: str) -> bool:
    """Whether ``distribution`` installed the top-level ``package``.

    As ``importlib.metadata.packages_distributions`` has it, which takes half a second since it makes a path of every
    installed file; here the list of files is searched as text.
    """
    named = distribution.read_text("top_level.txt")
    if named and named.split():
        return package in named.split()
    record = distribution.read_text("RECORD")
    if record is None:
        files = distribution.files or ()
        tops = (one.parts[0] if len(one.parts) > 1 else one.stem for one in files if one.suffix == ".py")
        return package in tops
    return package in record and re.search(rf"^{re.escape(package)}(/[^,\n]*)?\.py,", record, re.MULTILINE) is not None
