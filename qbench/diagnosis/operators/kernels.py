"""Running an operator subject on a kernel or a backend, and its exact result before rounding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Array, Backend, IntegerBackend, get_backend, isolated
from qbench.graph import QDQ_IR_VERSION, QDQ_OPSET
from qbench.numerics import Arithmetic, QParams, dequantize
from qbench.subjects import (
    OperatorSubject,
    bias_codes,
    constant_array,
    fed_codes,
    feeds_of_codes,
    operator_graph,
    weight_codes,
)

Ints = npt.NDArray[np.int64]

Kernel = Callable[..., npt.ArrayLike]
"""``kernel(x, …[, weight[, bias]], parameters)``: quantized values in the order of the ONNX
node → quantized values.
"""


Codes = npt.NDArray[np.float64]
"""Quantized values; between two of them where a backend's result is not a quantized value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorParameters:
    """What a kernel receives in addition to the quantized values.

    Args:
        operator: its type in ONNX; ``Requantize``: from one tensor's qparams to others, without an
            operator.
        attributes: of the ONNX node, as numbers, strings and tuples; an omitted one has its default
            in ONNX.
        inputs: quantization parameters of every operand in order, also the constant one; the scale
            of the bias is s_x · s_w.
        output: quantization parameters of the result.
        constants: further inputs by name, such as ``pads`` of a Pad.
    """

    operator: str
    attributes: Mapping[str, Any]
    inputs: tuple[QParams, ...]
    output: QParams
    constants: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Trial:
    """A subject with its quantized values.

    Args:
        subject: the operator and its qparams.
        fed: values of its inputs.
        weight: of its constant operand.
    """

    subject: OperatorSubject
    fed: tuple[Ints, ...]
    weight: Ints | None

    @classmethod
    def of(cls, subject: OperatorSubject) -> "Trial":
        """``subject`` with its own values."""
        return cls(
            subject, fed_codes(subject), None if subject.weight is None else weight_codes(subject)
        )

    def on_backend(self, backend: Backend) -> Codes:
        """The result of ``backend`` as quantized values; between two of them where it is
        none.

        Raises:
            QbenchError: it does not run the graph.
        """
        with isolated(backend).prepare(
            operator_graph(self.subject, weight=self.weight)
        ) as executor:
            (real,) = executor.run(feeds_of_codes(self.subject, self.fed)).values()
        output = self.subject.output.as_arrays()
        codes = np.rint(real.astype(np.float64) / output.scale) + output.zero_point
        is_code = dequantize(codes.astype(np.int64), output) == real
        return np.asarray(
            np.where(is_code, codes, real.astype(np.float64) / output.scale + output.zero_point)
        )

    def by_kernel(self, kernel: Kernel) -> Codes:
        """The result of ``kernel``.

        Raises:
            TypeError: it does not return integers.
        """
        subject = self.subject
        operands = [*zip(self.fed, (operand.qparams for operand in subject.inputs), strict=True)]
        if subject.weight is not None and self.weight is not None:
            operands.append((self.weight, subject.weight.qparams))
        each = tuple(qparams.as_arrays() for _, qparams in operands)
        arrays = [
            codes.astype(qparams.qtype.storage_dtype)
            for (codes, _), qparams in zip(operands, each, strict=True)
        ]
        if subject.bias:
            arrays.append(bias_codes(subject).astype(np.int32))
        parameters = OperatorParameters(
            operator=subject.operator,
            attributes=subject.attributes,
            inputs=each,
            output=subject.output.as_arrays(),
            constants={name: constant_array(values) for name, values in subject.constants},
        )
        found = np.asarray(kernel(*arrays, parameters))
        if found.dtype.kind not in "iu":
            raise TypeError(
                f"a kernel returns quantized values, which are integers, not {found.dtype}"
            )
        return found.astype(np.float64)


def counted(trial: Trial, arithmetic: Arithmetic) -> Codes:
    """The result of the integer interpreter under ``arithmetic``.

    Raises:
        QbenchError: a multiplier that the arithmetic cannot represent.
    """
    return trial.on_backend(IntegerBackend(arithmetic=arithmetic))


