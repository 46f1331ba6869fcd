"""Strategies for reductions, products, attention, recurrences, transforms and quantization."""

from typing import Any

import numpy as np

from operator_cases.float_ground import Array, Draw, Example, Strategy


def _ints(values: Any) -> Array:
    return np.asarray(values, np.int64)


def _levels(draw: Draw, kind: np.dtype[Any], shape: Any) -> Array:
    """Of 7 bits: pairs of products of 8 bits saturate
    in ONNX Runtime on processors without VNNI.
    """
    return draw.random.integers(
        max(np.iinfo(kind).min, -64), min(np.iinfo(kind).max, 127) // 2 + 1, shape
    ).astype(kind)


def reduction(draw: Draw) -> Example:
    """Axes as an attribute or an input, kept or not, or none at all."""
    x = draw.numbers(draw.shape(0 if draw.maybe(0.1) else 1), draw.dtype("T"))
    if draw.operator == "ReduceLogSum":
        x = np.abs(x) + np.ones((), x.dtype)
    if draw.operator == "ReduceProd" and x.dtype.kind in "iu":
        x = np.clip(x, 0 if x.dtype.kind == "u" else -1, 1).astype(x.dtype)
    attributes: dict[str, Any] = {"keepdims": draw.whole(0, 1)} if draw.maybe(0.7) else {}
    axes = draw.axes(x.ndim) if x.ndim and draw.maybe(0.8) else None
    inputs: list[Array | None] = [x]
    if draw.since >= (13 if draw.operator == "ReduceSum" else 18) and draw.operator in REDUCTIONS:
        if draw.maybe(0.3):
            attributes["noop_with_empty_axes"] = draw.whole(0, 1)
        if axes is not None or draw.maybe(0.3):
            inputs.append(_ints(axes or []))
    elif axes is not None:
        attributes["axes"] = axes
    return Example(
        inputs, attributes, fixed=frozenset({1} if draw.maybe(0.7) else ()), terms=True, slack=2
    )


def arg(draw: Draw) -> Example:
    """With ties."""
    dtype = draw.dtype("T")
    x = np.round(draw.numbers(draw.shape(), dtype)).astype(dtype)
    attributes: dict[str, Any] = {"axis": draw.axis(x.ndim)} if draw.maybe(0.8) else {}
    if draw.maybe():
        attributes["keepdims"] = draw.whole(0, 1)
    if draw.since >= 12 and draw.maybe():
        attributes["select_last_index"] = draw.whole(0, 1)
    return Example([x], attributes)


def softmax(draw: Draw) -> Example:
    """Along an axis, or over all behind it before version 13."""
    x = draw.numbers(draw.shape(), draw.dtype("T", only="f"), low=-9, high=9)
    if draw.maybe(0.2):
        x = (x * 100).astype(x.dtype) if x.dtype != np.float16 else x
    return Example(
        [x], {"axis": draw.axis(x.ndim)} if draw.maybe(0.7) or x.ndim < 2 else {}, slack=2
    )


def matmul(draw: Draw) -> Example:
    """Of ranks 1 to 4 that broadcast."""
    dtype, (m, k, n) = draw.dtype("T"), draw.wholes(3, 1, 6)
    lead = draw.shape(0, 2)
    a = [k] if draw.maybe(0.15) else [*draw.smaller(lead), m, k]
    b = [k] if draw.maybe(0.15) else [*draw.smaller(lead), k, n]
    return Example(
        [draw.numbers(a, dtype), draw.numbers(b, dtype)],
        fixed=frozenset({1} if draw.maybe() else ()),
        terms=True,
    )


