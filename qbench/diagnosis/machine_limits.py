"""What one machine cannot represent of a product: its multiplier, its largest sum, a pair of its products.

    reach = max over columns of |Σ_k max((low − z_x) w, (high − z_x) w) + bias|, and the same with min

Worst cases over all levels there are, as before anything runs nothing else is known: what is said here can happen with
some input; what is not said cannot.
"""

import numpy as np

from qbench.diagnosis.integer_products import IntegerProduct
from qbench.diagnosis.pair_risk import pair_risk
from qbench.errors import InputError
from qbench.numerics import Arithmetic, MultiplierForm, real_multiplier, scaler, short_multiplier


def reach(product: IntegerProduct) -> tuple[int, int]:
    """The least and the largest sum that ``product`` can have, bias included; whatever a computed zero point is."""
    centred = product.weight - product.weight_zero
    low, high, zero = product.low, product.high, product.x_zero
    ends = (low - high, high - low) if zero is None else (low - zero, high - zero)
    products = np.stack([end * centred for end in ends])
    low = products.min(axis=0).sum(axis=0) + product.bias
    high = products.max(axis=0).sum(axis=0) + product.bias
    return int(low.min()), int(high.max())


def bits_for(low: int, high: int) -> int:
    """The width of the smallest register of two's complement that holds both."""
    return max((-low - 1 if low < 0 else low).bit_length(), (-high - 1 if high < 0 else high).bit_length()) + 1


def machine_limits(product: IntegerProduct, machine: Arithmetic) -> tuple[str, ...]:
    """What ``machine`` cannot represent of ``product``, one line each."""
    here = machine.at(product.operator, product.node)
    found = []
    if pair_bits := here.accumulator.pairs(product.order.shape):
        risk = pair_risk(product, pair_bits)
        if risk.risky:
            found.append(f"{risk.risky} of {risk.pairs} pairs can saturate in {pair_bits} bits")
    ends = reach(product)
    if (bits := bits_for(*ends)) > here.accumulator.bits:
        word = "wrap" if here.accumulator.overflow.value == "wrap" else "saturate"
        found.append(f"sums of up to {bits} bits {word} in an accumulator of {here.accumulator.bits}")
    return (*found, *_of_multiplier(product, here, max(map(abs, ends))))


def _of_multiplier(product: IntegerProduct, machine: Arithmetic, largest: int) -> list[str]:
    if product.scales is None:
        return []
    scaling = machine.scaling
    try:
        scaler(product.scales, scaling)
    except InputError as error:
        return [f"multiplier {error.found}, where it holds {error.expected}"]
    if scaling.form is not MultiplierForm.SHORT or not scaling.product_bits:
        return []
    short = short_multiplier(real_multiplier(product.scales, scaling.precision))
    top = max((largest >> pre) * factor for pre, factor in zip(short.pre.tolist(), short.factor.tolist(), strict=True))
    bits = bits_for(-top, top)
    return [f"products of up to {bits} bits wrap at {scaling.product_bits}"] if bits > scaling.product_bits else []