# One result before rounding: exact for an operator that sums products, else in float64.
#
# products   p = acc · s_x · s_w / s_y + z_y, rational            others   p = f(reals) / s_y + z_y

_NEAR = Fraction(1, 1 << 30)
"""Distance from halfway up to which a float64 is a tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactResult:
    """One result before rounding.

    Args:
        position: in steps, with the zero point. accumulator, multiplier: of an operator that sums
            products.
    """

    position: Fraction
    accumulator: int | None = None
    multiplier: Fraction | None = None

    @property
    def is_tie(self) -> bool:
        """Whether it lies halfway between two quantized values."""
        off = abs(
            self.position - (self.position.numerator // self.position.denominator) - Fraction(1, 2)
        )
        return off == 0 if self.accumulator is not None else off <= _NEAR


def accumulators(trial: Trial) -> Ints:
    """Σ (x − z_x)(w − z_w) + b of every result, of an operator that sums products; exact below
    2⁵³.
    """
    subject = trial.subject
    operands: list[Array | None] = [
        (codes - operand.qparams.zero_point).astype(np.float64)
        for codes, operand in zip(trial.fed, subject.inputs, strict=True)
    ]
    if subject.weight is not None and trial.weight is not None:
        operands.append((trial.weight - subject.weight.qparams.zero_point).astype(np.float64))
    if subject.bias:
        operands.append(bias_codes(subject).astype(np.float64))
    return _computed(subject, operands).astype(np.int64)


def exact_result(trial: Trial, index: tuple[int, ...]) -> ExactResult:
    """The result at ``index``, the sample first."""
    subject = trial.subject
    sample = replace(trial, fed=tuple(codes[index[0] : index[0] + 1] for codes in trial.fed))
    place = (0, *index[1:])
    zero = subject.output.zero_point
    if trial.weight is not None or subject.operator == "MatMul":
        accumulator, multiplier = int(accumulators(sample)[place]), _multiplier(subject, index)
        return ExactResult(
            position=accumulator * multiplier + zero, accumulator=accumulator, multiplier=multiplier
        )
    reals = [
        (codes - operand.qparams.zero_point) * operand.qparams.scales[0]
        for codes, operand in zip(sample.fed, subject.inputs, strict=True)
    ]
    constants = [
        None if values == () else constant_array(values) for _, values in subject.constants
    ]
    real = float(_computed(subject, [*reals, *constants])[place])
    return ExactResult(position=Fraction(real) / Fraction(subject.output.scales[0]) + zero)


def _multiplier(subject: OperatorSubject, index: tuple[int, ...]) -> Fraction:
    right = subject.inputs[1].qparams if subject.weight is None else subject.weight.qparams
    channel = 0
    if right.axis is not None:
        channel = index[1] if subject.operator in ("Conv", "ConvTranspose") else index[-1]
    left, output = subject.inputs[0].qparams.scales[0], subject.output.scales[0]
    return Fraction(left) * Fraction(right.scales[channel]) / Fraction(output)


def _computed(subject: OperatorSubject, operands: Sequence[Array | None]) -> Array:
    """The operator on ``operands`` by ONNX's reference implementation, reals in float64."""
    if subject.operator == "Requantize":
        assert operands[0] is not None
        return operands[0]
    values = [
        None
        if array is None
        else ir.val(f"v{place}", ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape))
        for place, array in enumerate(operands)
    ]
    attributes = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in subject.attributes.items()
    }
    result = ir.val("y", ir.DataType.DOUBLE)
    node = ir.node(subject.operator, values, attributes, outputs=[result])
    inputs = [value for value in values if value is not None]
    graph = ir.Graph(inputs, [result], nodes=[node], opset_imports={"": QDQ_OPSET}, name=subject.id)
    with get_backend("onnx-reference").prepare(
        ir.Model(graph, ir_version=QDQ_IR_VERSION)
    ) as executor:
        found = executor.run(
            {f"v{place}": array for place, array in enumerate(operands) if array is not None}
        )
    return np.asarray(found["y"])