def gemm(draw: Draw) -> Example:
    """Transposed or not, with factors, and a C that broadcasts."""
    dtype, (m, k, n) = draw.dtype("T"), draw.wholes(3, 1, 6)
    attributes: dict[str, Any] = {
        name: draw.whole(0, 1) for name in ("transA", "transB") if draw.maybe()
    }
    attributes |= {
        name: draw.choose(0.5, 2.0, 1.0, 0.0) for name in ("alpha", "beta") if draw.maybe(0.4)
    }
    a = draw.numbers([k, m] if attributes.get("transA") else [m, k], dtype)
    b = draw.numbers([n, k] if attributes.get("transB") else [k, n], dtype)
    inputs = [a, b]
    if draw.since < 11 or draw.maybe(0.8):
        inputs.append(draw.numbers(draw.choose([m, n], [n], [1, n], [m, 1], [1], []), dtype))
    return Example(inputs, attributes, fixed=frozenset({1, 2} if draw.maybe() else ()), terms=True)


def einsum(draw: Draw) -> Example:
    """Products, traces, sums, ellipses, an implicit result."""
    equation = draw.choose(
        "ij,jk->ik", "ij,jk", "bij,bjk->bik", "ij->ji", "ij->i", "ij->", "ii->i", "ii->",
        "...ij,...jk->...ik", "i,j->ij", "ij,ij->", "bhid,bhjd->bhij", "ijk,kl->ijl", "i,i",
        "ij,kj,kl->il", "...i->...", "ab,bc,cd",
    )  # fmt: skip
    sizes = {letter: draw.whole(1, 4) for letter in "abcdhijkl"}
    dots, dtype = draw.shape(1, 2, 3), draw.dtype("T")
    terms = equation.split("->")[0].split(",")
    shapes = [
        (dots if term.startswith("...") else [])
        + [sizes[letter] for letter in term if letter.isalpha()]
        for term in terms
    ]
    text = equation.replace(",", " , ") if draw.maybe(0.2) else equation
    return Example([draw.numbers(shape, dtype) for shape in shapes], {"equation": text}, terms=True)


def cumulative(draw: Draw) -> Example:
    """Forwards or backwards, with the element itself or not."""
    x = draw.numbers(draw.shape(), draw.dtype("T"))
    attributes = {name: draw.whole(0, 1) for name in ("exclusive", "reverse") if draw.maybe()}
    axis = np.array(draw.whole(-x.ndim, x.ndim - 1), draw.choose(np.int64, np.int32))
    return Example(
        [x, axis], attributes, fixed=frozenset({1} if draw.maybe(0.7) else ()), terms=True
    )


def determinant(draw: Draw) -> Example:
    """Of one matrix or many."""
    size = draw.whole(1, 4)
    return Example([draw.numbers([*draw.shape(0, 2), size, size])], slack=8)


