"""qbench rewrite: passes over a quantized model, with an account of each."""

import argparse
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    check_outputs,
    choose_arithmetic,
    choose_cache,
    declare_count,
    declare_json,
    read_samples,
)
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.errors import InputError
from qbench.number_text import counted

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Feeds
    from qbench.numerics import Arithmetic
    from qbench.passes import Checked, OutputChange, Pass, Pipeline, RegionVerdict, Rewritten

_POLICIES = ("exact", "rounding", "fast")
_RANDOM = "random"
_SHOWN = 3


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench rewrite``."""
    parser.add_argument("model", metavar="MODEL", help="a quantized ONNX file")
    parser.add_argument(
        "-o", "--output", metavar="OUT.onnx", required=True, help="the model to write"
    )
    parser.add_argument(
        "--passes",
        metavar="TEXT",
        help="passes in order, 'merge-requantize{steps = 1}, remove-dead' (default: standard)",
    )
    parser.add_argument(
        "--policy",
        choices=_POLICIES,
        default="exact",
        help="which changes of numbers are allowed (default: exact)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check that every pass has the effect that it declares; exit code 1 if one does not",
    )
    parser.add_argument(
        "--data",
        metavar="D",
        default=_RANDOM,
        help="also check on these samples, written as for 'qbench eval'",
    )
    declare_count(parser, 8)
    parser.add_argument(
        "--machine",
        metavar="M",
        action="listed",
        default=[],
        help=(
            "check in this arithmetic: a name, a .toml or qdq (default: what each pass declares); "
            "repeatable"
        ),
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Rewrite, write and report; where a pass is stopped or refuted, the graph before it is
    written.

    Raises:
        QbenchError: the model is not quantized, a name or a pipeline is wrong, or a pass was
            stopped.
    """
    from qbench.graph import save_model
    from qbench.passes import PassError, Policy, run_pipeline

    check_outputs(
        f"Rewriting '{arguments.model}'",
        {"--output": arguments.output},
        (arguments.model, arguments.data),
    )
    _refuse_idle(arguments)
    pipeline = _pipeline(arguments)
    model = _in_qdq(arguments.model)
    checking = (
        _Checking(_arithmetics(arguments.machine), _samples(arguments)) if arguments.check else None
    )
    try:
        found = run_pipeline(
            model, pipeline, Policy(arguments.policy), checking.watch if checking else None
        )
    except PassError as error:
        save_model(error.last_good, arguments.output)
        say(f"the last correct graph is in '{arguments.output}'")
        raise
    except _RefutedError as refuted:
        save_model(refuted.before, arguments.output)
        _tell_refuted(arguments, refuted.found)
        return ExitCode.GATE_FAILED
    save_model(found.model, arguments.output)
    outputs = checking.outputs(model, found) if checking else ()
    if arguments.json:
        print_json(_table(arguments, len(model.graph), found, checking, outputs))
    else:
        _print(arguments, len(model.graph), found, checking)
        _print_outputs(found, outputs)
    return ExitCode.FINE


class _RefutedError(Exception):
    """A pass that is not what it declares, and the graph before it."""

    def __init__(self, found: "Checked", before: "ir.Model") -> None:
        super().__init__(str(found))
        self.found, self.before = found, before


@dataclass(frozen=True, slots=True)
class _Checking:
    """Checks every change as it is made, and keeps what was found."""

    arithmetics: "tuple[str | Arithmetic, ...]"
    samples: "tuple[Feeds, ...]"
    found: "dict[str, list[Checked]]" = field(default_factory=dict)

    def watch(self, one: "Pass", before: "ir.Model", after: "ir.Model", changed: bool) -> None:
        """Check a change against the effect that the pass declares.

        Raises:
            _RefutedError: it is not what the pass declares.
        """
        from qbench.passes import check_run

        under = self.arithmetics or None
        checked = check_run(
            one, before, after, changed=changed, arithmetics=under, samples=self.samples
        )
        if checked.refuted:
            raise _RefutedError(checked, before)
        self.found.setdefault(one.name, []).append(checked)

    def outputs(self, before: "ir.Model", found: "Rewritten") -> "tuple[OutputChange, ...]":
        """What all passes together did to the outputs on the samples; nothing where all that
        changed is exact.
        """
        from qbench.passes import output_changes

        if not self.samples or not _inexact(found):
            return ()
        return output_changes(
            before, found.model, self.samples, *((self.arithmetics,) if self.arithmetics else ())
        )

    def counts(self, name: str) -> dict[str, int]:
        """Verdict → regions that the pass changed, in all rounds."""
        from qbench.passes import PassVerdict

        found = self.found.get(name, [])
        return {verdict.value: sum(one.count(verdict) for one in found) for verdict in PassVerdict}

    def changed(self) -> "tuple[tuple[str, RegionVerdict], ...]":
        """The pass and the region, of each that is another function since, whatever the pass
        declares.
        """
        from qbench.passes import PassVerdict

        changed = []
        for name, found in self.found.items():
            regions = (region for one in found for region in one.regions)
            changed += [
                (name, region) for region in regions if region.verdict is PassVerdict.CHANGED
            ]
        return tuple(changed)


