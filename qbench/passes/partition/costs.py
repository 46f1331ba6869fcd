"""What a cut costs: multiply-accumulates on either side, and bytes of one sample over the borders.

    ⌈ elements · bytes of an element / samples of a run ⌉

Free dimensions count as ``graph.cost`` counts them: 1, or the usual size that the model declares.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import fixed_batch, node_key, node_macs, shapes_alone
from qbench.passes.partition.partitioning import Partition
from qbench.passes.partition.sections import Section


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
        return sum(self.bytes_into(island) + self.bytes_out_of(island) for island in self.partition.islands)


def partition_costs(partition: Partition) -> Costs:
    """What ``partition`` costs; shapes are inferred for it, which running it does not need."""
    return Costs(partition, node_macs(partition.before), _bytes_of_values(partition.before, partition.model))


def _bytes_of_values(before: ir.Model, lowered: ir.Model) -> dict[str, int]:
    """Name → bytes of one sample, of every computed or fed value of ``lowered`` whose type is known.

    Args:
        before: the graph before it was lowered: shapes are inferred of operators that onnx knows.
        lowered: its values are asked about; those that lowering made have the shape that it gave them.
    """
    shaped = shapes_alone(before, free_dims=1).graph
    shapes = {value.name: value.shape for value in (*shaped.inputs, *(v for node in shaped for v in node.outputs))}
    samples = fixed_batch(before) or 1
    found = {}
    for value in (*lowered.graph.inputs, *(v for node in lowered.graph for v in node.outputs)):
        shape = shapes.get(value.name) or value.shape
        if value.name and value.dtype is not None and shape is not None:
            elements = math.prod(dim if isinstance(dim, int) else 1 for dim in shape)
            found[value.name] = -(-math.ceil(elements * value.dtype.itemsize) // samples)
    return found
