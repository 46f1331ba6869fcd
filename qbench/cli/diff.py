"""qbench diff: two ways to run one model, and the first node at which they differ."""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.options import (
    choose_backend,
    choose_cache,
    choose_schema,
    declare_cache,
    declare_calibration,
    declare_data,
    declare_json,
    declare_model,
    refuse_idle_rules,
    say_notes,
)
from qbench.cli.printing import print_columns, print_json, put
from qbench.errors import InputError, unknown_name
from qbench.number_text import counted

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Backend
    from qbench.diagnosis import FailingCase, NodeDifference, Side, SideDifferences
    from qbench.evaluation import Rewriting, SubjectArtifacts
    from qbench.subjects import Samples


# A side of ``qbench diff`` as it is typed: ``key=value`` pairs, blanks between them, quotes around
# what has blanks.
#
#     backend=ort-cpu schema=w8a8_asym_pc passes=merge-requantize policy=exact level=basic
#     threads=2 python=VENV
#
# Settings that are missing come from the other side's text: the right from the left, the left from
# the defaults.

FLOAT = "float"
NOTHING = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideText:
    """The settings of one side.

    Args:
        backend: a name, or a .toml with an arithmetic.
        schema: a name, a .toml, or ``float``.
        policy: which effects passes may have; alone, its standard pipeline runs.
        passes: others, with commas between them; ``none`` again: no pass.
        level: how far ONNX Runtime optimizes.
        threads: of the engine.
        python: another Python, whose onnxruntime runs it.
    """

    backend: str = "ort-cpu"
    schema: str = FLOAT
    passes: str = ""
    policy: str = ""
    level: str = ""
    threads: str = "1"
    python: str = ""

    def saying(self, text: str) -> "SideText":
        """A copy with the settings in ``text``; an empty value resets one to its default.

        Raises:
            InputError: an unknown key, one without a value, or a key given twice.
        """
        doing = f"Reading the side '{text}'"
        known = [one.name for one in fields(self)]
        said: dict[str, str] = {}
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InputError(
                doing, found=str(error), expected="quotes in pairs", remedy="Close the quote."
            ) from error
        for word in words:
            key, sign, value = word.partition("=")
            if not sign:
                raise InputError(
                    doing,
                    found=f"'{word}'",
                    expected="key=value",
                    remedy=f"Write backend={word}, or another key: {', '.join(known)}.",
                )
            if key not in known:
                raise unknown_name(doing, "key", key, known)
            if key in said:
                raise InputError(
                    doing,
                    found=f"'{key}' twice",
                    expected="it once",
                    remedy="Leave one of them out.",
                )
            said[key] = value
        return replace(self, **said)

    @property
    def thread_count(self) -> int:
        """Threads as a number.

        Raises:
            InputError: it is not a whole number from 1.
        """
        if self.threads.isdecimal() and int(self.threads):
            return int(self.threads)
        raise InputError(
            f"Reading 'threads={self.threads}'",
            found=f"'{self.threads}'",
            expected="a whole number from 1",
            remedy="Write threads=1.",
        )

    @property
    def label(self) -> str:
        """Its name in results: backend, schema and all settings that are not the default."""
        usual = SideText()
        said = (
            f"{one.name}={getattr(self, one.name)}"
            for one in fields(self)
            if one.name in ("backend", "schema")
            or getattr(self, one.name) != getattr(usual, one.name)
        )
        return " ".join(word for word in said if not word.endswith("="))

    def chosen_backend(self) -> "Backend":
        """The backend, at its level and in its Python.

        Raises:
            InputError: an unknown name, or a level of what has none.
            UnavailableError: the other Python lacks the engine.
        """
        from qbench.backends import HasLevels, python_backend

        backend = choose_backend(self.backend or SideText().backend)
        if self.level:
            if isinstance(backend, HasLevels) and self.level not in backend.levels:
                raise unknown_name(
                    f"Reading 'level={self.level}'", "level", self.level, backend.levels
                )
            if not isinstance(backend, HasLevels) or self.python:
                raise InputError(
                    f"Choosing the level of '{self.backend}'",
                    found="another Python"
                    if self.python
                    else "a backend without optimization levels",
                    expected=(
                        "ONNX Runtime of this Python: ort-cpu, ort-cpu-noopt or ort-cpu-precise"
                    ),
                    remedy="Leave 'level' out.",
                )
            return backend.at_level(self.level)
        return python_backend(Path(self.python), like=self.backend) if self.python else backend

    def chosen_rewriting(self) -> "Rewriting | None":
        """What runs after the quantizer; None: nothing.

        Raises:
            InputError: an unknown pass or policy.
        """
        from qbench.evaluation import Rewriting
        from qbench.extension import known_extensions
        from qbench.passes import Policy, catalogue, parse_pipeline, standard_pipeline

        if self.passes == NOTHING or not (self.passes or self.policy):
            return None
        policies = {policy.value: policy for policy in Policy}
        policy = self.policy or Policy.FAST.value
        if policy not in policies:
            raise unknown_name(f"Reading 'policy={policy}'", "policy", policy, policies)
        known = catalogue(known_extensions())
        chosen = policies[policy]
        pipeline = (
            parse_pipeline(self.passes, known) if self.passes else standard_pipeline(chosen, known)
        )
        return Rewriting(pipeline, chosen)


