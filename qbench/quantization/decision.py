"""What is decided about one slot: parameters and where they come from, or float and why."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from qbench.calibration import Unit
from qbench.graph import Capabilities, input_at
from qbench.numerics import QParams, QType
from qbench.quantization.spec import Role, Slot, constant_dtype

BY_SCHEMA = "the schema"
"""The source of given parameters that a schema fixes."""
BY_FILE = "the ranges file "
"""Begins the source of given parameters that a ranges file sets (``by_hand``)."""


@dataclass(frozen=True, slots=True)
class Static:
    """Parameters chosen for the range of this value; ``note`` says what changed them."""

    qparams: QParams
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Parameters that the operator's own range gives, whatever was profiled."""

    qparams: QParams


@dataclass(frozen=True, slots=True)
class Shared:
    """The parameters of another value, whose elements are moved, or as the schema says so."""

    qparams: QParams
    source: str


@dataclass(frozen=True, slots=True)
class Derived:
    """Parameters computed from those of other slots: a bias at scale(input) · scale(weight);
    ``note`` as in Static.
    """

    qparams: QParams
    sources: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Parameters computed from every batch at run time, in the type ``qtype``, asymmetric, one
    pair per tensor.
    """

    qtype: QType


@dataclass(frozen=True, slots=True)
class Given:
    """Parameters that were given: by a hand-placed Q/DQ pair, an imported model, a schema or a
    ranges file.
    """

    qparams: QParams
    source: str


@dataclass(frozen=True, slots=True)
class KeptFloat:
    """No parameters."""

    reason: str


Decision = Static | Fixed | Shared | Derived | Given | Dynamic | KeptFloat


def qparams_of(decision: Decision) -> QParams | None:
    """The parameters that are known beforehand; None: float, or computed at run time."""
    return None if isinstance(decision, KeptFloat | Dynamic) else decision.qparams


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
    """Qparams in words; of many channels or blocks the ends, and a checksum that tells two sets
    apart.
    """
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


# Whether a backend multiplies the operands of a unit in integers, or runs it in floats between Q
# and DQ.
#
# Where an engine lacks a kernel it computes from dequantized numbers: the accuracy is that of the
# quantized values, the speed that of floats. Such a unit does not count in the share "in integers".

_DYNAMIC = "uint8"
"""What DynamicQuantizeLinear gives."""
_WIDEST = 16
"""Bits of the widest type that a product is quantized to by itself."""


def reason_for_float(unit: Unit, slots: Mapping[Slot, Decision], limits: Capabilities) -> str:
    """Why the backend runs a unit whose operands are all quantized in floats; empty: it
    multiplies integers.

    Args:
        unit: a product and what belongs to it.
        slots: of the unit.
        limits: of the backend.
    """
    if unit.head.op_type in limits.float_products:
        return f"it has no integer {unit.head.op_type}"
    if limits.integer_products is None:
        return ""
    factors = {
        slot: decision for slot, decision in slots.items() if slot.role in (Role.INPUT, Role.WEIGHT)
    }
    operands = [*factors.values()]
    biases = [decision for slot, decision in slots.items() if slot.role is Role.BIAS]
    dynamic = sum(isinstance(decision, Dynamic) for decision in operands)
    if dynamic and (unit.head.op_type, dynamic) not in limits.dynamic_products:
        return (
            f"it has no integer {unit.head.op_type} of values whose parameters are computed at run "
            "time"
        )
    adds = unit.head.op_type == "Gemm" and input_at(unit.head, 2) is not None
    if dynamic and adds and unit.head.op_type in limits.unbiased_dynamic_products:
        return (
            f"it has no integer {unit.head.op_type} with a bias of values whose parameters are "
            "computed at run time"
        )
    names = tuple(
        _DYNAMIC if isinstance(decision, Dynamic) else _qtype_name(slot, decision)
        for slot, decision in factors.items()
    )
    if names not in limits.integer_products:
        types = " by ".join(
            "blocks of their own scales" if name is None else name for name in names
        )
        return f"it has no integer product of {types}"
    return _reason_of_bias(unit, slots, limits, biases)


def _reason_of_bias(
    unit: Unit, slots: Mapping[Slot, Decision], limits: Capabilities, biases: list[Decision]
) -> str:
    """Why the bias of a product of integers that the backend has puts it in floats; empty: it
    does not.
    """
    product = next(
        (
            qparams
            for s, d in slots.items()
            if s.role is Role.CORRELATION and (qparams := qparams_of(d))
        ),
        None,
    )
    narrow = product is not None and product.qtype.bits <= _WIDEST
    split = any(slot.role is Role.BIAS and slot.node != unit.name for slot in slots)
    if all(isinstance(decision, Derived | KeptFloat) for decision in biases):
        real = split and not narrow and unit.head.op_type in limits.requantized_products
        return "its bias is split off, and it has no product whose result is real" if real else ""
    if product is not None and narrow:  # its bias is added to codes of that type
        kinds = {kind for kind, _ in limits.integer_products or ()}
        return (
            ""
            if product.qtype.name in kinds
            else f"it has no integer product with a result of {product.qtype}"
        )
    if split and unit.head.op_type == "Gemm":
        return ""  # its product leaves the integers before the sum
    own = [
        qparams.qtype.name for decision in biases if (qparams := qparams_of(decision)) is not None
    ]
    if all(isinstance(decision, Static) for decision in biases) and all(
        map(limits.adds_off_product, own)
    ):
        return ""
    return "the bias is not at the scale of the product"


def _qtype_name(slot: Slot, decision: Decision) -> str | None:
    """The name of its type; None where it has none, or one per block.

    Of a weight it is the type that stores the codes: an engine reads int7 as int8. Codes of an
    activation in 7 bits are clipped, which no kernel does.
    """
    qparams = qparams_of(decision)
    if qparams is None or qparams.block_size is not None:
        return None
    qtype = qparams.qtype
    if slot.role is not Role.WEIGHT or qtype.is_float:
        return qtype.name
    return constant_dtype(qtype).name.lower()


def quantized_weights(decisions: Mapping[Slot, Decision]) -> frozenset[str]:
    """The nodes of which a weight has qparams."""
    return frozenset(
        slot.node
        for slot, decision in decisions.items()
        if slot.role is Role.WEIGHT and qparams_of(decision) is not None
    )
