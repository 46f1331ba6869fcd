"""Strategies for operators that act on each element, and for those that read two or more
broadcast operands.
"""

import numpy as np

from operator_cases.float_ground import Array, Draw, Example, Strategy

_RANGES = {
    "Acos": (-1, 1),
    "Acosh": (1, 9),
    "Asin": (-1, 1),
    "Atanh": (-0.99, 0.99),
    "Log": (0.01, 5),
    "Sqrt": (0, 5),
    "Reciprocal": (0.1, 3),
    "Tan": (-1.4, 1.4),
    "Cosh": (-6, 6),
    "Erf": (-4, 4),
}
"""Where the arguments of an operator lie, if not from −3 to 3."""


def unary(draw: Draw) -> Example:
    """An operator of one operand."""
    dtype = draw.dtype(draw.schema.inputs[0].type_str)
    low, high = _RANGES.get(draw.operator, (-3, 3))
    x = draw.numbers(draw.shape(0), dtype, low=low, high=high)
    if draw.operator in ("Acosh", "Log", "Sqrt", "Acos", "Asin", "Atanh") and dtype.kind == "f":
        x = np.clip(np.abs(x) if low >= 0 else x, low, high).astype(dtype)
    if draw.operator in ("Round", "Floor", "Ceil") and draw.maybe():
        x = (np.round(x * 4) / 4).astype(dtype)  # ties
    if (
        draw.operator in ("IsInf", "IsNaN", "Relu", "Abs", "Neg", "Sign", "Floor", "Ceil", "Round")
        and dtype.kind == "f"
    ):
        odd = draw.random.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 0, 1], dtype), x.shape)
        keeps_nan = draw.operator in ("IsInf", "IsNaN", "Abs", "Neg", "Floor", "Ceil", "Round")
        x = np.where(
            draw.random.random(x.shape) < 0.3, odd if keeps_nan else np.nan_to_num(odd), x
        ).astype(dtype)
    attributes = {}
    for name, attribute in draw.schema.attributes.items():
        if draw.maybe():
            is_float = attribute.type == attribute.type.FLOAT
            attributes[name] = (
                (0.05 + float(draw.random.random()) * 1.5) if is_float else draw.whole(0, 1)
            )
    if "approximate" in attributes:
        attributes["approximate"] = draw.choose("none", "tanh")
    return Example([x], attributes)


def _operand_type(draw: Draw) -> np.dtype:
    name = draw.schema.inputs[0].type_str
    return np.dtype(bool) if name.startswith("tensor(") else draw.dtype(name)


def binary(draw: Draw) -> Example:
    """Two operands that broadcast."""
    dtype = _operand_type(draw)
    whole = draw.shape(0)
    a, b = draw.numbers(draw.smaller(whole), dtype), draw.numbers(whole, dtype)
    if draw.operator == "Div":
        b = np.where(np.abs(b.astype(float)) < 0.1, np.ones_like(b), b)
    if draw.maybe() and not (draw.operator == "Div" and (np.abs(a.astype(float)) < 0.1).any()):
        a, b = b, a
    if (
        draw.operator in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
        and draw.maybe()
    ):
        a, b = (np.round(a), np.round(b)) if dtype.kind == "f" else (a, b)
    return Example([a, b], fixed=frozenset({1} if draw.maybe() else ()))


def power(draw: Draw) -> Example:
    """A base and an exponent of types that may differ from version 12 on."""
    base_type = draw.dtype("T")
    exponent_type = draw.dtype("T1") if draw.since >= 12 else base_type
    whole = draw.shape(0)
    base = np.abs(draw.numbers(whole, base_type, low=0.2, high=2)) + np.ones((), base_type)
    exponent = draw.numbers(
        draw.smaller(whole), exponent_type, low=0 if exponent_type.kind in "iu" else -2, high=0.6
    )
    if exponent_type.kind in "iu":
        exponent = np.abs(exponent)
    return Example([base.astype(base_type), exponent])


def modulo(draw: Draw) -> Example:
    """Whole numbers of either sign, or fmod."""
    dtype = draw.dtype("T")
    is_float = dtype.kind not in "iu"
    whole = draw.shape(0)
    a, b = draw.numbers(whole, dtype), draw.numbers(draw.smaller(whole), dtype)
    b = np.where(np.abs(b.astype(float)) < 0.2, np.ones_like(b), b)
    fmod = {"fmod": 1} if is_float or draw.maybe() else {}
    return Example([a, b.astype(dtype)], fmod)


