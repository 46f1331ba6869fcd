"""``qbench diff``: two ways to run one model, and the first node at which they differ."""

import argparse
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.compared_sides import compare_texts
from qbench.cli.printing import print_columns, print_json, put
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.cli.compared_sides import ComparedSides
    from qbench.diagnosis import NodeDifference, SideDifferences

_UNALIGNED_SHOWN = 10
_KEYS = "backend, schema, passes, policy, level, threads, python"


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench diff``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or a model of the zoo; float, or in QDQ form")
    parser.add_argument("--data", metavar="D", required=True, help="samples, as 'qbench eval' takes them")
    parser.add_argument(
        "--calib", metavar="D2", help="data that schemas take ranges from; never the samples themselves"
    )
    parser.add_argument(
        "--calib-count", metavar="N", type=count_from_one, help="that many of them, spread evenly (default: all)"
    )
    parser.add_argument(
        "--left",
        metavar="TEXT",
        default="",
        help=f"'key=value …' of {_KEYS} (default: backend=ort-cpu schema=float threads=1)",
    )
    parser.add_argument("--right", metavar="TEXT", default="", help="the same; what it does not say is as on the left")
    parser.add_argument(
        "--samples", metavar="N", type=count_from_one, default=64, help="the first N of the data (default: 64)"
    )
    parser.add_argument(
        "--save-case",
        metavar="DIR",
        help="save the smallest input on which an engine leaves the other side's arithmetic, or the one that it "
        "claims, as an ONNX test case",
    )
    parser.add_argument(
        "--top",
        metavar="K",
        type=count_from_one,
        default=20,
        help="nodes listed that differ, the first ones; equal ones are counted (default: 20)",
    )
    parser.add_argument("--cache", metavar="DIR", help="folder of the cache (default: the user's)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Compare and print; 1 when an output differs, as other programs that are called so.

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
    put(f"model  {arguments.model}, {counted(compared.samples, 'sample')} of {arguments.data}")
    put(f"left   {compared.left.label}")
    put(f"right  {compared.right.label}")
    for graph, found in compared.found.items():
        put()
        put(f"{graph}: {_outputs(found, ranks=compared.ranks)}")
        for how in found.how:
            put(f"  {how}")
        _print_nodes(found, arguments.top)
    if compared.case is not None:
        case, folder = compared.case
        put()
        put(f"saved to {folder}: {case.sentence}")
    elif compared.case_note:
        put()
        put(f"no test case: {compared.case_note}")


def _outputs(found: "SideDifferences", *, ranks: bool) -> str:
    """The difference of the outputs in words."""
    from qbench.diagnosis import bound_of

    outputs = found.outputs
    if found.are_equal:
        return f"all {outputs.elements} outputs are equal"
    flips = f"; the best class of {counted(found.flips, 'sample')} is another" if ranks and found.flips else ""
    return f"{outputs.differing} of {outputs.elements} outputs differ, {bound_of(outputs)}{flips}"


def _print_nodes(found: "SideDifferences", top: int) -> None:
    if found.nodes:
        first = found.first
        if first is None:
            put()
            put(f"no value differs, of {len(found.nodes)} that both have")
        else:
            put()
            put(f"first to differ: {first.node} ({first.value})")
            print_columns(_folded(found.nodes, top), ("node", "value", "differ", "of", "steps", "SQNR"))
        unlike = [node for node in found.nodes if node.differing]
        if len(unlike) > top:
            put(f"and {len(unlike) - top} more that differ (--top lists more, --json all of them)")
        if any(not node.same_grid and node.largest is not None for node in unlike[:top]):
            put("* on two grids, or one and none: in reals, differing by more than a step of the coarser grid")
    if found.unaligned:
        put()
        put("not compared:")
        print_columns([(one.value, one.reason) for one in found.unaligned[:_UNALIGNED_SHOWN]])
        if len(found.unaligned) > _UNALIGNED_SHOWN:
            put(f"and {len(found.unaligned) - _UNALIGNED_SHOWN} more (--json lists them all)")


def _folded(nodes: Sequence["NodeDifference"], top: int) -> list[tuple[str, ...]]:
    """A line for each of the first ``top`` nodes that differ, and one for the equal ones in a row."""
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
    steps = "real" if node.largest is None else f"{node.largest:.3g}" + ("" if node.same_grid else " *")
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
        "data": arguments.data,
        "samples": compared.samples,
        "left": compared.left.label,
        "right": compared.right.label,
        "equal": compared.are_equal,
        "graphs": {name: one(found) for name, found in compared.found.items()},
        "case": case,
        "case_note": compared.case_note,
    }


COMMAND = Command(
    name="diff",
    summary="say at which node two ways to run one model begin to differ",
    example="qbench diff int8.onnx --data test.npz --right backend=ort-cpu-noopt",
    declare=declare,
    execute=execute,
)
