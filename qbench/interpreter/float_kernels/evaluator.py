"""Which operators ONNX's evaluator computes, which are ours in its place, and which are
refused, each with its reason.

Everything that runs a float operator by the evaluator (the interpreter, the backend
``onnx-reference``, the folding of constants) goes through here. The sweep in
``tests/interpreter/test_interpreter_float_sweep.py`` compares all of it with ONNX Runtime;
``docs/findings/onnx-reference-evaluator.md`` lists what is wrong in the evaluator.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from qbench.graph import (
    ENGINE_DOMAIN,
    constant_value,
    int_attribute,
    ints_attribute,
    outside_operator,
    word_attribute,
)
from qbench.interpreter.float_kernels import moving, normalizing, recurrent, windows
from qbench.interpreter.float_kernels.call import Call, Kernel, Results

if TYPE_CHECKING:
    from onnx.reference.op_run import OpRun

_NEWEST = 1 << 30


@dataclass(frozen=True, slots=True)
class _Own:
    """qbench's own kernel for the versions ``first`` … ``last`` of an operator."""

    kernel: Kernel
    first: int = 1
    last: int = _NEWEST


@dataclass(frozen=True, slots=True)
class _Refused:
    """Operators that are not computed up to the opset ``last`` where ``applies`` is true of the
    node.
    """

    operators: str
    applies: Callable[[ir.Node], bool]
    reason: str
    last: int = _NEWEST


_OWN: Mapping[str, _Own] = MappingProxyType(
    {
        "AffineGrid": _Own(moving.affine_grid),
        "AveragePool": _Own(windows.average_pool),
        "BatchNormalization": _Own(normalizing.batch_normalization, last=13),
        "ConvTranspose": _Own(windows.conv_transpose),
        "DequantizeLinear": _Own(normalizing.dequantize_linear, last=18),
        "Dropout": _Own(normalizing.dropout, last=11),
        "DynamicQuantizeLinear": _Own(normalizing.dynamic_quantize_linear),
        "GRU": _Own(recurrent.recurrent),
        "GatherElements": _Own(moving.gather_elements),
        "GlobalLpPool": _Own(normalizing.global_lp_pool),
        "GlobalMaxPool": _Own(windows.global_max_pool),
        "GridSample": _Own(moving.grid_sample),
        "Hardmax": _Own(normalizing.softmax, last=12),
        "LRN": _Own(normalizing.lrn),
        "LSTM": _Own(recurrent.recurrent),
        "LayerNormalization": _Own(normalizing.layer_normalization),
        "LogSoftmax": _Own(normalizing.log_softmax),
        "LpNormalization": _Own(normalizing.lp_normalization),
        "LpPool": _Own(windows.lp_pool),
        "MaxPool": _Own(windows.max_pool),
        "Mean": _Own(normalizing.mean),
        "NonMaxSuppression": _Own(moving.non_max_suppression),
        "Pad": _Own(moving.pad),
        "QuantizeLinear": _Own(normalizing.quantize_linear),
        "RNN": _Own(recurrent.recurrent),
        "ReduceLogSumExp": _Own(normalizing.reduce_log_sum_exp),
        "ReduceSumSquare": _Own(normalizing.reduce_in_type),
        "Resize": _Own(moving.resize),
        "RoiAlign": _Own(moving.roi_align),
        "Scatter": _Own(moving.scatter),
        "Shape": _Own(moving.shape_of),
        "Slice": _Own(moving.slices),
        "Softmax": _Own(normalizing.softmax, last=12),
        "Softsign": _Own(normalizing.softsign),
        "Squeeze": _Own(moving.squeeze),
        "Unique": _Own(moving.unique),
        "Unsqueeze": _Own(moving.unsqueeze),
        "Upsample": _Own(moving.upsample),
    }
)


def _stacks(node: ir.Node) -> bool:
    return any(value.name for value in node.outputs[max(len(node.inputs) - 2, 0) :])


def _always(node: ir.Node) -> bool:  # noqa: ARG001 - a condition's
    return True


def _trains(node: ir.Node) -> bool:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    found = constant_value(node.inputs[2])
    return found is None or bool(found.any())


def _returns(node: ir.Node, index: int) -> bool:
    """Whether anything reads output ``index``."""
    values = node.outputs[index : index + 1]
    return any(value.name and (value.uses() or value.is_graph_output()) for value in values)


def _looks_back(node: ir.Node) -> bool:
    has_past = any(value is not None for value in node.inputs[4:6])
    return has_past and bool(int_attribute(node, "is_causal", 0))


def _pads_by_rule(node: ir.Node) -> bool:
    return word_attribute(node, "auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")


def _pads_dilated(node: ir.Node) -> bool:
    return _pads_by_rule(node) and any(step != 1 for step in ints_attribute(node, "dilations"))


