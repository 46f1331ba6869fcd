"""A QDQ graph as a TFLite file: the same scales, zero points, weights and biases, number for
number.

The graph is lowered to operators on integers first, as for the integer interpreter. Then each is
one of TFLite:

    uint8 with zero point z    int8 with z − 128, every code less 128: the same real numbers
    NCHW                       NHWC from the first convolution or pool on; weights are transposed
                               here, a TRANSPOSE is written only where an order of elements is
                               read: inputs, outputs and a Reshape
    explicit padding           SAME where that is equal, else PAD with the zero point
    a Clip of codes            RELU fused into the operator before it where that is equal, else
                               MAXIMUM and MINIMUM
    Concat of many qparams     a QUANTIZE of every part that has others than the result
    what stays float           the float operator of TFLite, with constants dequantized here

Everything else is refused by name. Sources: tensorflow/lite/schema/schema.fbs, and the int8
    specification of LiteRT.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Array, require_taps
from qbench.errors import InputError
from qbench.graph import (
    INTEGER_FORMS,
    Form,
    constant_value,
    declared_dims,
    float_attribute,
    float_name,
    form_of,
    input_at,
    int_attribute,
    ints_attribute,
    node_qparams,
    shapes_alone,
    word_attribute,
)
from qbench.numerics import dequantize
from qbench.passes import canonicalize, lower_to_integers
from qbench_engines.tflite_file import (
    IMAGE,
    TO_LAST,
    Handler,
    Network,
    Operand,
    Operation,
    Shape,
    Tensor,
    TensorQParams,
    Written,
    codes_dtype,
    file_axis,
    refuse,
)

_SAME, _VALID = 0, 1
_PER_CHANNEL_DENSE = 12
"""The version of FULLY_CONNECTED that has a scale for each channel."""
_ACTIVATED = 4
"""The version of TRANSPOSE_CONV that has a bias and a fused activation."""
_LINE = 3
"""The rank of signals, which are pictures of height 1 here."""


def write_tflite(
    model: ir.Model,
    *,
    shapes: Mapping[str, Shape] | None = None,
    taps: Sequence[str] = (),
    backend: str = "",
) -> Written:
    """``model``, QDQ or float, as a TFLite file.

    Args:
        model: not changed.
        shapes: of its inputs, where they are not those that it declares; the batch is 1 otherwise.
        taps: values of the lowered graph that become outputs too.
        backend: for which it is written, for messages.

    Raises:
        InputError: the graph is invalid, a tap names no value, or a free axis has no usual size.
        UnsupportedError: TFLite has no operator for a node, or none that gives the same numbers.
        UnavailableError: flatbuffers or the schema is not installed.
    """
    if form_of(model) is Form.FLOAT:
        model = canonicalize(model)  # TFLite has no BatchNormalization: converters fold it
    lowered = lower_to_integers(model)
    computed = (value for node in lowered.graph for value in node.outputs)
    names = {value.name or "" for value in (*lowered.graph.inputs, *computed)}
    require_taps(taps, names, doing=f"Tapping '{lowered.graph.name}'", where="the lowered graph")
    doing = f"Writing '{model.graph.name}' as TFLite" + (f" for '{backend}'" if backend else "")
    unknown = [node for node in lowered.graph if _handler(node) is None]
    if unknown:
        refuse(doing, unknown[0], "qbench's TFLite writer has no operator for it")
    return Network(lowered, _sizes(model, shapes, doing), doing).written(tuple(taps), _handler)


def free_axes(model: ir.Model) -> list[str]:
    """The axes of inputs that have no size and no usual one, other than the batch, as
    ``name[axis]``.
    """
    usual = declared_dims(model)
    return [
        f"{value.name}[{place}]"
        for value in model.graph.inputs
        if value.shape is not None and value.name not in model.graph.initializers
        for place, size in enumerate(value.shape)
        if place and not isinstance(size, int) and (size.value or "") not in usual
    ]


def _sizes(model: ir.Model, shapes: Mapping[str, Shape] | None, doing: str) -> Mapping[str, Shape]:
    """Name of a value → its shape, with a batch of 1 or the ``shapes`` of the inputs."""
    sized = model
    if shapes:
        sized = model.clone()
        for value in sized.graph.inputs:
            if value.name in shapes:
                value.shape = ir.Shape(shapes[str(value.name)])
    free = free_axes(sized)
    if free:
        raise InputError(
            doing,
            found=f"a free axis {free[0]}",
            expected="a size for every axis but the batch",
            remedy="Fix the size in the model, since TFLite kernels are made for one.",
        )
    known = shapes_alone(sized, free_dims=1)
    values = (*known.graph.inputs, *(value for node in known.graph for value in node.outputs))
    return {
        str(value.name): tuple(size for size in value.shape if isinstance(size, int))
        for value in values
        if value.shape is not None and all(isinstance(size, int) for size in value.shape)
    }


# Products.


def _conv(net: Network, op: Operation) -> None:
    """CONV_2D and DEPTHWISE_CONV_2D; filters from (O, I, h, w) to (O, h, w, I) and (1, h, w, O).

    One axis is a picture of height 1, after a RESHAPE each way.
    """
    weight, bias = _constants(net, op, 0)
    if weight.ndim not in (_LINE, IMAGE):
        net.refuse(f"weights of {weight.ndim} axes, where TFLite's convolutions have 4")
    data = _operand_of(net, op, last=True)
    if weight.ndim == _LINE:
        weight, data = weight[:, :, None], _as_image(net, op, data)
    groups = int_attribute(op.node, "group", 1)
    depthwise = groups == data.shape[1] > 1
    stored = weight.transpose(1, 2, 3, 0) if depthwise else weight.transpose(0, 2, 3, 1)
    stored_qparams = _stored_qparams(op, 3 if depthwise else 0, data)
    data, padding = _padded(net, op, data, weight.shape[2:])
    strides, dilations = _steps(op.node, "strides"), _steps(op.node, "dilations")
    settings = {"padding": padding, "strideH": strides[0], "strideW": strides[1]}
    settings |= {"dilationHFactor": dilations[0], "dilationWFactor": dilations[1]}
    if depthwise:
        settings["depthMultiplier"] = len(weight) // groups
    value, settings["fusedActivationFunction"] = net.fused(op)
    out = _image_result(net, value, op, data.dtype)
    numbers = [data.number, *_stored_constants(net, op, stored, bias, stored_qparams)]
    table = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
    net.emit(
        "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", (table, settings), numbers, [out.number]
    )
    _flattened(net, value, op, out)


def _conv_transpose(net: Network, op: Operation) -> None:
    """TRANSPOSE_CONV, filters from (I, O, h, w) to (O, h, w, I); without padding, and a SLICE
    where there is some.

    The full result has (n − 1) s + k elements along an axis; ONNX takes those from the padding on.
    """
    weight, bias = _constants(net, op, 1)
    if (
        weight.ndim != IMAGE
        or int_attribute(op.node, "group", 1) != 1
        or set(_steps(op.node, "dilations")) != {1}
    ):
        net.refuse(
            "a transposed convolution that TFLite lacks: of another rank, grouped or dilated"
        )
    data = _operand_of(net, op, last=True)
    strides, wanted = _steps(op.node, "strides"), net.shape_of(op.out)
    full = [
        (n - 1) * s + k for n, s, k in zip(data.shape[2:], strides, weight.shape[2:], strict=True)
    ]
    if word_attribute(op.node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        net.refuse("padding that is chosen by the size of the result")
    first = (ints_attribute(op.node, "pads") or (0, 0))[:2]
    if any(start + size > have for start, size, have in zip(first, wanted[2:], full, strict=True)):
        net.refuse("rows behind those that its filter reaches")
    stored_qparams = _stored_qparams(op, 0, data)
    value, activation = net.fused(op)
    whole = list(wanted[2:]) == full
    shape = (*wanted[:2], *full)
    if whole:
        out = net.result(value, op.qparams, last=True, dtype=data.dtype)
    else:
        out = net.new(f"{value.name}_full", shape, data.dtype, op.qparams, last=True)
    constants = _stored_constants(net, op, weight.transpose(1, 2, 3, 0), bias, stored_qparams)
    settings = {"padding": _VALID, "strideH": strides[0], "strideW": strides[1]}
    settings["fusedActivationFunction"] = activation
    stored = net.index(np.array([shape[0], *shape[2:], shape[1]], np.int32))
    numbers = [stored, constants[0], data.number, constants[1]]
    net.emit(
        "TRANSPOSE_CONV",
        ("TransposeConvOptions", settings),
        numbers,
        [out.number],
        version=_ACTIVATED,
    )
    if not whole:
        made = net.result(value, op.qparams, last=True, dtype=data.dtype)
        begin = net.index(np.array([0, *first, 0], np.int32))
        size = net.index(np.array([wanted[0], *wanted[2:], wanted[1]], np.int32))
        net.emit("SLICE", ("SliceOptions", {}), [out.number, begin, size], [made.number], key="")


def _as_image(net: Network, op: Operation, data: Tensor) -> Tensor:
    """``data`` (n, c, l) as (n, c, 1, l) with its channels last."""
    shape = (*data.shape[:2], 1, *data.shape[2:])
    made = net.new(f"{op.out.name}_image", shape, data.dtype, data.qparams)
    net.reshape(data.number, made, key="")
    return net.turned(f"{op.out.name}_image", made, last=True)


def _image_result(net: Network, value: ir.Value, op: Operation, dtype: str) -> Tensor:
    """The result of a convolution: ``value`` itself, or the picture of height 1 that it is made
    of.
    """
    shape = net.shape_of(value)
    if len(shape) == IMAGE:
        return net.result(value, op.qparams, last=True, dtype=dtype)
    return net.new(f"{value.name}_image", (*shape[:2], 1, *shape[2:]), dtype, op.qparams, last=True)


def _flattened(net: Network, value: ir.Value, op: Operation, image: Tensor) -> None:
    """``value`` (n, c, l) of the picture ``image`` (n, c, 1, l); nothing where it is that
    picture.
    """
    if len(net.shape_of(value)) == IMAGE:
        return
    turned = net.turned(f"{value.name}_image", image, last=False)
    net.reshape(turned.number, net.result(value, op.qparams, dtype=image.dtype), key="")


def _dense(net: Network, op: Operation) -> None:
    """FULLY_CONNECTED, with weights (columns, depth)."""
    if int_attribute(op.node, "transA", 0):
        net.refuse("its data is transposed")
    if any(float_attribute(op.node, name, 1.0) != 1.0 for name in ("alpha", "beta")):
        net.refuse("it has factors other than 1")
    turned = op.name == "Gemm" and int_attribute(op.node, "transB", 0)
    weight, bias = _constants(net, op, 0 if turned else 1)
    if weight.ndim != 2:
        net.refuse(f"weights of {weight.ndim} axes, where TFLite has a matrix")
    data = _operand_of(net, op, last=False)
    stored_qparams = _stored_qparams(op, 0, data)
    value, activation = net.fused(op)
    out = net.result(value, op.qparams, dtype=data.dtype)
    numbers = [
        data.number,
        *_stored_constants(net, op, weight if turned else weight.T, bias, stored_qparams),
    ]
    settings = {"fusedActivationFunction": activation, "keepNumDims": len(data.shape) > 2}
    version = (
        _PER_CHANNEL_DENSE if stored_qparams is not None and stored_qparams[0].scale.size > 1 else 0
    )
    net.emit(
        "FULLY_CONNECTED",
        ("FullyConnectedOptions", settings),
        numbers,
        [out.number],
        version=version,
    )


def _constants(net: Network, op: Operation, channels: int) -> tuple[Array, Array]:
    """Weights and biases of a product, one bias per channel: codes and int32, or reals where
    the result is real.
    """
    weight = op.operands[1]
    assert weight is not None
    array = weight.constant
    if array is None:
        net.refuse("its weight is computed")
    count = array.shape[channels]
    if op.data.qparams is None:
        added = op.operands[2] if len(op.operands) > 2 else None
        bias = np.zeros(count, np.float32) if added is None else added.constant
        if bias is None:
            net.refuse("its bias is computed")
        return np.asarray(array, np.float32), np.broadcast_to(bias.reshape(-1), count).astype(
            np.float32
        )
    assert weight.qparams is not None
    bias = np.zeros(count, np.int32) if op.bias is None else op.bias.reshape(-1)
    bias = np.broadcast_to(bias, count).astype(np.int32)
    if op.qparams is not None:
        if np.any(weight.qparams.zero_point):
            net.refuse("weights with a zero point, where TFLite's kernels take symmetric ones")
        return array, bias
    along = tuple(-1 if axis == channels else 1 for axis in range(array.ndim))
    scale, zero = weight.qparams.scale.reshape(along), weight.qparams.zero_point.reshape(along)
    return (array.astype(np.float32) - zero.astype(np.float32)) * scale, bias.astype(
        np.float32
    ) * _product(op)


def _operand_of(net: Network, op: Operation, *, last: bool) -> Tensor:
    """The data of a product; dequantized where the result is real, since no kernel gives reals
    of codes.
    """
    data = net.read(op.data, last=last)
    if op.qparams is not None or data.dtype == "float32":
        return data
    made = net.new(f"{op.data.value.name}_real", data.shape, "float32", None, last=data.last)
    net.emit("DEQUANTIZE", ("DequantizeOptions", {}), [data.number], [made.number], key="")
    return made


def _product(op: Operation) -> npt.NDArray[np.float32]:
    """f32(s_x · s_w), the scale of sums and biases."""
    weight = op.operands[1]
    assert op.data.qparams is not None
    assert weight is not None
    assert weight.qparams is not None
    return np.asarray(op.data.qparams.scale * weight.qparams.scale, np.float32)


def _stored_qparams(
    op: Operation, axis: int, data: Tensor
) -> tuple[TensorQParams, TensorQParams] | None:
    """Of weights and biases; None: they are real."""
    weight = op.operands[1]
    if data.dtype == "float32" or weight is None or weight.qparams is None:
        return None
    product = _product(op)
    return TensorQParams(weight.qparams.scale, weight.qparams.zero_point, axis), TensorQParams(
        product, np.zeros(product.shape, np.int64)
    )


def _stored_constants(
    net: Network,
    op: Operation,
    weight: Array,
    bias: Array,
    stored_qparams: tuple[TensorQParams, TensorQParams] | None,
) -> tuple[int, int]:
    first, second = (None, None) if stored_qparams is None else stored_qparams
    value = op.operands[1]
    assert value is not None
    stored = net.file.add_tensor(
        str(value.value.name), weight.shape, str(weight.dtype), first, weight
    )
    return stored, net.file.add_tensor(
        f"{op.out.name}_bias", bias.shape, str(bias.dtype), second, bias
    )


# Windows.


def _steps(node: ir.Node, name: str) -> tuple[int, int]:
    """Of both axes; a signal has height 1."""
    given = ints_attribute(node, name) or (1, 1)
    return (1, given[0]) if len(given) == 1 else (given[0], given[1])


def _padded(
    net: Network,
    op: Operation,
    data: Tensor,
    kernel: Sequence[int],
    *,
    lowest: bool = False,
    counted: bool = True,
) -> tuple[Tensor, int]:
    """The data of a window and its padding: SAME or VALID as they are, else VALID after a PAD.

    Args:
        lowest: pad with the least value, as maxima need it.
        counted: whether the padding may be data.
    """
    strides, dilations = _steps(op.node, "strides"), _steps(op.node, "dilations")
    size, out = data.shape[2:], net.shape_of(op.out)[2:]
    out = (1, *out) if len(out) == 1 else out
    reach = [
        (o - 1) * s + (k - 1) * d + 1
        for o, s, k, d in zip(out, strides, kernel, dilations, strict=True)
    ]
    missing = [max(need - have, 0) for need, have in zip(reach, size, strict=True)]
    before = _before(op.node, missing)
    if all(
        o == -(-n // s) and b == m // 2
        for o, n, s, b, m in zip(out, size, strides, before, missing, strict=True)
    ):
        return data, _SAME
    if not any((*before, *missing)):
        return data, _VALID
    if not counted:
        net.refuse("its padding does not count, and is not that of TFLite's SAME")
    pads = [(b, max(m - b, 0)) for b, m in zip(before, missing, strict=True)]
    shape = (*data.shape[:2], *(n + b + a for n, (b, a) in zip(size, pads, strict=True)))
    made = net.new(f"{op.data.value.name}_padded", shape, data.dtype, data.qparams, last=True)
    numbers = [data.number, net.index(np.array([(0, 0), *pads, (0, 0)], np.int32))]
    if lowest:
        least = (
            np.array([-128], np.int8)
            if data.qparams is not None
            else np.array([-np.inf], np.float32)
        )
        numbers.append(net.file.add_tensor("", (1,), str(least.dtype), data.qparams, least))
    net.emit(
        "PADV2" if lowest else "PAD",
        ("PadV2Options" if lowest else "PadOptions", {}),
        numbers,
        [made.number],
        key="",
    )
    return made, _VALID


def _before(node: ir.Node, missing: Sequence[int]) -> tuple[int, ...]:
    """The padding before the first element, of every axis."""
    automatic = word_attribute(node, "auto_pad", "NOTSET")
    if automatic == "SAME_UPPER":
        return tuple(count // 2 for count in missing)
    if automatic == "SAME_LOWER":
        return tuple(count - count // 2 for count in missing)
    pads = ints_attribute(node, "pads")
    if not pads or automatic != "NOTSET":
        return (0,) * len(missing)
    before = pads[: len(pads) // 2]
    return (0,) * (len(missing) - len(before)) + before  # a signal has height 1


def _pool(net: Network, op: Operation) -> None:
    """MAX_POOL_2D, whose padding is the least value; AVERAGE_POOL_2D, which divides by the
    elements that are there.
    """
    data, largest = net.read(op.data, last=True), op.name == "MaxPool"
    kernel = ints_attribute(op.node, "kernel_shape")
    if (
        len(data.shape) != IMAGE
        or len(op.node.outputs) > 1
        or set(_steps(op.node, "dilations")) != {1}
    ):
        net.refuse("a window that TFLite's pools lack: another rank, indices, or dilations")
    if op.qparams is not None and not op.qparams.same_as(data.qparams):
        net.refuse("a result with other qparams than its data, where TFLite's pools have one set")
    counted = largest or bool(int_attribute(op.node, "count_include_pad", 0))
    inside = data
    data, padding = _padded(net, op, data, kernel, lowest=largest, counted=counted)
    if (
        padding == _SAME
        and counted
        and not largest
        and inside.shape[2:] != net.shape_of(op.out)[2:]
    ):
        net.refuse("its padding counts")
    strides = _steps(op.node, "strides")
    settings = {"padding": padding, "strideH": strides[0], "strideW": strides[1]}
    settings |= {"filterHeight": kernel[0], "filterWidth": kernel[1]}
    out = net.result(op.out, inside.qparams, last=True, dtype=data.dtype)
    operator = "MAX_POOL_2D" if largest else "AVERAGE_POOL_2D"
    net.emit(operator, ("Pool2DOptions", settings), [data.number], [out.number])


def _mean(net: Network, op: Operation) -> None:
    """MEAN over any axes."""
    rank, keep = len(net.shape_of(op.data.value)), True
    axes = tuple(range(2, rank))
    if op.name == "ReduceMean":
        keep = bool(int_attribute(op.node, "keepdims", 1))
        given = op.operands[1] if len(op.operands) > 1 else None
        listed = ints_attribute(op.node, "axes")
        if given is not None:
            if given.constant is None:
                net.refuse("its axes are computed")
            listed = tuple(int(axis) for axis in given.constant.reshape(-1))
        axes = tuple(axis % rank for axis in listed) or tuple(range(rank))
    last = (net.is_last([op.data]) or op.name != "ReduceMean") and (keep or set(axes) == {2, 3})
    data = net.read(op.data, last=last)
    over = net.index(
        np.array(sorted(file_axis(axis, rank, last=data.last) for axis in axes), np.int32)
    )
    out = net.result(op.out, op.qparams, last=data.last, dtype=data.dtype)
    net.emit("MEAN", ("ReducerOptions", {"keepDims": keep}), [data.number, over], [out.number])


# Functions of one value and of two.

_FIXED = MappingProxyType(
    {"Sigmoid": (1 / 256, -128), "Softmax": (1 / 256, -128), "Tanh": (1 / 128, 0)}
)
"""The qparams that TFLite's kernels have for a result."""
_ONE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "HardSwish": ("HARD_SWISH", "HardSwishOptions"),
        "LeakyRelu": ("LEAKY_RELU", "LeakyReluOptions"),
        "Relu": ("RELU", ""),
        "Sigmoid": ("LOGISTIC", ""),
        "Softmax": ("SOFTMAX", "SoftmaxOptions"),
        "Tanh": ("TANH", ""),
    }
)
_PAIRS = MappingProxyType(
    {
        "Add": ("ADD", "AddOptions"),
        "Max": ("MAXIMUM", "MaximumMinimumOptions"),
        "Min": ("MINIMUM", "MaximumMinimumOptions"),
        "Mul": ("MUL", "MulOptions"),
        "Sub": ("SUB", "SubOptions"),
    }
)
_OF_SAME_QPARAMS = frozenset({"Max", "Min"})


