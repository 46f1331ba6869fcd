"""The schemas of bias-and-scale.qbench.toml: how wide a bias, added on whose grid, activations
on which range.

    bias<bits>_<finer>_<range>_skip<k>   a bias at a power-of-two scale of its own, of so many bits
    product_<range>_skip<k>              the control: int32 at the product's scale, as in TFLite

    finer   chosen   product and bias are added on the finer of their two grids
            forced   on the bias's, whichever is finer: the product is rounded to it
    range   pow2     the power of two above the largest magnitude
            global   −8 … 8 for every activation
            l2       least squared error
            kl       least divergence, by TVM's algorithm
    k       that many convolutions from the front stay in float

What they have in common is the compiler that the question was asked of: int8 activations with zero
point 0, int8 weights per tensor at power-of-two scales, dense layers in float.
"""

from collections.abc import Callable, Iterator
from functools import partial

from qbench import Extension
from qbench.quantization import BiasKind, BiasSpec, Finer, Rule, Schema, Spec

BITS = (8, 9, 16, 32)
NARROW_BITS = (4, 5, 6, 7)
FINER = {"chosen": Finer.CHOSEN, "forced": Finer.BIAS}
RANGES = {
    "pow2": Spec(qtype="int8", symmetry="symmetric", scale_kind="pow2"),
    "global": Spec(qtype="int8", symmetry="symmetric", range_method="tvm_global"),
    "l2": Spec(qtype="int8", symmetry="symmetric", range_method="mse"),
    "kl": Spec(qtype="int8", symmetry="symmetric", range_method="tvm_kl"),
}
SKIPS = (0, 1, 2)
WEIGHTS = Spec(qtype="int8", symmetry="symmetric", scale_kind="pow2", narrow_range=True)

CONVOLUTIONS = ("*[!n]",)
"""All but batch normalizations that became convolutions: their names end in ``.bn``."""


def schema(name: str, bias: BiasSpec, activation: Spec, skip: int) -> Schema:
    """One point of the cross."""
    first = Rule(
        operators=("Conv",),
        names=CONVOLUTIONS,
        first=skip or None,
        reason=f"one of the first {skip}",
    )
    return Schema(
        name=name,
        rules=(
            Rule(operators=("Gemm", "MatMul"), reason="dense layers stay in float"),
            *((first,) if skip else ()),
            Rule(activation=activation, weight=WEIGHTS, bias=bias),
        ),
        canonical="split_bias",  # for all, so that all have one profile
    )


def own_bias(bits: int, finer: str) -> BiasSpec:
    """A bias of ``bits`` at a scale of its own."""
    return BiasSpec(kind=BiasKind.OWN, qtype=f"int{bits}", scale_kind="pow2", finer=FINER[finer])


def _points() -> Iterator[tuple[str, BiasSpec, str, int]]:
    for range_name in RANGES:
        for skip in SKIPS:
            yield f"product_{range_name}_skip{skip}", BiasSpec(), range_name, skip
            for finer in FINER:
                for bits in BITS:
                    name = f"bias{bits}_{finer}_{range_name}_skip{skip}"
                    yield name, own_bias(bits, finer), range_name, skip
    for bits in NARROW_BITS:  # beyond the cross: where the cliff is
        yield f"bias{bits}_chosen_pow2_skip0", own_bias(bits, "chosen"), "pow2", 0


SCHEMAS: dict[str, Callable[[], Schema]] = {
    name: partial(schema, name, bias, RANGES[range_name], skip)
    for name, bias, range_name, skip in _points()
}

EXTENSION = Extension(name="bias and scale", schemas=SCHEMAS)
