"""Bringing a model to the opset that QDQ is written at."""

from dataclasses import dataclass
from typing import ClassVar

import onnx
import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.graph import QDQ_IR_VERSION, QDQ_OPSET, model_bytes, opset
from qbench.passes.effect import EXACT, Effect


@dataclass(frozen=True, slots=True)
class UpgradeOpset:
    """Requires nothing. Ensures: default opset at least 21, IR version at least 10; names and metadata kept.

    A model that is already at 21 or later is left as it is.
    """

    name: str = "upgrade-opset"
    effect: ClassVar[Effect] = EXACT
    target: int = QDQ_OPSET

    def run(self, model: ir.Model) -> bool:
        """Convert ``model``; True when it was older.

        Raises:
            UnsupportedError: the converter cannot convert an operator, or the model is too large for one message.
        """
        if opset(model) >= self.target:
            raised = model.ir_version < QDQ_IR_VERSION
            model.ir_version = max(model.ir_version, QDQ_IR_VERSION)
            return raised
        converted = ir.from_proto(self._converted(model))
        _keep_metadata(model, converted)
        _move_into(model, converted)
        model.ir_version = max(model.ir_version, QDQ_IR_VERSION)
        return True

    def _converted(self, model: ir.Model) -> onnx.ModelProto:
        proto = onnx.load_model_from_string(model_bytes(model))
        proto.ir_version = max(proto.ir_version, QDQ_IR_VERSION)  # up to 3, initializers had to be inputs too
        try:
            return onnx.version_converter.convert_version(proto, self.target)
        except RuntimeError as error:
            raise UnsupportedError(
                f"Bringing '{model.graph.name}' from opset {opset(model)} to {self.target}",
                found=" ".join(str(error).split())[:300],
                expected="operators that onnx's version converter knows",
                remedy=f"Export the model at opset {self.target}.",
            ) from error


def _keep_metadata(before: ir.Model, after: ir.Model) -> None:
    """The converter drops metadata; a node is the same one when it makes a value of the same name."""
    kept = {v.name: node for node in before.graph for v in node.outputs}
    for node in after.graph:
        for value in node.outputs:
            if value.name in kept:
                node.metadata_props.update(kept[value.name].metadata_props)


def _move_into(model: ir.Model, converted: ir.Model) -> None:
    name, metadata, doc = model.graph.name, dict(model.graph.metadata_props), model.graph.doc_string
    model.graph = converted.graph
    model.graph.name, model.graph.doc_string = name, doc
    model.graph.metadata_props.update(metadata)
