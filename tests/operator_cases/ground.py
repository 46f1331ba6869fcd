"""What a case is, and what all of them draw: grids with scales that make ties or underflow,
levels at the extremes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
from hypothesis import HealthCheck, Phase, given, settings
from onnx import TensorProto, helper, numpy_helper

ENGINE = "com.microsoft"
_TYPES = {
    name: getattr(TensorProto, name.upper())
    for name in ("uint8", "int8", "uint16", "int16", "int32")
} | {"float32": TensorProto.FLOAT}


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one operator, and one batch for it."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]

    def __repr__(self) -> str:
        """What hypothesis shows of a failure."""
        constants = {
            t.name: numpy_helper.to_array(t).tolist() for t in self.model.graph.initializer
        }
        shown = {
            name: value
            for name, value in constants.items()
            if not isinstance(value, list) or len(value) < 20
        }
        shapes = {name: (array.dtype.name, array.shape) for name, array in self.feeds.items()}
        return f"{self.name} {shapes} {shown}\n{onnx.printer.to_text(self.model.graph.node[0])}"


@dataclass(frozen=True, slots=True)
class Grid:
    """A scale (a number, or one a channel) and a zero point of one type."""

    scale: np.ndarray
    zero: np.ndarray


def one_node(
    op: str, inputs: Sequence[str], feeds: Mapping[str, np.ndarray], out: str,
    constants: Mapping[str, Any], *, domain: str = "", opset: int = 17, **attributes: Any,
) -> Case:  # fmt: skip
    """The case of one node whose inputs are ``feeds`` and ``constants``;
    ``out`` is the result's type.
    """
    node = helper.make_node(op, list(inputs), ["y"], domain=domain, name=op, **attributes)
    graph = helper.make_graph(
        [node], op,
        [helper.make_tensor_value_info(name, _TYPES[a.dtype.name], [None] * a.ndim)
         for name, a in feeds.items()],
        [helper.make_tensor_value_info("y", _TYPES[out], None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(ENGINE, 1)]
    return Case(op, helper.make_model(graph, opset_imports=imports, ir_version=10), dict(feeds))


def drawn(strategy: st.SearchStrategy[Case], count: int) -> list[Case]:
    """``count`` cases or fewer, the same in every run."""
    found: list[Case] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def take(case: Case) -> None:
        found.append(case)

    take()
    return found


def generators() -> st.SearchStrategy[np.random.Generator]:
    """Sources of array contents."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


@st.composite
def scales(draw: st.DrawFn, low: float = 1e-3, high: float = 1.0) -> np.float32:
    """Generic ones, and powers of two, which make ties."""
    if draw(st.booleans()):
        return np.float32(2.0 ** draw(st.integers(int(np.ceil(np.log2(low))), int(np.log2(high)))))
    return np.float32(np.exp(draw(st.floats(float(np.log(low)), float(np.log(high))))))


@st.composite
def grids(draw: st.DrawFn, kind: str, low: float = 1e-3, high: float = 1.0) -> Grid:
    """A grid per tensor of type ``kind``."""
    limits = np.iinfo(kind)
    ends = st.sampled_from([limits.min, limits.max, (limits.min + limits.max + 1) // 2])
    point = draw(ends | st.integers(int(limits.min), int(limits.max)))
    return Grid(draw(scales(low, high)), np.asarray(point, kind))


def levels(
    random: np.random.Generator, kind: str, shape: Sequence[int], *, extreme: bool
) -> np.ndarray:
    """Levels of ``kind``: any, or the two ends only."""
    limits = np.iinfo(kind)
    if extreme:
        return random.choice(np.array([limits.min, limits.max], kind), tuple(shape), p=[0.25, 0.75])
    return random.integers(limits.min, limits.max, tuple(shape), kind, endpoint=True)
