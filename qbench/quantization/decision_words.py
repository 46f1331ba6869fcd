"""One decision in words and numbers that tell any two apart."""

import zlib

from qbench.numerics import QParams
from qbench.quantization.decision import Decision, Derived, Dynamic, Fixed, Given, KeptFloat, Shared, Static


def describe(decision: Decision, within: str = "") -> str:
    """``decision`` in one line; slots of the unit ``within`` without its name."""
    match decision:
        case Static(qparams, note):
            return numbers(qparams) + (f" ({note})" if note else "")
        case Fixed(qparams):
            return f"{numbers(qparams)}, fixed by the operator"
        case Shared(qparams, source):
            return f"{numbers(qparams)}, shared with '{source}'"
        case Derived(qparams, sources, note):
            slots = " and ".join(source.removeprefix(f"{within}.") for source in sources)
            return f"{numbers(qparams)}, derived from {slots}" + (f" ({note})" if note else "")
        case Given(qparams, source):
            return f"{numbers(qparams)}, given by {source}"
        case Dynamic(qtype):
            return f"{qtype} computed at run time"
        case KeptFloat(reason):
            return f"float, {reason}"


def numbers(qparams: QParams) -> str:
    """A grid's parameters; of many channels or blocks the ends, and a checksum that tells two sets apart."""
    narrow = " narrow" if qparams.narrow_range else ""
    if qparams.axis is None:
        return f"{qparams.qtype}{narrow} scale {qparams.scale:.9g} zero point {qparams.zero_point}"
    points = sorted({int(p) for p in qparams.zero_point.reshape(-1)})
    point = points[0] if len(points) == 1 else f"{points[0]} … {points[-1]}"
    low, high = qparams.scale.min(), qparams.scale.max()
    blocks = "" if qparams.block_size is None else f" in blocks of {qparams.block_size}"
    ends = f"scales {low:.9g} … {high:.9g}" if low < high else f"equal scales {low:.9g}"
    count = f"{qparams.scale.size} {ends} along axis {qparams.axis}{blocks}"
    return f"{qparams.qtype}{narrow} {count} zero point {point} (#{_checksum(qparams)})"


def _checksum(qparams: QParams) -> str:
    return f"{zlib.crc32(qparams.scale.tobytes() + qparams.zero_point.tobytes()):08x}"