def _function(net: Network, op: Operation) -> None:
    """A function of one value, or Softmax along the last axis of the file."""
    fixed = _FIXED.get(op.name)
    if op.qparams is not None and fixed is not None:
        wanted = TensorQParams(np.array([fixed[0]], np.float32), np.array([fixed[1]], np.int64))
        if not wanted.same_as(op.qparams):
            net.refuse(
                f"a result of scale {op.qparams.scale[0]:.6g}, where TFLite's kernel has "
                f"{fixed[0]:.6g}"
            )
    data = net.read(op.data)
    operator, table = _ONE[op.name]
    settings: dict[str, object] = {}
    if op.name == "LeakyRelu":
        settings["alpha"] = float_attribute(op.node, "alpha", 0.01)
    elif op.name == "Softmax":
        settings["beta"] = 1.0
        rank = len(data.shape)
        axis = int_attribute(op.node, "axis", -1) % rank
        if file_axis(axis, rank, last=data.last) != rank - 1:
            data = net.read(op.data, last=not data.last)
            if file_axis(axis, rank, last=data.last) != rank - 1:
                net.refuse("it is not along the last axis")
    out = net.result(op.out, op.qparams, last=data.last, dtype=data.dtype)
    net.emit(operator, (table, settings) if table else None, [data.number], [out.number])


