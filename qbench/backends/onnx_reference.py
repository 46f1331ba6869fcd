"""The evaluator of the onnx package: slow, plain numpy, independent of every engine; for small
models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from qbench.backends.execution import EngineExecutor, executed_as_written
from qbench.backends.feeds import FeedCheck, loaded, with_taps
from qbench.backends.protocol import Array, Executed, Executor
from qbench.errors import UnsupportedError
from qbench.graph import Capabilities, Operator, model_bytes, node_key, opset, outside_operator
from qbench.interpreter import own_operators, refusal
from qbench.numerics import FLOAT_FORMATS
from qbench.storage import current_limits

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun


def evaluator_operators(model: ir.Model) -> "list[type[OpRun]]":
    """A class for the evaluator for each operator of an extension in ``model``, and one for
    Loop.
    """
    bodies = (*model.graphs(), *model.functions.values())
    found = {(node.domain, node.op_type): node for body in bodies for node in body}
    made = [(node, outside_operator(node)) for node in found.values()]
    own = [_class_of(node, operator) for node, operator in made if operator is not None]
    return [*own, _bounded_loop(current_limits().iterations)]


def _bounded_loop(limit: int) -> "type[OpRun]":
    """The evaluator's Loop with an error after ``limit`` iterations, since its condition may
    never end it.
    """
    from onnx.reference.ops.op_loop import Loop as EvaluatorLoop

    class Loop(EvaluatorLoop):  # the name is that of the operator
        _run_body: Any  # which the evaluator sets on each node

        def _run(self, *inputs: Any, **more: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as OpRun has them
            run_body, iterations = self._run_body, iter(range(limit))

            def counted(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as OpRun has them
                if next(iterations, None) is None:
                    raise RuntimeError(
                        f"a Loop that has not ended after {limit:,} iterations (--size-limits "
                        "raises this)"
                    )
                return run_body(*given, **named)

            self._run_body = counted
            try:
                return super()._run(*inputs, **more)  # type: ignore[no-any-return, no-untyped-call]
            finally:
                self._run_body = run_body

    return Loop


def _class_of(node: ir.Node, operator: Operator) -> "type[OpRun]":
    from onnx.reference.op_run import OpRun

    def run(self: OpRun, *inputs: Any, **_: object) -> tuple[Any, ...]:  # noqa: ANN401 - arrays, as OpRun has them
        return operator.run(inputs, map(ir.from_proto, self.onnx_node.attribute))

    return type(node.op_type, (OpRun,), {"op_domain": node.domain, "_run": run})


MAX_MACS = 20_000_000
"""Multiply-accumulates per sample up to which it is useful.

Measured with onnx 1.23 on two cores: dense convolutions run at 1 to 5 billion per second, depthwise
ones at 26 million. So a sample takes from 10 ms to 1 s, and MobileNetV2 (300 million) would take
several seconds per image.
"""

_INTEGERS = frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16"})
_QTYPES = _INTEGERS | {name for name, form in FLOAT_FORMATS.items() if form.signed}
_CAPABILITIES = Capabilities(
    activation_qtypes=_QTYPES,
    weight_qtypes=_QTYPES,
    scale_types=frozenset({"float8e8m0", "float8e4m3fn"}),
    weight_per_block=True,
    activation_per_channel=True,
    dynamic=True,
    max_macs=MAX_MACS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxReferenceBackend:
    """``onnx.reference.ReferenceEvaluator``; threads are ignored, numpy has its own."""

    name: str = "onnx-reference"
    capabilities: Capabilities = field(default_factory=lambda: _CAPABILITIES)
    packages: tuple[str, ...] = ("onnx", "numpy")
    arithmetic: str = "ideal"  # quantized graphs are computed in float32 between their pairs

    def unoptimized(self) -> "OnnxReferenceBackend":
        """Itself: the evaluator optimizes nothing."""
        return self

    def prepare(
        self,
        model: ir.Model | Path | str,
        *,
        taps: Sequence[str] = (),
        threads: int = 1,  # noqa: ARG002
    ) -> Executor:
        """An evaluator over ``model``.

        Raises:
            InputError: not an ONNX model, or a tap names no value of it.
            UnsupportedError: the evaluator has no implementation of an operator.
        """
        import onnx
        from onnx.inliner import inline_local_functions
        from onnx.reference import ReferenceEvaluator

        graph = loaded(model)
        tapped = with_taps(graph, taps)
        proto = onnx.load_model_from_string(model_bytes(tapped))
        if proto.functions:  # the evaluator runs their bodies without our kernels
            proto = inline_local_functions(proto)
            tapped = ir.from_proto(proto)
        version, nodes = opset(tapped), [node for part in tapped.graphs() for node in part]
        for node in nodes:
            if reason := refusal(node, version):
                raise self._refused(graph, f"'{node_key(node)}': {reason}")
        own = own_operators({node.op_type for node in nodes if not node.domain}, version)
        try:
            evaluator = ReferenceEvaluator(proto, new_ops=[*evaluator_operators(tapped), *own])
        except (NotImplementedError, RuntimeError, ValueError, TypeError) as error:
            raise self._refused(graph, " ".join(str(error).split())[:300]) from error
        return _ReferenceExecutor(evaluator, tapped, FeedCheck.of(graph, self.name))

    def _refused(self, graph: ir.Model, found: str) -> UnsupportedError:
        import onnx

        return UnsupportedError(
            f"Preparing '{graph.graph.name}' on '{self.name}'",
            found=found,
            expected=(
                f"operators that the evaluator of onnx {onnx.__version__} computes as ONNX defines "
                "them"
            ),
            remedy="Choose another backend for this model.",
        )


class _ReferenceExecutor(EngineExecutor["ReferenceEvaluator"]):
    """The executor of one evaluator."""

    def __init__(self, evaluator: "ReferenceEvaluator", graph: ir.Model, check: FeedCheck) -> None:
        super().__init__(evaluator, check)
        self._graph = graph
        self._outputs = list(evaluator.output_names)

    def _answer(self, held: "ReferenceEvaluator", arrays: dict[str, Array]) -> dict[str, Array]:
        try:
            with np.errstate(all="ignore"):  # overflow in a kernel is a result, as in every engine
                results = held.run(None, arrays)
        except Exception as error:  # kernels raise whatever numpy raises
            raise self._refusal(str(error)) from error
        return {
            name: np.asarray(result) for name, result in zip(self._outputs, results, strict=True)
        }

    def executed(self) -> Mapping[str, Executed]:
        """Every node as it is in the graph, after functions were inlined."""
        return executed_as_written(self._graph, "cpu")
