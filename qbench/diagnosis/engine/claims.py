"""Which arithmetic an engine claims to count by on this processor, and who may be watched in its place.

ONNX Runtime's fused graphs sum u8 × s8 products exactly with VNNI or in precise mode (``ort-x64``), in pairs of 16 bits
on AVX2 without it (``ort-x64-avx2``), and exactly, but without fused multiply-adds, below AVX2 (``ort-x64-sse``).
Graphs that nothing fuses are counted in reals, which ``ideal`` does exactly.
"""

from qbench.backends import Backend, IntegerBackend, Level, OrtBackend, PartitionedBackend
from qbench.diagnosis.patient import watches_itself
from qbench.host import processor_class
from qbench.numerics import Arithmetic, get_arithmetic

_UNFUSED = frozenset({Level.NONE, Level.BASIC})
"""Levels of optimization at which the pairs stay around every operator."""


def arithmetic_of(backend: Backend) -> Arithmetic | None:
    """How ``backend`` claims to count the integers of a quantized graph here; None: nobody has written it down.

    A device counts its islands so, and another Python what the backend does that it mirrors.
    """
    if isinstance(backend, IntegerBackend):
        return backend.arithmetic
    if isinstance(backend, PartitionedBackend):
        return backend.device.arithmetic
    for part in ("like", "engine"):  # what another Python mirrors; the session behind a lowering
        inner = getattr(backend, part, None)
        if isinstance(inner, Backend):
            return arithmetic_of(inner)
    name = _name_of(backend)
    return None if name is None else get_arithmetic(name)


def stand_in(backend: Backend) -> Backend | None:
    """Who is watched in place of ``backend``: itself where taps change nothing, else the machine of its arithmetic.

    None: it has no arithmetic that we know.
    """
    if watches_itself(backend) or runs_as_written(backend):
        return backend
    arithmetic = arithmetic_of(backend)
    return None if arithmetic is None else IntegerBackend(arithmetic=arithmetic)


def runs_as_written(backend: Backend) -> bool:
    """Whether the engine fuses nothing, so that a tap stops no fusion."""
    is_bare = isinstance(backend, OrtBackend) and backend.optimization.level is Level.NONE
    return is_bare or backend.name == "onnx-reference"


def _name_of(backend: Backend) -> str | None:
    if backend.name == "onnx-reference":
        return "ideal"
    if not isinstance(backend, OrtBackend):
        return None
    if backend.optimization.level in _UNFUSED:
        return "ideal"
    return fused_arithmetic(processor_class(), precise=backend.precise)


def fused_arithmetic(processor: str, *, precise: bool) -> str | None:
    """The machine that ONNX Runtime's integer kernels are on a ``processor`` of that class; None: none of ours."""
    if not processor.startswith("x64-"):
        return None
    if processor == "x64-sse":
        return "ort-x64-sse"
    return "ort-x64" if precise or processor.endswith("-vnni") else "ort-x64-avx2"