def _skips(node: ir.Node) -> bool:
    """Whether windows lie two or more elements apart under SAME, so that its padding can be
    less than −1.
    """
    strides = ints_attribute(node, "strides")
    weight = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}.get(node.op_type)
    shape = None if weight is None or len(node.inputs) <= weight else _shape(node.inputs[weight])
    kernel = ints_attribute(node, "kernel_shape") or (shape or ())[2:]
    if not _pads_by_rule(node) or not kernel:
        return False
    dilations = ints_attribute(node, "dilations", (1,) * len(kernel))
    more = ints_attribute(node, "output_padding", (0,) * len(kernel))
    # the last element of a stride's rest does not matter
    gap = 1 if node.op_type == "ConvTranspose" else 2
    return any(
        s - d * (k - 1) - 1 - o >= gap
        for s, d, k, o in zip(strides, dilations, kernel, more, strict=False)
    )


def _shape(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    found = constant_value(value)
    if found is not None:
        return found.shape
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else 1 << 30 for dim in value.shape)


def _centers_one(node: ir.Node) -> bool:
    sizes = constant_value(node.inputs[1]) if int_attribute(node, "align_corners", 0) else None
    return sizes is not None and 1 in sizes[2:].tolist()


def _interpolates_integers(node: ir.Node) -> bool:
    kind = _dtype(node)
    return (
        word_attribute(node, "mode", "nearest") != "nearest"
        and kind is not None
        and not kind.is_floating_point()
    )


