"""Changing a written model by samples: what fitting weights and correcting biases share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from qbench.backends import Backend, Feeds, get_backend
from qbench.errors import InputError
from qbench.graph import node_key, own_copy
from qbench.passes import plannable
from qbench.quantization.plan import Plan
from qbench.quantization.writing import NodeWriter, is_written

_ENGINE = "ort-cpu-noopt"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adjustment:
    """A written model that is about to be changed.

    Args:
        canonical: the float graph that the plan is of.
        copy: of the quantized model; what changes.
        nodes: the nodes of ``copy`` by their keys.
        feeds: the samples, batch by batch; at least one sample.
        engine: what runs the graphs.
    """

    canonical: ir.Model
    copy: ir.Model
    nodes: Mapping[str, ir.Node]
    feeds: Sequence[Feeds]
    engine: Backend

    @classmethod
    def of(
        cls,
        doing: str,
        models: tuple[ir.Model, ir.Model],
        plan: Plan,
        batches: Iterable[Feeds],
        backend: Backend | None,
    ) -> "Adjustment":
        """What ``doing`` (such as "Fitting the weights") begins with.

        Args:
            doing: words for an error.
            models: float and quantized; neither is touched.
            plan: that the quantized one was written from.
            batches: input name → array whose first axis runs over samples.
            backend: None: ``ort-cpu-noopt``.

        Raises:
            InputError: no samples, or a quantized model that is not of this plan.
        """
        model, quantized = models
        feeds = list(batches)
        _check(f"{doing} of '{quantized.graph.name}'", quantized, plan, feeds)
        copy = own_copy(quantized)
        return cls(
            canonical=plannable(model, plan.canonical),
            copy=copy,
            nodes={node_key(node): node for node in copy.graph},
            feeds=feeds,
            engine=get_backend(_ENGINE) if backend is None else backend,
        )


def _check(doing: str, quantized: ir.Model, plan: Plan, feeds: Sequence[Feeds]) -> None:
    if not is_written(quantized, plan):
        raise InputError(
            doing,
            found="a model that this plan was not written into",
            expected="what quantize_model made of this plan",
            remedy="Quantize the model with this plan first.",
        )
    if not samples_in(feeds):
        raise InputError(
            doing,
            found="no samples",
            expected="at least one batch",
            remedy="Give the calibration samples.",
        )


def samples_in(feeds: Sequence[Feeds]) -> int:
    """Rows of the first input over all of ``feeds``."""
    return sum(len(next(iter(batch.values()))) for batch in feeds if batch)


def give_constant(
    model: ir.Model, node: ir.Node, index: int, tensor: ir.TensorProtocol, word: str
) -> None:
    """A constant of its own, called like the old one with ``word``, instead of operand ``index`` of
    ``node``; one that nothing reads any more goes.
    """
    old = node.inputs[index]
    assert old is not None
    node.replace_input_with(index, NodeWriter(model).initializer(f"{old.name}_{word}", tensor))
    maker = old.producer()
    if old.uses() or old.is_graph_output():
        return
    if maker is not None:
        model.graph.remove(maker, safe=True)
    elif node_key(node) and str(old.name) in model.graph.initializers:
        del model.graph.initializers[str(old.name)]


def counted(numbers: Sequence[int]) -> Sequence[int]:
    """``numbers`` out of the metadata of a model, which count something.

    Raises:
        ValueError: one that counts nothing.
    """
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("numbers that count nothing")
    return numbers
