"""Graphs of one operator, written node by node."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import QDQ_IR_VERSION, QDQ_OPSET, declare_dims, infer_shapes
from qbench.numerics import dequantize
from qbench.storage import digest_arrays, digest_plain
from qbench.subjects.dataset import Array, Dataset
from qbench.subjects.operators import Feed, Operand, OperandQParams, OperatorSubject
from qbench.subjects.subject import ZooModel
from qbench.subjects.tasks import WholeOutput

# A builder of float ONNX graphs: node by node, with names after the place in the network.
#
# Each node has one output, with the node's name; a constant is named after the node and its role
# (``stem.conv.weight``). The opset is that of QDQ graphs.

AttributeValue = int | float | str | Sequence[int]
_NONE: Mapping[str, AttributeValue] = MappingProxyType({})
_NO_DIMS: Mapping[str, int] = MappingProxyType({})


class GraphBuilder:
    """Collects the nodes and constants of one graph, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[ir.Value] = []
        self._nodes: list[ir.Node] = []
        self._constants: dict[str, ir.Value] = {}

    def input(
        self, name: str, shape: Sequence[int | str], dtype: ir.DataType = ir.DataType.FLOAT
    ) -> ir.Value:
        """A graph input; a name in ``shape`` is a dimension that is free (``"N"``, the batch)."""
        value = ir.val(name, dtype, ir.Shape(shape))
        self._inputs.append(value)
        return value

    def constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """The initializer ``name`` holding ``array``; the same value when called again.

        Raises:
            ValueError: the name is that of another array.
        """
        known = self._constants.get(name)
        if known is None:
            tensor = ir.Tensor(array, name=name)
            known = ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)
            self._constants[name] = known
        elif known.const_value is None or not np.array_equal(known.const_value.numpy(), array):
            raise ValueError(f"the graph '{self._name}' has two constants '{name}'")
        return known

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        attributes: Mapping[str, AttributeValue] = _NONE,
    ) -> ir.Value:
        """Append a node of the standard operators; its output."""
        node = ir.node(op_type, inputs, dict(attributes), name=name, outputs=[ir.val(name)])
        self._nodes.append(node)
        return node.outputs[0]

    def model(
        self, outputs: Mapping[str, ir.Value], *, dims: Mapping[str, int] = _NO_DIMS
    ) -> ir.Model:
        """The finished model with shapes inferred.

        Args:
            outputs: gives the outputs their names.
            dims: the usual sizes of free dimensions other than the batch.
        """
        for name, value in outputs.items():
            value.name = name
        graph = ir.Graph(
            self._inputs,
            list(outputs.values()),
            nodes=self._nodes,
            initializers=list(self._constants.values()),
            opset_imports={"": QDQ_OPSET},
            name=self._name,
        )
        model = ir.Model(graph, ir_version=QDQ_IR_VERSION, producer_name="qbench")
        if dims:
            declare_dims(model, dims)
        infer_shapes(model)
        return model


# A subject of one operator as a quantized graph, the values it is fed, and both as a model and a
# data set.

# The integers of an operator subject: what is fed, its weights and its bias, drawn from its own id.
#
# ties     x = z_x + i · step_x, w = z_w + j · step_w, b a multiple of step_x · step_w:
#          the accumulator too

Ints = npt.NDArray[np.int64]

_FAR = 1 << 22
"""A bias that no 8-bit code of these subjects reaches."""
_NEAR = 20
"""Codes that other biases move a result by, at most."""
_ENOUGH, _MOST = 512, 32
"""Codes of one kind that small samples together should have, and most samples of one kind."""
_LEAST_WITH_ENDS = 4
"""Channels from which two are spent on weights at the ends of their codes."""


def fed_codes(subject: OperatorSubject) -> tuple[Ints, ...]:
    """The codes of every fed operand, (samples, *shape) each; a divisor is never its zero
    point.
    """
    codes = _FEEDS[subject.feed](subject)
    if subject.operator == "Div":
        zero = subject.inputs[1].qparams.zero_point
        divisor = np.where(codes[1] == zero, zero + 1, codes[1])
        return (codes[0], divisor)
    return codes


def weight_codes(subject: OperatorSubject) -> Ints:
    """The codes of the constant operand; the last two of many channels lie at the ends of
    the type.

    Raises:
        ValueError: the subject has none.
    """
    weight = _weight_of(subject)
    last = np.moveaxis(np.empty(weight.shape, np.int64), _axis(subject), 0)
    random = _random(subject.id, "weight")
    for channel, step in enumerate(_each(weight.step, len(last))):
        last[channel] = _multiples(weight.qparams, step, last.shape[1:], random)
    if len(last) >= _LEAST_WITH_ENDS:
        last[-2], last[-1] = weight.qparams.ends
    return np.ascontiguousarray(np.moveaxis(last, 0, _axis(subject)))