def _pair(net: Network, op: Operation) -> None:
    """A function of two values, with broadcasting."""
    operands = [operand for operand in op.operands if operand is not None]
    if len(operands) != 2:
        net.refuse("it has another number of operands than 2")
    if op.qparams is not None and any(operand.qparams is None for operand in operands):
        net.refuse("an operand is a real constant")
    rank = len(net.shape_of(op.out))
    last = (
        net.is_last([operand for operand in operands if operand.constant is None]) and rank == IMAGE
    )
    tensors = [net.read(operand, last=last, rank=rank) for operand in operands]
    if op.name in _OF_SAME_QPARAMS and op.qparams is not None:
        tensors = [_brought(net, tensor, op.qparams) for tensor in tensors]
    operator, table = _PAIRS[op.name]
    if op.name in _OF_SAME_QPARAMS:
        value, settings = op.out, {}
    else:
        value, activation = net.fused(op)
        settings = {"fusedActivationFunction": activation}
    out = net.result(value, op.qparams, last=last, dtype=tensors[0].dtype)
    net.emit(operator, (table, settings), [tensor.number for tensor in tensors], [out.number])


def _brought(net: Network, tensor: Tensor, qparams: TensorQParams) -> Tensor:
    """``tensor`` with the qparams ``qparams``, by a QUANTIZE where it has others."""
    if qparams.same_as(tensor.qparams):
        return tensor
    assert net.node is not None
    made = net.new(
        f"{net.node.name}_operand{tensor.number}", tensor.shape, "int8", qparams, last=tensor.last
    )
    net.emit("QUANTIZE", ("QuantizeOptions", {}), [tensor.number], [made.number], key="")
    return made