def _refuse_idle(arguments: argparse.Namespace) -> None:
    given = [
        flag
        for flag, used in (("--data", arguments.data != _RANDOM), ("--machine", arguments.machine))
        if used
    ]
    if given and not arguments.check:
        raise InputError(
            f"Rewriting '{arguments.model}'",
            found=f"{given[0]} without --check",
            expected="no settings of --check",
            remedy=f"Add --check, or leave {given[0]} out.",
        )


def _pipeline(arguments: argparse.Namespace) -> "Pipeline":
    from qbench.extension import known_extensions
    from qbench.passes import Policy, catalogue, parse_pipeline, standard_pipeline

    known = catalogue(known_extensions())
    if arguments.passes is None:
        return standard_pipeline(Policy(arguments.policy), known)
    return parse_pipeline(arguments.passes, known)


def _in_qdq(path: str) -> "ir.Model":
    """The model, raised to pairs where it comes in operator form.

    Raises:
        InputError: a float model, or one of our integer operators.
    """
    from qbench.graph import Form, form_of
    from qbench.quantization import quantize_model, read_plan
    from qbench.subjects import read_graph

    model = read_graph(path)
    form = form_of(model)
    if form is Form.QOPERATOR:
        say(f"'{path}' is in operator form and is converted to Q/DQ pairs first")
        model = quantize_model(model, read_plan(model))
    if form in (Form.QDQ, Form.QOPERATOR):
        _tell_of_others(path, model)
        return model
    is_float = form is Form.FLOAT
    raise InputError(
        f"Rewriting '{path}'",
        found="a float model" if is_float else "a model that is lowered to integer operators",
        expected="a quantized one in QDQ or operator form",
        remedy="Quantize it first, with 'qbench quantize'."
        if is_float
        else "Rewrite it before it is lowered.",
    )


def _tell_of_others(path: str, model: "ir.Model") -> None:
    """One line where quantized nodes are of operators that passes do not look at."""
    from qbench.graph import Form, form_of, is_qdq

    found = [node for node in model.graph if node.domain and is_qdq(node)]
    if found:
        nodes = (
            f"{counted(len(found), 'node')} that quantize or dequantize by the domain "
            f"'{found[0].domain}'"
        )
        say(f"'{path}' has {nodes}: passes rewrite only those of ONNX and do not change these")
    if form_of(model) is Form.QOPERATOR:
        say(
            f"'{path}' has operators that cannot be converted to Q/DQ pairs: passes do not change "
            "these"
        )


def _arithmetics(texts: list[str]) -> "tuple[str | Arithmetic, ...]":
    return tuple(text if text == "qdq" else choose_arithmetic(text) for text in texts)


def _samples(arguments: argparse.Namespace) -> "tuple[Feeds, ...]":
    """One feed per sample, or per run of the task."""
    if arguments.data == _RANDOM:
        return ()
    from qbench.evaluation import fed_batches

    taken = read_samples(arguments.model, arguments.data, arguments.count, choose_cache(None))
    return tuple(fed_batches(*taken, size=1))


