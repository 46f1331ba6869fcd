"""The backends that can be asked for by name."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, installed_extensions

if TYPE_CHECKING:
    from qbench.backends.protocol import Backend


def _ort_cpu() -> "Backend":
    from qbench.backends.ort import OrtBackend

    return OrtBackend(name="ort-cpu")


def _ort_cpu_noopt() -> "Backend":
    from qbench.backends.ort import OrtBackend

    return OrtBackend(name="ort-cpu-noopt", optimized=False)


def _ort_cpu_precise() -> "Backend":
    from qbench.backends.ort import OrtBackend

    return OrtBackend(name="ort-cpu-precise", precise=True)


def _onnx_reference() -> "Backend":
    from qbench.backends.onnx_reference import OnnxReferenceBackend

    return OnnxReferenceBackend()


_OWN: Mapping[str, Callable[[], "Backend"]] = MappingProxyType(
    {
        "ort-cpu": _ort_cpu,
        "ort-cpu-noopt": _ort_cpu_noopt,
        "ort-cpu-precise": _ort_cpu_precise,
        "onnx-reference": _onnx_reference,
    }
)


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Backend]":
    """Our backends and those of ``extensions``.

    Raises:
        InputError: two owners define one name.
    """
    return Catalogue("backend", _OWN).extended(extensions)


def get_backend(name: str) -> "Backend":
    """The backend called ``name``, installed extensions included.

    Raises:
        InputError: no such backend; the nearest one is suggested.
    """
    return catalogue(installed_extensions()).get(name)
