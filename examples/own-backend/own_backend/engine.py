"""A backend of your own: onnx's evaluator with a convolution of its own,
which has a bug for qbench to find.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_conv import Conv as CorrectConv

from qbench import load_model
from qbench.backends import Closing, Executed
from qbench.graph import Capabilities


class Conv(CorrectConv):
    """The bug: the channels behind the 16th get no bias."""

    op_domain = ""

    def _run(self, x, w, b=None, **attributes):
        if b is not None:
            b = np.where(np.arange(len(b)) < 16, b, np.float32(0))
        return super()._run(x, w, b, **attributes)


class ToyNpu:
    """Everything that qbench asks of a backend;
    ``capabilities`` and ``arithmetic`` are what it declares.
    """

    name = "toy-npu"
    capabilities = Capabilities(
        activation_qtypes=frozenset({"uint8", "int8"}), weight_qtypes=frozenset({"int8"})
    )
    # it computes in float32 between the pairs; localization holds it to that, node by node
    arithmetic = "ideal"
    packages = ("onnx", "numpy")  # another version of these may give other numbers

    def prepare(
        self,
        model: ir.Model | Path | str,
        *,
        taps: Sequence[str] = (),
        threads: int = 1,  # noqa: ARG002
    ) -> "ToyExecutor":
        proto = ir.to_proto(model if isinstance(model, ir.Model) else load_model(model))
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in taps)
        return ToyExecutor(proto)


class ToyExecutor(Closing):
    """One prepared graph."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._evaluator = ReferenceEvaluator(proto, new_ops=[Conv])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(
            zip(self._evaluator.output_names, self._evaluator.run(None, dict(feeds)), strict=True)
        )

    def executed(self) -> dict[str, Executed]:
        return {
            node.name: Executed(precision="float32", device="toy")
            for node in self._proto.graph.node
        }

    def close(self) -> None:
        pass
