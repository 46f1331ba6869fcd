"""Bias correction: what quantization moves the mean of a result by, on calibration samples, is taken off its bias.

    b_c := b_c + E[y_c of the float graph] − E[y_c of the quantized graph]        c a channel, y before any clip

Rounded weights are off by a constant amount each, so that their products are off on average, in depthwise filters of
nine weights most of all. Units are corrected from front to back, and each is measured behind predecessors that are
corrected already: else an error would be taken off again by everything that inherits it.

Cost: one run of the float graph over the samples and two of the quantized one, a piece at a time (``partial_run``),
whatever the number of units. Pieces run as float graphs, QDQ pairs and all, so that no engine's kernels matter.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (arXiv 1906.04721), 4.2.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.backends import Backend, Feeds, get_backend
from qbench.calibration import Unit, units_of
from qbench.errors import InputError
from qbench.graph import float_attribute, is_constant, node_key, own_copy, read_entry
from qbench.passes import plannable
from qbench.quantization.channel_means import channel_means, samples_in
from qbench.quantization.partial_run import PartialRun
from qbench.quantization.plan import Plan
from qbench.quantization.slot import Role
from qbench.quantization.writing import is_written
from qbench.quantization.written_bias import BiasPlace, Doubles, move_bias

CORRECTED = "qbench.bias_correction"
"""Metadata key of a model whose biases were corrected: how many, on how many samples."""

_ENGINE = "ort-cpu-noopt"
_HEADS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True)
class BiasCorrection:
    """What was corrected in a model.

    Args:
        biases: how many units have another bias now.
        samples: how many samples the means are of.
        saturated: entries that would have needed a level beyond their grid.
    """

    biases: int
    samples: int
    saturated: int = 0

    def __str__(self) -> str:
        ends = f", {self.saturated} entries at the end of their grid" if self.saturated else ""
        return f"{self.biases} biases corrected on {self.samples} samples{ends}"


def correct_biases(
    model: ir.Model,
    quantized: ir.Model,
    plan: Plan,
    batches: Iterable[Feeds],
    *,
    backend: Backend | None = None,
    threads: int = 1,
) -> ir.Model:
    """A copy of ``quantized`` with corrected biases; ``bias_correction_of`` tells what was done.

    Corrected are the units whose weight is on a grid: Conv, ConvTranspose, Gemm, and MatMul with a bias behind it. A
    bias that is computed stays; one that is not there is made, int32 at s_x · s_w where both are known beforehand.

    Args:
        model: the float graph (canonicalized here); not touched.
        quantized: what ``quantize_model(model, plan)`` gave; not touched.
        plan: that it was written from.
        batches: input name → array whose first axis runs over samples, batch by batch; held in memory meanwhile.
        backend: runs both graphs; None: ``ort-cpu-noopt``.
        threads: of the engine.

    Raises:
        InputError: no batches, a quantized model that is not of this plan, means that are not finite.
        QbenchError: what the backend raises.
    """
    engine = get_backend(_ENGINE) if backend is None else backend
    if not is_written(quantized, plan):
        raise InputError(
            f"Correcting the biases of '{quantized.graph.name}'",
            found="a model that this plan was not written into",
            expected="what quantize_model made of this plan",
            remedy="Quantize the model with this plan first.",
        )
    canonical = plannable(model, plan.canonical)
    measured = list(_measured_units(canonical.graph, plan))
    axes = {str(unit.value.name): unit.axis for unit in measured}
    real, fed = channel_means(canonical, axes, batches, engine, threads=threads)
    if not fed:
        raise InputError(
            f"Correcting the biases of '{quantized.graph.name}'",
            found="no samples",
            expected="at least one batch",
            remedy="Give the calibration samples.",
        )
    copy = own_copy(quantized)
    nodes = {node_key(node): node for node in copy.graph}
    run = PartialRun(copy, fed, engine, threads=threads)
    moved = saturated = 0
    for unit in measured:
        node = nodes[unit.node]
        shift = _finite(real[str(unit.value.name)] - run.means(node, unit.axis), unit.place.unit)
        if np.any(shift):
            moved += 1
            saturated += move_bias(copy, node, unit.place, plan, shift)
    correction = BiasCorrection(moved, samples_in(fed), saturated)
    copy.metadata_props[CORRECTED] = json.dumps([correction.biases, correction.samples, correction.saturated])
    return copy


def bias_correction_of(model: ir.Model) -> BiasCorrection | None:
    """What ``correct_biases`` did to ``model``; None when it did nothing.

    Raises:
        InputError: the metadata are not as ``correct_biases`` writes them.
    """
    return read_entry(model.metadata_props, CORRECTED, f"the model '{model.graph.name}'", _correction)


def _correction(numbers: list[int]) -> BiasCorrection:
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("numbers that count nothing")
    return BiasCorrection(*numbers)


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """A unit to correct: the node whose result is compared, its value in the float graph, and where the bias stands."""

    node: str
    value: ir.Value
    axis: int
    place: BiasPlace


def _measured_units(graph: ir.Graph, plan: Plan) -> Iterator[_Measured]:
    """In graph order."""
    weighted = {slot.node for slot in plan.constants if slot.role is Role.WEIGHT}
    for unit in units_of(graph):
        place = _place(unit) if unit.name in weighted else None
        if place is not None:
            maker = unit.bias or unit.head
            axis = 1 if unit.head.op_type in ("Conv", "ConvTranspose") else -1
            yield _Measured(node_key(maker), maker.outputs[0], axis, place)


def _place(unit: Unit) -> BiasPlace | None:
    """Where the bias of ``unit`` stands or could stand; None where it can have none of constants."""
    head = unit.head
    if head.domain or head.op_type not in _HEADS:
        return None
    operand = unit.bias_operand
    if operand is not None:
        node, index, value = operand
        behind = unit.bias is not None and head.op_type in ("Conv", "ConvTranspose")
        factor = float_attribute(head, "beta", 1.0) if head.op_type == "Gemm" and unit.bias is None else 1.0
        known = is_constant(value) and factor != 0
        return BiasPlace(unit.name, node_key(node), index, behind, factor) if known else None
    if head.op_type == "MatMul":
        return None  # an Add behind it would keep engines from multiplying integers
    factor = float_attribute(head, "beta", 1.0) if head.op_type == "Gemm" else 1.0
    return BiasPlace(unit.name, unit.name, 2, factor=factor) if factor else None


def _finite(shift: Doubles, unit: str) -> Doubles:
    if np.isfinite(shift).all():
        return shift
    raise InputError(
        f"Correcting the bias of '{unit}'",
        found="results that are not finite on average",
        expected="finite results on the calibration samples",
        remedy="Look at the samples, or leave bias correction out.",
    )
