"""``qbench diff``: the work itself, from what was typed to what differs; nothing is printed here."""

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.chosen_schema import choose_schema, refuse_idle_rules
from qbench.cli.side_texts import FLOAT, SideText
from qbench.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.diagnosis import FailingCase, Side, SideDifferences
    from qbench.evaluation import SharedWork
    from qbench.subjects import Samples

_SAMPLES_OF_A_CASE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSides:
    """What was found, graph by graph.

    Args:
        left, right: what each side says. samples: that were asked for. found: graph → what differs.
        ranks: whether the model ranks classes. case: the smallest failing input, and the folder it was saved in.
        case_note: why there is none, where one was asked for.
    """

    left: SideText
    right: SideText
    samples: int
    found: "Mapping[str, SideDifferences]"
    ranks: bool
    case: "tuple[FailingCase, Path] | None" = None
    case_note: str = ""

    @property
    def are_equal(self) -> bool:
        """Whether no output of any graph differs."""
        return all(one.are_equal for one in self.found.values())


def compare_texts(arguments: argparse.Namespace) -> ComparedSides:
    """Both sides on the samples that are named.

    Raises:
        QbenchError: the model, the data or a name is wrong, or a backend does not run its graph.
    """
    from qbench.backends import get_backend
    from qbench.cli.own_subject import build_subject
    from qbench.diagnosis import SideComparison
    from qbench.evaluation import FLOAT_BACKEND, shared_work
    from qbench.metrics import AnswerKind
    from qbench.storage import Cache

    left = SideText().saying(arguments.left)
    right = left.saying(arguments.right)
    subject = build_subject(arguments.model, arguments.data, arguments.calib, [], arguments.calib_count)
    cache = Cache(Path(arguments.cache)) if arguments.cache else Cache.default()
    shared = shared_work(subject, get_backend(FLOAT_BACKEND), cache)
    sides = [_sides(text, name, shared, arguments) for name, text in (("left", left), ("right", right))]
    samples = _first(shared.samples(next(iter(subject.data.values()))), arguments.samples)
    with ExitStack() as stack:
        runners = {name: stack.enter_context(SideComparison(one, sides[1][name])) for name, one in sides[0].items()}
        answers = subject.model.task.answer(runners, samples)
        found = {name: runner.compared() for name, runner in runners.items()}
    compared = ComparedSides(
        left=left, right=right, samples=len(samples), found=found, ranks=answers.kind is AnswerKind.RANKING
    )
    if arguments.save_case is None:
        return compared
    case, note = _saved_case(Path(arguments.save_case), sides[0], sides[1], shared, samples)
    return replace(compared, case=case, case_note=note)


def _first(samples: "Samples", count: int) -> "Samples":
    labels = None if samples.labels is None else samples.labels[:count]
    return replace(samples, ids=samples.ids[:count], labels=labels)


def _sides(text: SideText, name: str, shared: "SharedWork", arguments: argparse.Namespace) -> "dict[str, Side]":
    """Graph → this side of it."""
    from qbench.diagnosis import Side
    from qbench.evaluation import rewrite_quantized
    from qbench.quantization import is_quantized

    backend, rewriting, threads = text.chosen_backend(), text.chosen_rewriting(), text.thread_count
    came = {graph: model for graph, model in shared.graphs.items() if is_quantized(model)}
    if came:
        if text.schema != FLOAT:
            raise _mistake(arguments, f"schema={text.schema} for a model that is quantized already", "no schema")
        originals, quantized = shared.graphs, {graph: _in_pairs(model) for graph, model in came.items()}
    elif text.schema == FLOAT:
        if rewriting is not None:
            raise _mistake(arguments, f"passes of the float model on the {name}", "a schema: passes run behind it")
        originals, quantized = shared.graphs, {}
    else:
        schema = choose_schema(text.schema)
        if (schema.needs_profile or schema.bias_correction) and not arguments.calib:
            raise _mistake(arguments, f"schema={text.schema} without --calib", "samples to take its ranges from")
        made = shared.quantized(schema, backend.capabilities)
        refuse_idle_rules(schema.name, arguments.model, made.idle_rules)
        originals = shared.planned(schema.canonical)
        quantized = dict((made if rewriting is None else rewrite_quantized(made, rewriting).quantized).models)
    if came and rewriting is not None:
        from qbench.passes import run_pipeline

        models = quantized.items()
        quantized = {graph: run_pipeline(m, rewriting.pipeline, rewriting.policy).model for graph, m in models}
    return {
        graph: Side(name=name, original=one, quantized=quantized.get(graph), backend=backend, threads=threads)
        for graph, one in originals.items()
    }


def _in_pairs(model: "ir.Model") -> "ir.Model":
    """``model`` in QDQ form."""
    from qbench.graph import Form, form_of
    from qbench.quantization import quantize_model, read_plan

    return quantize_model(model, read_plan(model)) if form_of(model) is Form.QOPERATOR else model


def _mistake(arguments: argparse.Namespace, found: str, expected: str) -> InputError:
    doing = f"Comparing two sides of '{arguments.model}'"
    return InputError(doing, found=found, expected=expected, remedy="Mend --left or --right, or name --calib.")


def _saved_case(
    folder: Path, left: "Mapping[str, Side]", right: "Mapping[str, Side]", shared: "SharedWork", samples: "Samples"
) -> "tuple[tuple[FailingCase, Path] | None, str]":
    """The first unit of an engine that leaves its arithmetic, in a smallest input; or why there is none.

    The engine is the side that is no machine of ours, the right one where both or neither are; the machine is the
    other side where that is one, else what the engine claims to be.
    """
    from qbench.diagnosis import first_failing_case, save_test_case
    from qbench.evaluation import prepare_runners, recorded_feeds

    with ExitStack() as stack:
        runners = prepare_runners(shared.fp32_backend, shared.graphs, stack, threads=1)
        feeds = recorded_feeds(shared.subject.model.task, runners, _first(samples, _SAMPLES_OF_A_CASE))
    for graph, side in left.items():
        if side.quantized is None or right[graph].quantized is None:
            return None, "a test case needs levels on both sides"
        case = first_failing_case(side, right[graph], feeds[graph])
        if case is not None:
            return (case, save_test_case(case, folder)), ""
    return None, "no unit of the engine leaves the arithmetic that it claims on these samples"
