"""What a backend takes, in words about graphs."""

import enum
from dataclasses import dataclass


class Form(enum.Enum):
    """The forms of a graph; ``FILE`` is one node that holds a file of another format."""

    FLOAT = "float"
    QDQ = "qdq"
    QOPERATOR = "qoperator"
    INTEGER = "integer"
    FILE = "file"


class ZeroPoints(enum.Enum):
    """The zero points of activations that a backend counts with."""

    ANY = "any"
    ZERO = "zero"
    ZERO_OR_QMIN = "zero or qmin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Limits of one backend.

    Args:
        forms: the graph forms it runs.
        file_formats: suffixes of the model files that are not ONNX and that it runs as they are.
        activation_qtypes, weight_qtypes, bias_qtypes: names of types it has (``int8``,
            ``uint8``, ``float8e4m3fn``, …). Biases of ``int32`` alone are at the product's scale; a
            backend that names further ones adds biases of all of these at scales of their own in
            integers, too (``adds_off_product``).
        scale_types: names of the types, other than float32, that scales of blocks may have
            (``float8e8m0``; ``float8e4m3fn`` with a float32 scale of the tensor).
        simulated: names of types of floats whose products it computes in float32 from the numbers
            of the codes, as no engine with products of the type does it.
        sums_floats: whether it sums products of floats of few bits, and of blocks, in a declared
            accumulator: all, or some; ``executed`` names it for each of these, and a type all
            products of which are summed in it is not simulated.
        weight_per_channel, weight_per_block: whether weights may carry one scale per channel, one
            per block.
        batched_per_channel: whether it multiplies quantized activations by a constant of more than
            two axes (a matrix per batch, MatMul) that has one scale per column.
        blocks_of_vectors: whether constant vectors have blocks.
        short_blocks: whether the last block of a row may be shorter than the others.
        activation_per_channel: whether activations may carry one scale per channel.
        integer_products: the pairs (activations, weights) of types that it multiplies in integers,
            one scale per tensor or channel, with a bias at a scale that it adds; other products run
            in floats between Q and DQ. None: it multiplies all.
        float_products: operators (``ConvTranspose``) whose products it runs in floats whatever the
            types are.
        requantized_products: operators (``Conv``) whose products it runs in integers only where
            their result is quantized.
        dynamic_products: the pairs (operator, how many of its operands have parameters of their
            batch, uint8) that it multiplies in integers.
        unbiased_dynamic_products: operators (``Gemm``) among these that it multiplies in integers
            only where they add no operand of their own.
        zero_points: which zero points of activations it counts with.
        dynamic: whether it takes parameters that are computed at run time.
        rounds_data: whether it may round real data to 8 bits itself before it multiplies them by a
            quantized constant.
        tables: whether it computes functions of one 8-bit value (sigmoid, tanh, …) by table, or at
            all.
        max_opset: of the default ONNX domain, for graphs it is handed.
        max_macs: the largest network, in multiply-accumulates of one sample, that it runs in useful
            time; None: any.
        miscomputes: names of patterns that the engine computes wrong without a word; its backend
            refuses them.
        taps: whether it gives values inside a graph; without, another backend observes the ranges
            of float models.
    """

    forms: frozenset[Form] = frozenset({Form.FLOAT, Form.QDQ})
    file_formats: frozenset[str] = frozenset()
    activation_qtypes: frozenset[str] = frozenset({"int8", "uint8"})
    weight_qtypes: frozenset[str] = frozenset({"int8", "uint8"})
    bias_qtypes: frozenset[str] = frozenset({"int32"})
    scale_types: frozenset[str] = frozenset()
    simulated: frozenset[str] = frozenset()
    sums_floats: bool = False
    weight_per_channel: bool = True
    weight_per_block: bool = False
    batched_per_channel: bool = True
    blocks_of_vectors: bool = True
    short_blocks: bool = True
    activation_per_channel: bool = False
    integer_products: frozenset[tuple[str, str]] | None = None
    float_products: frozenset[str] = frozenset()
    requantized_products: frozenset[str] = frozenset()
    dynamic_products: frozenset[tuple[str, int]] = frozenset()
    unbiased_dynamic_products: frozenset[str] = frozenset()
    zero_points: ZeroPoints = ZeroPoints.ANY
    dynamic: bool = False
    rounds_data: bool = False
    tables: bool = True
    max_opset: int = 24
    max_macs: int | None = None
    taps: bool = True
    miscomputes: frozenset[str] = frozenset()

    def adds_off_product(self, qtype: str) -> bool:
        """Whether it adds a bias of the type ``qtype`` at a scale of its own to products in
        integers.
        """
        return qtype in self.bias_qtypes and self.bias_qtypes != {"int32"}
