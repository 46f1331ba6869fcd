"""The backends that can be named."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, installed_extensions

if TYPE_CHECKING:
    from qbench.backends.protocol import Backend
    from qbench.numerics import Arithmetic


def _ort_cpu() -> "Backend":
    from qbench.backends.ort import OrtBackend

    return OrtBackend(name="ort-cpu")


def _ort_cpu_noopt() -> "Backend":
    from qbench.backends.ort import Level, Optimization, OrtBackend

    return OrtBackend(name="ort-cpu-noopt", optimization=Optimization(level=Level.NONE))


def _ort_cpu_precise() -> "Backend":
    from qbench.backends.ort import OrtBackend

    return OrtBackend(name="ort-cpu-precise", precise=True)


def _ort_cpu_qoperator() -> "Backend":
    from qbench.backends.ort import LoweredOrtBackend

    return LoweredOrtBackend()


def _integer(name: str, make: Callable[[], "Arithmetic"] | None = None) -> "Backend":
    from qbench.backends.integer import IntegerBackend
    from qbench.numerics import get_arithmetic

    return IntegerBackend(arithmetic=get_arithmetic(name) if make is None else make())


def _onnx_reference() -> "Backend":
    from qbench.backends.onnx_reference import OnnxReferenceBackend

    return OnnxReferenceBackend()


def device_backend(path: Path, arithmetics: "Callable[[str], Arithmetic] | None" = None) -> "Backend":
    """The backend of the device that the TOML file at ``path`` spells.

    Args:
        path: of the file, which is called as its device is.
        arithmetics: what knows those that it may name; None: those that are installed.

    Raises:
        InputError: the file spells no device.
    """
    from qbench.backends.partitioned import PartitionedBackend
    from qbench.numerics import get_arithmetic
    from qbench.passes import load_device

    return PartitionedBackend(device=load_device(path, arithmetics or get_arithmetic))


_PRESETS = Path(__file__).parents[1] / "numerics" / "presets"
_ARITHMETICS = tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))
"""Our own, as their files are called: listing backends loads no numerics."""
_DEVICES = Path(__file__).parents[1] / "passes" / "partition" / "devices"
_PARTITIONED = "partitioned-"

_OWN: Mapping[str, Callable[[], "Backend"]] = MappingProxyType(
    {
        "ort-cpu": _ort_cpu,
        "ort-cpu-noopt": _ort_cpu_noopt,
        "ort-cpu-precise": _ort_cpu_precise,
        "ort-cpu-qoperator": _ort_cpu_qoperator,
        "onnx-reference": _onnx_reference,
        **{f"integer-{name}": partial(_integer, name) for name in _ARITHMETICS},
        **{f"{_PARTITIONED}{path.stem}": partial(device_backend, path) for path in sorted(_DEVICES.glob("*.toml"))},
    }
)


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Backend]":
    """Our backends and those of ``extensions``, with an integer machine for each of their arithmetics.

    Raises:
        InputError: two owners define one name.
    """
    given = tuple(extensions)
    machines = tuple(
        (one.name, {f"integer-{name}": partial(_integer, name, make) for name, make in one.arithmetics.items()})
        for one in given
        if one.arithmetics
    )
    plain = Catalogue("backend", _OWN).extended(given)
    return Catalogue("backend", _OWN, plain.added + machines)


def integer_backends(extensions: Iterable[Extension] = ()) -> frozenset[str]:
    """The backends that are integer interpreters, or devices with one, and run no float graph; none is made for this.

    A device is known by its name, ``partitioned-…``.
    """
    given = tuple(extensions)
    names = (*_ARITHMETICS, *(name for one in given for name in one.arithmetics))
    backends = (*_OWN, *(name for one in given for name in one.backends))
    devices = (name for name in backends if name.startswith(_PARTITIONED))
    return frozenset((*(f"integer-{name}" for name in names), *devices))


def get_backend(name: str) -> "Backend":
    """The backend called ``name``, installed extensions included.

    Raises:
        InputError: no such backend; the nearest one is suggested.
    """
    return catalogue(installed_extensions()).get(name)