# ``qbench diff``: from the arguments to the differences; nothing is printed here.

_SAMPLES_OF_A_CASE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSides:
    """What was found, graph by graph.

    Args:
        left, right: the settings of each side.
        samples: their number.
        found: graph → what differs.
        came: the form in which the model of each side came, ``float`` or a quantized one.
        next_step: the command that finds the cause, where there is one.
        ranks: whether the model ranks classes.
        case: the smallest failing input, and the folder it was saved in.
        case_note: why there is no case, where one was requested.
    """

    left: SideText
    right: SideText
    samples: int
    found: "Mapping[str, SideDifferences]"
    came: tuple[str, str] = ("float", "float")
    next_step: str = ""
    ranks: bool
    case: "tuple[FailingCase, Path] | None" = None
    case_note: str = ""

    @property
    def are_equal(self) -> bool:
        """Whether no output of any graph differs by more than the tolerance."""
        return all(one.are_equal for one in self.found.values())


def compare_texts(arguments: argparse.Namespace) -> ComparedSides:
    """Both sides on the samples that are named.

    Raises:
        QbenchError: the model, the data or a name is wrong, or a backend does not run its graph.
    """
    from qbench.diagnosis import Allowed, SideComparison
    from qbench.subjects import require_answers

    left = SideText().saying(arguments.left)
    right = left.saying(arguments.right)
    if arguments.other is not None and arguments.save_case is not None:
        raise _mistake(
            arguments, "--save-case with two models", "one model: a test case is of one graph"
        )
    shared = _artifacts(arguments, arguments.model)
    other = shared if arguments.other is None else _artifacts(arguments, arguments.other)
    came = (_form(shared), _form(other))
    if came[1] != FLOAT and "schema" not in arguments.right:
        # it is the left model that --left has quantized
        right = replace(right, schema=FLOAT)
    sides = [_sides(left, "left", shared, arguments), _sides(right, "right", other, arguments)]
    _align(arguments, came, sides)
    (data,) = shared.subject.data.values()
    say_notes(shared.subject.model, data)
    samples = _first(shared.samples(data), arguments.samples)
    allowed = Allowed(arguments.atol, arguments.rtol)
    with ExitStack() as stack:
        runners = {
            name: stack.enter_context(SideComparison(one, sides[1][name], allowed))
            for name, one in sides[0].items()
        }
        answers = shared.subject.model.task.answer(runners, samples)
        require_answers(shared.subject.model.task, answers, samples)
        found = {name: runner.compared() for name, runner in runners.items()}
    left, right = (
        replace(text, schema="") if form != FLOAT else text
        for text, form in zip((left, right), came, strict=True)
    )
    compared = ComparedSides(
        left=left,
        right=right,
        samples=len(samples),
        found=found,
        came=came,
        ranks=answers.form == "ranking",
    )
    compared = replace(compared, next_step=_next_step(arguments, compared))
    if arguments.save_case is None:
        return compared
    case, note = _saved_case(Path(arguments.save_case), sides[0], sides[1], shared, samples)
    return replace(compared, case=case, case_note=note)


def _artifacts(arguments: argparse.Namespace, model: str) -> "SubjectArtifacts":
    from qbench.backends import get_backend
    from qbench.evaluation import FLOAT_BACKEND, build_subject, subject_artifacts

    subject = build_subject(model, arguments.data, arguments.calib, [], arguments.calib_count)
    return subject_artifacts(subject, get_backend(FLOAT_BACKEND), choose_cache(arguments.cache))


def _form(shared: "SubjectArtifacts") -> str:
    """The form in which the graphs came: float, or the first quantized form."""
    from qbench.graph import form_text
    from qbench.quantization import is_quantized

    return next(
        (form_text(model) for model in shared.graphs.values() if is_quantized(model)), FLOAT
    )