def bias_codes(subject: OperatorSubject) -> Ints:
    """The bias, one number an output channel; of many channels the second and the third clamp."""
    weight = _weight_of(subject)
    random = _random(subject.id, "bias")
    x_step = subject.inputs[0].step[0]
    multipliers = _each(subject.multipliers, subject.bias)
    codes = np.array(
        [
            int(random.integers(-_NEAR, _NEAR + 1) / multiplier)
            // (x_step * step)
            * (x_step * step)
            for multiplier, step in zip(multipliers, _each(weight.step, subject.bias), strict=True)
        ],
        np.int64,
    )
    if subject.bias >= _LEAST_WITH_ENDS:
        codes[1:3] = _FAR, -_FAR
    return codes


def _spread(subject: OperatorSubject) -> tuple[Ints, ...]:
    smallest = min(math.prod(operand.shape) for operand in subject.inputs)
    many = max(2, min(_MOST, _ENOUGH // smallest))
    return tuple(
        _spread_over(operand, index, subject.id, many)
        for index, operand in enumerate(subject.inputs)
    )


def _spread_over(operand: Operand, index: int, name: str, many: int) -> Ints:
    """Samples of both ends, the ends in turn, the zero point with peaks; ``many`` of ties and
    as many at random.
    """
    (low, high), shape = operand.qparams.ends, operand.shape
    random = _random(name, f"operand {index}")
    places = np.arange(math.prod(shape)).reshape(shape)
    samples = [
        np.full(shape, low),
        np.full(shape, low if index % 2 else high),
        np.where(places % (2 + index) == 0, low, high),
        np.where(places % 5 == index, high, operand.qparams.zero_point),
        *(_multiples(operand.qparams, operand.step[0], shape, random) for _ in range(many)),
        *(random.integers(low, high + 1, shape) for _ in range(many)),
    ]
    return np.stack(samples).astype(np.int64)


def _every_code(subject: OperatorSubject) -> tuple[Ints, ...]:
    """Four orders of all codes and a few more."""
    (operand,) = subject.inputs
    low, high = operand.qparams.ends
    random = _random(subject.id, "order")
    size = math.prod(operand.shape)
    some = np.resize(np.arange(low, high + 1), size)
    orders = [some, some[::-1], random.permutation(some), random.permutation(some)]
    return (np.stack(orders).reshape(-1, *operand.shape).astype(np.int64),)


def _every_pair(subject: OperatorSubject) -> tuple[Ints, ...]:
    """All pairs in a random order, so that neighbours have nothing in common."""
    first, second = subject.inputs
    a, b = (np.arange(low, high + 1) for low, high in (first.qparams.ends, second.qparams.ends))
    order = _random(subject.id, "order").permutation(len(a) * len(b))
    left, right = np.repeat(a, len(b))[order], np.tile(b, len(a))[order]
    return tuple(part.reshape(-1, *first.shape).astype(np.int64) for part in (left, right))


_FEEDS: Mapping[Feed, Callable[[OperatorSubject], tuple[Ints, ...]]] = MappingProxyType(
    {Feed.SPREAD: _spread, Feed.EVERY_CODE: _every_code, Feed.EVERY_PAIR: _every_pair}
)


def _multiples(
    qparams: OperandQParams, step: int, shape: tuple[int, ...], random: np.random.Generator
) -> Ints:
    """Codes a multiple of ``step`` away from the zero point."""
    low, high = ((end - qparams.zero_point) / step for end in qparams.ends)
    return qparams.zero_point + step * random.integers(math.ceil(low), math.floor(high) + 1, shape)


def _weight_of(subject: OperatorSubject) -> Operand:
    if subject.weight is None:
        raise ValueError(f"'{subject.id}' has no constant operand")
    return subject.weight


def _axis(subject: OperatorSubject) -> int:
    """Of output channels in the weight: where scales are, or would be."""
    if subject.operator == "Conv" or subject.attributes.get("transB"):
        return 0
    return 1


def _each(values: tuple, count: int) -> tuple:  # type: ignore[type-arg]
    return values * count if len(values) == 1 else values


def _random(name: str, purpose: str) -> np.random.Generator:
    return np.random.default_rng(int(digest_plain([name, purpose])[:16], 16))


# An operator subject as an ONNX graph in QDQ form, by the convention of ``graph.qdq``.

RESULT = "y"
_REQUANTIZE = "Requantize"


def input_names(subject: OperatorSubject) -> tuple[str, ...]:
    """What the graph calls its inputs: ``x``, or ``x0``, ``x1`` of several."""
    count = len(subject.inputs)
    return ("x",) if count == 1 else tuple(f"x{index}" for index in range(count))


def operator_graph(subject: OperatorSubject, *, weight: Ints | None = None) -> ir.Model:
    """The graph: reals in, a Q and a DQ, the operator, a Q and a DQ, reals out; the batch is free.

    Args:
        subject: the operator and its qparams.
        weight: codes in place of its own.
    """
    builder = GraphBuilder(subject.id)
    operands = []
    for name, operand in zip(input_names(subject), subject.inputs, strict=True):
        real = builder.input(name, ("N", *operand.shape))
        operands.append(_quantized(builder, real, operand.qparams, name))
    node = subject.operator.lower()
    if subject.operator == _REQUANTIZE:
        (result,) = operands
    else:
        attributes = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in subject.attributes.items()
        }
        inputs = [*operands, *_constants(builder, subject, weight)]
        result = builder.node(subject.operator, inputs, node, attributes)
    return builder.model({RESULT: _quantized(builder, result, subject.output, RESULT)})


def _quantized(
    builder: GraphBuilder, real: ir.Value, qparams: OperandQParams, name: str
) -> ir.Value:
    scale, point = _parameters(builder, qparams, name)
    codes = builder.node("QuantizeLinear", [real, scale, point], f"{name}_q")
    return builder.node("DequantizeLinear", [codes, scale, point], f"{name}_dq")


def _parameters(
    builder: GraphBuilder, qparams: OperandQParams, name: str
) -> tuple[ir.Value, ir.Value]:
    scales = np.array(qparams.scales, np.float32)
    points = np.full(scales.shape, qparams.zero_point, qparams.qtype)
    if qparams.axis is None:
        scales, points = scales.reshape(()), points.reshape(())
    return builder.constant(f"{name}_scale", scales), builder.constant(f"{name}_zero_point", points)


def _weight(builder: GraphBuilder, qparams: OperandQParams, values: Ints) -> ir.Value:
    axis = {} if qparams.axis is None else {"axis": qparams.axis}
    codes = builder.constant("w_q", values.astype(qparams.qtype))
    return builder.node(
        "DequantizeLinear", [codes, *_parameters(builder, qparams, "w")], "w_dq", axis
    )


def _bias(builder: GraphBuilder, subject: OperatorSubject, weight: OperandQParams) -> ir.Value:
    """The bias at the scale of the products, per channel where the weight is."""
    scales = np.float32(subject.inputs[0].qparams.scales[0]) * np.array(weight.scales, np.float32)
    axis = {"axis": 0}
    if weight.axis is None:
        scales, axis = scales.reshape(()), {}
    scales = np.asarray(scales, np.float32)
    codes = builder.constant("b_q", bias_codes(subject).astype(np.int32))
    scale = builder.constant("b_scale", scales)
    point = builder.constant("b_zero_point", np.zeros(scales.shape, np.int32))
    return builder.node("DequantizeLinear", [codes, scale, point], "b_dq", axis)


def _constants(
    builder: GraphBuilder, subject: OperatorSubject, given: Ints | None
) -> Iterator[ir.Value | None]:
    """The weight (``given``, if it is) and the bias, each after its DQ, then what else the
    operator reads.
    """
    weight = subject.weight
    if weight is not None:
        yield _weight(builder, weight.qparams, weight_codes(subject) if given is None else given)
    if subject.bias and weight is not None:
        yield _bias(builder, subject, weight.qparams)
    for name, values in subject.constants:
        yield None if values == () else builder.constant(name, constant_array(values))


def constant_array(
    values: tuple[float, ...] | tuple[int, ...] | float,
) -> npt.NDArray[np.float32] | npt.NDArray[np.int64]:
    """A further constant as ONNX takes it: int64, or float32."""
    found = np.array(values)
    return found.astype(np.int64) if found.dtype.kind == "i" else found.astype(np.float32)


# An operator subject as the zoo's values: a model whose answer is its whole output, and the data it
# is fed.

_KIND = "operands"


@dataclass(frozen=True, slots=True)
class Operands:
    """A sample that has an array for every input of its graph."""

    @property
    def name(self) -> str:
        """There is nothing to set."""
        return "operands"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Data of operator subjects."""
        return (_KIND,)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - arrays by name, by the data's kind
        """As it is."""
        return {name: np.asarray(array) for name, array in sample.items()}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """As it is."""
        return batch


def operator_model(subject: OperatorSubject) -> ZooModel:
    """The quantized graph of ``subject``."""
    return ZooModel(
        id=subject.id,
        graphs={"model": lambda: operator_graph(subject)},
        preprocess=Operands(),
        task=WholeOutput(),
        origin="made in code by qbench.subjects.operators",
    )


def operator_data(subject: OperatorSubject) -> Dataset:
    """What ``subject`` is fed."""
    feeds = operator_feeds(subject)
    count = len(next(iter(feeds.values())))
    ids = tuple(f"{subject.id}[{index}]" for index in range(count))
    return Dataset(
        id=subject.id,
        kind=_KIND,
        sample_ids=ids,
        sources=ids,
        labels=None,
        content=digest_arrays(feeds),
        load=lambda index: {name: array[index] for name, array in feeds.items()},
    )


def operator_feeds(subject: OperatorSubject) -> Mapping[str, Array]:
    """Input name → reals (samples, …) float32, each exactly that of a code."""
    return feeds_of_codes(subject, fed_codes(subject))


def feeds_of_codes(subject: OperatorSubject, codes: Sequence[Ints]) -> Mapping[str, Array]:
    """Input name → reals on ``codes`` (samples, …), one array an operand."""
    each = [operand.qparams.as_arrays() for operand in subject.inputs]
    return {
        name: dequantize(part.astype(qparams.qtype.storage_dtype), qparams)
        for name, part, qparams in zip(input_names(subject), codes, each, strict=True)
    }
