"""Before anything runs: which layers can saturate or overflow, or cannot be represented."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import EngineNote, Miscomputed, engine_notes, miscomputed
from qbench.errors import InputError
from qbench.graph import (
    OPERATORS,
    PRODUCTS,
    Form,
    IntegerForm,
    constant_value,
    form_of,
    input_at,
    library_operators,
    library_remedy,
    node_key,
    word_attribute,
)
from qbench.interpreter import RAISE, Summing, float_operator, sum_shape, summing, with_gaps
from qbench.numerics import (
    Accumulator,
    Arithmetic,
    BiasScheme,
    MultiplierForm,
    OwnBias,
    QParams,
    QType,
    real_multiplier,
    scaler,
    short_multiplier,
)
from qbench.passes import INTEGER_INTERPRETER, integer_target, lower_to_integers
from qbench.quantization import float8_share

# The products by constant weights in a graph of integer operators, each as the columns over which
# it sums:
#
#     acc[n] = Σ_k (x[k] − z_x) (w[k, n] − z_w[n]) + bias[n]
#
# k runs in the order of the interpreter (``interpreter.windows``); in a grouped product over the
# filter's channels.

Ints = npt.NDArray[np.int64]
_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        name: (QType.parse(name).qmin, QType.parse(name).qmax)
        for name in ("uint8", "int8", "uint16", "int16", "int4")
    }
)


@dataclass(frozen=True, slots=True)
class _Places:
    """The indices of the inputs of an operator; None: it has no such input."""

    x_zero: int
    weight: int
    weight_zero: int
    scales: tuple[int, int, int] | None = None
    bias: int | None = None
    output_zero: int | None = None
    bias_scale: int | None = None


def _places(form: IntegerForm) -> _Places:
    (data, weight), result = form.operands, form.result
    scales = None if result is None else (data[1], weight[1], result[0])
    output_zero = None if result is None else result[1]
    return _Places(data[-1], weight[0], weight[-1], scales, form.bias, output_zero, form.bias_scale)


_PLACES: Mapping[tuple[str, str], _Places] = MappingProxyType(
    {
        (form.domain, form.name): _places(form)
        for product in sorted(PRODUCTS - {"ConvTranspose"})
        for form in OPERATORS[product].forms
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntegerProduct:
    """One product.

    Args:
        node, operator: its name, and the type of the float operator.
        codes: type of x;
        weights: type of w.
        low, high: the least and largest x.
        x_zero: z_x; None where it is computed.
        weight: (K, N) integers.
        weight_zero: (N,).
        bias: (N,), zeros where there is none.
        scales: of x, of w (N,), and of the result; None where the result is not quantized.
        lift: (N,), what sums are multiplied by to meet a bias at a scale of its own; ``bias`` and
            ``scales`` are those of the sum of both then. None: the bias is at the product's scale.
        output: quantization parameters of the result; None likewise.
        depthwise: whether there is one filter per channel.
        order: of its sums.
    """

    node: str
    operator: str
    codes: str
    weights: str
    low: int
    high: int
    x_zero: int | None
    weight: Ints
    weight_zero: Ints
    bias: Ints
    scales: tuple[float, npt.NDArray[np.float64], float] | None
    output: QParams | None
    depthwise: bool
    order: Summing
    lift: npt.NDArray[np.float64] | None = None


def integer_products(model: ir.Model) -> tuple[tuple[IntegerProduct, ...], tuple[str, ...]]:
    """The products of ``model`` by constant weights, in order, and the names of those that are
    not examined.

    These have two computed operands, or sum another set of weights at every position
    (ConvTranspose).
    """
    found, others = [], []
    for node in model.graph:
        places = _PLACES.get((node.domain, node.op_type))
        if places is not None or node.op_type == "QLinearConvTranspose":
            product = None if places is None else _product(node, places)
            if product is None:
                others.append(node_key(node))
            else:
                found.append(product)
    return tuple(found), tuple(others)


def _product(node: ir.Node, places: _Places) -> IntegerProduct | None:
    weight, x_zero = (
        constant_value(input_at(node, place)) for place in (places.weight, places.x_zero)
    )
    x = node.inputs[0]
    codes = "" if x is None or x.dtype is None else x.dtype.numpy().name
    codes = codes or ("uint8" if x_zero is None else x_zero.dtype.name)
    is_conv = "Conv" in node.op_type
    if (
        weight is None
        or codes not in _RANGES
        or weight.dtype.name not in _RANGES
        or (weight.ndim != 2 and not is_conv)
    ):
        return None
    order = summing(node, weight.shape)
    columns = order.columns(weight.astype(np.int64))
    count = columns.shape[1]
    low, high = _ends(x, codes)
    bias = None if places.bias is None else constant_value(input_at(node, places.bias))
    product = IntegerProduct(
        node=node_key(node),
        operator=float_operator(node),
        codes=codes,
        weights=weight.dtype.name,
        low=low,
        high=high,
        x_zero=_first(x_zero, 0)
        if x_zero is not None or input_at(node, places.x_zero) is None
        else None,
        weight=columns,
        weight_zero=_spread(constant_value(input_at(node, places.weight_zero)), count),
        bias=_spread(bias, count),
        scales=_scales(node, places, count),
        output=_output(node, places),
        depthwise=is_conv and sum_shape(node, weight.shape).depthwise,
        order=order,
    )
    return _with_own_bias(node, places, product)


def _with_own_bias(node: ir.Node, places: _Places, product: IntegerProduct) -> IntegerProduct:
    """``product`` with the scale at which it meets its bias, where that has a scale of its own."""
    bias = None if places.bias_scale is None else constant_value(input_at(node, places.bias_scale))
    data, weight, *_ = (constant_value(input_at(node, place)) for place in (1, 4))
    if bias is None or data is None or weight is None:
        return product
    ruled = word_attribute(node, "sum_scale", "finest") == "bias"
    own = OwnBias.of(data.reshape(-1)[0], weight.reshape(-1), bias.reshape(-1), ruled=ruled)
    count = product.weight.shape[1]
    lift, raised, at = (
        np.broadcast_to(part, (count,))
        for part in (own.product / own.at, own.bias / own.at, own.at)
    )
    scales = None if product.scales is None else (1.0, at, product.scales[2])
    return replace(
        product, bias=np.rint(product.bias * raised).astype(np.int64), scales=scales, lift=lift
    )


def _ends(x: ir.Value | None, codes: str) -> tuple[int, int]:
    """The least and largest value of ``x``: those of its type, or of the Clip that computes it."""
    low, high = _RANGES[codes]
    node = None if x is None else x.producer()
    if node is None or node.op_type != "Clip":
        return low, high
    ends = [constant_value(input_at(node, place)) for place in (1, 2)]
    return max(low, _first(ends[0], low)), min(high, _first(ends[1], high))


def _scales(
    node: ir.Node, places: _Places, count: int
) -> tuple[float, npt.NDArray[np.float64], float] | None:
    if places.scales is None:
        return None
    x, w, y = (constant_value(input_at(node, place)) for place in places.scales)
    if x is None or w is None or y is None:
        return None
    return (
        float(x.reshape(-1)[0]),
        np.broadcast_to(w.astype(np.float64).reshape(-1), (count,)),
        float(y.reshape(-1)[0]),
    )


def _output(node: ir.Node, places: _Places) -> QParams | None:
    if places.scales is None or places.output_zero is None:
        return None
    scale, zero = (
        constant_value(input_at(node, place)) for place in (places.scales[2], places.output_zero)
    )
    if scale is None or zero is None:
        return None
    return QParams(
        float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), QType.parse(zero.dtype.name)
    )


def _spread(values: npt.NDArray[Any] | None, count: int) -> Ints:
    """``values`` (None: 0), one per column."""
    return np.broadcast_to(
        np.zeros(1, np.int64) if values is None else values.astype(np.int64).reshape(-1), (count,)
    )


def _first(values: npt.NDArray[Any] | None, default: int) -> int:
    return default if values is None else int(values.reshape(-1)[0])


# Which weight pairs can saturate where two neighbouring products are summed in 16 bits, and the
# largest loss by that:
#
#     a pair can saturate if    high · (|w₀| + |w₁|) > 2¹⁵ − 1        (2¹⁵ where both are negative)
#     worst loss of a column  = max(Σ excess of its positive pairs, Σ excess of its negative pairs)
#
# Both sums can occur: x is largest for the weights of one sign, and 0 for the others. This holds
# for an unsigned left operand and a signed right one (Intel's vpmaddubsw). For 8-bit x on the left
# the first line means |w₀| + |w₁| ≥ 129. For 8-bit weights on the left (``interpreter.windows``)
# and the least x it means w₀ + w₁ ≥ 257.

BITS = 16
"""Width in which processors with vpmaddubsw sum pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRisk:
    """The pairs of one product.

    Args:
        pairs: number of pairs that are summed.
        risky: number that can saturate.
        worst: the largest |w₀| + |w₁| of weights of one sign (of two signs: the larger weight).
        outputs: number of columns with such a pair.
        loss: the largest loss of a column, in units of the accumulator.
        loss_steps: the same in steps of the result, at most its range; None: the result is not
            quantized.
        why_not: why no pair can saturate; empty: some can.
    """

    pairs: int
    risky: int = 0
    worst: int = 0
    outputs: int = 0
    loss: int = 0
    loss_steps: float | None = None
    why_not: str = ""

    @property
    def share(self) -> float:
        """The share of pairs that can saturate."""
        return self.risky / self.pairs if self.pairs else 0.0


