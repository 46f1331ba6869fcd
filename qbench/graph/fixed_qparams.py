"""Values whose quantization parameters the model itself fixes."""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from qbench.graph.query import read_entry
from qbench.numerics import QParams, QType

_KEY = "qbench.pinned"


class PinKind(enum.Enum):
    """What is fixed about a value."""

    QPARAMS = "grid"  # stored name
    DYNAMIC = "dynamic"
    FLOAT = "float"


@dataclass(frozen=True, slots=True)
class Pin:
    """A value's fixed treatment.

    Args:
        kind: which of the three.
        source: what fixed it, in words.
        qparams: of a ``qparams``.
        qtype: of a ``dynamic`` one.
    """

    kind: PinKind
    source: str
    qparams: QParams | None = None
    qtype: QType | None = None


def pin_value(value: ir.Value, pin: Pin) -> bool:
    """Write ``pin`` into ``value``; True when it was not there already."""
    text = _text(pin)
    if value.metadata_props.get(_KEY) == text:
        return False
    value.metadata_props[_KEY] = text
    return True


def pin_of(value: ir.Value | None) -> Pin | None:
    """The pin of ``value``, if it has one.

    Raises:
        InputError: the metadata is none of ours.
    """
    return (
        None
        if value is None
        else read_entry(value.metadata_props, _KEY, f"value '{value.name}'", _pin)
    )


def is_pinned(value: ir.Value | None) -> bool:
    """Whether ``value`` has a pin."""
    return value is not None and _KEY in value.metadata_props


def _text(pin: Pin) -> str:
    table: dict[str, object] = {"kind": pin.kind.value, "source": pin.source}
    if pin.qparams is not None:
        qparams = pin.qparams
        table |= {
            "qtype": qparams.qtype.name,
            "scale": qparams.scale.tolist(),
            "zero_point": qparams.zero_point.tolist(),
            "axis": qparams.axis,
            "block_size": qparams.block_size,
            "narrow_range": qparams.narrow_range,
            **stored_scales(qparams),
        }
    elif pin.qtype is not None:
        table["qtype"] = pin.qtype.name
    return json.dumps(table)


def stored_scales(qparams: QParams) -> dict[str, object]:
    """How the scales of ``qparams`` are stored, as keys of a table; empty: as float32."""
    if qparams.scale_type is None:
        return {}
    whole = {} if qparams.tensor_scale is None else {"tensor_scale": qparams.tensor_scale}
    return {"scale_type": qparams.scale_type.name, **whole}


def _pin(table: Mapping[str, Any]) -> Pin:
    kind = PinKind(table["kind"])
    if not isinstance(table["source"], str):
        raise TypeError("a source that is not text")
    qtype = None if kind is PinKind.FLOAT else QType.parse(table["qtype"])
    if kind is not PinKind.QPARAMS or qtype is None:
        return Pin(kind, table["source"], qtype=qtype)
    qparams = QParams(
        table["scale"],
        table["zero_point"],
        qtype,
        axis=table["axis"],
        block_size=table["block_size"],
        narrow_range=table["narrow_range"],
        scale_type=table.get("scale_type"),
        tensor_scale=table.get("tensor_scale"),
    )
    return Pin(kind, table["source"], qparams)
