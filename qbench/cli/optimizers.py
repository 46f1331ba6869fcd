"""qbench optimizers: what each graph optimization of ONNX Runtime changes."""

import argparse
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    AtMost,
    choose_cache,
    declare_cache,
    declare_count,
    declare_data,
    declare_json,
    read_samples,
)
from qbench.cli.printing import print_columns, print_json, put
from qbench.errors import InputError
from qbench.number_text import counted, rough_percent

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Feeds
    from qbench.diagnosis import CaseResult, OptimizationEffect, OptimizerReport, StepCauses

_LEVELS = ("basic", "extended", "layout", "all")
_COUNT = 8
_DOING = "Trying ONNX Runtime's optimizers"


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench optimizers``."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a quantized ONNX file")
    declare_data(parser, "samples; without them only graphs are compared")
    declare_count(parser, _COUNT)
    parser.add_argument(
        "--level",
        choices=_LEVELS,
        default="all",
        help="the set of optimizers, of which each is disabled in turn (default: all)",
    )
    parser.add_argument(
        "--precise",
        action="store_true",
        help="use exact u8 × s8 sums on every x64 processor (ort-cpu-precise)",
    )
    parser.add_argument(
        "--check-expected",
        action="store_true",
        help=(
            "run the catalogue of known differences instead of MODEL; exit code 1 if a number "
            "differs"
        ),
    )
    declare_cache(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the optimizers that change the graph, and what moves with each.

    Raises:
        QbenchError: the model or the data is wrong.
    """
    if (arguments.model is None) != arguments.check_expected:
        raise InputError(
            _DOING,
            found="no MODEL" if arguments.model is None else "--check-expected with MODEL",
            expected="a quantized MODEL, or --check-expected",
            remedy="Give one of the two.",
        )
    return _check(arguments) if arguments.check_expected else _examine(arguments)


def _check(arguments: argparse.Namespace) -> ExitCode:
    from qbench.diagnosis import measure_case, optimizer_cases

    results = [measure_case(case) for case in optimizer_cases()]
    others = [one for one in results if not one.as_expected]
    if arguments.json:
        print_json([_case_table(one) for one in results])
    else:
        header = ("case", "none against all", "as expected", "belongs to")
        print_columns([_case_line(one) for one in results], header)
        put(f"{len(results) - len(others)} of {counted(len(results), 'case')} as expected")
    return ExitCode.GATE_FAILED if others else ExitCode.FINE


def _examine(arguments: argparse.Namespace) -> ExitCode:
    from qbench.backends import Level, OrtBackend
    from qbench.diagnosis import examine_optimizers
    from qbench.subjects import read_graph

    model = read_graph(arguments.model)
    feeds = _feeds(arguments, model) if arguments.data else None
    backend = OrtBackend(
        name="ort-cpu-precise" if arguments.precise else "ort-cpu", precise=arguments.precise
    )
    report = examine_optimizers(model, feeds, backend=backend, level=Level(arguments.level))
    if arguments.json:
        from qbench.storage import plain

        print_json({"model": arguments.model, **plain(report)})
    else:
        _print(arguments, report)
    return ExitCode.FINE


def _feeds(arguments: argparse.Namespace, model: "ir.Model") -> "Feeds":
    """One batch, of the size that the user asked for or that the graph has."""
    from qbench.evaluation import fed_batches
    from qbench.graph import fixed_batch

    count = AtMost(fixed_batch(model) or 0) or arguments.count
    taken = read_samples(arguments.model, arguments.data, count, choose_cache(arguments.cache))
    return next(fed_batches(*taken))


def _print(arguments: argparse.Namespace, report: "OptimizerReport") -> None:
    changing = counted(len(report.effects), "optimizer")
    put(f"{arguments.model}: {report.asked} optimizers tried; the graph changes without {changing}")
    put()
    rows = [(one.name, ", ".join(map(str, one.levels)), one.effect) for one in report.effects]
    rows += [(f"{one.below.value} → {one.level.value}", "", one.effect) for one in report.levels]
    for name, levels, effect in rows:
        _print_effect(f"{name} (level {levels})" if levels else name, effect)
    if report.replaced:
        put(f"disabled, these are replaced by another optimizer: {', '.join(report.replaced)}")
    if report.unknown:
        put(f"not known to qbench: {', '.join(report.unknown)}")
    if report.missing:
        put(f"known to qbench, and not in this session: {', '.join(report.missing)}")
    if not arguments.data:
        put("only graphs were compared; --data compares values too")


def _print_effect(name: str, effect: "OptimizationEffect") -> None:
    put(name)
    put(f"  graph    {_operators(effect)}")
    for output in effect.outputs:
        put(f"  output   {output.name}: {_difference(output.differences, output.causes)}")
    alone = [one for one in effect.values if one.alone.differing]
    if effect.values:
        put(
            f"  values   {len(alone)} of {len(effect.values)} change by a rewrite of their own node"
        )
        for one in alone:
            put(
                f"           {one.node} ({'+'.join(one.operators) or 'input'}): "
                f"{_causes(one.alone)}"
            )
    if effect.first is not None and effect.first.along is not None:
        put(f"  first to move along the graph: {effect.first.value}, {_causes(effect.first.along)}")
    if effect.disturbed:
        put("  taps changed the graph: changes along it may differ from those without taps")


def _operators(effect: "OptimizationEffect") -> str:
    if effect.same_graph:
        return "the same"
    before, after = effect.before, effect.after
    changed = [
        name for name in sorted({*before, *after}) if before.get(name, 0) != after.get(name, 0)
    ]
    counts = (f"{name} {before.get(name, 0)} → {after.get(name, 0)}" for name in changed)
    return ", ".join(counts) or "the same operators, otherwise connected or named"


def _difference(differences: Any, causes: "StepCauses | None") -> str:  # noqa: ANN401 - a class of a room loaded late
    if causes is not None:
        return _causes(causes)
    if not differences.differing:
        return "the same"
    share = rough_percent(differences.differing / differences.elements)
    size = rough_percent(differences.relative)
    return f"{share} differ, by {size} of the largest at most (no qparams)"


def _causes(causes: "StepCauses") -> str:
    if not causes.differing:
        return "the same"
    parts = [
        ("tie", causes.tie),
        ("one step", causes.one_step),
        ("clamp", causes.clamp),
        ("real", causes.real),
    ]
    share = rough_percent(causes.differing / causes.elements)
    listed = ", ".join(f"{name} {count}" for name, count in parts if count)
    return f"{share} differ ({listed}), at most {counted(causes.largest, 'step')}"


def _case_line(result: "CaseResult") -> tuple[str, ...]:
    case, measured = result.case, result.measured
    wanted = (
        "yes" if result.as_expected else f"no: {_causes(case.expected)}, {dict(case.operators)}"
    )
    return case.name, _causes(measured), wanted, case.belongs.value


def _case_table(result: "CaseResult") -> dict[str, Any]:
    from qbench.storage import plain

    case = result.case
    return {
        "case": case.name,
        "as_expected": result.as_expected,
        "belongs": case.belongs.value,
        "reported": case.reported,
        "says": case.says.strip(),
        "expected": {"causes": plain(case.expected), "operators": dict(case.operators)},
        "measured": {"causes": plain(result.measured), "operators": dict(result.effect.after)},
    }


COMMAND = Command(
    name="optimizers",
    summary="find what each graph optimization of ONNX Runtime changes in a quantized model",
    example="qbench optimizers int8.onnx --data test.npz",
    declare=declare,
    execute=execute,
)