def _align(
    arguments: argparse.Namespace, came: tuple[str, str], sides: "Sequence[dict[str, Side]]"
) -> None:
    """Check that two models have the same graphs; a quantized one of two is aligned by the
    values of the float one.
    """
    ours, theirs = sides
    if set(ours) != set(theirs):
        found = f"the graphs {', '.join(ours)} and {', '.join(theirs)}"
        raise _mistake(arguments, found, "models of the same graphs")
    if arguments.other is not None and (came[0] == FLOAT) != (came[1] == FLOAT):
        quantized, floats = (ours, theirs) if came[0] != FLOAT else (theirs, ours)
        for name, side in quantized.items():
            quantized[name] = replace(side, original=floats[name].original)


def _next_step(arguments: argparse.Namespace, compared: ComparedSides) -> str:
    """The command that finds the cause of a difference; empty where none does."""
    if compared.are_equal or arguments.other is not None:
        return ""
    right = compared.right
    data = f"--data {shlex.quote(arguments.data)} --samples {compared.samples}"
    model = shlex.quote(arguments.model)
    if compared.came[0] == FLOAT and right.schema != FLOAT and compared.left.schema == FLOAT:
        calib = f" --calib {shlex.quote(arguments.calib)}" if arguments.calib else ""
        calib += f" --calib-samples {arguments.calib_count}" if arguments.calib_count else ""
        return (
            f"qbench localize {model} --backend {right.backend} --schema {right.schema} "
            f"{data}{calib}"
        )
    engines = {"ort-cpu", "ort-cpu-noopt", "ort-cpu-precise"}
    if compared.came[0] != FLOAT and {compared.left.backend, right.backend} <= engines:
        return f"qbench optimizers {model} {data}"
    return ""


def _first(samples: "Samples", count: int) -> "Samples":
    labels = None if samples.labels is None else samples.labels[:count]
    return replace(samples, ids=samples.ids[:count], labels=labels)


def _sides(
    text: SideText, name: str, shared: "SubjectArtifacts", arguments: argparse.Namespace
) -> "dict[str, Side]":
    """Graph → this side of it."""
    from qbench.diagnosis import Side
    from qbench.evaluation import rewrite_quantized
    from qbench.quantization import is_quantized

    backend, rewriting, threads = text.chosen_backend(), text.chosen_rewriting(), text.thread_count
    came = {graph: model for graph, model in shared.graphs.items() if is_quantized(model)}
    if came:
        if text.schema != FLOAT:
            raise _mistake(
                arguments,
                f"schema={text.schema} for a model that is quantized already",
                "no schema",
            )
        quantized = {graph: _in_pairs(model) for graph, model in came.items()}
        originals: Mapping[str, ir.Model] = {**shared.graphs, **quantized}
    elif text.schema == FLOAT:
        if rewriting is not None:
            raise _mistake(
                arguments,
                f"passes of the float model on the {name}",
                "a schema: passes run behind it",
            )
        originals, quantized = shared.graphs, {}
    else:
        schema = choose_schema(text.schema)
        if schema.needs_samples and not arguments.calib:
            raise _mistake(
                arguments,
                f"schema={text.schema} without --calib",
                "samples to take its ranges from",
            )
        made = shared.quantized(schema, backend.capabilities)
        refuse_idle_rules(schema.name, arguments.model, made.idle_rules)
        originals = shared.planned(schema.canonical)
        quantized = dict(
            (made if rewriting is None else rewrite_quantized(made, rewriting).quantized).models
        )
    if came and rewriting is not None:
        from qbench.passes import run_pipeline

        models = quantized.items()
        quantized = {
            graph: run_pipeline(m, rewriting.pipeline, rewriting.policy).model
            for graph, m in models
        }
    return {
        graph: Side(
            name=name,
            original=one,
            quantized=quantized.get(graph),
            backend=backend,
            threads=threads,
        )
        for graph, one in originals.items()
    }


def _in_pairs(model: "ir.Model") -> "ir.Model":
    """``model`` in QDQ form."""
    from qbench.graph import Form, form_of
    from qbench.quantization import quantize_model, read_plan

    return quantize_model(model, read_plan(model)) if form_of(model) is Form.QOPERATOR else model


def _mistake(arguments: argparse.Namespace, found: str, expected: str) -> InputError:
    doing = f"Comparing two sides of '{arguments.model}'"
    return InputError(
        doing, found=found, expected=expected, remedy="Correct --left or --right, or add --calib."
    )


