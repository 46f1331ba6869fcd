"""Cutting a QDQ model into islands on a device and the rest, and what can be said about the cut.

    quantized model ── lowered where the device takes it ── islands, conversions, host ── each a model of its own
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.graph import Form, fixed_batch, form_of, node_key, node_macs, sizes_of_values
from qbench.passes.partition.device import Device
from qbench.passes.partition.marking import Place, marked
from qbench.passes.partition.sections import Section, sections_of


@dataclass(frozen=True, slots=True)
class Conversions:
    """What is converted at the borders of a device: values that become levels, levels that become reals, levels that
    change their grid outside of the device."""

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
        model: the whole graph, lowered where the device takes it.
        sections: in the order in which they run.
        off: node → why it is not on the device, in graph order; quantize and dequantize nodes are not among them.
        macs: node → multiply-accumulates of one sample.
        sizes: value → bytes of one sample, where its shape is known.
    """

    device: Device
    model: ir.Model
    sections: tuple[Section, ...]
    off: Mapping[str, str]
    macs: Mapping[str, int]
    sizes: Mapping[str, int]

    @property
    def islands(self) -> tuple[Section, ...]:
        """The sections on the device."""
        return tuple(section for section in self.sections if section.place is Place.DEVICE)

    def macs_of(self, section: Section) -> int:
        """Multiply-accumulates of one sample in ``section``."""
        return sum(self.macs.get(node_key(node), 0) for node in section.nodes)

    @property
    def macs_on(self) -> int:
        """Multiply-accumulates of one sample on the device."""
        return sum(self.macs_of(island) for island in self.islands)

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
        return sum(self.bytes_into(island) + self.bytes_out_of(island) for island in self.islands)

    @property
    def conversions(self) -> Conversions:
        """What is converted at the borders; levels that several read are dequantized once."""
        borders = [node for section in self.sections if section.place is Place.BORDER for node in section.nodes]
        quantizers = [node for node in borders if node.op_type == "QuantizeLinear"]
        changed = {maker for node in quantizers if (maker := _maker(node)) in borders}
        real = {node.inputs[0] for node in borders if node.op_type == "DequantizeLinear" and node not in changed}
        return Conversions(len(quantizers) - len(changed), len(real), len(changed))