def _real_ends(net: Network, op: Operation) -> tuple[float, float]:
    """The least and the greatest value of a Clip of reals; infinite where it has no such end."""
    ends = [-math.inf, math.inf]
    for place, end in enumerate(op.operands[1:3]):
        if end is None:
            continue
        if end.constant is None:
            net.refuse("its ends are computed")
        ends[place] = float(end.constant.reshape(-1)[0])
    return ends[0], ends[1]


def _clip(net: Network, op: Operation) -> None:
    """RELU where the Clip is just that; otherwise MAXIMUM and MINIMUM with constants."""
    data = net.read(op.data)
    low: float
    high: float
    if data.qparams is not None:
        low, high = net.limits(op.node, codes_dtype(op.out))
        ends: list[tuple[str, float, float]] = [("MAXIMUM", low, -128), ("MINIMUM", high, 127)]
        relu = low == int(data.qparams.zero_point[0])
    else:
        low, high = _real_ends(net, op)
        ends, relu = [("MAXIMUM", low, -math.inf), ("MINIMUM", high, math.inf)], low == 0
    steps = [(name, end) for name, end, nothing in ends if end != nothing]
    if not steps:
        net.known[str(op.out.name)] = {data.last: data}
        return
    for place, (name, end) in enumerate(steps):
        final = place == len(steps) - 1
        if final:
            out = net.result(op.out, data.qparams, last=data.last, dtype=data.dtype)
        else:
            out = net.new(
                f"{op.out.name}_low", data.shape, data.dtype, data.qparams, last=data.last
            )
        if relu and name == "MAXIMUM":
            net.emit("RELU", None, [data.number], [out.number])
        else:
            kind = np.int8 if data.qparams is not None else np.float32
            limit = net.constant("", np.full((1,), end, kind), data.qparams)
            net.emit(name, ("MaximumMinimumOptions", {}), [data.number, limit.number], [out.number])
        data = out


