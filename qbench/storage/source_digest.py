"""SHA-256 over content: bytes, files, arrays, plain values, and the source of code."""

import ast
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
    text = json.dumps(
        plain(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


# The source files that a value's code comes from (``held_code`` finds the code itself):
#
#     source files   of classes and functions, and of modules that these files import from their own
#                    package, or from any file outside the installed packages (a module next to a
#                    conftest), also by ``importlib.import_module("name")``
#     versions       of the installed packages that those files import
#
# qbench's own code enters by source too, not by version: an editable installation keeps its version
# while its files change. Each package of qbench counts as one here, so that a change elsewhere in
# qbench leaves the digest as it is. A name of a module that is computed cannot be followed: what
# runs then is not known here.

_OWN, _DISTRIBUTION = "qbench", "pytest-qbench"
_SUBJECTS = "qbench.subjects"
"""What the subjects of other packages are built on: its code is followed from there too."""


class SourceFiles:
    """What was met on the way: digests by module, versions by package, and what no digest can
    follow.

    Args:
        files: module → digest of its source. versions: package → version. unfollowed: sentences,
            each once.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.unfollowed: dict[str, None] = {}

    def add_module(self, name: str, file: Path | None) -> None:
        """The ``file`` of module ``name`` and what it imports; nothing of the standard library."""
        if file is not None and file.is_file() and not _is_standard(file):
            self._follow(name, file)

    def _follow(self, name: str, file: Path) -> None:
        """The file of module ``name``, and of what it imports; installed packages by their
        versions.
        """
        if name in self.files:
            return
        status = file.stat()
        digest, imported = _read(
            file, status.st_mtime_ns, status.st_size, name, _package_of(name, file)
        )
        self.files[name] = digest
        if is_installed(file):
            self.add_version(name.partition(".")[0])
        for other in imported:
            self._follow_import(other, name)
        if not is_users(name, file):
            return
        computed, named = _computed_imports(
            file, status.st_mtime_ns, status.st_size, _package_of(name, file)
        )
        self.unfollowed |= dict.fromkeys(
            f"{file.name} line {line}: {what}" for line, what in computed
        )
        for other in named:
            self._follow_import(other, name)

    def _follow_import(self, other: str, importer: str) -> None:
        top = other.partition(".")[0]
        if top in sys.stdlib_module_names:
            return
        own = _home(other) == _home(importer)
        followed = (
            own
            or top != _OWN
            or (_home(other) == _SUBJECTS and not importer.startswith(f"{_OWN}."))
        )
        file = file_of_module(other) if followed else None
        if file is None or not (own or not (is_installed(file) or _is_standard(file))):
            if file is not None or file_of_module(top) is not None:
                self.add_version(top)
            return
        self._follow(other, file)

    def add_version(self, package: str) -> None:
        """The version of the installed top-level ``package``."""
        if package not in self.versions:
            self.versions[package] = _version_of(package)


def is_users(module: str, file: Path | None) -> bool:
    """Whether a module is code of a user: not qbench's, not installed, not of the standard library.

    A module without a file is a user's unless its name says otherwise: code that was made by
    ``exec``.
    """
    top = module.partition(".")[0]
    if top == _OWN or top in sys.stdlib_module_names:
        return False
    return file is None or not (is_installed(file) or _is_standard(file))


def is_own(module: str) -> bool:
    """Whether a module is qbench's."""
    return module.partition(".")[0] == _OWN


def _home(module: str) -> str:
    """The package whose modules belong together: the first name, and of qbench the first two."""
    parts = module.split(".")
    return ".".join(parts[:2] if parts[0] == _OWN else parts[:1])


def file_of_class(one: type) -> Path | None:
    """Where ``one`` was written: by its methods, as a conftest's module may not be found by
    name.
    """
    for value in vars(one).values():
        function = (
            inspect.unwrap(value)
            if isinstance(value, types.FunctionType)
            else getattr(value, "fget", None)
        )
        if isinstance(function, types.FunctionType) and function.__module__ == one.__module__:
            file = Path(function.__code__.co_filename)
            if file.is_file():
                return file
    module: object = one.__module__  # a property of some types of C
    return file_of_module(module) if isinstance(module, str) else None


def file_of_module(name: str) -> Path | None:
    """The source file of module ``name``; None: there is none. Nothing is imported but packages
    that are already.
    """
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
def _read(
    file: Path,
    changed_ns: int,  # noqa: ARG001
    size: int,  # noqa: ARG001
    name: str,
    package: str,
) -> tuple[str, tuple[str, ...]]:
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
            start = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*start, *([node.module] if node.module else [])])
            imported.add(base)
            imported.update(f"{base}.{alias.name}" for alias in node.names)
    known = {
        each
        for each in imported
        if each and (("." not in each) or file_of_module(each) is not None)
    }
    return hashlib.sha256(data).hexdigest(), tuple(sorted(known - {name}))


