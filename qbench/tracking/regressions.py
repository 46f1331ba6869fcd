"""Alerts → regressions: what one commit changed in many cells is one regression."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench.tracking.alert import Alert, Kind, State

# An alert has a stretch of commits, from the last good measurement to the first bad one. Computers
# that take turns have different stretches of the same change; the commits that all of them contain
# are where it happened. Steps are grouped greedily by the end of their stretch, which gives the
# fewest groups that each share a commit.


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Alerts with one cause.

    Args:
        suspects: the commits that all of ``alerts`` suspect, the earliest first; one: it is named.
            Empty where no commit is known, and of slides.
        alerts: largest loss first.
    """

    kind: Kind
    suspects: tuple[str, ...]
    alerts: tuple[Alert, ...]

    @property
    def is_new(self) -> bool:
        """Whether one of its alerts is new."""
        return any(alert.is_new for alert in self.alerts)


def group_alerts(alerts: Iterable[Alert], commits: Sequence[str]) -> tuple[Regression, ...]:
    """One regression for each commit and state, in the order of ``commits``; then slides, which
    are of one cell each.

    Alerts with an annotation and new ones are never in one group. All alerts of a regression share
    a commit of their stretches, so that an annotation of the commit of one is about all of them.

    Args:
        commits: the main line that the suspects were named from, the earliest first.
    """
    places = {commit: place for place, commit in enumerate(commits)}
    groups: list[tuple[tuple[str, ...], list[Alert]]] = []
    # without a commit to share: slides, and runs outside git
    apart: dict[tuple[State, object], list[Alert]] = {}
    everything = list(alerts)
    for alert in sorted(
        everything, key=lambda a: max((places.get(c, -1) for c in a.stretch), default=-1)
    ):
        if not alert.stretch:
            key = (alert.state, alert.cell if alert.kind is Kind.SLIDE else alert.run)
            apart.setdefault(key, []).append(alert)
            continue
        for place, (shared, members) in enumerate(groups):
            both = tuple(commit for commit in shared if commit in alert.stretch)
            if both and _is_same_kind(members[0], alert):
                groups[place] = both, [*members, alert]
                break
        else:
            groups.append((alert.stretch, [alert]))
    found = [_regression((), members) for members in apart.values()]
    found += [_regression(shared, members) for shared, members in groups]
    return tuple(sorted(found, key=lambda one: one.kind is Kind.SLIDE))


def _regression(suspects: tuple[str, ...], alerts: list[Alert]) -> Regression:
    ordered = sorted(alerts, key=lambda a: (-a.loss, str(a.cell), a.metric, a.environment_class))
    kind = alerts[0].kind
    return Regression(
        kind=kind, suspects=suspects if kind is Kind.STEP else (), alerts=tuple(ordered)
    )


def _is_same_kind(one: Alert, other: Alert) -> bool:
    """Whether both are of one kind and state; slides of one cell, too."""
    same = one.state is other.state and one.kind is other.kind
    return same and (one.kind is Kind.STEP or one.cell == other.cell)