# Conversions.


def _quantize(net: Network, op: Operation) -> None:
    """QUANTIZE, of reals or from one set of qparams to another."""
    data, qparams = net.read(op.data), op.qparams
    if qparams is None:
        qparams = net.qparams(_needed(op, 1), input_at(op.node, 2), codes_dtype(op.out))
    if qparams.scale.size != 1:
        net.refuse("activations with more than one scale")
    if data.dtype not in {"float32", "int8"}:
        net.refuse(f"data of type {data.dtype}")
    out = net.result(op.out, qparams, last=data.last)
    net.emit("QUANTIZE", ("QuantizeOptions", {}), [data.number], [out.number])


def _dequantize(net: Network, op: Operation) -> None:
    """DEQUANTIZE; of constants their reals, by ONNX's rule."""
    stored = constant_value(op.data.value)
    if stored is not None:
        known = node_qparams(op.node)
        if known is None:
            net.refuse("its qparams are computed")
        net.reals[str(op.out.name)] = dequantize(stored, known)
        return
    qparams = net.qparams(_needed(op, 1), input_at(op.node, 2), codes_dtype(op.data.value))
    data = net.read(Operand(op.data.value, qparams))
    out = net.result(op.out, None, last=data.last, dtype="float32")
    net.emit("DEQUANTIZE", ("DequantizeOptions", {}), [data.number], [out.number])


