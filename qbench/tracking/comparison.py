"""Two runs compared cell by cell: old → new."""

import contextlib
import enum
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from qbench.errors import IncomparableError
from qbench.judging import (
    SET_BY_SUITE,
    Cell,
    EnvironmentClass,
    arithmetic_change,
    class_change,
    making_changes,
    mcnemar_midp,
    paired_interval,
)
from qbench.number_text import counted
from qbench.tracking.gate_record import JudgedCost
from qbench.tracking.record import AXES, CellRecord, MetricRecord, Run

COMPARED_KEYS = (
    *(*AXES, "outcome", "excused", "environment_class", "metrics", "digests"),
    *("changed", "changed_count", "kept", "stopped", "made", "gates"),
)
"""What of a ``cell`` line a comparison is made of."""

ANOTHER_MODEL = "another model"
"""What differs where a model was trained or exported again."""

# Paired statistics of two runs, from what each of them counted against one and the same fp32
# reference.
#
# fp32 is right on R of n samples. The old run lost L of these and gained G of the others; the new
# run L′ and G′.
#
#     losses old → new  =  |L′ without L| + |G without G′|
#     gains  =  losses − (L′ − L) − (G − G′)
#     at least  max(0, L′ − L) + max(0, G − G′)      at most  min(L′, R − L) + min(G, n − R − G′)
#
# The two ends are equal where one of the runs has no loss and no gain. A run file has no labels, so
# that no more is known; equal predictions are 0 and 0. Where samples share sources, the greater
# design effect of the two runs widens the interval, and p is that of a normal distribution with
# that variance: which samples changed is not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """How many of ``n`` samples one metric lost and gained from the old run to the new: the least
    and the most.

    ``effect``: how many samples prove as much as one that shares its source with no other.
        ``sources``: of the samples;
    None: each has its own.
    """

    n: int
    losses: tuple[int, int]
    gains: tuple[int, int]
    effect: float = 1.0
    sources: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether least and most are equal."""
        return self.losses[0] == self.losses[1]

    @property
    def midp(self) -> tuple[float, float]:
        """The least and the greatest p of "no change": McNemar's mid-p, the normal one where
        samples share sources.
        """
        low, high = sorted(self._p(*both) for both in zip(self.losses, self.gains, strict=True))
        return low, high

    def _p(self, losses: int, gains: int) -> float:
        if self.effect == 1 or losses == gains:
            return mcnemar_midp(losses, gains)
        return 2 * NormalDist().cdf(
            -abs(losses - gains) / math.sqrt((losses + gains) * self.effect)
        )

    @property
    def interval(self) -> tuple[float, float]:
        """The widest 95 % interval of the change in accuracy (Bonett and Price), as fractions;
        negative is loss.
        """
        return paired_interval(
            self.losses[1], self.gains[1], self.n, method="bonett-price", effect=self.effect
        )


def _pairs(old: MetricRecord, new: MetricRecord, *, is_same: bool) -> Pairs | None:
    """Of two counts against one reference; None where they do not describe the samples one by
    one. ``is_same``: the predictions are equal.
    """
    for metric in (old, new):
        if not metric.is_countable or not metric.proportion or metric.n != metric.out_of:
            return None
    if not new.against_labels or (old.n, old.reference_hits) != (new.n, new.reference_hits):
        return None
    right = new.n - new.reference_hits if new.lower_is_better else new.reference_hits
    least = max(0, new.losses - old.losses) + max(0, old.gains - new.gains)
    most = min(new.losses, right - old.losses) + min(old.gains, new.n - right - new.gains)
    net = new.losses - old.losses + old.gains - new.gains
    if most < least:  # counts that contradict each other
        return None
    if is_same:
        least = most = net = 0
    known = [metric.clusters for metric in (old, new) if metric.clusters is not None]
    return Pairs(
        n=new.n,
        losses=(least, most),
        gains=(least - net, most - net),
        effect=max((one.effect for one in known), default=1.0),
        sources=known[-1].sources if known else None,
    )


