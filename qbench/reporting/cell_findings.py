"""What localisation found of a red cell, in one line: the worst node with its numbers, its cause, and the repair.

worst: conv2, isolated SQNR 9.8 dB, clipped 31 %, cause: range outlier; conv2 in float repairs it
"""

from collections.abc import Iterable
from dataclasses import replace

from qbench.errors import InputError
from qbench.judging import Finding
from qbench.reporting.lines import read_key
from qbench.reporting.view import CellView
from qbench.tracking import Run, finding_of_line

_LEAST_CLIPPED = 0.005
_NAMED = 3
"""Operators of a repair that are named; of more the number."""


def with_findings(cells: Iterable[CellView], run: Run) -> tuple[CellView, ...]:
    """``cells`` of ``run``, each with its finding in a line; a finding that cannot be read is passed over."""
    found = {}
    for line in run.findings:
        try:
            _, finding = finding_of_line(line)
        except InputError:
            continue
        found[read_key(line)] = _in_a_line(finding)
    return tuple(replace(cell, found=found[cell.key]) if cell.key in found else cell for cell in cells)


def _in_a_line(finding: Finding) -> str:
    """``finding``; without a suspect what is known instead."""
    words = [_suspect(finding)]
    if finding.repair is not None and finding.repair.restores:
        nodes = finding.repair.nodes
        which = f"{len(nodes)} operators" if len(nodes) > _NAMED else ", ".join(nodes)
        words.append(f"{which} in float {'repairs' if len(nodes) == 1 else 'repair'} it")
    return "; ".join(words)


def _suspect(finding: Finding) -> str:
    if not finding.suspects:
        return finding.notes[0] if finding.notes and not finding.complete else finding.headline
    first = finding.suspects[0]
    node = next((one for one in finding.nodes if one.node == first.node), None)
    words = [f"worst: {first.node}"]
    if node is not None and node.isolated is not None:
        words.append(f"isolated SQNR {node.isolated.sqnr_db:.1f} dB")
    if node is not None and node.clipped_low + node.clipped_high >= _LEAST_CLIPPED:
        words.append(f"clipped {100 * (node.clipped_low + node.clipped_high):.2g} %")
    return ", ".join([*words, f"cause: {first.cause.value}"])
