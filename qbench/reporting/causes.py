"""Red cells by the kind of reason they are red for, worst kind first, and the sentence at the top of a report."""

from collections import Counter
from collections.abc import Iterable, Sequence

from qbench.judging import IMPROVED, NO_LONGER_FAILS
from qbench.reporting.report import Cause
from qbench.reporting.view import ABSENT, CellView, RunView
from qbench.reporting.words import counted

TITLES = {
    "error": "Could not be measured",
    "loss": "Loses more against fp32 than its tolerance allows",
    "unproven": "Is not shown to lose less against fp32 than its tolerance allows",
    "floor": "Agrees with fp32 less than its accepted floor",
    "limit": "Is farther from fp32 than its limit",
    "equality": "Is not what another backend is",
    "failed": "Fails for another reason",
    "expired": "Fails, and the date of its quarantine entry has passed",
    "calibration": "Was calibrated otherwise than accepted",
    "drifted": "Differs from its accepted result",
    "stale": "Its baseline is of another model, data or preprocessing",
    "missing": "Has no baseline yet",
    "improved": "Is better than its accepted result, by more than the tolerance",
    "mended": "No longer fails, though a quarantine entry lists it as known bad",
}
"""Kinds of reason, worst first."""

SHORT = {
    "error": "not measurable",
    "loss": "beyond tolerance",
    "unproven": "not shown within tolerance",
    "floor": "below the agreement floor",
    "limit": "beyond its limit",
    "equality": "unequal to another backend",
    "failed": "for another reason",
    "expired": "past the date of its quarantine entry",
    "calibration": "calibrated otherwise",
    "drifted": "drifted",
    "stale": "with a stale baseline",
    "missing": "without a baseline",
    "improved": "improved",
    "mended": "listed as known bad without need",
}


def cause_name(cell: CellView) -> str:
    """The kind of reason ``cell`` is red for: its outcome, or the kind of its first broken gate if that says more."""
    first = next((gate for gate in cell.gates if gate.state == "broken"), None)
    if cell.outcome == "failed":
        if first is None or first.kind not in ("loss", "floor", "limit", "equality"):
            return "failed"
        strict = first.kind == "loss" and "decision strict" in first.rule
        return "unproven" if strict and "INCONCLUSIVE" in first.detail else first.kind
    if cell.outcome == "drifted" and cell.headline.startswith(IMPROVED):
        return "improved"
    if cell.outcome == "drifted" and first is not None and first.kind == "calibration":
        return "calibration"
    if cell.outcome == "expired" and cell.headline.startswith(NO_LONGER_FAILS):
        return "mended"
    return cell.outcome if cell.outcome in TITLES else "failed"


def group_causes(cells: Iterable[CellView]) -> tuple[Cause, ...]:
    """The red cells of ``cells`` by cause; causes and cells worst first."""
    groups: dict[str, list[CellView]] = {}
    for cell in cells:
        if cell.is_red:
            groups.setdefault(cause_name(cell), []).append(cell)
    for group in groups.values():
        group.sort(key=lambda cell: (-cell.excess, cell.key))
    return tuple(
        Cause(
            name=name,
            title=title,
            cells=tuple(groups[name]),
            remedies=tuple(text for text, _ in Counter(c.remedy for c in groups[name] if c.remedy).most_common()),
        )
        for name, title in TITLES.items()
        if name in groups
    )


def headline_of(run: RunView, cells: Sequence[CellView], causes: Sequence[Cause]) -> str:
    """One sentence: how many cells are red and why, or that all is well."""
    ran = [cell for cell in cells if cell.outcome not in (ABSENT, "unsupported")]
    red = sum(len(cause.cells) for cause in causes)
    counts = Counter(cell.outcome for cell in cells)
    quarantined, unclear, excused = counts["quarantined"], counts["inconclusive"], counts["missing"]
    if not ran:
        skipped = sum(cell.outcome == "unsupported" for cell in cells)
        text = f"Nothing was measured: {counted(skipped, 'cell')} unsupported" if skipped else "Nothing was measured"
    elif red:
        why = ", ".join(f"{len(cause.cells)} {SHORT[cause.name]}" for cause in causes)
        text = f"{red} of {counted(len(ran), 'cell')} {'is' if red == 1 else 'are'} red: {why}"
    elif quarantined or unclear or excused:
        others = [f"{unclear} inconclusive"] if unclear else []
        others += [f"{excused} without a baseline"] if excused else []
        others += [f"{quarantined} in quarantine"] if quarantined else []
        text = f"No cell is red: {', '.join([f'{len(ran) - quarantined - unclear - excused} pass', *others])}"
    else:
        text = f"All {counted(len(ran), 'cell')} pass" if len(ran) > 1 else "The one cell passes"
    return text if run.complete else f"Incomplete run. So far: {text[0].lower()}{text[1:]}"
