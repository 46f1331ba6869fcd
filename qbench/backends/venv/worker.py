"""The child's end of a worker process: messages, and the stand-alone program that runs a model
in its own process.

A message is a JSON header and arrays; the header is checked before memory is allocated. ``serve``
replies to messages with any handler. Under another Python the handler is one ONNX Runtime session,
and qbench is not needed there.
"""

from __future__ import annotations

import importlib
import json
import math
import mmap
import os
import platform
import signal
import struct
import sys
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

TEXT = "text"
NUMBERS = frozenset(
    [
        "|b1",
        "|i1",
        "|u1",
        "<i2",
        "<u2",
        "<i4",
        "<u4",
        "<i8",
        "<u8",
        "<f2",
        "<f4",
        "<f8",
        "<c8",
        "<c16",
    ]
)
"""The dtypes of arrays in a message, with their byte order; no objects and no structures."""
MOST_HEADER = 1 << 26
MOST_BYTES = 1 << 34
"""Largest size of a header, and of all arrays of a message."""
MOST_DIMENSIONS = 32
_LENGTH = struct.Struct("<Q")
_LOOK_AGAIN = 0.5
"""Seconds between two checks whether the parent is alive."""
_SHARED_FROM = 1 << 16
"""Size of an array from which it travels through shared memory, where there is some; a pipe
holds about as much.
"""
_ALIGNED = 64
"""Arrays in shared memory start at multiples of this: a line of the cache, and the widest
vector.
"""

Message = Tuple[Dict[str, Any], Dict[str, Any]]
"""A header and arrays by name."""
_Listed = Tuple[str, str, Tuple[int, ...], int, Optional[int]]
"""Name, dtype, shape, size in bytes, and the place in shared memory; None: in the pipe."""


class NotImplemented(Exception):  # noqa: A001, N818 - the engine's own name for what it cannot do
    """This version of the engine lacks a feature."""


class NoDeviceError(Exception):
    """A plugin execution provider is installed and offers no device on this computer."""


class NoLibraryError(Exception):
    """The library of a plugin execution provider is not there, or does not load."""


class GarbledError(Exception):
    """The received bytes are not a message."""


class UnsendableError(Exception):
    """An array has a dtype that a message cannot hold; nothing was sent."""