def recurrent(draw: Draw) -> Example:
    """Every direction, initial states, lengths, activations, clip, layout."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[draw.operator]
    steps, batch, features, hidden = (
        draw.whole(1, 4),
        draw.whole(1, 3),
        draw.whole(1, 4),
        draw.whole(1, 4),
    )
    direction = draw.choose("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if direction != "forward" or draw.maybe(0.3):
        attributes["direction"] = direction
    has_layout = draw.since >= 14 and draw.maybe(0.2)
    if has_layout:
        attributes["layout"] = 1
    if draw.operator == "GRU" and draw.maybe():
        attributes["linear_before_reset"] = draw.whole(0, 1)
    if draw.operator == "LSTM" and draw.maybe(0.1):
        attributes["input_forget"] = 1
    if draw.maybe(0.15):
        attributes["clip"] = 0.8
    if draw.maybe(0.2):
        each = {"RNN": 1, "GRU": 2, "LSTM": 3}[draw.operator]
        attributes["activations"] = [
            draw.choose("Sigmoid", "Tanh", "Relu") for _ in range(each)
        ] * ways
    x = draw.numbers([batch, steps, features] if has_layout else [steps, batch, features])
    inputs: list[Array | None] = [
        x,
        draw.numbers([ways, gates * hidden, features], low=-1, high=1),
        draw.numbers([ways, gates * hidden, hidden], low=-1, high=1),
        draw.numbers([ways, 2 * gates * hidden], low=-1, high=1) if draw.maybe(0.7) else None,
        draw.random.integers(1, steps + 1, batch).astype(np.int32) if draw.maybe(0.3) else None,
    ]
    state = [batch, ways, hidden] if has_layout else [ways, batch, hidden]
    inputs.append(draw.numbers(state, low=-1, high=1) if draw.maybe() else None)
    count = {"RNN": 2, "GRU": 2, "LSTM": 3}[draw.operator]
    if draw.operator == "LSTM":
        inputs.append(draw.numbers(state, low=-1, high=1) if draw.maybe() else None)
        inputs.append(draw.numbers([ways, 3 * hidden], low=-1, high=1) if draw.maybe(0.2) else None)
    while inputs[-1] is None:
        inputs.pop()
    outputs: list[bool] = [draw.maybe(0.8) for _ in range(count)]
    if not any(outputs):
        outputs[0] = True
    while not outputs[-1]:
        outputs.pop()
    return Example(
        inputs,
        attributes,
        outputs,
        fixed=frozenset({1, 2, 3, 7} if draw.maybe(0.7) else ()),
        slack=16,
    )


def attention(draw: Draw) -> Example:
    """Three or four dimensions, groups of queries, masks, causal or not, a past."""
    batch, groups, size, length, total = (
        draw.whole(1, 2),
        draw.whole(1, 2),
        draw.whole(1, 4),
        draw.whole(1, 4),
        draw.whole(1, 4),
    )
    heads = groups * draw.choose(1, 1, 2)
    value_size = draw.choose(size, draw.whole(1, 4))
    is_deep = draw.maybe()
    attributes: dict[str, Any] = {}
    if is_deep:
        shapes = [
            [batch, heads, length, size],
            [batch, groups, total, size],
            [batch, groups, total, value_size],
        ]
    else:
        shapes = [
            [batch, length, heads * size],
            [batch, total, groups * size],
            [batch, total, groups * value_size],
        ]
        attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    if draw.maybe(0.4):
        attributes["is_causal"] = draw.whole(0, 1)
    if draw.maybe(0.3):
        attributes["scale"] = 0.7
    if draw.maybe(0.2):
        attributes["softcap"] = 2.0
    inputs: list[Array | None] = [draw.numbers(shape) for shape in shapes]
    past = draw.whole(1, 3) if draw.maybe(0.3) else 0
    mask = None
    if draw.maybe():
        lead = draw.choose([], [batch, heads], [1, 1], [batch, 1])
        mask = draw.numbers([*lead, length, total + past], draw.choose(np.float32, bool))
        if mask.dtype == bool:
            mask[..., 0] = True
    inputs.append(mask)
    outputs: list[bool] = [True]
    if past:
        inputs += [draw.numbers([batch, groups, past, n]) for n in (size, value_size)]
        outputs = [True, True, True]
    if draw.maybe(0.15):
        attributes["qk_matmul_output_mode"] = draw.whole(0, 3)
        outputs = [True, bool(past), bool(past), True]
    while inputs[-1] is None:
        inputs.pop()
    return Example(inputs, attributes, outputs, slack=16)


def rotary(draw: Draw) -> Example:
    """Three or four dimensions, a part of each head, interleaved or not."""
    batch, heads, length, half = (
        draw.whole(1, 2),
        draw.whole(1, 3),
        draw.whole(1, 4),
        draw.whole(1, 3),
    )
    size, attributes = 2 * half, {}
    turned = half
    if draw.maybe(0.3) and half > 1:
        turned = draw.whole(1, half)
        attributes["rotary_embedding_dim"] = 2 * turned
    if draw.maybe():
        attributes["interleaved"] = draw.whole(0, 1)
    if draw.maybe():
        x = draw.numbers([batch, heads, length, size])
    else:
        x = draw.numbers([batch, length, heads * size])
        attributes["num_heads"] = heads
    if draw.maybe():
        places = draw.random.integers(0, 6, (batch, length)).astype(np.int64)
        caches = [draw.numbers([6, turned], low=-1, high=1) for _ in range(2)]
        return Example([x, *caches, places], attributes, slack=4)
    return Example(
        [x, *(draw.numbers([batch, length, turned], low=-1, high=1) for _ in range(2))],
        attributes,
        slack=4,
    )


def fourier(draw: Draw) -> Example:
    """One-sided or inverse, of a length of its own."""
    is_complex = draw.maybe(0.4)
    shape = [*draw.shape(2, 3), 2 if is_complex else 1]
    axis = draw.whole(1, len(shape) - 2) if draw.maybe(0.7) else 1
    attributes: dict[str, Any] = {}
    if is_complex and draw.maybe():
        attributes["inverse"] = 1
    elif not is_complex and draw.maybe():
        attributes["onesided"] = 1
    inputs: list[Array | None] = [draw.numbers(shape)]
    if draw.maybe(0.3):
        inputs.append(_ints(draw.whole(1, 6)))
    if draw.since < 20:
        attributes["axis"] = axis
    else:
        inputs = [*inputs, *[None] * (2 - len(inputs)), _ints(axis)]
    return Example(inputs, attributes, fixed=frozenset({1, 2}), slack=16)


def short_fourier(draw: Draw) -> Example:
    """Frames with a window or without."""
    length, step, batch = draw.whole(2, 6), draw.whole(1, 3), draw.whole(1, 3)
    signal = draw.numbers([batch, length + draw.whole(0, 8), 1])
    attributes = {"onesided": draw.whole(0, 1)} if draw.maybe(0.7) else {}
    window = draw.numbers([length], low=0, high=1) if draw.maybe() else None
    return Example(
        [signal, _ints(step), window, _ints(length)], attributes, fixed=frozenset({1, 3}), slack=16
    )


def window(draw: Draw) -> Example:
    """Of a given size."""
    attributes = {"periodic": draw.whole(0, 1)} if draw.maybe(0.7) else {}
    return Example([_ints(draw.whole(3, 12))], attributes, slack=16)


def mel(draw: Draw) -> Example:
    """A matrix of triangular filters."""
    values = [
        _ints(draw.whole(2, 8)),
        _ints(draw.choose(16, 32, 64)),
        _ints(draw.choose(8000, 16000)),
    ]
    edges = [
        np.array(v, np.float32) for v in (float(draw.whole(0, 200)), float(draw.whole(2000, 4000)))
    ]
    return Example([*values, *edges])


def loss(draw: Draw) -> Example:
    """Class scores of samples, weighted, reduced or not, some classes ignored."""
    classes = draw.whole(2, 5)
    rest = draw.shape(0, 2, 3)
    scores = draw.numbers([draw.whole(1, 4), classes, *rest])
    labels = draw.random.integers(0, classes, [scores.shape[0], *rest]).astype(np.int64)
    attributes: dict[str, Any] = (
        {"reduction": draw.choose("none", "mean", "sum")} if draw.maybe(0.8) else {}
    )
    if draw.maybe(0.3):
        attributes["ignore_index"] = draw.whole(0, classes - 1)
        labels.reshape(-1)[0] = (attributes["ignore_index"] + 1) % classes
    inputs = [scores, labels]
    if draw.maybe(0.4):
        inputs.append(draw.numbers([classes], low=0.1, high=2).__abs__() + np.float32(0.1))
    outputs = draw.choose(1, 2) if draw.operator == "SoftmaxCrossEntropyLoss" else 1
    return Example(inputs, attributes, outputs, slack=8)


def quantize(draw: Draw) -> Example:
    """Per tensor, channel or block; values that saturate, ties, infinities."""
    x = draw.numbers(draw.wholes(draw.whole(1, 4), 2, 4), np.float32, low=-40, high=40)
    axis = draw.whole(0, x.ndim - 1)
    kind = np.dtype(
        draw.choose(np.uint8, np.int8, *([np.int16, np.uint16] if draw.since >= 21 else []))
    )
    shape: list[int] = [] if draw.since < 13 or draw.maybe() else [x.shape[axis]]
    attributes: dict[str, Any] = {"axis": axis} if shape else {}
    if draw.since >= 21 and shape and draw.maybe(0.4):
        attributes["block_size"] = 2
        shape = [-(-n // 2) if i == axis else n for i, n in enumerate(x.shape)]
        x = np.repeat(np.repeat(x, 1, axis=0), 1, axis=0)
        if x.shape[axis] % 2:
            x = np.take(x, range(x.shape[axis] - 1), axis=axis)
            shape = [n // 2 if i == axis else n for i, n in enumerate(x.shape)]
    scale = (np.abs(draw.numbers(shape)) * np.float32(0.1) + np.float32(0.02)).astype(np.float32)
    if draw.maybe(0.3):
        scale, x = np.full(shape, 0.5, np.float32), (np.round(x * 4) / 4).astype(np.float32)
    if (
        draw.maybe(0.2) and "block_size" not in attributes
    ):  # ONNX Runtime wraps what is beyond 2³¹ steps of a block
        odd = draw.random.choice(
            np.array([np.inf, -np.inf, 3e9, -3e9, 1e30, -1e30], np.float32), x.shape
        )
        x = np.where(draw.random.random(x.shape) < 0.3, odd, x)
    ends = np.iinfo(kind)
    zero = draw.random.integers(ends.min, ends.max + 1, shape).astype(kind)
    inputs = [x, scale, *([zero] if kind != np.uint8 or draw.maybe(0.8) else [])]
    return Example(inputs, attributes, fixed=frozenset({1, 2}))


def dequantize(draw: Draw) -> Example:
    """Levels of any grid, and sums of int32."""
    kind = np.dtype(
        draw.choose(
            np.uint8, np.int8, np.int32, *([np.int16, np.uint16] if draw.since >= 21 else [])
        )
    )
    ends = np.iinfo(kind)
    x = draw.random.integers(
        ends.min, ends.max + 1, draw.wholes(draw.whole(1, 4), 2, 4), dtype=np.int64
    ).astype(kind)
    axis = draw.whole(0, x.ndim - 1)
    shape: list[int] = [] if draw.since < 13 or draw.maybe() else [x.shape[axis]]
    attributes: dict[str, Any] = {"axis": axis} if shape else {}
    if draw.since >= 21 and shape and draw.maybe(0.4) and x.shape[axis] % 2 == 0:
        attributes["block_size"] = 2
        shape = [n // 2 if i == axis else n for i, n in enumerate(x.shape)]
    scale = (np.abs(draw.numbers(shape)) * np.float32(0.1) + np.float32(0.02)).astype(np.float32)
    zero = draw.random.integers(ends.min, ends.max + 1, shape, dtype=np.int64).astype(kind)
    inputs = [x, scale]
    if draw.maybe(0.7):
        inputs.append(np.zeros_like(zero) if kind == np.int32 else zero)
    return Example(inputs, attributes, fixed=frozenset({1, 2}))


def dynamic_quantize(draw: Draw) -> Example:
    """A tensor's own range."""
    low, high = draw.choose((-3, 3), (0, 5), (-5, 0))
    return Example([np.clip(draw.numbers(draw.shape()), low, high).astype(np.float32)], {}, 3)


