"""The backends that can be named."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, known_extensions

if TYPE_CHECKING:
    from qbench.backends.protocol import Backend
    from qbench.numerics import Arithmetic


def _ort(name: str) -> "Backend":
    from qbench.backends.ort import ORT_BACKENDS

    return ORT_BACKENDS[name]


def _openvino(name: str, precision: str) -> "Backend":
    from qbench.backends.openvino import OpenvinoBackend

    return OpenvinoBackend(name=name, precision=precision)


def _integer(name: str, make: Callable[[], "Arithmetic"] | None = None) -> "Backend":
    from qbench.backends.integer import IntegerBackend
    from qbench.numerics import get_arithmetic

    return IntegerBackend(arithmetic=get_arithmetic(name) if make is None else make())


def _torch(engine: str) -> "Backend":
    from qbench.backends.torch_quantized import TorchBackend

    return TorchBackend(engine=engine)


def _tvm() -> "Backend":
    from qbench.backends.tvm import TvmBackend

    return TvmBackend()


def _onnx_reference() -> "Backend":
    from qbench.backends.onnx_reference import OnnxReferenceBackend

    return OnnxReferenceBackend()


def _litert(kernels: str) -> "Backend":
    from qbench.backends.litert import LitertBackend

    return LitertBackend(kernels=kernels)


def device_backend(path: Path, arithmetics: "Callable[[str], Arithmetic] | None" = None) -> "Backend":
    """The backend of the device that the TOML file at ``path`` describes.

    Args:
        path: of the file, whose name is that of the device.
        arithmetics: finds the arithmetic that it names; None: among the installed ones.

    Raises:
        InputError: the file does not describe a device.
    """
    from qbench.backends.partitioned import PartitionedBackend
    from qbench.numerics import get_arithmetic
    from qbench.passes import load_device

    return PartitionedBackend(device=load_device(path, arithmetics or get_arithmetic))


_PRESETS = Path(__file__).parents[1] / "numerics" / "presets"
_ARITHMETICS = tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))
"""Names of the built-in arithmetics, by their files: listing backends imports no numerics."""
_DEVICES = Path(__file__).parents[1] / "passes" / "partition" / "devices"
_PARTITIONED = "partitioned-"
_ORT = ("ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "ort-cpu-qoperator")
_TORCH = {f"torch-{engine}": partial(_torch, engine) for engine in ("fbgemm", "onednn", "qnnpack")}

_OWN: Mapping[str, Callable[[], "Backend"]] = MappingProxyType(
    {
        **{name: partial(_ort, name) for name in _ORT},
        "onnx-reference": _onnx_reference,
        "tvm": _tvm,
        "openvino": partial(_openvino, "openvino", "f32"),
        "openvino-bf16": partial(_openvino, "openvino-bf16", "bf16"),
        **_TORCH,
        **{f"litert-{kernels}": partial(_litert, kernels) for kernels in ("reference", "builtin", "xnnpack")},
        **{f"integer-{name}": partial(_integer, name) for name in _ARITHMETICS},
        **{f"{_PARTITIONED}{path.stem}": partial(device_backend, path) for path in sorted(_DEVICES.glob("*.toml"))},
    }
)


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Backend]":
    """The built-in backends and those of ``extensions``, with an interpreter for each of their arithmetics.

    Raises:
        InputError: two owners define one name.
    """
    given = tuple(extensions)
    interpreters = tuple(
        (one.name, {f"integer-{name}": partial(_integer, name, make) for name, make in one.arithmetics.items()})
        for one in given
        if one.arithmetics
    )
    plain = Catalogue("backend", _OWN).extended(given)
    return Catalogue("backend", _OWN, plain.added + interpreters)


def integer_backends(extensions: Iterable[Extension] = ()) -> frozenset[str]:
    """Names of the backends that run no float graph: integer interpreters, devices, and PyTorch's quantized engines.

    No backend is constructed: a device is recognized by its name, ``partitioned-…``.
    """
    given = tuple(extensions)
    names = (*_ARITHMETICS, *(name for one in given for name in one.arithmetics))
    backends = (*_OWN, *(name for one in given for name in one.backends))
    devices = (name for name in backends if name.startswith(_PARTITIONED))
    return frozenset((*(f"integer-{name}" for name in names), *_TORCH, *devices))


def as_backend(backend: "Backend | str") -> "Backend":
    """``backend``, or the one of that name.

    Raises:
        InputError: there is none, or it is neither.
    """
    # not isinstance: a third-party backend may omit optional parts of the protocol
    return backend if hasattr(backend, "prepare") and not isinstance(backend, str) else get_backend(backend)


def get_backend(name: str) -> "Backend":
    """The backend called ``name``, installed extensions included; ``answers:PATH`` are recorded answers.

    Raises:
        InputError: the backend does not exist; the nearest name is suggested.
    """
    if str(name).startswith("answers:"):
        from qbench.backends.answers import ANSWERS_PREFIX, answers_backend

        return answers_backend(Path(name.removeprefix(ANSWERS_PREFIX)))
    return catalogue(known_extensions()).get(name)