class SharedMemory:
    """Memory of one direction of a connection: the kernel copies no array that travels through it.

    Args:
        descriptor: of a file in memory (``os.memfd_create``), which both ends map.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._map: Any = None

    def room(self, size: int) -> memoryview:
        """The first ``size`` bytes, to be written; what an earlier message put there is lost."""
        if self._map is None or len(self._map) < size:
            os.ftruncate(self._descriptor, size)
            self._map = mmap.mmap(self._descriptor, size)
        return memoryview(self._map)[:size]

    def part(self, start: int, size: int) -> memoryview:
        """``size`` bytes from ``start``, valid until the next message.

        Raises:
            GarbledError: there are fewer.
        """
        if self._map is None or len(self._map) < start + size:
            there = os.fstat(self._descriptor).st_size
            if there < start + size:
                raise GarbledError("an array beyond the end of the shared memory")
            self._map = mmap.mmap(self._descriptor, there)
        return memoryview(self._map)[start : start + size]


def write_message(
    file: Any,  # noqa: ANN401 - a pipe or a socket
    header: Mapping[str, Any],
    arrays: Mapping[str, Any],
    shared: SharedMemory | None = None,
) -> None:
    """Send one message, its large arrays through ``shared`` where there is some.

    ``file`` has ``write`` and ``flush``, which of ``read_message`` has ``readinto``.

    Raises:
        OSError: the other end was closed.
        UnsendableError: a message cannot hold an array.
    """
    bodies = {name: _body(array) for name, array in arrays.items()}
    places, end = {}, 0
    for name, (dtype, _, body) in bodies.items():
        if shared is not None and dtype != TEXT and len(body) >= _SHARED_FROM:
            places[name] = end
            end += -(-len(body) // _ALIGNED) * _ALIGNED
    if shared is not None and places:
        room = shared.room(end)
        for name, start in places.items():
            room[start : start + len(bodies[name][2])] = bodies[name][2]
    listed = [
        [name, dtype, list(shape), len(body), *([places[name]] if name in places else [])]
        for name, (dtype, shape, body) in bodies.items()
    ]
    text = json.dumps({**header, "arrays": listed}).encode("utf-8")
    file.write(_LENGTH.pack(len(text)) + text)
    for name, (_, _, body) in bodies.items():
        if name not in places:
            file.write(body)
    file.flush()


def read_message(file: Any, shared: SharedMemory | None = None) -> Message:  # noqa: ANN401
    """Wait for one message; its arrays in ``shared`` are valid until the next one.

    Raises:
        EOFError: the other end was closed.
        GarbledError: it is not a message, or beyond a limit.
    """
    (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size))
    if length > MOST_HEADER:
        raise GarbledError("a header of %d bytes" % length)
    text = _exactly(file, length)
    try:
        header = json.loads(text.decode("utf-8"))
        listed = [_checked(*one) for one in header.pop("arrays")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise GarbledError("a header that cannot be read (%s)" % type(error).__name__) from None
    if sum(one[3] for one in listed) > MOST_BYTES:
        raise GarbledError("arrays of more than %d bytes" % MOST_BYTES)
    if len({one[0] for one in listed}) < len(listed):
        raise GarbledError("two arrays of one name")
    if shared is None and any(one[4] is not None for one in listed):
        raise GarbledError("an array in shared memory, of which there is none")
    arrays = {}
    for name, dtype, shape, size, start in listed:
        body = _exactly(file, size) if shared is None or start is None else shared.part(start, size)
        arrays[name] = _array(dtype, shape, body)
    return header, arrays


def _checked(name: Any, dtype: Any, shape: Any, size: Any, start: Any = None) -> _Listed:  # noqa: ANN401
    """One array of a header, if its size is that of its dtype and shape; ``start``: its place
    in shared memory.

    Raises:
        GarbledError: it is not, or one of the five has another type.
    """
    wholes = [size, *shape] if isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS else [None]
    wholes += [] if start is None else [start]
    if not isinstance(name, str) or any(
        type(one) is not int or not 0 <= one <= MOST_BYTES for one in wholes
    ):
        raise GarbledError("an array with an invalid name, shape or size")
    if dtype != TEXT:
        if not isinstance(dtype, str) or dtype not in NUMBERS:
            raise GarbledError("an array of dtype %.40r" % (dtype,))
        if size != math.prod(shape) * int(dtype[2:]):
            raise GarbledError(
                "%d bytes for an array of shape %.200r and dtype %s" % (size, shape, dtype)
            )
    return name, dtype, tuple(shape), size, start


def _exactly(file: Any, size: int) -> bytearray:  # noqa: ANN401
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = file.readinto(view[done:])
        if not count:
            raise EOFError("the other end of the pipe was closed")
        done += count
    return data


def _body(array: Any) -> Tuple[str, Tuple[int, ...], Any]:  # noqa: ANN401, UP006
    import numpy as np

    array = np.asarray(array)
    if array.dtype.kind in "OU":
        body = json.dumps([str(one) for one in array.ravel()]).encode("utf-8")
        return TEXT, array.shape, body
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if little.dtype.str not in NUMBERS:
        raise UnsendableError("an array of dtype %s" % array.dtype)
    return little.dtype.str, array.shape, little.reshape(-1).view(np.uint8).data


def _array(dtype: str, shape: Tuple[int, ...], body: Any) -> Any:  # noqa: ANN401, UP006
    """The array of ``body``.

    Raises:
        GarbledError: no array can have that shape, or it does not hold as many texts.
    """
    import numpy as np

    try:
        if dtype != TEXT:
            return np.ndarray(shape, np.dtype(dtype), body)
        texts = json.loads(body.decode("utf-8"))
        if not all(isinstance(one, str) for one in texts) or len(texts) != math.prod(shape):
            raise GarbledError("texts that do not fit their shape")
        array = np.empty(len(texts), dtype=object)
        array[:] = texts
        return array.reshape(shape)
    except (ValueError, TypeError, RecursionError) as error:
        raise GarbledError("an array that cannot be read (%s)" % error) from None


def _versions() -> Dict[str, str]:  # noqa: UP006
    """Versions of the packages that compute here; importing them tests the installation.

    Raises:
        ImportError: one is missing, or not compatible with another.
    """
    import numpy
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return {"onnxruntime": onnxruntime.__version__, "numpy": numpy.__version__}


def _session(settings: Mapping[str, Any], model: Any) -> Any:  # noqa: ANN401
    """A session of onnxruntime on the CPU with ``settings``, as qbench makes its own."""
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    if not hasattr(levels, settings["level"]):
        lacking = f"onnxruntime {onnxruntime.__version__} has no {settings['level']}"
        raise NotImplemented(lacking)  # noqa: F901 - the class above
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(levels, settings["level"])
    options.intra_op_num_threads = settings["threads"]
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = settings["log"]
    options.enable_mem_pattern = False
    if hasattr(options, "use_deterministic_compute"):
        options.use_deterministic_compute = True
    for name, value in settings["entries"].items():
        options.add_session_config_entry(name, value)
    more = {"disabled_optimizers": set(settings["without"])} if settings["without"] else {}
    provider = settings.get("provider")
    if provider is None:
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], **more
        )
    options.add_provider_for_devices([_device(provider)], provider["options"])
    # By default a failed session would be made again on the CPU, and its error would be that of the
    # second attempt.
    return onnxruntime.InferenceSession(model, options, enable_fallback=False, **more)


# A plugin execution provider: the library registers under the name of the provider, which some of
# them adopt as theirs.


def _device(provider: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The first device of ``provider``, whose library is loaded.

    Raises:
        NotImplemented, NoLibraryError, NoDeviceError: this onnxruntime has no plugins, there is no
            such library, or no such device.
    """
    import onnxruntime

    if not hasattr(onnxruntime, "get_ep_devices"):
        raise NotImplemented(  # noqa: F901 - the class above
            "onnxruntime %s has no plugin execution providers" % onnxruntime.__version__
        )
    if provider["library"]:
        library = _library(provider["library"])
        try:
            onnxruntime.register_execution_provider_library(provider["name"], library)
        except Exception as error:
            raise NoLibraryError("%s (%s)" % (error, library)) from None
    offered = onnxruntime.get_ep_devices()
    kind = provider["device"]
    for one in offered:
        if one.ep_name == provider["name"] and kind in ("", one.device.type.name.lower()):
            return one
    listed = sorted({"%s (%s)" % (one.ep_name, one.device.type.name.lower()) for one in offered})
    raise NoDeviceError("devices of %s only" % (", ".join(listed) or "no provider"))