def conv_integer(draw: Draw) -> Example:
    """Levels with zero points, into int32."""
    from operator_cases.float_windows import conv

    plain = conv(draw)
    kinds = [np.dtype(draw.choose(np.uint8, np.int8)) for _ in range(2)]
    arrays = [
        _levels(draw, kind, np.shape(array))
        for kind, array in zip(kinds, plain.inputs[:2], strict=True)
    ]
    zeros = [np.array(draw.random.integers(np.iinfo(k).min, np.iinfo(k).max + 1), k) for k in kinds]
    return Example(
        [*arrays, *zeros[: draw.whole(0, 2)]], plain.attributes, fixed=frozenset({1, 2, 3})
    )


def matmul_integer(draw: Draw) -> Example:
    """Levels with zero points, into int32."""
    (m, k, n), lead = draw.wholes(3, 1, 6), draw.shape(0, 2)
    kinds = [np.dtype(draw.choose(np.uint8, np.int8)) for _ in range(2)]
    arrays = [
        _levels(draw, kind, shape)
        for kind, shape in zip(kinds, ([*lead, m, k], [k, n]), strict=True)
    ]
    zeros = [np.array(draw.random.integers(np.iinfo(k).min, np.iinfo(k).max + 1), k) for k in kinds]
    return Example([*arrays, *zeros[: draw.whole(0, 2)]], fixed=frozenset({1, 2, 3}))


