"""Two baselines that come from one, joined: what each side accepted is in the result."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from qbench.errors import IncomparableError
from qbench.metrics import Answers
from qbench.tracking.acceptance import is_same_reference
from qbench.tracking.baseline import AcceptedCell, Baseline

T = TypeVar("T")
_ONE_SIDE = " (git checkout --ours or --theirs; the other stays in its commit)"
_EMPTY = AcceptedCell(accepted={})


def joined_baselines(
    base: Baseline | None, ours: Baseline, theirs: Baseline, doing: str
) -> Baseline:
    """The results of both sides: of each cell and class the one that a side changed since ``base``.

    Floors are the lower ones of both sides: a floor follows from the lowest agreement of any class.

    Raises:
        IncomparableError: both sides accepted another result for one class, or other fp32
            references.
    """
    if not is_same_reference(ours, theirs):
        raise IncomparableError(
            doing,
            found="another fp32 reference on each side",
            expected="one reference, which the results of both sides were counted against",
            remedy=(
                f"Keep the side whose model is right{_ONE_SIDE}, measure the cells again, and "
                "accept them."
            ),
        )
    differing: list[str] = []
    none = replace(ours, cells={}, calibrations={}, kept={}) if base is None else base
    cells, kept = dict[str, AcceptedCell](), dict[str, dict[str, Mapping[str, Answers]]]()
    for slug in sorted(ours.cells.keys() | theirs.cells.keys()):
        sides = [one.cells.get(slug, _EMPTY) for one in (none, ours, theirs)]
        accepted = _joined([one.accepted for one in sides], f"{slug} in ", differing)
        noise = _joined([one.noise for one in sides], f"the noise of {slug} in ", differing)
        former = _joined(
            [dict.fromkeys(one.former, True) for one in sides], f"the former {slug} in ", differing
        )
        if not (accepted or noise):
            continue
        mine, others = sides[1].floors, sides[2].floors
        lowest = {
            name: min(one[name] for one in (mine, others) if name in one)
            for name in {**mine, **others}
        }
        cells[slug] = AcceptedCell(
            accepted=accepted, floors=lowest, former=tuple(sorted(former)), noise=noise
        )
        for name, result in accepted.items():
            side = ours if sides[1].accepted.get(name) == result else theirs
            if answers := side.kept.get(slug, {}).get(name):
                kept.setdefault(slug, {})[name] = answers
    sides_held = [one.calibrations for one in (none, ours, theirs)]
    calibrations = _joined(sides_held, "the calibration ", differing)
    if differing:
        raise IncomparableError(
            doing,
            found=f"other results on each side for {', '.join(differing)}",
            expected="one result for each cell and class",
            remedy=f"Keep one side{_ONE_SIDE}, measure these cells again, and accept them.",
        )
    return replace(ours, cells=cells, kept=kept, calibrations=calibrations)


def _joined(sides: list[Mapping[str, T]], what: str, differing: list[str]) -> dict[str, T]:
    """What base, ours and theirs hold by name, joined; the names that both changed in other
    ways to ``differing``.
    """
    base, ours, theirs = sides
    found = dict[str, T]()
    for name in sorted(ours.keys() | theirs.keys()):
        before, mine, other = base.get(name), ours.get(name), theirs.get(name)
        if mine not in (before, other) and other != before:
            differing.append(f"{what}{name}")
            continue
        choice = other if mine == before else mine
        if choice is not None:
            found[name] = choice
    return found