def _saved_case(
    folder: Path,
    left: "Mapping[str, Side]",
    right: "Mapping[str, Side]",
    shared: "SubjectArtifacts",
    samples: "Samples",
) -> "tuple[tuple[FailingCase, Path] | None, str]":
    """The smallest input on which a unit of an engine differs from its arithmetic; or why there
    is none.

    The engine is the side whose backend is not integer-…, the right one where both or neither are.
    The arithmetic is that of the other side where it is integer-…, else the one that the engine
    claims.
    """
    from qbench.diagnosis import first_failing_case, save_test_case
    from qbench.evaluation import prepare_runners, recorded_feeds

    with ExitStack() as stack:
        runners = prepare_runners(shared.fp32_backend, shared.graphs, stack, threads=1)
        feeds = recorded_feeds(
            shared.subject.model.task, runners, _first(samples, _SAMPLES_OF_A_CASE)
        )
    for graph, side in left.items():
        if side.quantized is None or right[graph].quantized is None:
            return None, "a test case needs quantized values on both sides"
        case = first_failing_case(side, right[graph], feeds[graph])
        if case is not None:
            return (case, save_test_case(case, folder)), ""
    return None, "no unit of the engine differs from the arithmetic that it claims on these samples"


# ``qbench diff``: two ways to run one model, and the first node at which they differ.

_UNALIGNED_SHOWN = 10
_KEYS = "backend, schema, passes, policy, level, threads, python"


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench diff``."""
    declare_model(parser, "an ONNX file, float or in QDQ form")
    parser.add_argument(
        "other",
        metavar="OTHER",
        nargs="?",
        help=(
            "another model, which the right side runs on the same samples; values of the same name "
            "are compared"
        ),
    )
    declare_data(parser, "samples", is_required=True)
    declare_calibration(parser)
    parser.add_argument(
        "--left",
        metavar="TEXT",
        default="",
        help=f"'key=value …' of {_KEYS} (default: backend=ort-cpu schema=float threads=1)",
    )
    parser.add_argument(
        "--right",
        metavar="TEXT",
        default="",
        help="the same; keys that are missing have the values of --left",
    )
    parser.add_argument(
        "--samples",
        "--count",
        dest="samples",
        metavar="N",
        type=count_from_one,
        default=64,
        help="use the first N samples (default: 64)",
    )
    parser.add_argument(
        "--atol",
        metavar="A",
        type=_distance,
        default=0.0,
        help=(
            "count values as equal that differ by at most A + R × |left|, as numpy does (default: "
            "0)"
        ),
    )
    parser.add_argument(
        "--rtol", metavar="R", type=_distance, default=0.0, help="R of the same sum (default: 0)"
    )
    parser.add_argument(
        "--save-case",
        metavar="DIR",
        help="save the smallest input on which an engine differs from the arithmetic of the other "
        "side, or from the one that it claims, as an ONNX test case",
    )
    parser.add_argument(
        "--top",
        metavar="K",
        type=count_from_one,
        default=20,
        help="list the first K nodes that differ; equal ones are counted (default: 20)",
    )
    declare_cache(parser)
    declare_json(parser)


def _distance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a number from 0, such as 1e-5")
    return value


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Compare and print; 1 when an output differs by more than the tolerance, as other programs
    that are called so.

    Raises:
        QbenchError: the model, the data or a name is wrong, or a side does not run.
    """
    compared = compare_texts(arguments)
    if arguments.json:
        print_json(_table(arguments, compared))
    else:
        _print(arguments, compared)
    return ExitCode.FINE if compared.are_equal else ExitCode.GATE_FAILED


def _print(arguments: argparse.Namespace, compared: "ComparedSides") -> None:
    samples = f"{counted(compared.samples, 'sample')} of {arguments.data}"
    if arguments.other is None:
        put(f"model  {arguments.model}{_came(compared.came[0])}, {samples}")
        put(f"left   {compared.left.label}")
        put(f"right  {compared.right.label}")
    else:
        put(f"left   {arguments.model}{_came(compared.came[0])}, {compared.left.label}")
        put(f"right  {arguments.other}{_came(compared.came[1])}, {compared.right.label}")
        put(f"data   {samples}")
    for graph, found in compared.found.items():
        put()
        put(f"{graph}: {_outputs(arguments, found, ranks=compared.ranks)}")
        for how in found.how:
            put(f"  {how}")
        _print_nodes(found, arguments.top)
    if compared.next_step:
        put()
        put(f"to find the cause: {compared.next_step}")
    if compared.case is not None:
        case, folder = compared.case
        put()
        put(f"saved to {folder}: {case.sentence}")
    elif compared.case_note:
        put()
        put(f"no test case: {compared.case_note}")


