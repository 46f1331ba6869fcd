"""What got worse, since which commit, and what people decided about it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from qbench.judging import Cell
from qbench.tracking.alert import ENDED, Alert, Kind, State
from qbench.tracking.alert_changes import changes_for_the_worse
from qbench.tracking.alert_course import EPSILON, AcceptedSeries, ReplayedAlert, recent_level
from qbench.tracking.alert_losses import explaining_steps, losses_beyond_accepted
from qbench.tracking.annotations import Annotation, Ruling
from qbench.tracking.trend import CONFIRM, AcceptedLevels, Series

# Series → alerts: what got worse, since which commit, and what people decided about it.
#
# A *step* is a confirmed new level that is worse than the one before. A *slide* is a loss against
# the accepted result that no step explains: each of its small steps may be too small to be seen,
# their sum is not. Where one commit makes most of such a loss it is a step at that commit. Other
# samples, another class or another version of an engine raise neither.
#
# Alerts are found by a replay of the runs in the order in which they began; one run that is
# replayed is an *arrival*. An alert that one run confirmed stays, on the same commits, whatever
# later runs measure. It ends once: as fixed, or as accepted.


def find_alerts(
    series: Iterable[Series],
    *,
    commits: Sequence[str] = (),
    accepted: AcceptedLevels | None = None,
    annotations: Sequence[Annotation] = (),
    confirm: int = CONFIRM,
) -> tuple[Alert, ...]:
    """Every alert in ``series``, in their order.

    Args:
        commits: the main line of the project under test, the earliest first; suspects are named
            from it.
        accepted: what baselines hold; None: slides cannot be seen.
        confirm: points that make a slide.
    """
    places = {commit: place for place, commit in enumerate(commits)}
    courses = [
        AcceptedSeries(
            one,
            (accepted or {}).get((one.cell, one.metric, one.environment_class)),
            places,
            commits,
            confirm,
        )
        for one in series
        if one.points
    ]
    notes = [
        [note for note in annotations if note.covers(course.series.cell, course.series.metric)]
        for course in courses
    ]
    changes = [changes_for_the_worse(course) for course in courses]
    _rule_steps(changes, notes)
    losses = [
        losses_beyond_accepted(course, own) for course, own in zip(courses, changes, strict=True)
    ]
    stretches = _stretches(one.alert for own in (*losses, *changes) for one in own)
    alerts: list[Alert] = []
    for course, own, lost, about in zip(courses, changes, losses, notes, strict=True):
        kept = _without_covered(own, lost)
        _rule_losses(kept, lost, course, about, stretches)
        alerts += [_listed(one, course) for one in kept]
    return tuple(alerts)


def _rule_steps(
    changes: Sequence[Sequence["ReplayedAlert"]], notes: Sequence[Sequence[Annotation]]
) -> None:
    """Give each step the state of the annotation about it: ``notes`` has those of each series."""
    stretches = _stretches(one.alert for own in changes for one in own)
    for own, about in zip(changes, notes, strict=True):
        for one in own:
            if one.alert.kind is Kind.STEP:
                one.rule(_ruled(one.alert, about, _related_commits(one.alert, stretches)))


def _without_covered(
    changes: Sequence["ReplayedAlert"], losses: Sequence["ReplayedAlert"]
) -> list["ReplayedAlert"]:
    """``losses`` and the ``changes`` that are a part of none: steps before slides, each kind in
    the order of its commits.
    """
    kept = [change for change in changes if not any(loss.covers(change) for loss in losses)]
    return sorted([*kept, *losses], key=lambda one: (one.alert.kind is Kind.SLIDE, one.bad))


def _rule_losses(
    kept: Sequence["ReplayedAlert"],
    losses: Sequence["ReplayedAlert"],
    course: "AcceptedSeries",
    about: Sequence[Annotation],
    stretches: "_Stretches",
) -> None:
    """Give each slide and each step of ``losses`` the state of the annotation ``about`` it."""
    for one in kept:
        related = _related_commits(one.alert, stretches)
        if one.alert.kind is Kind.SLIDE:
            one.rule(_ruled_slide(one, course, kept, about, related))
        elif one in losses:
            one.rule(_ruled(one.alert, about, related))


_Stretches = Mapping[Cell, Sequence[tuple[str, ...]]]


def _stretches(alerts: Iterable[Alert]) -> _Stretches:
    found: dict[Cell, list[tuple[str, ...]]] = {}
    for alert in alerts:
        found.setdefault(alert.cell, []).append(alert.stretch)
    return found


def _related_commits(alert: Alert, stretches: _Stretches) -> Collection[str]:
    """Every commit that may have caused ``alert``: its stretch, and the stretches of the same cell
    that share a commit with it.

    Other computers measure other commits of the same change. An annotation of any of these commits
    is about the change.
    """
    own = set(alert.stretch)
    return own.union(*(stretch for stretch in stretches[alert.cell] if not own.isdisjoint(stretch)))


# What people decided about it.


def _listed(one: ReplayedAlert, course: AcceptedSeries) -> Alert:
    """The alert of ``one``; it is acknowledged where the cell is quarantined since its first bad
    point.
    """
    if (
        one.alert.state is not State.DETECTED
        or one.alert.annotation
        or not course.is_listed(one.bad)
    ):
        return one.alert
    return replace(one.alert, state=State.ACKNOWLEDGED, why="the cell is quarantined")


def _ruled(alert: Alert, annotations: Sequence[Annotation], related: Collection[str]) -> Alert:
    """``alert`` in the state of the last annotation of a commit of ``related``."""
    for note in reversed(annotations):
        if any(commit.startswith(note.commit) for commit in related):
            return _with_ruling(alert, note)
    return alert


def _ruled_slide(
    found: ReplayedAlert,
    course: AcceptedSeries,
    steps: Sequence[ReplayedAlert],
    annotations: Sequence[Annotation],
    related: Collection[str],
) -> Alert:
    """The slide ``found`` in the state of the annotation of a commit on it, unless it got worse
    since then.

    A later step with an alert of its own is not a part of the slide.
    """
    alert, points, worse = found.alert, course.series.points, course.series.worsening
    least = course.least_at(len(points) - 1, course.last) - EPSILON
    recent, kind = recent_level(course), points.kinds[found.bad][1]
    explaining = explaining_steps(course, steps, (alert.before, kind), slide=found)
    for note in reversed(annotations):
        place = course.point_of(note.commit, alert, related)
        if place is not None:
            explained = sum(share for step, share in explaining if step.bad > place)
            if alert.state in ENDED or worse(points.values[place], recent) - explained < least:
                return _with_ruling(alert, note)
            since = f"{note.state.value} at {note.commit} by {note.author}, and worse since then"
            return replace(alert, why=since, annotation=note.commit)
    return alert


def _with_ruling(alert: Alert, note: Annotation) -> Alert:
    """``alert`` in the state that ``note`` gives it. An alert that ended stays so; an alert that a
    note calls fixed stays new until the level has returned.
    """
    if note.state is Ruling.FIXED and alert.state is not State.FIXED:
        why = f"said to be fixed by {note.author}, but the level has not returned"
        return replace(alert, why=why, annotation=note.commit)
    why = f"{note.reason} ({note.author})"
    if alert.state in ENDED:
        return replace(alert, why=f"{alert.why}; {why}", annotation=note.commit)
    return replace(alert, state=State(note.state.value), why=why, annotation=note.commit)