def qlinear_conv(draw: Draw) -> Example:
    """Levels in, levels out."""
    from operator_cases.float_windows import conv

    plain = conv(draw)
    levels = np.dtype(draw.choose(np.uint8, np.int8))
    kinds = [levels, np.dtype(np.int8)]
    x, w = (
        _levels(draw, kind, np.shape(array))
        for kind, array in zip(kinds, plain.inputs[:2], strict=True)
    )
    zero = [
        np.array(draw.random.integers(np.iinfo(levels).min, np.iinfo(levels).max + 1), levels)
        for _ in range(2)
    ]
    scales = [np.array(draw.choose(0.1, 0.03), np.float32) for _ in range(2)]
    out = np.array(draw.choose(2.0, 0.9), np.float32)
    bias = [draw.random.integers(-900, 900, w.shape[0]).astype(np.int32)] if draw.maybe() else []
    inputs = [x, scales[0], zero[0], w, scales[1], np.zeros((), np.int8), out, zero[1], *bias]
    return Example(inputs, plain.attributes, fixed=frozenset(range(1, 9)), steps=True)


def qlinear_matmul(draw: Draw) -> Example:
    """Levels in, levels out."""
    (m, k, n), lead = draw.wholes(3, 1, 6), draw.shape(0, 2)
    levels = np.dtype(draw.choose(np.uint8, np.int8))
    a, b = _levels(draw, levels, [*lead, m, k]), _levels(draw, np.dtype(np.int8), [k, n])
    zero = [
        np.array(draw.random.integers(np.iinfo(levels).min, np.iinfo(levels).max + 1), levels)
        for _ in range(2)
    ]
    scales = [np.array(draw.choose(0.1, 0.03), np.float32) for _ in range(2)]
    out = np.array(draw.choose(2.0, 0.9), np.float32)
    inputs = [a, scales[0], zero[0], b, scales[1], np.zeros((), np.int8), out, zero[1]]
    return Example(inputs, fixed=frozenset(range(1, 8)), steps=True)


def dropout(draw: Draw) -> Example:
    """Outside training: what it is given, and a mask of truths."""
    x = draw.numbers(draw.shape(), draw.dtype("T", only="f"))
    outputs = draw.choose(1, 2)
    if draw.since < 12:
        return Example([x], {"ratio": 0.3} if draw.maybe() else {}, outputs)
    inputs: list[Array | None] = [x]
    if draw.maybe():
        inputs.append(np.array(0.3, np.float32))
        if draw.maybe():
            inputs.append(np.array(False))
    return Example(inputs, {}, outputs)


REDUCTIONS = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
]
STRATEGIES: dict[str, Strategy] = {
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), softmax),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), recurrent),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), window),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), loss),
    "Attention": attention,
    "ConvInteger": conv_integer,
    "CumSum": cumulative,
    "DFT": fourier,
    "DequantizeLinear": dequantize,
    "Det": determinant,
    "Dropout": dropout,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "MelWeightMatrix": mel,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize,
    "RotaryEmbedding": rotary,
    "STFT": short_fourier,
}