def _needed(op: Operation, index: int) -> ir.Value:
    value = input_at(op.node, index)
    assert value is not None
    return value


# What only moves values.


def _reshape(net: Network, op: Operation) -> None:
    """RESHAPE; channels come first again before it, where that changes the order of elements."""
    data = net.read(op.data)
    if data.last and data.shape[1] != 1 and data.shape[2] * data.shape[3] != 1:
        data = net.read(op.data, last=False)
    net.reshape(data.number, net.result(op.out, data.qparams, dtype=data.dtype))


def _same(net: Network, op: Operation) -> None:
    data = net.read(op.data)
    net.known[str(op.out.name)] = {data.last: data}


def _transpose(net: Network, op: Operation) -> None:
    """TRANSPOSE; none where the file has the order already."""
    data = net.read(op.data)
    rank = len(data.shape)
    order = ints_attribute(op.node, "perm") or tuple(reversed(range(rank)))
    stored = tuple(file_axis(axis, rank, last=data.last) for axis in order)
    if stored == tuple(range(rank)):
        shape = tuple(data.shape[axis] for axis in order)
        net.known[str(op.out.name)] = {False: Tensor(data.number, shape, data.dtype, data.qparams)}
        return
    out = net.result(op.out, data.qparams, dtype=data.dtype)
    numbers = [data.number, net.index(np.array(stored, np.int32))]
    net.emit("TRANSPOSE", ("TransposeOptions", {}), numbers, [out.number])


