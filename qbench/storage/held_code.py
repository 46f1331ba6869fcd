"""The digest of the code that a value runs and of all that it holds, by which cached results
are found again.
"""

import array
import ast
import copyreg
import enum
import functools
import hashlib
import io
import logging
import marshal
import mmap
import os
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from qbench.lazy import gc_paused
from qbench.storage.files_read import file_state, is_of_code
from qbench.storage.source_digest import (
    SourceFiles,
    digest_bytes,
    digest_plain,
    file_of_class,
    file_of_module,
    is_installed,
    is_own,
    is_users,
)

# A key covers everything that can change what a value computes:
#
#     source files       of its classes and functions and of what these import; versions of
#                        installed packages (``source_digest``)
#     what it holds      attributes, slots, items of containers, arrays by their numbers; of
#                        functions what they close over, their defaults, attributes and what they
#                        wrap; of bound methods and partials what they are bound to
#     what code reads    of functions and classes of users: the global names in their code, also of
#                        modules (a factor that another module has set), and the attributes of their
#                        classes
#     files              that it names: a path, or a text that is the path of a file; of a folder
#                        all files in it, but not of a folder of code or one above the current
#                        folder: what code reads there, it names
#     variables          of the environment that the code of users reads by their names
#
# An object without visible content (of a C library, an open file, a generator) cannot be followed;
# neither can an import or an environment variable of a computed name, nor a folder of very many
# files. Then the key says so, and nothing that was made with it is used in another process.
#
# Everything is taken in an order of its own (sets and attributes sorted), so that a key is the same
# in every process. The order of a dictionary counts where it holds more than plain values: it may
# be the order of steps. What is found by a global name waits in a list, so that a chain of
# functions needs no recursion.

