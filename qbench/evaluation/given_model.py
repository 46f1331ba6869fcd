"""Models that came quantized: the same way in and out as their float partner, read into plans, never rewritten."""

from collections.abc import Callable, Mapping

import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import Form, form_of
from qbench.quantization import Plan, is_quantized, read_plan
from qbench.subjects import ZooModel


def refuse_other_road(given: ZooModel, partner: ZooModel) -> None:
    """Check that samples enter and answers leave ``given`` as they do its float ``partner``.

    Raises:
        InputError: other preprocessing, another task, or other graphs.
    """
    pairs = (
        ("the preprocessing", given.preprocess.name, partner.preprocess.name),
        ("the task", given.task.name, partner.task.name),
        ("the graphs", ", ".join(sorted(given.graphs)), ", ".join(sorted(partner.graphs))),
    )
    for word, mine, theirs in pairs:
        if mine != theirs:
            raise InputError(
                f"Judging '{given.id}' against its fp32 partner '{partner.id}'",
                found=f"{word} '{mine}', where the partner has '{theirs}'",
                expected="the same, so that only quantization differs",
                remedy=f"Give '{given.id}' what '{partner.id}' has.",
            )


def read_given(
    given: ZooModel, sized: Callable[[ir.Model], ir.Model]
) -> tuple[Mapping[str, ir.Model], Mapping[str, Plan]]:
    """The graphs of ``given`` as they are, and the plans that can be read out of them.

    Args:
        given: a model with a float partner.
        sized: what declares the usual sizes of a graph.

    Raises:
        InputError: none of its graphs is quantized, or a Q or DQ in them means nothing.
        UnsupportedError: a graph cannot be read at the opset that QDQ is written at.
    """
    models = {name: sized(load()) for name, load in given.graphs.items()}
    if all(form_of(model) is Form.FLOAT for model in models.values()):
        raise InputError(
            f"Measuring '{given.id}' as it is",
            found="a float model",
            expected="a quantized one, because it names an fp32 partner",
            remedy="Take 'fp32' away, or give the quantized file.",
        )
    return models, {name: read_plan(model) for name, model in models.items()}


def refuse_quantized(model: str, graphs: Mapping[str, ir.Model]) -> None:
    """Check that ``graphs`` of ``model`` can be an fp32 reference.

    Raises:
        InputError: a graph is quantized already.
    """
    for graph in graphs.values():
        if is_quantized(graph):
            raise InputError(
                f"Taking '{model}' for a float model",
                found=f"a model that is quantized already ({form_of(graph).value})",
                expected="a float one: its answers are the reference, and schemas are planned on it",
                remedy="Name its fp32 partner: fp32 = \"…\" in a suite, --fp32 at 'qbench eval'.",
            )