def _concat(net: Network, op: Operation) -> None:
    """CONCATENATION, after a QUANTIZE of every part that has other qparams than the result."""
    operands = [operand for operand in op.operands if operand is not None]
    computed = [operand for operand in operands if operand.constant is None]
    rank = len(net.shape_of(op.out))
    last = net.is_last(computed) and rank == IMAGE
    tensors = [net.read(operand, last=last, rank=rank) for operand in operands]
    if op.qparams is not None:
        tensors = [_brought(net, tensor, op.qparams) for tensor in tensors]
    out = net.result(op.out, op.qparams or tensors[0].qparams, last=last, dtype=tensors[0].dtype)
    axis = file_axis(int_attribute(op.node, "axis", 0), rank, last=last)
    options = ("ConcatenationOptions", {"axis": axis})
    net.emit("CONCATENATION", options, [tensor.number for tensor in tensors], [out.number])


def _pad(net: Network, op: Operation) -> None:
    """PAD with the zero point, PADV2 with another constant."""
    data, pads = net.read(op.data), op.operands[1] if len(op.operands) > 1 else None
    if (
        word_attribute(op.node, "mode", "constant") != "constant"
        or pads is None
        or pads.constant is None
    ):
        net.refuse("a padding that is computed, or no constant")
    if input_at(op.node, 3) is not None or np.any(pads.constant < 0):
        net.refuse("a padding of some axes, or less than 0")
    rank = len(data.shape)
    pairs = pads.constant.reshape(2, rank).T
    stored = np.array([pairs[TO_LAST[at] if data.last else at] for at in range(rank)], np.int32)
    numbers = [data.number, net.index(stored)]
    operator, options = "PAD", "PadOptions"
    code = _filler(net, op, data)
    if code is not None:
        operator, options = "PADV2", "PadV2Options"
        numbers.append(
            net.file.add_tensor("", (1,), str(code.dtype), data.qparams, code.reshape(1))
        )
    out = net.result(op.out, data.qparams, last=data.last, dtype=data.dtype)
    net.emit(operator, (options, {}), numbers, [out.number])