def _print(
    arguments: argparse.Namespace, nodes: int, found: "Rewritten", checking: "_Checking | None"
) -> None:
    after = len(found.model.graph)
    put(
        f"{arguments.output}: {counted(nodes, 'node')} before, {after} after, under the policy "
        f"'{arguments.policy}'"
    )
    put()
    header = ["pass", "effect", "rounds", "nodes removed"]
    shown = [one for one in found.accounts if one.changed]
    rows = [[one.spelled, str(one.effect), str(one.rounds), str(one.removed)] for one in shown]
    if checking:
        header.append("checked")
        for row, one in zip(rows, shown, strict=True):
            row.append(_checked_words(checking.counts(one.name)))
    if rows:
        print_columns(rows, header)
    idle = [one.spelled for one in found.accounts if not one.changed]
    if idle:
        put(f"changed nothing: {', '.join(idle)}")
    changed = checking.changed() if checking else ()
    if changed:
        put()
        put("another function, not counting rounding")
        print_columns([(name, str(region)) for name, region in changed])
    groups = _groups(found)
    if groups:
        put()
        put("declined")
        print_columns(
            [
                (name, str(len(nodes) or 1), _with_nodes(reason, nodes))
                for (name, reason), nodes in groups
            ]
        )


def _inexact(found: "Rewritten") -> bool:
    """Whether a pass changed something that did not promise to leave every bit."""
    from qbench.passes import EffectKind

    return any(one.changed and one.effect.kind is not EffectKind.EXACT for one in found.accounts)


def _print_outputs(found: "Rewritten", outputs: "tuple[OutputChange, ...]") -> None:
    if not _inexact(found):
        return
    put()
    put(
        "Effects hold for each rewritten place alone; they do not bound the outputs, where the "
        "changes add up."
    )
    if outputs:
        for one in outputs:
            put(f"output {one}")
    else:
        put("--check --data D measures what all passes together did to the outputs.")


def _checked_words(counts: dict[str, int]) -> str:
    return (
        ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        or "no value changed"
    )


def _groups(found: "Rewritten") -> "list[tuple[tuple[str, str], list[str]]]":
    """(pass, reason) → the nodes that it holds of, the commonest first; no node where the
    policy declined the pass.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found.declined:
        groups.setdefault((one.name, one.reason), []).extend([one.node] if one.node else [])
    order = Counter({key: len(nodes) for key, nodes in groups.items()})
    return [(key, groups[key]) for key, _ in order.most_common()]


def _with_nodes(reason: str, nodes: list[str]) -> str:
    if not nodes:
        return reason
    return f"{reason}: {', '.join(nodes[:_SHOWN])}{', …' * (len(nodes) > _SHOWN)}"


def _tell_refuted(arguments: argparse.Namespace, found: "Checked") -> None:
    if arguments.json:
        print_json(
            _head(arguments)
            | {"refuted": found.name, "effect": str(found.effect), "why": str(found)}
        )
    else:
        put(f"{arguments.model}: {found}")
    say(f"the graph before '{found.name}' is in '{arguments.output}'")


def _head(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"model": arguments.model, "output": arguments.output, "policy": arguments.policy}


def _table(
    arguments: argparse.Namespace,
    nodes: int,
    found: "Rewritten",
    checking: "_Checking | None",
    outputs: "tuple[OutputChange, ...]",
) -> dict[str, Any]:
    passes: list[dict[str, Any]] = []
    for one in found.accounts:
        facts = {
            "pass": one.spelled,
            "effect": str(one.effect),
            "rounds": one.rounds,
            "removed": one.removed,
        }
        passes.append(facts | ({"checked": checking.counts(one.name)} if checking else {}))
    declined = [
        {"pass": name, "reason": reason, "nodes": nodes} for (name, reason), nodes in _groups(found)
    ]
    counts = {"nodes_before": nodes, "nodes_after": len(found.model.graph), "refuted": None}
    measured = [asdict(one) for one in outputs]
    bounded = {"outputs_bounded": not _inexact(found), "outputs": measured}
    changed = [
        {"pass": name, "why": str(region)}
        for name, region in (checking.changed() if checking else ())
    ]
    return (
        _head(arguments)
        | counts
        | {"passes": passes, "changed": changed, "declined": declined}
        | bounded
    )


COMMAND = Command(
    name="rewrite",
    summary="make a quantized model smaller by passes that declare their effect",
    example="qbench rewrite int8.onnx --policy exact -o smaller.onnx --check",
    declare=declare,
    execute=execute,
)