def _interpolates_a_crop(node: ir.Node) -> bool:
    crops = (
        word_attribute(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    )
    return crops and word_attribute(node, "mode", "nearest") != "nearest"


def _smooths_one(node: ir.Node) -> bool:
    way = word_attribute(node, "coordinate_transformation_mode", "half_pixel")
    return bool(int_attribute(node, "antialias", 0)) and way == "pytorch_half_pixel"


def _has_other_activations(node: ir.Node) -> bool:
    named = node.attributes.get("activations")
    return (
        named is not None
        and not {n.lower() for n in named.as_strings()} <= recurrent.SUPPORTED_ACTIVATIONS
    )


def _crops_and_repeats(node: ir.Node) -> bool:
    """Negative constant pads in a mode that repeats data; those that are computed are refused
    when they are known.
    """
    return (
        word_attribute(node, "mode", "constant") != "constant"
        and min(_constant_pads(node), default=0) < 0
    )


def _constant_pads(node: ir.Node) -> Sequence[int]:
    """The pads of a Pad, from its attribute or a constant input; empty where they are computed."""
    pads = node.attributes.get("pads")
    if pads is not None:
        return pads.as_ints()
    if len(node.inputs) < 2:
        return []
    known = constant_value(node.inputs[1])
    return [] if known is None else known.tolist()


def _dtype(node: ir.Node) -> ir.DataType | None:
    value = node.inputs[0] if node.inputs else None
    return None if value is None else value.dtype


_RANDOM = "its results are random, and no two engines draw the same numbers"
_OBJECTS = (
    "it works on sequences, optional values, text or pictures; only tensors of numbers are "
    "compared with an engine"
)
_REFUSED = (
    _Refused(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
        _always,
        _RANDOM,
    ),
    _Refused("Dropout", _trains, f"in training {_RANDOM}"),
    _Refused(
        "ConcatFromSequence ImageDecoder Optional OptionalGetElement OptionalHasElement "
        "RegexFullMatch SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
        "SequenceLength SequenceMap SplitToSequence StringConcat StringNormalizer StringSplit "
        "TfIdfVectorizer",
        _always,
        _OBJECTS,
    ),
    _Refused(
        "Dropout",
        lambda n: _returns(n, 1),
        "engines disagree on the mask, which is not defined",
        last=11,
    ),
    _Refused(
        "AveragePool LpPool MaxPool",
        _pads_dilated,
        "ONNX Runtime leaves dilations out of the padding that SAME_UPPER and SAME_LOWER ask for",
    ),
    _Refused(
        "AveragePool Conv ConvInteger ConvTranspose LpPool MaxPool QLinearConv",
        _skips,
        "with windows smaller than the strides, engines divide the negative padding of SAME in "
        "different ways",
    ),
    _Refused("Scan", _always, "version 8, whose values are batches, has no kernel", last=8),
    _Refused(
        "Loop",
        _stacks,
        "ONNX's evaluator joins the values that each pass gives along their first axis, not a new "
        "one",
    ),
    _Refused(
        "BatchNormalization",
        lambda n: bool(int_attribute(n, "training_mode", 0)),
        "statistics of a batch in training have no kernel",
    ),
    _Refused("Attention", _looks_back, "engines differ in which of the past a causal query sees"),
    _Refused(
        "Attention", lambda n: _returns(n, 3), "engines write masked scores as different numbers"
    ),
    _Refused(
        "AffineGrid",
        _centers_one,
        "with align_corners, engines put the only element of an axis at different places",
    ),
    _Refused("MaxRoiPool", _always, "ONNX's evaluator has no kernel of it"),
    _Refused(
        "GridSample",
        lambda n: (
            word_attribute(n, "mode", "linear") in ("cubic", "bicubic")
            and word_attribute(n, "padding_mode", "zeros") == "border"
        ),
        "engines take the neighbours of a place outside of the picture from different places",
    ),
    _Refused(
        "RoiAlign",
        lambda n: word_attribute(n, "mode", "avg") == "max",
        "engines take the maximum of different numbers (ONNX Runtime 1.31 says that its own are "
        "wrong)",
    ),
    _Refused(
        "Upsample",
        lambda n: word_attribute(n, "mode", "nearest") != "nearest",
        "only the mode nearest has a kernel",
    ),
    _Refused(
        "Pad",
        _crops_and_repeats,
        "engines differ in what negative pads repeat, in every mode but constant",
    ),
    _Refused("Resize", _interpolates_integers, "engines round interpolated integers differently"),
    _Refused(
        "Resize",
        _smooths_one,
        "engines centre the antialias filter of a single result at different places",
    ),
    _Refused("Resize", _interpolates_a_crop, "engines place and extrapolate a crop differently"),
    _Refused(
        "ReduceLogSum ReduceLogSumExp",
        lambda n: (kind := _dtype(n)) is not None and kind.is_integer(),
        "logarithms of integers are rounded to integers in different ways",
    ),
    _Refused(
        "MeanVarianceNormalization",
        lambda n: _dtype(n) not in (None, ir.DataType.FLOAT),
        "ONNX defines it by constants of float32, so for data of float32 alone",
    ),
    _Refused(
        "LayerNormalization",
        lambda n: int_attribute(n, "stash_type", 1) != 1,
        "only the type float32 of its inner numbers (stash_type 1) has a kernel",
    ),
    _Refused(
        "GRU LSTM RNN",
        _has_other_activations,
        "only the activations Relu, Sigmoid and Tanh have kernels",
    ),
    _Refused(
        "LSTM",
        lambda n: "clip" in n.attributes,
        "engines differ in whether the cell is clipped before its activation",
    ),
    _Refused(
        "LSTM",
        lambda n: bool(int_attribute(n, "input_forget", 0)),
        "coupled gates (input_forget) have no kernel",
    ),
)


def refusal(node: ir.Node, opset: int) -> str | None:
    """Why a node of ONNX's own domain is not computed, by operator and version, or one of ONNX
    Runtime's, whatever its name; None: it is, or an extension says it.
    """
    if node.domain == ENGINE_DOMAIN and outside_operator(node) is None:
        return f"{node.op_type} is an operator of ONNX Runtime alone: ort-cpu may have it"
    if node.domain:
        return None
    for row in _REFUSED:
        if node.op_type in row.operators.split() and opset <= row.last and row.applies(node):
            return f"{node.op_type} of opset {opset}: {row.reason}"
    return None


def own_operators(operators: Iterable[str], opset: int) -> "list[type[OpRun]]":
    """Classes for the evaluator's ``new_ops``: those of ``operators`` at ``opset`` that are
    computed here.
    """
    found = []
    for operator in sorted(set(operators)):
        own = _OWN.get(operator)
        if own is None:
            continue
        try:
            schema = onnx.defs.get_schema(operator, opset)
        except onnx.defs.SchemaError:  # the model names an operator that its opset has not
            continue
        if own.first <= schema.since_version <= own.last:
            found.append(_class_of(operator, opset, schema, own.kernel))
    return found


def _class_of(
    operator: str, opset: int, schema: onnx.defs.OpSchema, kernel: Kernel
) -> "type[OpRun]":
    from onnx.reference.op_run import OpRun

    def evaluated(self: OpRun) -> Callable[..., Results]:
        from onnx.reference.ops import load_op

        def run(*inputs: Any, **attributes: Any) -> Results:  # noqa: ANN401 - arrays and attributes, as OpRun has them
            kind = load_op("", operator, opset)
            instance = kind(self.onnx_node, self.run_params)
            return tuple(instance._run(*inputs, **attributes))  # noqa: SLF001 - ``run`` takes no attributes

        return run

    def _run(self: OpRun, *inputs: Any, **attributes: Any) -> Results:  # noqa: ANN401
        call = Call(
            operator,
            int(schema.since_version),
            attributes,
            len(self.onnx_node.output),
            evaluated(self),
        )
        return kernel(call, inputs)

    return type(operator, (OpRun,), {"op_domain": "", "op_schema": schema, "_run": _run})
