"""The backends that can be asked for by name."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from qbench.backends.onnx_reference import OnnxReferenceBackend
from qbench.backends.ort import OrtBackend
from qbench.backends.protocol import Backend
from qbench.extension import Catalogue, Extension, installed_extensions

_OWN: Mapping[str, Callable[[], Backend]] = MappingProxyType(
    {
        "ort-cpu": lambda: OrtBackend(name="ort-cpu"),
        "ort-cpu-noopt": lambda: OrtBackend(name="ort-cpu-noopt", optimized=False),
        "ort-cpu-precise": lambda: OrtBackend(name="ort-cpu-precise", precise=True),
        "onnx-reference": OnnxReferenceBackend,
    }
)


def catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[Backend]:
    """Our backends and those of ``extensions``.

    Raises:
        InputError: two owners define one name.
    """
    return Catalogue("backend", _OWN).extended(extensions)


def get_backend(name: str) -> Backend:
    """The backend called ``name``, installed extensions included.

    Raises:
        InputError: no such backend; the nearest one is suggested.
    """
    return catalogue(installed_extensions()).get(name)