def pair_risk(product: IntegerProduct, bits: int = BITS) -> PairRisk:
    """The risk of ``product`` where pairs are summed in ``bits`` bits."""
    weight = product.weight
    pairs = len(weight) // 2 * weight.shape[1]
    if not product.order.in_pairs(product.codes, product.weights):
        sides = (
            (product.weights, product.codes)
            if product.order.weights_left
            else (product.codes, product.weights)
        )
        return PairRisk(pairs=pairs, why_not=f"{' × '.join(sides)} is not summed in pairs")
    first, second, top = weight[0 : 2 * (len(weight) // 2) : 2], weight[1::2], (1 << (bits - 1)) - 1
    most, least = (end(first, 0) + end(second, 0) for end in (np.maximum, np.minimum))
    low, high = min(product.low, 0), max(product.high, 0)
    excess = np.stack([high * most + low * least - top, -high * least - low * most - top - 1]).clip(
        0
    )
    losses = excess.sum(axis=1).max(axis=0)
    worst = int(np.maximum(most, -least).max(initial=0))
    if not losses.any():
        return PairRisk(pairs=pairs, worst=worst, why_not=_why_not(product, worst))
    steps = None
    if product.scales is not None and product.output is not None:
        x, w, y = product.scales
        lifted = losses if product.lift is None else losses * product.lift
        steps = min(
            float((lifted * (x * w / y)).max()), float(product.output.qmax - product.output.qmin)
        )
    return PairRisk(
        pairs=pairs,
        risky=int(np.count_nonzero(excess.any(axis=0))),
        worst=worst,
        outputs=int(np.count_nonzero(losses)),
        loss=int(losses.max()),
        loss_steps=steps,
    )


def _as_paired(product: IntegerProduct, register: Accumulator) -> IntegerProduct:
    """``product`` with the neighbours and the data that ``register`` pairs."""
    if odd := register.odd_channels(product.order.shape):
        product = replace(product, weight=with_gaps(product.weight, odd, 0))
    if register.raised and product.codes == "int8" and not product.order.weights_left:
        return replace(product, codes="uint8", low=product.low + RAISE, high=product.high + RAISE)
    return product


def _why_not(product: IntegerProduct, worst: int) -> str:
    if len(product.weight) < 2:
        return "one product a sum"
    if product.order.weights_left:
        return (
            f"codes end at {product.low} and {product.high}"
            if worst > 256
            else f"no pair above {worst}"
        )
    if product.high <= 128:  # 128 · 256 = 2¹⁵, of negative weights alone
        return f"codes end at {product.high}"
    if np.abs(product.weight).max(initial=0) <= 64:
        return "weights have 7 bits or fewer"
    return f"no pair of one sign above {worst}"


# What an arithmetic cannot represent of a product: its multiplier, its largest sum, a pair of its
# products.
#
#     reach = max over columns of |Σ_k max((low − z_x) w, (high − z_x) w) + bias|,
#     and the same with min
#
# This is the worst case over all inputs, since nothing is run: what is reported can happen with
# some input, and what is not reported cannot happen.


_FAR = 2.0**62
"""Sums beyond it are not told apart."""


def reach(product: IntegerProduct) -> tuple[int, int]:
    """The least and the largest sum of ``product`` with its bias, for every value of a computed
    zero point.
    """
    centred = product.weight - product.weight_zero
    low, high, zero = product.low, product.high, product.x_zero
    ends = (low - high, high - low) if zero is None else (low - zero, high - zero)
    products = np.stack([end * centred for end in ends])
    sums = products.min(axis=0).sum(axis=0), products.max(axis=0).sum(axis=0)
    if product.lift is not None:
        low, high = np.floor(sums[0] * product.lift), np.ceil(sums[1] * product.lift)
        sums = low.clip(-_FAR, _FAR).astype(np.int64), high.clip(-_FAR, _FAR).astype(np.int64)
    low, high = (one + product.bias for one in sums)
    return int(low.min()), int(high.max())


def bits_for(low: int, high: int) -> int:
    """The width of the smallest two's complement register that holds both."""
    return (
        max(
            (-low - 1 if low < 0 else low).bit_length(),
            (-high - 1 if high < 0 else high).bit_length(),
        )
        + 1
    )


def arithmetic_limits(product: IntegerProduct, arithmetic: Arithmetic) -> tuple[str, ...]:
    """What ``arithmetic`` cannot represent of ``product``, one line per limit."""
    if product.lift is not None and arithmetic.biases is BiasScheme.PRODUCT:
        return (
            "its bias has a scale of its own, at which this arithmetic adds none: it runs in float",
        )
    here = arithmetic.at(product.operator, product.node)
    found = []
    halved = product.codes == "int8" and here.accumulator.halves(product.order.shape)
    if (pair_bits := here.accumulator.pairs(product.order.shape)) and not halved:
        risk = pair_risk(_as_paired(product, here.accumulator), pair_bits)
        if risk.risky:
            found.append(f"{risk.risky} of {risk.pairs} pairs can saturate in {pair_bits} bits")
    ends = reach(product)
    if (bits := bits_for(*ends)) > here.accumulator.bits:
        word = "wrap" if here.accumulator.overflow.value == "wrap" else "saturate"
        found.append(
            f"sums of up to {bits} bits {word} in an accumulator of {here.accumulator.bits}"
        )
    return (*found, *_of_multiplier(product, here, max(map(abs, ends))))


def _of_multiplier(product: IntegerProduct, arithmetic: Arithmetic, largest: int) -> list[str]:
    if product.scales is None:
        return []
    scaling = arithmetic.scaling
    try:
        scaler(product.scales, scaling)
    except InputError as error:
        return [f"multiplier {error.found}, where it holds {error.expected}"]
    if scaling.form is not MultiplierForm.SHORT or not scaling.product_bits:
        return []
    short = short_multiplier(real_multiplier(product.scales, scaling.precision))
    top = max(
        (largest >> pre) * factor
        for pre, factor in zip(short.pre.tolist(), short.factor.tolist(), strict=True)
    )
    bits = bits_for(-top, top)
    return (
        [f"products of up to {bits} bits wrap at {scaling.product_bits}"]
        if bits > scaling.product_bits
        else []
    )


REGISTER = 32
"""Width of the accumulators of nearly all arithmetics."""
_NEAR = 2**30
"""Half of the range of int32: a bias beyond it takes more than half of the range of its sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLint:
    """One layer.

    Args:
        node, operator: its name, and the type of the float operator.
        depthwise: one filter per channel. weights, and the field before it: the types of the
            weights and of the input.
        pairs: the risk where pairs are summed in 16 bits.
        sum_bits: width of a register that holds every sum.
        bias: the largest magnitude.
        multiplier: the largest; None: the result is not quantized. The last: arithmetic → what it
            cannot represent here (``limits``); it is called as in the JSON of ``qbench lint``.
    """

    node: str
    operator: str
    depthwise: bool
    levels: str  # stored name
    weights: str
    pairs: PairRisk
    sum_bits: int
    bias: int
    multiplier: float | None
    machines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # stored name

    @property
    def limits(self) -> Mapping[str, tuple[str, ...]]:
        """Arithmetic → what it cannot represent here; the last field, by a name of its own."""
        return self.machines  # stored name

    @property
    def notes(self) -> tuple[str, ...]:
        """What is unusual under every arithmetic."""
        found = []
        if self.sum_bits > REGISTER:
            found.append(f"sums need {self.sum_bits} bits")
        if self.bias >= _NEAR:
            found.append(f"a bias of {self.bias} is near the end of int32")
        if self.multiplier is not None and self.multiplier >= 1:
            found.append(f"a multiplier of {self.multiplier:.4g} shifts to the left")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLint:
    """The ``layers`` of a graph in order, and the names of the products that are not examined
    (``unjudged``).

    ``miscomputed`` is what an engine of a known backend computes wrong, whatever its arithmetic;
    ``engine_notes`` is what one does that the file does not say.
    ``float8`` are the products of float8 by float8, which are not examined either, and
    ``float8_macs`` is their share of the multiply-accumulates.
    """

    layers: tuple[LayerLint, ...]
    unjudged: tuple[str, ...] = ()
    miscomputed: tuple[Miscomputed, ...] = ()
    engine_notes: tuple[EngineNote, ...] = ()
    float8: tuple[str, ...] = ()
    float8_macs: float = 0.0

    @property
    def risky(self) -> bool:
        """Whether a layer can saturate or overflow: under a named arithmetic; if none is named,
        under any.

        What an engine computes wrong counts where its arithmetic is named.
        """
        named = {name for layer in self.layers for name in layer.limits}
        if any(named.intersection(one.arithmetics) for one in self.miscomputed):
            return True
        if named:
            return any(found for layer in self.layers for found in layer.limits.values())
        return any(layer.pairs.risky or layer.sum_bits > REGISTER for layer in self.layers)


def lint_products(model: ir.Model, arithmetics: Sequence[Arithmetic] = ()) -> ModelLint:
    """What can saturate or overflow in products of ``model``, and the limits of ``arithmetics``.

    Raises:
        InputError: the model is not quantized, or a Q or DQ means nothing.
    """
    if form_of(model) is Form.FLOAT:
        own = library_operators(model)
        raise InputError(
            f"Looking for saturation in '{model.graph.name}'",
            found=" and ".join(map(str, own)) if own else "a float model",
            expected="a quantized model",
            remedy=library_remedy(own) if own else "Name a schema to quantize it with.",
        )
    shifting = next((one for one in arithmetics if one.biases is BiasScheme.FINEST), None)
    target = INTEGER_INTERPRETER if shifting is None else integer_target(shifting)
    products, unjudged = integer_products(lower_to_integers(model, target))
    layers = tuple(_layer(product, arithmetics) for product in products)
    float8, share = float8_share(model)
    return ModelLint(
        layers=layers,
        unjudged=tuple(node for node in unjudged if node not in float8),
        miscomputed=miscomputed(model),
        float8=float8,
        float8_macs=share,
        engine_notes=engine_notes(model),
    )


def _layer(product: IntegerProduct, arithmetics: Sequence[Arithmetic]) -> LayerLint:
    risk = pair_risk(product)
    multiplier = None
    if product.scales is not None:
        x, w, y = product.scales
        multiplier = float((x * w / y).max())
    return LayerLint(
        node=product.node,
        operator=product.operator,
        depthwise=product.depthwise,
        levels=product.codes,  # stored name
        weights=product.weights,
        pairs=risk,
        sum_bits=bits_for(*reach(product)),
        bias=int(np.abs(product.bias).max(initial=0)),
        multiplier=multiplier,
        machines={  # stored name
            arithmetic.name: arithmetic_limits(product, arithmetic) for arithmetic in arithmetics
        },
    )
