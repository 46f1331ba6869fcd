"""What a backend takes, in words about graphs: the planner turns each limit into a visible refusal."""

import enum
from dataclasses import dataclass


class Form(enum.Enum):
    """The four forms of a graph."""

    FLOAT = "float"
    QDQ = "qdq"
    QOPERATOR = "qoperator"
    INTEGER = "integer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Limits of one backend.

    Args:
        forms: the graph forms it runs.
        activation_qtypes, weight_qtypes: names of the grids it has (``int8``, ``uint8``, …).
        weight_per_channel: whether weights may carry one scale a channel.
        max_opset: of the default ONNX domain, for graphs it is handed.
        max_macs: the largest network, in multiply-accumulates of one sample, that it runs in useful time; None: any.
    """

    forms: frozenset[Form] = frozenset({Form.FLOAT, Form.QDQ})
    activation_qtypes: frozenset[str] = frozenset({"int8", "uint8"})
    weight_qtypes: frozenset[str] = frozenset({"int8", "uint8"})
    weight_per_channel: bool = True
    max_opset: int = 24
    max_macs: int | None = None
