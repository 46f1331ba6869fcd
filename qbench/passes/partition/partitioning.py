"""Cutting a QDQ model into islands on a device and the rest, and what the cut costs."""

import math
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.graph import Form, fixed_batch, form_of, node_key, node_macs, shapes_alone
from qbench.passes.partition.device import Device
from qbench.passes.partition.marking import Place, marked
from qbench.passes.partition.sections import Section, sections_of

# Cutting a QDQ model into islands on a device and the rest, and what is known of the cut.
#
# quantized model ── lowered where the device takes it ── islands, conversions, host ── each a model
# of its own


@dataclass(frozen=True, slots=True)
class Conversions:
    """What is converted at the borders of a device: reals to codes, codes to reals, codes to
    codes of other qparams.
    """

    quantize: int
    dequantize: int
    requantize: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.quantize + self.dequantize + self.requantize


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """One cut.

    Args:
        device: what the islands are for.
        before: the whole graph, as it came, with a name on each node.
        model: the whole graph, lowered where the device takes it.
        sections: in the order in which they run.
        off: node → why it is not on the device, in graph order; quantize and dequantize nodes are
            not among them.
    """

    device: Device
    before: ir.Model
    model: ir.Model
    sections: tuple[Section, ...]
    off: Mapping[str, str]

    @property
    def islands(self) -> tuple[Section, ...]:
        """The sections on the device."""
        return tuple(section for section in self.sections if section.place is Place.DEVICE)

    @property
    def conversions(self) -> Conversions:
        """What is converted at the borders; codes that several read are dequantized once."""
        borders = {
            node
            for section in self.sections
            if section.place is Place.BORDER
            for node in section.nodes
        }
        quantizers = [node for node in borders if node.op_type == "QuantizeLinear"]
        changed = sum(_maker(node) in borders for node in quantizers)
        real = {
            node.inputs[0]
            for node in borders
            if node not in quantizers and not _goes_to(node, borders)
        }
        return Conversions(len(quantizers) - changed, len(real), changed)


def partition_model(model: ir.Model, device: Device) -> Partition:
    """``model`` cut into islands on ``device`` and the rest; ``model`` is not changed.

    Raises:
        InputError: an invalid Q or DQ.
        UnsupportedError: the model is in another form than QDQ, or the device takes nothing of it.
    """
    doing = f"Partitioning '{model.graph.name}' for the device '{device.name}'"
    form = form_of(model)
    if form is not Form.QDQ:
        raise UnsupportedError(
            doing,
            found=f"a graph in the form {form.value}",
            expected="one that is quantized, in QDQ form",
            remedy="Quantize it, or read it as ours ('qbench quantize --read -o').",
        )
    cut = marked(model, device)
    if Place.DEVICE not in cut.places.values():
        ((reason, count),) = Counter(cut.off.values()).most_common(1) or [("it has no nodes", 1)]
        raise UnsupportedError(
            doing,
            found=(
                f"nothing that it takes: of {len(cut.off)} nodes, {count} stay off because {reason}"
            ),
            expected="at least one node for it",
            remedy="Quantize the model for it, or describe another device.",
        )
    return Partition(
        device=device,
        before=cut.named,
        model=cut.model,
        sections=sections_of(cut.model.graph, cut.places),
        off=cut.off,
    )


def _maker(node: ir.Node) -> ir.Node | None:
    return None if node.inputs[0] is None else node.inputs[0].producer()


def _goes_to(node: ir.Node, borders: AbstractSet[ir.Node]) -> bool:
    """Whether conversions alone read what ``node`` gives."""
    value = node.outputs[0]
    return not value.is_graph_output() and all(use.node in borders for use in value.uses())


# What a cut costs: multiply-accumulates on either side, and bytes of one sample over the borders.
#
#     ⌈ elements · bytes of an element / samples of a run ⌉
#
# Free dimensions count as ``graph.cost`` counts them: 1, or the usual size that the model declares.


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Those of one cut.

    Args:
        partition: the cut.
        macs: node → multiply-accumulates of one sample.
        sizes: value → bytes of one sample, where its shape is known.
    """

    partition: Partition
    macs: Mapping[str, int]
    sizes: Mapping[str, int]

    def macs_of(self, section: Section) -> int:
        """Multiply-accumulates of one sample in ``section``."""
        return sum(self.macs.get(node_key(node), 0) for node in section.nodes)

    @property
    def macs_on(self) -> int:
        """Multiply-accumulates of one sample on the device."""
        return sum(self.macs_of(island) for island in self.partition.islands)

    @property
    def macs_off(self) -> int:
        """Multiply-accumulates of one sample elsewhere."""
        return sum(self.macs.values()) - self.macs_on

    def bytes_into(self, island: Section) -> int:
        """Bytes of one sample that ``island`` reads."""
        return sum(self.sizes.get(value.name or "", 0) for value in island.reads)

    def bytes_out_of(self, island: Section) -> int:
        """Bytes of one sample that ``island`` gives."""
        return sum(self.sizes.get(value.name or "", 0) for value in island.gives)

    @property
    def bytes_crossing(self) -> int:
        """Bytes of one sample over all borders; what two islands share crosses a border of each."""
        return sum(
            self.bytes_into(island) + self.bytes_out_of(island) for island in self.partition.islands
        )


def partition_costs(partition: Partition) -> Costs:
    """What ``partition`` costs; shapes are inferred for it, which running it does not need."""
    return Costs(
        partition, node_macs(partition.before), _bytes_of_values(partition.before, partition.model)
    )


def _bytes_of_values(before: ir.Model, lowered: ir.Model) -> dict[str, int]:
    """Name → bytes of one sample, of every computed or fed value of ``lowered`` whose type is
    known.

    Args:
        before: the graph before it was lowered: shapes are inferred of operators that onnx knows.
        lowered: its values are listed; those that lowering made have the shape that it gave them.
    """
    shaped = shapes_alone(before, free_dims=1).graph
    shapes = {
        value.name: value.shape
        for value in (*shaped.inputs, *(v for node in shaped for v in node.outputs))
    }
    samples = fixed_batch(before) or 1
    found = {}
    for value in (*lowered.graph.inputs, *(v for node in lowered.graph for v in node.outputs)):
        shape = shapes.get(value.name) or value.shape
        if value.name and value.dtype is not None and shape is not None:
            elements = math.prod(dim if isinstance(dim, int) else 1 for dim in shape)
            found[value.name] = -(-math.ceil(elements * value.dtype.itemsize) // samples)
    return found
