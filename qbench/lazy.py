"""Lazy packages: a public name is loaded from its module when it is first used (PEP 562).

Expanding a suite needs only names and small numbers: a process that does so must not load numpy,
    onnx or engines.

An interrupt, SIGTERM too, waits until a module is loaded: numpy and onnx cannot be loaded again in
the process after a partial import, and the end of an interrupted run needs them to write its files.
"""

import contextlib
import functools
import gc
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

_FREEZING = threading.Lock()
"""Held while objects are frozen here, which is not what other code froze."""
_FROZEN = threading.Event()
"""Set where frozen objects were found."""

Door = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


@contextlib.contextmanager
def loaded_whole() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the end of the block, if Python functions handle them.

    SIGTERM has one inside ``ended_like_interrupted``; otherwise the system ends the process at
    once.
    """
    with _held_back(signal.SIGTERM), _held_back(signal.SIGINT), gc_paused():
        yield


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collector of cycles: other unused objects are freed as always, cycles some time
    after this block.

    Modules, syntax trees and two years of results are many objects without cycles: looking for
    cycles among them takes up to a third of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        with _FREEZING:
            if not _others_froze():  # what other code froze stays so
                # what was made in the block is old: else all of it would be looked through at once
                gc.freeze()
                gc.unfreeze()
        if collects:
            gc.enable()


def _others_froze() -> bool:
    """Whether other code has frozen objects; once it has, that is not asked again, for the answer
    counts them one by one.
    """
    if not _FROZEN.is_set() and gc.get_freeze_count():
        _FROZEN.set()
    return _FROZEN.is_set()


@contextlib.contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    handler = signal.getsignal(number)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(number, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(number, handler)
        if came:
            handler(number, came[0])


def open_on_use(package: str, file: str) -> Door:
    """``__getattr__``, ``__dir__`` and ``__all__`` of ``package``, whose ``__init__`` is ``file``.

    The names are read from the text of ``file``: each is a line ``from MODULE import NAME as NAME``
    under its ``if TYPE_CHECKING``, as mypy and editors read it. They are not parsed: ``ast`` would
    cost more than the rest.
    """
    owners = {}
    with open(file, encoding="utf-8") as text:
        for line in text:
            match line.split():
                case ["from", module, "import", _, "as", name]:
                    owners[name] = module

    def load(name: str) -> Any:  # noqa: ANN401 - of any type
        if name not in owners:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        with loaded_whole():
            value = getattr(importlib.import_module(owners[name]), name)
        setattr(sys.modules[package], name, value)  # a plain attribute from now on
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *owners})

    return load, listed, sorted(owners)


# onnx_ir needs sympy only to compute with symbolic dimensions ("N" + 1), which qbench does not do,
# but imports it first of all: 0.4 s, more than everything else that a short command loads. While
# onnx_ir is loaded, and only then, two names in sys.modules are stand-ins that load their module at
# the first attribute; what imports sympy afterwards gets sympy itself. If a later onnx_ir uses
# sympy at once, the stand-in loads it at once: nothing is gained and nothing breaks.

_DEFERRED = ("sympy", "onnx_ir._symbolic_shapes")


def defer_sympy() -> None:
    """Let this process load onnx_ir without sympy; for the processes that are qbench's own."""
    if "onnx_ir" not in sys.modules and not any(
        isinstance(finder, _OnnxIrFinder) for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _OnnxIrFinder())


class _StandIn(ModuleType):
    """A module that is loaded when an attribute of it is used."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any type
        with contextlib.suppress(KeyError):
            if sys.modules[self.__name__] is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class _OnnxIrFinder:
    """Finds onnx_ir as the finders behind it do, and has it loaded with stand-ins."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of onnx_ir; None: another module, which the finders behind this one
        look for.
        """
        if name != "onnx_ir":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            setattr(spec.loader, "exec_module", functools.partial(_load_with_stand_ins, load))  # noqa: B010 - a method
        return spec


def _load_with_stand_ins(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    stand_ins = {name: _StandIn(name) for name in _DEFERRED if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        load(module)
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