_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
_MOST_OBJECTS = 200_000
_MOST_FILES = 64
"""Files whose content is read for a key; of more, and of large ones, size and time count."""
_LONGEST_PATH, _MOST_PATHS, _NO_PATH = 255, 100_000, frozenset("\n\0")
_MOST_IN_FOLDER = 10_000
"""Files of one folder that are followed, each by size and time at least."""
_LEFT_OUT = frozenset(("__pycache__", ".git"))
_OUTER = 3
"""Within how many levels of the value whose key is taken the sources of installed packages are
followed.
"""
_NAMED = 16
"""Items up to which those of a list of plain values are taken one by one, which is slower."""
_LARGE = 1 << 20
"""Bytes from which an array's digest is kept in the process."""
_NEUTRAL: tuple[type, ...] = (
    logging.Logger,
    type(threading.Lock()),
    type(threading.RLock()),
    type(NotImplemented),
    type(Ellipsis),
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
"""Types whose values hold nothing that a result depends on: their names identify them."""
_CONTAINERS: tuple[type, ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
)
_COMPUTED_ONCE = (functools.cached_property,)
_METHODS_OF_CLASSES = (
    staticmethod,
    classmethod,
    property,
    functools.partialmethod,
    functools.cached_property,
)


@dataclass(frozen=True, slots=True)
class FollowedCode:
    """The ``digest`` of values and their code; ``unfollowed`` has a phrase for each value whose
    code cannot be read.
    """

    digest: str
    unfollowed: tuple[str, ...]


def digest_code(*values: object) -> str:
    """The digest of the code that ``values`` (objects, functions) run, and of what they hold."""
    return followed_code(*values).digest


def followed_code(*values: object) -> FollowedCode:
    """The digest of ``values``, and what of them no digest can follow: equal digests say
    nothing then.
    """
    walk = _Walk()
    with gc_paused(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reducing some iterators is deprecated
        try:
            roots = [walk.digest(value) for value in values]
            reached = walk.reached()
        except RecursionError:
            return FollowedCode(
                digest_plain([]), ("an object that holds others more than a hundred levels deep",)
            )
    files = walk.files
    parts = [roots, reached, sorted(files.files.items()), sorted(files.versions.items())]
    return FollowedCode(digest_plain(parts), tuple(sorted({*walk.unfollowed, *files.unfollowed})))


def _held_items(value: Mapping[Any, Any]) -> dict[Any, Any]:
    """What a dict holds, also where its class has another ``items``."""
    if isinstance(value, dict):
        return dict(dict.items(value))
    return dict(value.items())


class _Walk:
    """One walk through what values hold."""

    def __init__(self) -> None:
        self.files = SourceFiles()
        self.unfollowed: dict[str, None] = {}
        # the object is kept, so that no other gets its id
        self._known: dict[int, tuple[object, str]] = {}
        self._open: dict[int, int] = {}
        self._later: list[tuple[str, object]] = []
        self._labels: dict[str, str] = {}
        self._held: dict[str, object] = {}
        self._paths: dict[str, str] = {}
        self._files_read = 0
        self._within_own = 0

    def reached(self) -> list[tuple[str, str]]:
        """The digests of all that code reads by a global name, by that name."""
        while self._later:
            label, value = self._later.pop()
            self._labels[label] = self.digest(value)
        return sorted(self._labels.items())

    def _read_later(self, label: str, value: object) -> str:
        """Add ``value`` to those that are read after all others. Gives the label by which
        ``reached`` names it.
        """
        while label in self._labels and self._held[label] is not value:
            label += " again"  # a module that was loaded twice
        if label not in self._labels:
            self._labels[label], self._held[label] = "", value
            self._later.append((label, value))
        return label

    def digest(self, value: object) -> str:
        """The digest of one value; equal for equal content, whatever the process."""
        if type(value) in _PLAIN:
            return self._plain(value)
        identity = id(value)
        if identity in self._known:
            return self._known[identity][1]
        if identity in self._open:
            return f"cycle {len(self._open) - self._open[identity]}"
        if len(self._known) > _MOST_OBJECTS:
            self._cannot(f"more than {_MOST_OBJECTS:,} objects")
            return ""
        self._open[identity] = len(self._open)
        found = digest_bytes("\n".join(self._parts(value)).encode("utf-8", "backslashreplace"))
        del self._open[identity]
        self._known[identity] = (value, found)
        return found

    def _cannot(self, what: str) -> None:
        self.unfollowed[what] = None

    def _plain(self, value: object) -> str:
        if isinstance(value, str):
            named = self._file_named(value)
            text = (
                value
                if len(value) <= _LONGEST_PATH
                else digest_bytes(value.encode("utf-8", "surrogatepass"))
            )
            return f"{text!r}{named}"
        if isinstance(value, bytes) and len(value) > _LONGEST_PATH:
            return f"bytes {digest_bytes(value)}"
        return f"{type(value).__name__} {value!r}"

    def _file_named(self, text: str, folder: Path | None = None, *, is_path: bool = False) -> str:
        """The content of the file or folder that ``text`` is the path of; empty: it is none.

        Args:
            folder: that the path is relative to; None: the current one.
            is_path: whether ``text`` is surely a path.
        """
        looks_so = is_path or (("." in text or "/" in text) and text.strip("./") != "")
        if (
            self._within_own
            or not looks_so
            or len(text) > _LONGEST_PATH
            or _NO_PATH.intersection(text)
        ):
            return ""
        path = text if folder is None else str(folder / text)
        if path not in self._paths:
            if len(self._paths) >= _MOST_PATHS:
                self._cannot(f"more than {_MOST_PATHS:,} texts that may be paths")
                return ""
            self._paths[path] = self._state_of_path(path)
        return self._paths[path]

    def _state_of_path(self, path: str) -> str:
        if not os.path.isdir(path):
            return self._state_of_file(path)
        if is_of_code(path):
            return ""
        found = []
        for top, folders, files in os.walk(path):
            folders[:] = sorted(one for one in folders if one not in _LEFT_OUT)
            for name in sorted(files):
                file = os.path.join(top, name)
                found.append(f"{os.path.relpath(file, path)} {self._state_of_file(file)}")
            if len(found) > _MOST_IN_FOLDER:
                self._cannot(f"the folder '{path}', which has more than {_MOST_IN_FOLDER:,} files")
                return ""
        return f"folder {digest_bytes(os.fsencode(chr(10).join(found)))}"

    def _state_of_file(self, path: str) -> str:
        found = file_state(path, is_read=self._files_read < _MOST_FILES)
        self._files_read += bool(found)
        return found

    def _parts(self, value: object) -> list[str]:
        for kinds, method in _KINDS:
            if isinstance(value, kinds):
                own = method(self, value)
                return (
                    own
                    if isinstance(value, type | types.FunctionType)
                    else [*own, *self._state(value)]
                )
        return self._object(value)

    # Code.

    def _add_source(self, module: str, file: Path | None) -> None:
        """Add the source of ``module`` to the key; for an installed package only its version, where
        a value merely holds something from it.
        """
        if len(self._open) > _OUTER and file is not None and is_installed(file):
            self.files.add_version(module.partition(".")[0])
        else:
            self.files.add_module(module, file)

    def of_module(self, module: types.ModuleType) -> list[str]:
        self.files.add_module(module.__name__, file_of_module(module.__name__))
        return ["module", module.__name__]

    def of_class(self, one: type) -> list[str]:
        parts = ["class"]
        for base in one.__mro__:
            module, file = _module_of(base), file_of_class(base)
            parts.append(f"{module}:{base.__qualname__}")
            self._add_source(module, file)
            if is_users(module, file):
                parts += self._class_attributes(base)
        return parts if type(one) is type else [*parts, self.digest(type(one))]

    def _class_attributes(self, one: type) -> Iterator[str]:
        for name, value in sorted(vars(one).items()):
            is_code = isinstance(value, (types.FunctionType, *_METHODS_OF_CLASSES))
            if name.startswith("_abc_") or (
                name.startswith("__") and name.endswith("__") and not is_code
            ):
                continue
            label = f"{_module_of(one)}:{one.__qualname__}.{name}"
            if is_code and "<locals>" not in label:
                yield self._read_later(label, value)
            else:
                yield f"{name} {self.digest(value)}"

    def of_function(self, function: types.FunctionType) -> list[str]:
        code = function.__code__
        # A wrapper's __module__ is that of the wrapped function; its globals are its own.
        module = str(function.__globals__.get("__name__") or "")
        file = Path(code.co_filename)
        self._add_source(module, file)
        has_file = file.is_file()
        parts = ["function", f"{module}:{function.__qualname__}", str(code.co_firstlineno)]
        if not has_file or "<" in function.__qualname__:
            parts += self.of_code(code)
        is_held = is_own(module)
        self._within_own += is_held
        defaults = (
            *(function.__defaults__ or ()),
            *sorted((function.__kwdefaults__ or {}).items()),
        )
        parts += [self.digest(one) for one in defaults]
        parts += [
            f"{name} {self.digest(cell)}"
            for name, cell in zip(code.co_freevars, _cells(function), strict=True)
        ]
        parts += [f"{name} {self.digest(one)}" for name, one in sorted(vars(function).items())]
        self._within_own -= is_held
        if is_users(module, file if has_file else file_of_module(module)):
            parts += self._reads(function, file.parent if has_file else None)
        return parts

    def of_code(self, code: types.CodeType) -> list[str]:
        """Instructions and constants, those of inner functions too."""
        parts = [code.co_code.hex(), *code.co_names, *code.co_varnames]
        for one in code.co_consts:
            parts += self.of_code(one) if isinstance(one, types.CodeType) else [self.digest(one)]
        return parts

    def _reads(self, function: types.FunctionType, folder: Path | None) -> list[str]:
        """The global names that the code of ``function`` reads, and the files that its
        constants name.
        """
        names, texts = set[str](), set[str]()
        for code in _codes(function.__code__):
            names.update(code.co_names)
            texts.update(one for one in code.co_consts if type(one) is str)
        space, package = function.__globals__, str(function.__globals__.get("__package__") or "")
        self._later_of(str(space.get("__name__") or ""), space, names)
        if "modules" in names:  # sys.modules["name"]
            names |= {text for text in texts if text in sys.modules}
        for name in names:
            # a name that is not in the globals may be that of a module imported in the function
            for module in (sys.modules.get(name), sys.modules.get(f"{package}.{name}")):
                if module is not None and name not in space:
                    self._later_of_module(module, names)
        found = [
            f"{text!r} {self._file_named(text) or self._file_named(text, folder)}"
            for text in sorted(texts)
        ]
        if hidden := sorted(texts & _ENVIRONMENT):  # getattr(os, "environ")
            self._cannot(f"{function.__qualname__}: the environment by the text '{hidden[0]}'")
        return [*(each for each in found if not each.endswith(" ")), *self._variables(function)]

    def _variables(self, function: types.FunctionType) -> list[str]:
        """The environment variables that the code of ``function`` reads, with their values."""
        names = set[str]()
        for code in _codes(function.__code__):
            if not _ENVIRONMENT.isdisjoint(code.co_names):
                for line, name in _variables_read(code):
                    if name is None:
                        place = f"{Path(code.co_filename).name} line {line}"
                        self._cannot(f"{place}: an environment variable of a computed name")
                    else:
                        names.add(name)
        return [f"variable {name} {os.environ.get(name)!r}" for name in sorted(names)]

    def _later_of(self, module: str, space: Mapping[str, object], names: set[str]) -> None:
        for name in sorted(names & space.keys()):
            value = space[name]
            if name.startswith("__") and name.endswith("__"):
                continue
            if isinstance(value, types.ModuleType):
                self._later_of_module(value, names)
            elif value is os.environ or value is os.getenv:
                if name not in _ENVIRONMENT:
                    self._cannot(f"{module}: the environment under the name '{name}'")
            elif not _is_foreign(value):
                self._read_later(f"{module}:{name}", value)

    def _later_of_module(self, module: types.ModuleType, names: set[str]) -> None:
        name = module.__name__
        file = file_of_module(name)
        if not is_users(name, file) or name in ("__main__", "builtins"):
            return
        label = f"{name} by {digest_plain(sorted(names & vars(module).keys()))}"
        if label not in self._labels:
            self._labels[label], self._held[label] = "module", module
            self.files.add_module(name, file)
            self._later_of(name, vars(module), names)

    def of_method(self, method: types.MethodType) -> list[str]:
        return ["method", self.digest(method.__func__), self.digest(method.__self__)]

    def of_builtin(self, function: Any) -> list[str]:  # noqa: ANN401 - methods of C types have no common type
        held = function.__self__
        own = "" if held is None or isinstance(held, types.ModuleType) else self.digest(held)
        return [
            "builtin",
            f"{function.__module__ if own == '' else ''}:{function.__qualname__}",
            own,
        ]

    def of_method_of_class(self, value: Any) -> list[str]:  # noqa: ANN401 - several kinds
        names = ("__func__", "fget", "fset", "fdel", "func", "args", "keywords")
        return [
            type(value).__name__,
            *(
                f"{name} {self.digest(getattr(value, name))}"
                for name in names
                if hasattr(value, name)
            ),
        ]

    def of_partial(self, value: "functools.partial[Any]") -> list[str]:
        return [
            "partial",
            self.digest(value.func),
            self.digest(value.args),
            self.digest(value.keywords),
        ]

    def of_cached(self, value: Any) -> list[str]:  # noqa: ANN401 - functools has no public type of it
        return ["cached", self.digest(value.__wrapped__)]

    # Values.

    def of_neutral(self, value: object) -> list[str]:
        return ["neutral", getattr(value, "__qualname__", type(value).__qualname__)]

    def of_typing(self, value: object) -> list[str]:
        return ["typing", repr(value)]

    def of_reference(self, value: "weakref.ref[Any]") -> list[str]:
        return ["reference", self.digest(value())]

    def of_path(self, value: PurePath) -> list[str]:
        return ["path", str(value), self._file_named(str(value), is_path=True)]

    def of_text(self, value: str) -> list[str]:
        return ["text", str.__str__(value)]  # a subclass may have another __str__

    def of_number(self, value: complex) -> list[str]:
        kind = next(one for one in (bool, int, float, complex) if isinstance(value, one))
        return ["number", kind.__repr__(value)]

    def of_buffer(self, value: "bytes | bytearray | memoryview | array.array[Any]") -> list[str]:
        view = memoryview(value)
        return ["buffer", view.format, str(view.shape), digest_bytes(view.tobytes())]

    def of_mapping(self, value: Mapping[Any, Any]) -> list[str]:
        items = _held_items(value)
        pairs = [f"{self.digest(key)}: {self.digest(one)}" for key, one in items.items()]
        is_table = all(type(one) in _PLAIN for one in items.values())
        return ["mapping", *(sorted(pairs) if is_table else pairs)]

    def of_sequence(self, value: list[Any] | tuple[Any, ...]) -> list[str]:
        kind = "list" if isinstance(value, list) else "tuple"
        items = list(value) if isinstance(value, list) else tuple(value)
        if len(items) > _NAMED and _is_plain(items):
            files = [self._file_named(text) for text in _texts(items)]
            return [kind, digest_bytes(marshal.dumps(items, 2)), *filter(None, files)]
        return [kind, *map(self.digest, items)]

    def of_set(self, value: set[Any] | frozenset[Any]) -> list[str]:
        return ["set", *sorted(map(self.digest, value))]

    def of_member(self, value: enum.Enum) -> list[str]:
        return ["member", self.digest(type(value)), value.name, self.digest(value.value)]

    def _object(self, value: object) -> list[str]:
        """Anything else: its numbers, its message, its class and state; what it is made again
        from.
        """
        if value is os.environ:
            self._cannot("os.environ, of which any variable may be read")
            return []
        if is_own(_module_of(type(value))) and "__wrapped__" in getattr(value, "__dict__", {}):
            return ["seen through", self.digest(value.__dict__["__wrapped__"])]
        for taken in (_array_digest, _message_bytes):
            content = taken(value, self)
            if content:
                return ["content", type(value).__qualname__, *content, *self._attributes(value)]
        is_held = is_own(_module_of(type(value)))
        self._within_own += is_held
        state = self._state(value)
        self._within_own -= is_held
        if _has_hidden_state(value):
            state += self._reduced(value)
        return ["object", self.digest(type(value)), *state]

    def _state(self, value: object) -> list[str]:
        """The class of an object, unless its kind says all of it, and its attributes."""
        kind = type(value)
        return [*([] if kind in _EXACT else [self.digest(kind)]), *self._attributes(value)]

    def _attributes(self, value: object) -> list[str]:
        """The attributes and slots of an object, by name, without what its class computes once
        from them.
        """
        kind = type(value)
        held = dict[str, object]()
        for one in kind.__mro__:
            held |= {name: getattr(value, name) for name in _slots(one) if hasattr(value, name)}
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict) and not isinstance(value, type | types.ModuleType):
            held |= {str(name): one for name, one in own.items()}
        made = {
            name
            for one in kind.__mro__
            for name, each in vars(one).items()
            if isinstance(each, _COMPUTED_ONCE)
        }
        return [f"{name} {self.digest(held[name])}" for name in sorted(held) if name not in made]

    def _reduced(self, value: object) -> list[str]:
        try:
            registered = copyreg.dispatch_table.get(type(value))
            made: Any = value.__reduce_ex__(2) if registered is None else registered(value)
            if isinstance(made, str):
                return ["named", _module_with(made, value), made]
            parts: list[Any] = list(made) if isinstance(made, tuple) else [made]
            held = [
                list(one) if isinstance(one, Iterator) else one for one in parts if one is not None
            ]
        except Exception:
            self._cannot(f"an object of {type(value).__module__}.{type(value).__qualname__}")
            return []
        return ["made by", *(self.digest(one) for one in held if one is not type(value))]


def _module_with(name: str, value: object) -> str:
    """The module that has ``value`` under ``name``.

    Raises:
        LookupError: none has; what the value does is not known then.
    """
    for module, held in sorted(sys.modules.items()):
        if getattr(held, "__dict__", {}).get(name) is value:
            return module
    raise LookupError(name)


_Method = Callable[[_Walk, Any], list[str]]
_LRU = type(functools.cache(lambda: None))
_KINDS: tuple[tuple[type | tuple[type, ...], _Method], ...] = (
    (_NEUTRAL, _Walk.of_neutral),
    (types.ModuleType, _Walk.of_module),
    ((types.GenericAlias, types.UnionType), _Walk.of_typing),
    (type, _Walk.of_class),
    (types.FunctionType, _Walk.of_function),
    (types.MethodType, _Walk.of_method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _Walk.of_builtin),
    (_METHODS_OF_CLASSES, _Walk.of_method_of_class),
    (functools.partial, _Walk.of_partial),
    (_LRU, _Walk.of_cached),
    (types.CodeType, _Walk.of_code),
    (weakref.ref, _Walk.of_reference),
    (enum.Enum, _Walk.of_member),
    (PurePath, _Walk.of_path),
    (str, _Walk.of_text),
    ((bytes, bytearray, memoryview, array.array), _Walk.of_buffer),
    ((int, float, complex), _Walk.of_number),
    ((dict, types.MappingProxyType), _Walk.of_mapping),
    ((list, tuple), _Walk.of_sequence),
    ((set, frozenset), _Walk.of_set),
)
"""Kind of value → how it is taken; the first that fits. Anything else is an object."""
_EXACT = frozenset(
    one
    for kinds, _ in _KINDS
    for one in (kinds if isinstance(kinds, tuple) else (kinds,))
    if one not in (type, enum.Enum, PurePath)
) | {type(Path())}
"""Kinds that say all of an object's class; of their subclasses the class counts too."""


def _module_of(one: type) -> str:
    module: object = one.__module__  # a property of some types of C
    return module if isinstance(module, str) else ""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """``code`` and that of inner functions."""
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _codes(one)


def _cells(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that was never bound
            yield None


def _slots(one: type) -> Iterator[str]:
    """The names of the slots that a class of Python adds, as they are read."""
    slots = vars(one).get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else tuple(slots):
        if name not in ("__dict__", "__weakref__"):
            is_private = name.startswith("__") and not name.endswith("__")
            yield f"_{one.__name__.lstrip('_')}{name}" if is_private else name


def _is_foreign(value: object) -> bool:
    """Whether a global name is code of qbench, of the standard library or of an installed
    package: files have it.
    """
    module = getattr(value, "__module__", None)
    if not isinstance(
        value, type | types.FunctionType | types.BuiltinFunctionType
    ) or not isinstance(module, str):
        return False
    is_wrapper = isinstance(value, types.FunctionType) and bool(value.__closure__ or vars(value))
    return not is_wrapper and not is_users(module, file_of_module(module))


def _is_plain(items: Iterable[object]) -> bool:
    """Whether all of ``items``, and those of tuples in it, are plain."""
    kinds = set(map(type, items))
    if kinds <= _PLAIN:
        return True
    return kinds <= _PLAIN | {tuple} and all(_is_plain(one) for one in items if type(one) is tuple)


def _texts(items: Iterable[object]) -> Iterator[str]:
    """The texts in plain ``items``, and in the tuples in it."""
    for one in items:
        if type(one) is str:
            yield one
        elif type(one) is tuple:
            yield from _texts(one)


_ENVIRONMENT = frozenset(("environ", "environb", "getenv", "getenvb", "expandvars"))
_READS = frozenset(("get", "pop", "setdefault", "__getitem__", "__contains__"))


def _variables_read(code: types.CodeType) -> list[tuple[int, str | None]]:
    """The line of each use of the environment in ``code``, and the name of the variable; None:
    it is computed.
    """
    lines = [line for _, _, line in code.co_lines() if line is not None]
    try:
        status = os.stat(code.co_filename)
        used = _environment_used(code.co_filename, status.st_mtime_ns, status.st_size)
    except (OSError, SyntaxError, ValueError):
        return [(code.co_firstlineno, None)]
    first, last = min(lines, default=0), max(lines, default=0)
    return [(start, name) for start, end, name in used if end >= first and start <= last]


@functools.lru_cache(maxsize=256)
def _environment_used(file: str, time: int, size: int) -> tuple[tuple[int, int, str | None], ...]:  # noqa: ARG001
    """First and last line of each use of the environment in ``file``, and the name of the variable.

    Raises:
        OSError, SyntaxError, ValueError: the file, as it is since ``time``, cannot be read or is no
            Python.
    """
    tree = ast.parse(Path(file).read_bytes())
    above = {below: node for node in ast.walk(tree) for below in ast.iter_child_nodes(node)}
    found = list[tuple[int, int, str | None]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if any(
                one.name in _ENVIRONMENT and one.asname not in (None, one.name)
                for one in node.names
            ):
                found.append((node.lineno, node.end_lineno or node.lineno, None))
        elif isinstance(node, ast.Name | ast.Attribute) and _name_of(node) in _ENVIRONMENT:
            found.append((node.lineno, node.end_lineno or node.lineno, _variable_of(node, above)))
    return tuple(found)


def _name_of(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _variable_of(node: ast.expr, above: Mapping[ast.AST, ast.AST]) -> str | None:
    """The name of the variable that is read where ``node`` is ``os.environ`` or ``os.getenv``;
    None: it is computed.
    """
    around = above.get(node)
    if isinstance(around, ast.Attribute) and around.attr in _READS:
        node, around = around, above.get(around)
    named: ast.AST | None = None
    if isinstance(node, ast.Name | ast.Attribute) and _name_of(node) == "expandvars":
        return None
    if isinstance(around, ast.Call) and around.func is node and around.args:
        named = around.args[0]
    elif isinstance(around, ast.Subscript) and around.value is node:
        named = around.slice
    elif (
        isinstance(around, ast.Compare)
        and len(around.ops) == 1
        and isinstance(around.ops[0], ast.In | ast.NotIn)
    ):
        named = around.left
    is_text = isinstance(named, ast.Constant) and isinstance(named.value, str | bytes)
    return os.fsdecode(named.value) if is_text else None  # type: ignore[union-attr]


def _has_hidden_state(value: object) -> bool:
    """Whether a C type may hold what no attribute shows."""
    kind = type(value)
    if kind in copyreg.dispatch_table or isinstance(value, io.IOBase):
        return True  # from Python 3.12 on, files show no constructor of C
    if not any("__dict__" in vars(one) or "__slots__" in vars(one) for one in kind.__mro__):
        return True
    made_by = [
        vars(one).get("__new__")
        for one in kind.__mro__
        if one is not object and one not in _CONTAINERS
    ]
    return any(isinstance(one, types.BuiltinFunctionType) for one in made_by)


def _array_digest(value: Any, walk: _Walk) -> list[str]:  # noqa: ANN401 - arrays of any library
    """The numbers of an array, a numpy scalar, a tensor or a picture; empty for other values."""
    kind = type(value)
    if "numpy" not in sys.modules or not any(
        hasattr(kind, name) for name in ("__array__", "__array_interface__")
    ):
        return []
    import numpy as np

    # a slice has the offset of its parent, so only a whole map says what of the file it holds
    is_whole_map = isinstance(value, np.memmap) and isinstance(value.base, mmap.mmap)
    if is_whole_map and value.mode == "r" and value.filename is not None:
        mapped = [str(value.filename), str(value.offset), str(value.shape), value.dtype.str]
        return [*mapped, file_state(str(value.filename), is_read=False)]
    try:
        found = np.asarray(value.detach().cpu() if hasattr(kind, "detach") else value)
    except Exception:
        return []
    if found.dtype.hasobject:
        return [str(found.shape), *map(walk.digest, found.ravel().tolist())]
    return [found.dtype.str, str(found.shape), _bytes_digest(found)]


def _bytes_digest(found: Any) -> str:  # noqa: ANN401 - an array; numpy may not be loaded
    if found.nbytes < _LARGE:
        return digest_bytes(found.tobytes())
    state = hashlib.sha256()
    for row in found if found.ndim > 1 else (found,):
        state.update(row.tobytes())
    return state.hexdigest()


def _message_bytes(value: Any, walk: _Walk) -> list[str]:  # noqa: ANN401, ARG001 - graphs of any library
    """The bytes of a protobuf message or a graph of ``onnx_ir``; empty for other values."""
    try:
        if type(value).__module__.startswith("onnx_ir") and type(value).__name__ == "Model":
            value = sys.modules["onnx_ir"].to_proto(value)
        if hasattr(type(value), "SerializeToString") and hasattr(type(value), "DESCRIPTOR"):
            return [digest_bytes(value.SerializeToString(deterministic=True))]
    except Exception:
        return []
    return []