_IMPORTERS = {
    "import_module": "importlib.import_module",
    "__import__": "__import__",
    "spec_from_file_location": "importlib.util.spec_from_file_location",
    "SourceFileLoader": "importlib.machinery.SourceFileLoader",
    "run_path": "runpy.run_path",
    "run_module": "runpy.run_module",
    "importorskip": "pytest.importorskip",
    "resolve_name": "pkgutil.resolve_name",
    "locate": "pydoc.locate",
    "load_source": "imp.load_source",
}
_BY_NAME = (
    "import_module",
    "__import__",
    "run_module",
    "importorskip",
    "resolve_name",
    "locate",
    "load_source",
)
_COMMON = {"resolve_name": "pkgutil", "locate": "pydoc", "load_source": "imp"}
"""Names that other objects have methods of: with the module that they have to be of."""
_PATH_SECOND = ("spec_from_file_location", "SourceFileLoader", "load_source")
_RUNNERS = ("exec", "eval")
"""Built-in functions that run a text; a method of such a name (``model.eval()``) is none."""
_MAY_IMPORT = re.compile(
    rb"\b(?:" + b"|".join(name.encode() for name in (*_IMPORTERS, *_RUNNERS)) + rb")\b"
)


@functools.cache
def _computed_imports(
    file: Path,
    changed_ns: int,  # noqa: ARG001 - as the file was changed last
    size: int,  # noqa: ARG001
    package: str,
) -> tuple[tuple[tuple[int, str], ...], tuple[str, ...]]:
    """Calls that run code of a computed name as (line, what they are), and the modules that
    other calls name.
    """
    data = file.read_bytes()
    if file.suffix != ".py" or not _MAY_IMPORT.search(data):
        return (), ()
    try:
        tree = ast.parse(data)
    except SyntaxError:
        return (), ()
    computed, named = list[tuple[int, str]](), list[str]()
    known = _importers_known(tree)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = _called(call, known)
        if not name:
            continue
        texts = [
            one.value
            for one in call.args
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        if name in _BY_NAME and texts[:1] and isinstance(call.args[0], ast.Constant):
            named += _modules_of(_absolute(texts, package))
        elif not isinstance(call.args[-1 if name in _PATH_SECOND else 0], ast.Constant):
            computed.append((call.lineno, f"{_IMPORTERS.get(name, name)} of a computed name"))
    return tuple(computed), tuple(named)


def _importers_known(tree: ast.AST) -> dict[str, str]:
    """Name in a file → the function that imports or runs code, also where it has another name."""
    known = {name: name for name in (*_IMPORTERS, *_RUNNERS) if name not in _COMMON}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                if one.name in _IMPORTERS and node.module == _COMMON.get(one.name, node.module):
                    known[one.asname or one.name] = one.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            name = _name_called(node.value, known)
            known |= {one.id: name for one in node.targets if name and isinstance(one, ast.Name)}
    return known


def _called(call: ast.Call, known: Mapping[str, str]) -> str:
    """The name of the function that a call imports or runs code by; empty: it calls another one."""
    return _name_called(call.func, known)


def _name_called(function: ast.expr, known: Mapping[str, str]) -> str:
    if isinstance(function, ast.Name):
        return known.get(function.id, "")
    if not isinstance(function, ast.Attribute) or function.attr not in _IMPORTERS:
        return ""
    module = _COMMON.get(function.attr)
    is_of_it = isinstance(function.value, ast.Name) and function.value.id == module
    return function.attr if module is None or is_of_it else ""


def _modules_of(text: str) -> list[str]:
    """The modules that ``a.b:c`` or ``a.b.c`` may name."""
    parts = text.partition(":")[0].split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _absolute(texts: list[str], package: str) -> str:
    """The module that ``import_module(*texts)`` names in a file of ``package``."""
    name = texts[0].lstrip(".")
    level = len(texts[0]) - len(name)
    if not level:
        return name
    parts = (texts[1] if len(texts) > 1 else package).split(".")
    return ".".join([*parts[: len(parts) - level + 1], name])


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement, inner ones too, without the expressions that ``ast.walk`` spends nine
    tenths of its time on.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            if isinstance(inner, list):
                # the body of a lambda or of an if-expression is an expression
                waiting += inner
        yield node


def is_installed(file: Path) -> bool:
    """Whether ``file`` is of an installed package."""
    return any(part in ("site-packages", "dist-packages") for part in file.parts)


@functools.cache
def is_foreign_file(path: str) -> bool:
    """Whether the file at ``path`` is of an installed package or of the standard library."""
    file = Path(path)
    return is_installed(file) or _is_standard(file)


@functools.cache
def _standard_folder() -> Path:
    return Path(sysconfig.get_paths()["stdlib"]).resolve()


def _is_standard(file: Path) -> bool:
    return not is_installed(file) and _standard_folder() in file.resolve().parents


@functools.cache
def _version_of(package: str) -> str:
    """The version of the distribution that has the top-level ``package``; empty: of none that
    is known.
    """
    import importlib.metadata

    try:
        return importlib.metadata.version(_DISTRIBUTION if package == _OWN else package)
    except importlib.metadata.PackageNotFoundError:
        names = {
            str(one.metadata["Name"])
            for one in importlib.metadata.distributions()
            if _has_package(one, package)
        }
        return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(names))


def _has_package(distribution: "Distribution", package: str) -> bool:
    """Whether ``distribution`` installed the top-level ``package``.

    As ``importlib.metadata.packages_distributions`` has it, which takes half a second since it
    makes a path of every installed file; here the list of files is searched as text.
    """
    named = distribution.read_text("top_level.txt")
    if named and named.split():
        return package in named.split()
    record = distribution.read_text("RECORD")
    if record is None:
        files = distribution.files or ()
        tops = (
            one.parts[0] if len(one.parts) > 1 else one.stem for one in files if one.suffix == ".py"
        )
        return package in tops
    return (
        package in record
        and re.search(rf"^{re.escape(package)}(/[^,\n]*)?\.py,", record, re.MULTILINE) is not None
    )