def _library(named: str) -> str:
    """The file that ``named`` means: a path, or ``module:attribute``, which is a path or a
    function that gives one.
    """
    if os.path.isabs(named):
        return named
    module, _, attribute = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        return str(os.fspath(found() if callable(found) else found))
    except Exception as error:
        raise NoLibraryError("%s: %s" % (type(error).__name__, error)) from None


def _assigned(session: Any) -> Dict[str, str]:  # noqa: UP006, ANN401
    """Node → the provider that runs it; empty: this onnxruntime does not record it."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {}
    parts = session.get_provider_graph_assignment_info()
    return {node.name: part.ep_name for part in parts for node in part.get_nodes()}


class _Engine:
    """The handler of one session of ONNX Runtime."""

    def __init__(self) -> None:
        self._session: Any = None

    def answer(self, header: Mapping[str, Any], arrays: Dict[str, Any]) -> Message:  # noqa: UP006
        """The reply to ``header``."""
        if header["do"] == "prepare":
            self._session = _session(header, header["path"] or arrays.pop("model").tobytes())
            return {}, {}
        if header["do"] == "assigned":
            return {"assigned": _assigned(self._session)}, {}
        names = [output.name for output in self._session.get_outputs()]
        return {}, dict(zip(names, self._session.run(names, arrays)))


def _leave_with_parent() -> None:
    """End this process when its parent has ended, also during a run."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_AGAIN)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _reply(answer: Callable[..., Message], *question: Any) -> Message:  # noqa: ANN401
    """The result of ``answer`` for ``question``, or the error that it raised."""
    try:
        return answer(*question)
    except Exception as error:
        # onnxruntime's exceptions share no public parent; a broken installation raises all kinds
        return {"error": {"kind": type(error).__name__, "text": str(error)}}, {}


def serve(descriptors: Any, greet: Callable[[], Message], answer: Callable[..., Message]) -> None:  # noqa: ANN401
    """Send the message of ``greet``, then reply to each message (header, arrays) by ``answer``,
    until the parent ends.

    ``descriptors`` are file descriptors as texts: the first is read, the second is written. Two
    more are the shared memory of the arrays that are read, and of those that are written.
    """
    # an interrupt is handled by the parent, which ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave_with_parent()
    reading, writing, *memory = descriptors
    theirs, ours = (SharedMemory(int(one)) for one in memory) if memory else (None, None)
    incoming, outgoing = open(int(reading), "rb"), open(int(writing), "wb")  # noqa: SIM115 - open until the end
    reply = _reply(greet)
    while True:
        try:
            try:
                write_message(outgoing, *reply, shared=ours)
            except UnsendableError as error:
                write_message(
                    outgoing, {"error": {"kind": type(error).__name__, "text": str(error)}}, {}
                )
            header, arrays = read_message(incoming, theirs)
        except (EOFError, OSError, GarbledError):
            return
        reply = _reply(answer, header, arrays)


def _greeting() -> Message:
    return {"versions": {**_versions(), "python": platform.python_version()}}, {}


if __name__ == "__main__":
    serve(sys.argv[1:], _greeting, _Engine().answer)
