"""Random models of one operator with the data for one batch, and who is asked about them.

A strategy is a function of a ``Draw`` that gives an ``Example``: the operator's inputs in order,
its attributes and how many outputs it has. It asks the draw which version of the operator is meant,
and which types its schema allows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
OLDEST, NEWEST = 7, 25
_DTYPES = {
    f"tensor({name})": np.dtype(dtype)
    for name, dtype in {
        "float": np.float32,
        "double": np.float64,
        "float16": np.float16,
        "bfloat16": ml_dtypes.bfloat16,
        "bool": np.bool_,
        **{
            kind: kind
            for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
        },
    }.items()
}
_LIKELY = {"float32": 12, "float64": 2, "float16": 1, "int32": 2, "int64": 2, "int8": 1, "uint8": 1}


@dataclass(frozen=True, slots=True)
class Example:
    """One call of an operator.

    Args:
        inputs: arrays in order, None where one is left out.
        attributes: those that are set.
        outputs: how many there are; a False in a sequence leaves one out.
        fixed: the inputs that are initializers; the rest is fed.
        terms: whether the results are sums of products, whose rounding is in proportion to the sums
            of absolute ones.
        steps: whether the results are rounded to levels, which rounding before may move by one.
        slack: how many times the usual rounding is allowed, where many steps follow one another.
        outer: how many of the last inputs only the node's own graphs read.
    """

    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int | Sequence[bool] = 1
    fixed: frozenset[int] = frozenset()
    terms: bool = False
    steps: bool = False
    slack: float = 1.0
    outer: int = 0


@dataclass(slots=True)
class Draw:
    """Random choices for one operator at one opset."""

    random: np.random.Generator
    operator: str
    opset: int

    @property
    def schema(self) -> onnx.defs.OpSchema:
        """Of the operator at this opset."""
        return onnx.defs.get_schema(self.operator, self.opset)

    @property
    def since(self) -> int:
        """The version of the operator at this opset."""
        return int(self.schema.since_version)

    def whole(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return int(self.random.integers(low, high + 1))

    def wholes(self, count: int, low: int, high: int) -> list[int]:
        """``count`` of them."""
        return [self.whole(low, high) for _ in range(count)]

    def maybe(self, share: float = 0.5) -> bool:
        """True in ``share`` of all draws."""
        return bool(self.random.random() < share)

    def choose(self, *choices: Any) -> Any:
        """One of them."""
        return choices[self.whole(0, len(choices) - 1)]

    def dtype(self, name: str = "T", *, only: str = "") -> np.dtype[Any]:
        """A type that the constraint ``name`` of the schema allows, float32 the likeliest.

        Args:
            only: the kinds of numpy that will do; "": all.
        """
        allowed = [
            _DTYPES[text]
            for constraint in self.schema.type_constraints
            if constraint.type_param_str == name
            for text in constraint.allowed_type_strs
            if text in _DTYPES
        ]
        allowed = [
            d
            for d in dict.fromkeys(allowed)
            if not only or (d.kind in only and d.name != "bfloat16")
        ]
        allowed = allowed or [
            np.dtype(np.float32)
        ]  # the schema has no such constraint, or types that are no tensors
        weights = np.array([_LIKELY.get(d.name, 0.3) for d in allowed])
        return allowed[self.random.choice(len(allowed), p=weights / weights.sum())]

    def shape(self, low: int = 1, high: int = 4, largest: int = 5) -> list[int]:
        """Of ``low`` to ``high`` dimensions."""
        return self.wholes(self.whole(low, high), 1, largest)

    def numbers(
        self, shape: Sequence[int], dtype: Any = np.float32, *, low: float = -3, high: float = 3
    ) -> Array:
        """Random numbers: normal ones clipped to ``low`` … ``high``,
        whole ones where the type is, or truths.
        """
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self.random.random(shape) < 0.5
        if dtype.kind in "iu":
            ends = np.iinfo(dtype)
            bottom, top = max(ends.min, int(low * 5)), min(ends.max, int(high * 5))
            return self.random.integers(bottom, top + 1, shape).astype(dtype)
        scale = max(abs(low), abs(high)) / 2
        return np.clip(self.random.normal(0, scale, shape), low, high).astype(dtype)

    def smaller(self, shape: Sequence[int], rank: int | None = None) -> list[int]:
        """A shape that broadcasts to ``shape``: some dimensions 1, some in front left out."""
        kept = list(shape)[self.whole(0, len(shape)) :] if rank is None else list(shape)
        return [1 if self.maybe(0.3) else size for size in kept]

    def axis(self, rank: int) -> int:
        """One of ``rank``; negative ones too where the version knows them."""
        return self.whole(-rank, rank - 1) if self.opset >= 11 else self.whole(0, rank - 1)

    def axes(self, rank: int, least: int = 1) -> list[int]:
        """Different axes in any order."""
        count = self.whole(min(least, rank), rank)
        found = self.random.permutation(rank)[:count].tolist()
        return [axis - rank if self.opset >= 11 and self.maybe(0.3) else axis for axis in found]


Strategy = Callable[[Draw], Example]


def model_of(
    operator: str, opset: int, example: Example
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model of one node, and what it is fed."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(example.inputs)]
    wanted = [True] * example.outputs if isinstance(example.outputs, int) else example.outputs
    outputs = [f"o{index}" if is_wanted else "" for index, is_wanted in enumerate(wanted)]
    arrays = {
        name: np.asarray(array)
        for name, array in zip(names, example.inputs, strict=True)
        if array is not None
    }
    fixed = {names[index] for index in example.fixed if index < len(names) and names[index]}
    graph = helper.make_graph(
        [
            helper.make_node(
                operator, names[: len(names) - example.outer], outputs, "one", **example.attributes
            )
        ],
        "one_node",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
            )
            for name, array in arrays.items()
            if name not in fixed
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in fixed],
    )
    ir_version = 8 if opset < 19 else 10
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    )
    return model, {name: array for name, array in arrays.items() if name not in fixed}