def _came(form: str) -> str:
    return "" if form == FLOAT else f" (quantized, {form})"


def _outputs(arguments: argparse.Namespace, found: "SideDifferences", *, ranks: bool) -> str:
    """The difference of the outputs in words."""
    from qbench.diagnosis import bound_of

    outputs = found.outputs
    allowed = f"--atol {arguments.atol:g} --rtol {arguments.rtol:g}"
    if found.are_equal:
        text = f"all {outputs.elements} outputs are equal"
        return (
            f"{text} ({found.within} of them within {allowed}, not bit for bit)"
            if found.within
            else text
        )
    text = f"{outputs.differing} of {outputs.elements} outputs differ, {bound_of(outputs)}"
    if found.within:
        text += f"; {found.within} more within {allowed}"
    if ranks and found.flips:
        text += f"; the best class of {counted(found.flips, 'sample')} is another"
    return text


def _print_nodes(found: "SideDifferences", top: int) -> None:
    if found.nodes:
        first = found.first
        if first is None:
            put()
            put(f"no value differs, of {len(found.nodes)} that both have")
        else:
            put()
            put(f"first to differ: {first.node} ({first.value})")
        if found.why:
            put(f"why: {found.why}")
        if first is not None:
            print_columns(
                _folded(found.nodes, top), ("node", "value", "differ", "of", "steps", "SQNR")
            )
        unlike = [node for node in found.nodes if node.differing]
        if len(unlike) > top:
            put(f"and {len(unlike) - top} more that differ (--top lists more, --json all of them)")
        others = [node for node in unlike[:top] if not node.same_grid]  # stored name
        if any(node.largest is not None for node in others):
            put(
                "* with different qparams, or quantized on one side only: compared as reals; a "
                "difference is more than one coarser step"
            )
    if found.unaligned:
        put()
        put("not compared:")
        print_columns([(one.value, one.reason) for one in found.unaligned[:_UNALIGNED_SHOWN]])
        if len(found.unaligned) > _UNALIGNED_SHOWN:
            put(f"and {len(found.unaligned) - _UNALIGNED_SHOWN} more (--json lists them all)")


def _folded(nodes: Sequence["NodeDifference"], top: int) -> list[tuple[str, ...]]:
    """A line for each of the first ``top`` nodes that differ, and one for the equal ones in a
    row.
    """
    lines: list[tuple[str, ...]] = []
    left = top
    for differs, several in groupby(nodes, key=lambda node: node.differing > 0):
        alike = list(several)
        if left and differs:
            lines += map(_line, alike[:left])
            left = max(0, left - len(alike))
        elif left:
            lines.append(("…", f"{counted(len(alike), 'value')} equal", "0", "", "", ""))
    return lines


def _line(node: "NodeDifference") -> tuple[str, ...]:
    steps = "real" if node.largest is None else f"{node.largest:.3g}"
    if node.largest is not None and not node.same_grid:  # stored name
        steps += " *"
    sqnr = f"{node.sqnr_db:.1f} dB" if node.relative else "equal"
    return (node.node, node.value, str(node.differing), str(node.elements), steps, sqnr)


def _table(arguments: argparse.Namespace, compared: "ComparedSides") -> dict[str, Any]:
    from qbench.storage import plain

    def one(found: "SideDifferences") -> dict[str, Any]:
        table: dict[str, Any] = plain(found)
        first = found.first
        return {**table, "equal": found.are_equal, "first": None if first is None else plain(first)}

    case = None
    if compared.case is not None:
        failing, folder = compared.case
        case = {
            "folder": str(folder),
            "node": failing.node,
            "cause": failing.cause.value,
            "sentence": failing.sentence,
            "trials": failing.trials,
        }
    return {
        "model": arguments.model,
        "other": arguments.other,
        "came": list(compared.came),
        "data": arguments.data,
        "samples": compared.samples,
        "left": compared.left.label,
        "right": compared.right.label,
        "atol": arguments.atol,
        "rtol": arguments.rtol,
        "equal": compared.are_equal,
        "next_step": compared.next_step,
        "graphs": {name: one(found) for name, found in compared.found.items()},
        "case": case,
        "case_note": compared.case_note,
    }


COMMAND = Command(
    name="diff",
    summary="find the first node at which two ways to run one model, or two models, differ",
    example="qbench diff int8.onnx --data test.npz --right backend=ort-cpu-noopt",
    declare=declare,
    execute=execute,
)