class Relation(enum.Enum):
    """How the two results of a cell differ."""

    SAME = "same"  # the same predictions, and every metric that both have as it was
    CHANGED = "changed"
    INCOMPARABLE = "incomparable"  # measured elsewhere, on other samples, or on one side not at all
    ONLY_OLD = "only in the old run"
    ONLY_NEW = "only in the new run"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """Hits of one metric old → new (None: not measured there), out of how many in the new run or
    else the old; ``old_out_of``: in the old run or else the new.

    ``samples``: how many were counted in the old and in the new run; values of different samples
    are not compared.
    ``means``: the values of both sides where these are means of runs that differ.
    ``unit`` is that of hits / out_of: ``"%"`` is a share. ``is_distance``: it is how far the
    answers are from fp32.
    ``references``: the hits of fp32 in both runs, of a metric against labels. ``pairs``: None: not
        known.
    """

    metric: str
    old: int | None
    new: int | None
    out_of: int
    old_out_of: int
    samples: tuple[int, int]
    unit: str = "%"
    lower_is_better: bool = False
    is_distance: bool = False
    references: tuple[int, int] | None = None
    pairs: Pairs | None = None
    means: tuple[float | None, float | None] = (None, None)

    @property
    def moved(self) -> float | None:
        """The new value less the old, in the unit (a fraction where that is ``%``); None where
        one is not known, or they are of different numbers of samples.
        """
        old, new = self.values
        if old is None or new is None or not self.is_of_same_samples:
            return None
        if self.old_out_of == self.out_of and self.means == (None, None):
            return ((self.new or 0) - (self.old or 0)) / self.out_of
        return new - old

    @property
    def is_of_same_samples(self) -> bool:
        """Whether as many samples were counted in both runs."""
        return self.samples[0] == self.samples[1]

    @property
    def values(self) -> tuple[float | None, float | None]:
        """The values that are judged, before and after; None: not measured there."""
        counts = ((self.old, self.old_out_of), (self.new, self.out_of))
        old, new = (None if hits is None else hits / out_of for hits, out_of in counts)
        means = self.means
        return (old if means[0] is None else means[0], new if means[1] is None else means[1])

    @property
    def relative_move(self) -> float:
        """How far it moved: of a share the difference, of other values the difference divided by
        the larger one; 0 where one is not known.
        """
        moved = abs(self.moved or 0.0)
        whole = 1.0 if self.unit == "%" else max(abs(value or 0.0) for value in self.values)
        return moved / whole if moved else 0.0

    @property
    def is_worse(self) -> bool:
        """Whether it moved for the worse, whichever way that is."""
        return bool(self.moved) and ((self.moved or 0.0) > 0) is self.lower_is_better