def _filler(net: Network, op: Operation, data: Tensor) -> Array | None:
    """The constant of a padding, a code where ``data`` is quantized; None where it is zero."""
    filler = op.operands[2] if len(op.operands) > 2 else None
    if filler is None:
        return None
    known = constant_value(filler.value)
    if known is None:
        net.refuse("its value is computed")
    if data.qparams is None:
        code, zero = np.asarray(known, np.float32), 0
    else:
        code, zero = net.codes(known, codes_dtype(filler.value)), int(data.qparams.zero_point[0])
    return None if int(code.reshape(-1)[0]) == zero else code


def _resize(net: Network, op: Operation) -> None:
    """RESIZE_NEAREST_NEIGHBOR, where every size is a multiple and each element is repeated."""
    data, shape = net.read(op.data, last=True), net.shape_of(op.out)
    mode = word_attribute(op.node, "mode", "nearest")
    if mode != "nearest" or len(data.shape) != IMAGE or shape[:2] != data.shape[:2]:
        net.refuse("a Resize other than to the nearest pixel of pictures")
    place = word_attribute(op.node, "coordinate_transformation_mode", "half_pixel")
    pick = word_attribute(op.node, "nearest_mode", "round_prefer_floor")
    whole = all(new % old == 0 for new, old in zip(shape[2:], data.shape[2:], strict=True))
    if not whole or (place, pick) not in _REPEATING:
        net.refuse(
            f"a Resize by {place} and {pick} to sizes that are no multiple, which TFLite rounds "
            "otherwise"
        )
    out = net.result(op.out, data.qparams, last=True, dtype=data.dtype)
    numbers = [data.number, net.index(np.array(shape[2:], np.int32))]
    net.emit("RESIZE_NEAREST_NEIGHBOR", ("ResizeNearestNeighborOptions", {}), numbers, [out.number])


_REPEATING = frozenset(
    {
        ("asymmetric", "floor"),
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "round_prefer_ceil"),
        ("half_pixel_symmetric", "round_prefer_floor"),
        ("half_pixel_symmetric", "round_prefer_ceil"),
        ("pytorch_half_pixel", "round_prefer_floor"),
        ("pytorch_half_pixel", "round_prefer_ceil"),
    }
)
"""Places and rounding of a Resize that repeat every element k times, where the new size is k
times the old one.
"""

_HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "AveragePool": _pool,
        "Clip": _clip,
        "Concat": _concat,
        "Conv": _conv,
        "ConvTranspose": _conv_transpose,
        "DequantizeLinear": _dequantize,
        "Flatten": _reshape,
        "Gemm": _dense,
        "GlobalAveragePool": _mean,
        "Identity": _same,
        "MatMul": _dense,
        "MaxPool": _pool,
        "Pad": _pad,
        "QuantizeLinear": _quantize,
        "ReduceMean": _mean,
        "Requantize": _quantize,
        "Reshape": _reshape,
        "Resize": _resize,
        "Squeeze": _reshape,
        "Transpose": _transpose,
        "Unsqueeze": _reshape,
        **dict.fromkeys(_ONE, _function),
        **dict.fromkeys(_PAIRS, _pair),
    }
)


def _handler(node: ir.Node) -> Handler | None:
    """What writes ``node``; None: nothing does."""
    known = not node.domain or (node.domain, node.op_type) in INTEGER_FORMS
    return _HANDLERS.get(float_name(node.op_type)) if known else None