def shift(draw: Draw) -> Example:
    """Bits to the left or right."""
    dtype = draw.dtype("T")
    whole = draw.shape(0)
    bits = draw.random.integers(0, dtype.itemsize * 8, draw.smaller(whole)).astype(dtype)
    return Example(
        [draw.random.integers(0, 200, whole).astype(dtype), bits],
        {"direction": draw.choose("LEFT", "RIGHT")},
    )


def variadic(draw: Draw) -> Example:
    """One to four operands that broadcast."""
    dtype = draw.dtype("T")
    whole = draw.shape(0)
    shapes = [draw.smaller(whole) if draw.opset >= 8 else whole for _ in range(draw.whole(1, 4))]
    return Example([draw.numbers(shape, dtype) for shape in shapes])


def choice(draw: Draw) -> Example:
    """Where."""
    dtype, whole = draw.dtype("T"), draw.shape(0)
    condition = draw.numbers(draw.smaller(whole), bool)
    return Example(
        [
            condition,
            draw.numbers(draw.smaller(whole), dtype),
            draw.numbers(draw.smaller(whole), dtype),
        ]
    )


def slope(draw: Draw) -> Example:
    """PRelu."""
    dtype, whole = draw.dtype("T"), draw.shape(1)
    return Example(
        [draw.numbers(whole, dtype), draw.numbers(draw.smaller(whole), dtype)], fixed=frozenset({1})
    )


def clip(draw: Draw) -> Example:
    """Limits as attributes, as inputs, or left out."""
    dtype = draw.dtype("T") if draw.since >= 11 else np.dtype(np.float32)
    x = draw.numbers(draw.shape(0), dtype)
    low, high = sorted(draw.numbers([2], dtype, low=-1.5, high=1.5).tolist())
    if draw.since < 11:
        return Example([x], {k: v for k, v in (("min", low), ("max", high)) if draw.maybe(0.7)})
    limits: list[Array | None] = [
        np.array(v, dtype) if draw.maybe(0.7) else None for v in (low, high)
    ]
    if dtype.kind == "f" and draw.maybe(0.1):
        limits = [np.array(high, dtype), np.array(low, dtype)]
    while limits and limits[-1] is None:
        limits.pop()
    return Example([x, *limits], fixed=frozenset({1, 2} if draw.maybe() else ()))


def cast(draw: Draw) -> Example:
    """To any type, of values that it holds, and of some that a smaller float does not."""
    from onnx import helper

    source, target = draw.dtype("T1"), draw.dtype("T2")
    low = 0 if target.kind == "u" else -9
    x = draw.numbers(draw.shape(0), source, low=low, high=9)
    x = np.abs(x) if target.kind == "u" and source.kind != "u" and source.kind != "b" else x
    if source.kind == "f" and target.kind == "f" and draw.maybe(0.3):
        x = (x * 1e4).astype(source)
    attributes = {"to": helper.np_dtype_to_tensor_dtype(target)}
    if draw.operator == "CastLike":
        return Example([x, draw.numbers([1], target)])
    return Example([x], attributes)


STRATEGIES: dict[str, Strategy] = {
    **dict.fromkeys(
        [
            "Abs",
            "Acos",
            "Acosh",
            "Asin",
            "Asinh",
            "Atan",
            "Atanh",
            "BitwiseNot",
            "Ceil",
            "Celu",
            "Cos",
            "Cosh",
            "Elu",
            "Erf",
            "Exp",
            "Floor",
            "Gelu",
            "HardSigmoid",
            "HardSwish",
            "Identity",
            "IsInf",
            "IsNaN",
            "LeakyRelu",
            "Log",
            "Mish",
            "Neg",
            "Not",
            "Reciprocal",
            "Relu",
            "Round",
            "Selu",
            "Shrink",
            "Sigmoid",
            "Sign",
            "Sin",
            "Sinh",
            "Softplus",
            "Softsign",
            "Sqrt",
            "Swish",
            "Tan",
            "Tanh",
            "ThresholdedRelu",
            "Size",
        ],
        unary,
    ),
    **dict.fromkeys(
        [
            "Add",
            "And",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
            "Div",
            "Equal",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
            "Mul",
            "Or",
            "Sub",
            "Xor",
        ],
        binary,
    ),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), variadic),
    "BitShift": shift,
    "Cast": cast,
    "CastLike": cast,
    "Clip": clip,
    "Mod": modulo,
    "Pow": power,
    "PRelu": slope,
    "Where": choice,
}