@dataclass(frozen=True, slots=True, kw_only=True)
class CostChange:
    """A time or size of one cell, before and now, where a run judges it (None: it does not)."""

    old: JudgedCost | None
    new: JudgedCost | None

    @property
    def one(self) -> JudgedCost:
        """The newer side that has it."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def is_changed(self) -> bool:
        """Whether the same code would not give both: another number of bytes, or another state of
        its gates. Two times always differ.
        """
        if self.old is None or self.new is None:
            return False
        is_another = self.old.is_exact and self.old.value != self.new.value
        return is_another or self.old.state != self.new.state

    @property
    def text(self) -> str:
        """``file_bytes 30,000 bytes → 31,000 bytes (at most 40,000 bytes)``."""
        sides = dict.fromkeys("—" if one is None else one.text for one in (self.old, self.new))
        text = f"{self.one.name} {' → '.join(sides)}"
        return f"{text} ({self.one.limit_text})" if self.one.limit_text else text


def cost_changes(old: CellRecord | None, new: CellRecord | None) -> tuple[CostChange, ...]:
    """The times and sizes of a cell that at least one of two runs judges (None: it lacks the
    cell).
    """
    before, after = (
        {} if record is None else {cost.name: cost for cost in record.costs}
        for record in (old, new)
    )
    return tuple(
        CostChange(old=before.get(name), new=after.get(name)) for name in {**before, **after}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """One row of a comparison; outcomes are empty where the cell is absent.

    ``why`` says why a cell is incomparable, or, where the digests show it, why it changed.
    ``differs``: what else was exchanged between the runs: the model, the calibration, the rules of
    the schema, the samples, the release of an engine. ``other_class``: that of these which is about
    environment classes. ``flips``: data set → the least and the most samples whose best answer
    differs; absent where it is not known. ``costs``: its times and sizes, where they are judged.
    """

    cell: Cell
    relation: Relation
    old_outcome: str = ""
    new_outcome: str = ""
    metrics: tuple[MetricChange, ...] = ()
    why: str = ""
    differs: tuple[str, ...] = ()
    other_class: str = ""
    flips: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    costs: tuple[CostChange, ...] = ()

    @property
    def has_another_model(self) -> bool:
        """Whether the float model of the new run is another one."""
        return ANOTHER_MODEL in self.differs

    @property
    def outcome_changed(self) -> bool:
        """Whether the cell is in both runs and its outcome differs; what a run accepted passes
        in the next one.
        """
        both = self.old_outcome, self.new_outcome
        return all(both) and len({_PASSES.get(one, one) for one in both}) > 1

    @property
    def moved(self) -> tuple[MetricChange, ...]:
        """The metrics whose values changed."""
        return tuple(metric for metric in self.metrics if metric.moved)

    @property
    def largest_move(self) -> float:
        """How far the metric moved that moved furthest, as a share: of a value that is no share,
        the move divided by the larger of both values.
        """
        return max((metric.relative_move for metric in self.moved), default=0.0)


_PASSES = {"accepted": "passed"}
"""Outcomes that are one: an accepting run stores the very result that passes after it."""


def last_green(runs: Iterable[Run], like: Run) -> Run | None:
    """The newest green one of ``runs``, the newest first, that ``like`` can best be compared with.

    A run with a result in an environment class of ``like`` comes before others, then one of the
    whole suite before one of selected cells.
    """
    best: Run | None = None
    most = -1
    for count, run in enumerate(runs):
        if best is not None and count >= _SEARCHED:
            break
        rank = 2 * share_a_class(run, like) + (run.header.get("complete_selection") is not False)
        if rank > most and run.is_green:
            best, most = run, rank
        if most == _BEST:
            break
    return best


_SEARCHED = 60
"""The most runs that are read to find a better one than the newest green."""
_BEST = 3


def share_a_class(one: Run, other: Run) -> bool:
    """Whether some cells of both were measured in one environment class; also where one of them
    has no cell.
    """
    before, after = ({cell.environment_class for cell in run.cells} - {""} for run in (one, other))
    return not before or not after or not before.isdisjoint(after)


def compare_runs(
    old: Run, new: Run, *, across: bool = False, with_repeated: bool = True
) -> tuple[CellChange, ...]:
    """A row for each cell of either run, sorted by cell.

    Args:
        across: compare results of different environment classes too; ``differs`` of each names what
            was exchanged.
        with_repeated: also a row for each cell that both runs measured with equal contents, which
            are most cells of two nights; left out: a row for each of the others.

    Raises:
        IncomparableError: not one cell can be compared.
    """
    before = {record.cell: record for record in old.cells}
    after = {record.cell: record for record in new.cells}
    repeated = 0
    rows = []
    for cell in sorted({*before, *after}, key=_axes_of):
        one, other = before.get(cell), after.get(cell)
        if not with_repeated and _is_repeated(one, other):
            repeated += 1
        else:
            rows.append(_change(cell, one, other, across=across))
    if not repeated and not any(row.relation in _COMPARABLE for row in rows):
        why = next((row.why for row in rows if row.why), "no cell that is in both")
        where = "" if across else "in one environment class "
        remedy = "Compare with a run of this suite that measured the same cells."
        if why.startswith(_OTHER_CLASS):
            remedy = "Add --across to see the two classes next to each other."
        raise IncomparableError(
            f"Comparing run '{old.id}' with run '{new.id}'",
            found=why,
            expected=f"a cell measured by both {where}on the same samples",
            remedy=remedy,
        )
    return tuple(rows)


_COMPARABLE = (Relation.SAME, Relation.CHANGED)


def _is_repeated(old: CellRecord | None, new: CellRecord | None) -> bool:
    """Whether both runs measured the cell, with equal contents."""
    return (
        old is not None and new is not None and new.is_measured and _compared(old) == _compared(new)
    )


def _change(
    cell: Cell, old: CellRecord | None, new: CellRecord | None, *, across: bool
) -> CellChange:
    if old is None or new is None:
        return _one_sided(cell, old, new)
    if _compared(old) == _compared(new):
        return _repeated(cell, new)
    metrics = _metrics(old, new)
    differs = tuple(_exchanged(old, new)) if old.is_measured and new.is_measured else ()
    relation, why = _relation(old, new, metrics, differs, across=across)
    return CellChange(
        cell=cell,
        relation=relation,
        old_outcome=old.outcome,
        new_outcome=new.outcome,
        metrics=metrics,
        why=why,
        differs=differs,
        other_class=_class_words(old, new),
        flips={} if relation is Relation.INCOMPARABLE else _flips(old, new),
        costs=cost_changes(old, new),
    )


_axes_of: Callable[[Cell], tuple[str, ...]] = operator.attrgetter(*AXES)
"""What cells are sorted by, faster than by themselves."""
_compared: Callable[[CellRecord], tuple[Any, ...]] = operator.attrgetter(
    *(name for name in COMPARED_KEYS if name not in AXES)
)


def _repeated(cell: Cell, record: CellRecord) -> CellChange:
    """The row of a cell that both runs have with equal contents, as most cells of two nights."""
    relation, why = Relation.SAME, ""
    if not record.is_measured:
        relation, why = Relation.INCOMPARABLE, _unmeasured("old", record)
    kinds = {key.partition(":")[0] for key in record.digests}
    is_paired = {"data", "reference"} <= kinds
    pairs = (
        (name, metric, _pairs(metric, metric, is_same=True) if is_paired else None)
        for name, metric in _valued(record).items()
    )
    return CellChange(
        cell=cell,
        relation=relation,
        old_outcome=record.outcome,
        new_outcome=record.outcome,
        metrics=tuple(_metric_change(name, one, one, both) for name, one, both in pairs),
        why=why,
        flips=dict.fromkeys(record.digests_of("predictions") if record.is_measured else (), (0, 0)),
        costs=tuple(CostChange(old=cost, new=cost) for cost in record.costs),
    )


def _one_sided(cell: Cell, old: CellRecord | None, new: CellRecord | None) -> CellChange:
    """The row of a cell that one run lacks."""
    return CellChange(
        cell=cell,
        relation=Relation.ONLY_NEW if old is None else Relation.ONLY_OLD,
        old_outcome="" if old is None else old.outcome,
        new_outcome="" if new is None else new.outcome,
        metrics=_metrics(old, new),
        costs=cost_changes(old, new),
    )


def _relation(
    old: CellRecord,
    new: CellRecord,
    metrics: Sequence[MetricChange],
    differs: Sequence[str],
    *,
    across: bool,
) -> tuple[Relation, str]:
    """How two results of one cell differ, and the reason for it as far as their records show
    one.
    """
    obstacle = _incomparable(old, new, across=across)
    if obstacle:
        return Relation.INCOMPARABLE, obstacle
    moved = any(metric.moved for metric in metrics)  # a distance may, where no prediction does
    if not moved and old.digests_of("predictions") == new.digests_of("predictions"):
        return Relation.SAME, ""
    if _is_within_noise(old, new):
        return Relation.SAME, "within the noise of an engine that does not repeat its answers"
    return Relation.CHANGED, _why_changed(old, new, differs, moved=moved)


def _why_changed(old: CellRecord, new: CellRecord, differs: Sequence[str], *, moved: bool) -> str:
    reasons = [one for one in differs if one.startswith("another ")]
    reasons.append(
        arithmetic_change(*(record.digests.get("arithmetic", "") for record in (old, new)))
    )
    why = "; ".join(filter(None, reasons))
    if why:
        return why
    before, after = (record.digests_of("predictions") for record in (old, new))
    if before and before == after:
        return "the same predictions by other numbers"
    return "" if moved else _other_predictions(old, new)


def _is_within_noise(old: CellRecord, new: CellRecord) -> bool:
    """Whether the engine is known not to repeat its answers, and no metric moved further than
    its noise explains.

    Of a metric whose noise is not known by size nothing can be said: the others decide.
    """
    is_explained = False
    for name, metric in new.metrics.items():
        before = old.metrics.get(name)
        if before is None:
            return False
        noises = [one.noise for one in (before, metric) if one.noise is not None]
        if not noises:
            if before.value != metric.value:
                return False
            continue
        spread = math.hypot(*(one[0] for one in noises)) * (1 if len(noises) > 1 else math.sqrt(2))
        if spread and abs(metric.value - before.value) > _NOISE * spread:
            return False
        is_explained = is_explained or bool(spread)
    return is_explained


_NOISE = 3.0
"""Standard deviations by which two results of one cell may differ, as for drift."""


def _exchanged(old: CellRecord, new: CellRecord) -> Iterator[str]:
    """What the two results were not made with alike, as far as their records tell."""
    for key, words in (("model", ANOTHER_MODEL), ("preprocessing", "another preprocessing")):
        then, now = old.digests.get(key), new.digests.get(key)
        if then and now and then != now:
            yield words
    for data, now in new.digests_of("data").items():
        if old.digests_of("data").get(data, now) != now:
            yield f"other samples or labels of {data}"
    yield from sources_change(old, new)
    yield from making_changes(old.made, new.made)
    yield from _other_rules(old, new)
    if other := _class_words(old, new):
        yield other


def _class_words(old: CellRecord, new: CellRecord) -> str:
    """``onnxruntime 1.31.1 → 1.24.1`` of two measured results; empty where both are of one
    class.
    """
    if old.environment_class == new.environment_class or not (old.is_measured and new.is_measured):
        return ""
    return class_change(
        *(EnvironmentClass.parse(record.environment_class) for record in (old, new))
    )


def sources_change(old: CellRecord, new: CellRecord) -> Iterator[str]:
    """``32 sources → 8 sources`` of the samples of a metric."""
    for name, metric in new.metrics.items():
        before = old.metrics.get(name)
        then, now = (
            None if one is None or one.clusters is None else one.clusters.sources
            for one in (before, metric)
        )
        if then != now and before is not None:
            texts = (
                counted(one or count, "source")
                for one, count in ((then, before.n), (now, metric.n))
            )
            yield " → ".join(texts)
            return


def _other_rules(old: CellRecord, new: CellRecord) -> Iterator[str]:
    """The rules of gates that both have, where their settings differ."""
    before = {
        (gate.kind, gate.metric): gate.rule for gate in old.gates if gate.kind in SET_BY_SUITE
    }
    for gate in new.gates:
        then = before.get((gate.kind, gate.metric), gate.rule)
        if then != gate.rule:
            yield f"the rule of {gate.metric}: {then} → {gate.rule}"


def _flips(old: CellRecord, new: CellRecord) -> dict[str, tuple[int, int]]:
    """Data set → the least and the most samples whose best answer differs.

    Exact where the predictions are equal, or the suite keeps answers; else from the samples, or
    only their number, that each run answered unlike one fp32 reference.
    """
    before, after = (record.digests_of("predictions") for record in (old, new))
    references = [record.digests_of("reference") for record in (old, new)]
    found = {}
    for data in before.keys() & after.keys():
        if before[data] == after[data]:
            found[data] = (0, 0)
        elif (count := _kept_flips(old.kept.get(data), new.kept.get(data))) is not None:
            found[data] = (count, count)
        elif references[0].get(data) == references[1].get(data) and all(
            data in r.changed_count for r in (old, new)
        ):
            counts = [record.changed_count[data] for record in (old, new)]
            named = [frozenset(record.changed.get(data, ())) for record in (old, new)]
            if [len(names) for names in named] == counts:
                found[data] = (len(named[0] ^ named[1]), len(named[0] | named[1]))
            else:  # a record names the first of them alone
                most = min([sum(counts), *_sample_counts(old, data), *_sample_counts(new, data)])
                found[data] = (abs(counts[0] - counts[1]), most)
    return dict(sorted(found.items()))


def _sample_counts(record: CellRecord, data: str) -> list[int]:
    """How many samples of ``data`` each metric counted that is known to be of it."""
    is_alone = record.digests_of("data").keys() == {data}
    return [
        metric.n
        for name, metric in record.metrics.items()
        if name.partition("@")[2] == data or (is_alone and "@" not in name)
    ]


def _kept_flips(old: str | None, new: str | None) -> int | None:
    """From the answers that both records hold; None where one of them holds none that can be
    read.
    """
    if old is None or new is None:
        return None
    from qbench.metrics import count_changes, unpacked_answers

    with contextlib.suppress(ValueError):
        return count_changes(unpacked_answers(new), unpacked_answers(old)).flips
    return None


def _other_predictions(old: CellRecord, new: CellRecord) -> str:
    """How the predictions of two records with equal values differ."""
    before, after = (record.digests_of("predictions") for record in (old, new))
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    different = f"other predictions on {', '.join(names)}, which count the same"
    then, now = old.changed_count, new.changed_count
    counts = [
        f"{then[name]} → {now[name]} of {name} unlike fp32"
        for name in names
        if name in then and name in now and then[name] != now[name]
    ]
    return "; ".join([different, *counts])


_OTHER_CLASS = "environment class "


def _incomparable(old: CellRecord, new: CellRecord, *, across: bool) -> str:
    for name, record in (("old", old), ("new", new)):
        if not record.is_measured:
            return _unmeasured(name, record)
    if old.environment_class != new.environment_class and not across:
        return f"{_OTHER_CLASS}{old.environment_class} against {new.environment_class}"
    if old.digests_of("data") != new.digests_of("data"):
        return "other samples or labels"
    if old.stopped != new.stopped:
        return next(
            f"one of them {one.stopped.text}" for one in (new, old) if one.stopped is not None
        )
    for name in old.metrics:
        if name not in new.metrics:
            continue
        before, after = old.metrics[name].n, new.metrics[name].n
        if before != after:
            return f"other samples: {name} of {before} → {after}"
    return ""


def _unmeasured(name: str, record: CellRecord) -> str:
    return f"the {name} run did not measure it ({record.outcome})"


def _metrics(old: CellRecord | None, new: CellRecord | None) -> tuple[MetricChange, ...]:
    before, after = _valued(old), _valued(new)
    pairs = {} if old is None or new is None else _pairs_by_metric(old, new)
    return tuple(
        _metric_change(name, before.get(name), after.get(name), pairs.get(name))
        for name in {**before, **after}
    )


def _metric_change(
    name: str, old: MetricRecord | None, new: MetricRecord | None, pairs: Pairs | None
) -> MetricChange:
    metric = new or old
    assert metric is not None
    before = old or new
    assert before is not None
    old_hits, old_mean = (None, None) if old is None else (old.hits, old.mean)
    new_hits, new_mean = (None, None) if new is None else (new.hits, new.mean)
    references = None
    if old is not None and new is not None and new.against_labels:
        references = (old.reference_hits, new.reference_hits)
    return MetricChange(
        metric=name,
        old=old_hits,
        new=new_hits,
        out_of=metric.out_of,
        old_out_of=before.out_of,
        samples=(before.n, metric.n),
        unit=metric.unit,
        lower_is_better=metric.lower_is_better,
        is_distance=metric.is_distance,
        means=(old_mean, new_mean),
        references=references,
        pairs=pairs,
    )


def _pairs_by_metric(old: CellRecord, new: CellRecord) -> dict[str, Pairs]:
    """The pairs of each metric for which they are known; none where the two were counted
    against two references.
    """
    if not _is_one_reference(old, new):
        return {}
    is_same = old.digests_of("predictions") == new.digests_of("predictions")
    before, after = _valued(old), _valued(new)
    found = (
        (name, _pairs(before[name], after[name], is_same=is_same))
        for name in before.keys() & after.keys()
    )
    return {name: pairs for name, pairs in found if pairs is not None}


def _is_one_reference(old: CellRecord, new: CellRecord) -> bool:
    """Whether both were counted on the same samples against the same fp32 answers."""
    return all(old.digests_of(kind) == new.digests_of(kind) != {} for kind in ("data", "reference"))


def _valued(record: CellRecord | None) -> dict[str, MetricRecord]:
    """The metrics that have a value; a distance in dB may be below zero."""
    return (
        {}
        if record is None
        else {name: one for name, one in record.metrics.items() if one.out_of > 0}
    )
