"""Which boxes match which, and the average precision that follows, of all pictures at once.

A box is 4 numbers (left, top, right, bottom) or 8 (the corners x, y of a convex quadrilateral, one
after the other), in pixels; x grows to the right, y downwards.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boxes:
    """d boxes of all pictures, one after the other.

    Args:
        pictures, classes: (d,) int64.
        corners: (d, 4 or 8) float64, pixels.
        areas: (d,) float64, square pixels.
        ignored: (d,) bool, a label that is a region rather than one box (COCO's crowd, text that is
            not legible): an answer inside it is neither right nor wrong.
        scores: (d,) int32 millionths of answers; None: labels.
    """

    pictures: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int64]
    corners: Floats
    areas: Floats
    ignored: npt.NDArray[np.bool_]
    scores: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.pictures)


# Areas and overlaps.


def areas_of(corners: Floats) -> Floats:
    """The area of every box (d, 4 or 8): (d,) square pixels."""
    if corners.shape[1] == 4:
        area: Floats = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
        return area
    return _polygon_areas(corners.reshape(-1, 4, 2))


def overlaps(answers: Floats, labels: Floats, ignored: npt.NDArray[np.bool_]) -> Floats:
    """Of p pairs of boxes, (p, 4 or 8) each, the share of the common area: (p,) from 0 to 1.

    It is that of their union; where the label is ``ignored`` (p,), that of the answer alone, as
    pycocotools has it.
    """
    if answers.shape[1] == labels.shape[1] == 4:
        width = np.minimum(answers[:, 2], labels[:, 2]) - np.maximum(answers[:, 0], labels[:, 0])
        height = np.minimum(answers[:, 3], labels[:, 3]) - np.maximum(answers[:, 1], labels[:, 1])
        common: Floats = np.where((width > 0) & (height > 0), width * height, 0.0)
    else:
        answers, labels = (_quadrilaterals(corners) for corners in (answers, labels))
        common = _common_areas(answers.reshape(-1, 4, 2), labels.reshape(-1, 4, 2))
    ours, theirs = areas_of(answers), areas_of(labels)
    common = np.minimum(common, np.minimum(ours, theirs))  # a box without area shares none
    union = np.where(ignored, ours, ours + theirs - common)
    share: Floats = np.divide(common, union, out=np.zeros_like(common), where=common > 0)
    return share


def _quadrilaterals(corners: Floats) -> Floats:
    return corners if corners.shape[1] == 8 else corners[:, [0, 1, 2, 1, 2, 3, 0, 3]]


def _polygon_areas(points: Floats) -> Floats:
    """The area of every polygon (d, k, 2) by the shoelace formula: (d,)."""
    after = np.roll(points, -1, axis=1)
    crossed = points[..., 0] * after[..., 1] - points[..., 1] * after[..., 0]
    area: Floats = np.abs(crossed.sum(axis=1)) / 2
    return area


_ON_EDGE = 1e-9
"""How far outside a corner still counts as on the edge, and the sine up to which edges count as
parallel.
"""


def _common_areas(ours: Floats, theirs: Floats) -> Floats:
    """The area that two convex quadrilaterals (p, 4, 2) share: (p,).

    Its corners are those of either inside the other and the crossings of their edges; by angle
    around their mean, they are a convex polygon.
    """
    points = [ours, theirs]
    valid = [_inside(ours, theirs), _inside(theirs, ours)]
    sides = [np.roll(one, -1, axis=1) - one for one in (ours, theirs)]
    start = theirs[:, None, :, :] - ours[:, :, None, :]
    first, second = sides[0][:, :, None, :], sides[1][:, None, :, :]
    slope = _cross(first, second)
    parallel = np.abs(slope) <= _ON_EDGE * np.abs(first).max(axis=-1) * np.abs(second).max(axis=-1)
    safe = np.where(parallel, 1.0, slope)
    along, across = _cross(start, second) / safe, _cross(start, first) / safe
    crossing = ours[:, :, None, :] + along[..., None] * first
    points.append(crossing.reshape(len(ours), -1, 2))
    valid.append(
        (~parallel & (along >= 0) & (along <= 1) & (across >= 0) & (across <= 1)).reshape(
            len(ours), -1
        )
    )
    every, is_corner = np.concatenate(points, axis=1), np.concatenate(valid, axis=1)
    count = is_corner.sum(axis=1)
    middle = (every * is_corner[..., None]).sum(axis=1) / np.maximum(count, 1)[:, None]
    away = every - middle[:, None]
    angle = np.where(is_corner, np.arctan2(away[..., 1], away[..., 0]), np.inf)
    order = np.argsort(angle, axis=1)
    away = np.take_along_axis(away, order[..., None], axis=1)
    # the places without a corner repeat the first corner, which adds no area
    ordered = np.where(np.take_along_axis(is_corner, order, axis=1)[..., None], away, away[:, :1])
    common: Floats = np.where(count >= 3, _polygon_areas(ordered), 0.0)
    return common


def _cross(a: Floats, b: Floats) -> Floats:
    product: Floats = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    return product


def _inside(points: Floats, polygon: Floats) -> npt.NDArray[np.bool_]:
    """Which of ``points`` (p, 4, 2) are in or on the convex ``polygon`` (p, 4, 2) of their row:
    (p, 4).
    """
    side = np.roll(polygon, -1, axis=1) - polygon
    turn = np.sign(_cross(side, np.roll(side, -1, axis=1)).sum(axis=1))[:, None, None]
    away = points[:, :, None, :] - polygon[:, None, :, :]
    reach = np.abs(side).max(axis=(1, 2)) ** 2
    return np.asarray(
        (turn * _cross(side[:, None], away) >= -_ON_EDGE * reach[:, None, None]).all(axis=2)
    )


# Matching, as COCO does it: the boxes of a picture and a class in the order of their scores each
# take the label that they overlap most, of those that are left and overlap enough; ignored labels
# only where no other is left. Of labels that are overlapped equally the last is taken.
#
# Source: Lin et al., "Microsoft COCO: Common objects in context" (2014), and pycocotools'
# ``COCOeval.evaluateImg``. Here every picture and class takes its r-th box at the same time, one
# array operation for each rank r.

_PAIRS = 2_000_000
"""Pairs whose overlaps are computed at once: 100 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """What became of d answered boxes at each of t overlaps.

    Args:
        boxes: the d answers, ordered by picture, class and falling score.
        right: (t, d) matched with a label.
        left_out: (t, d) neither right nor wrong: matched with an ignored label, or unmatched and of
            another size.
        labels: that are to be found.
    """

    boxes: Boxes
    right: Flags
    left_out: Flags
    labels: Boxes


def match_boxes(
    answers: Boxes,
    labels: Boxes,
    least: Floats,
    *,
    sizes: tuple[float, float] | None = None,
    most: int | None = None,
    classless: bool = False,
) -> Matches:
    """Match ``answers`` with ``labels`` of the same pictures at each overlap of ``least`` (t,).

    Args:
        sizes: least and greatest area, in square pixels, of the labels that are looked for; None:
            all.
        most: boxes of a picture and a class that are looked at, those of the highest scores; None:
            all.
        classless: any box may match any label.
    """
    classes = [
        np.zeros_like(one.classes) if classless else one.classes for one in (answers, labels)
    ]
    count = max((int(one.max(initial=0)) for one in classes), default=0) + 1
    groups = [
        one.pictures * count + own for one, own in zip((answers, labels), classes, strict=True)
    ]
    scores = np.zeros(len(answers), np.int64) if answers.scores is None else answers.scores
    order = np.lexsort((-scores.astype(np.int64), groups[0]))
    ranks = _ranks(groups[0][order])
    if most is not None:
        order, ranks = order[ranks < most], ranks[ranks < most]
    ours = _taken(answers, order)
    low, high = (0.0, np.inf) if sizes is None else sizes
    left_out = labels.ignored | (labels.areas < low) | (labels.areas > high)
    theirs_order = np.lexsort((left_out, groups[1]))
    theirs, is_out = _taken(labels, theirs_order), left_out[theirs_order]
    pairs = _candidates(ours, groups[0][order], theirs, groups[1][theirs_order], float(least.min()))
    taken = _matched(pairs, ranks, is_out, theirs.ignored, least)
    is_matched = taken >= 0
    on_ignored = is_matched & np.append(is_out, np.False_)[taken]
    other_size = (ours.areas < low) | (ours.areas > high)
    return Matches(
        boxes=ours,
        right=is_matched & ~on_ignored,
        left_out=on_ignored | (~is_matched & other_size),
        labels=_taken(labels, np.flatnonzero(~left_out)),
    )


def _taken(boxes: Boxes, places: Places) -> Boxes:
    return Boxes(
        pictures=boxes.pictures[places],
        classes=boxes.classes[places],
        corners=boxes.corners[places],
        areas=boxes.areas[places],
        ignored=boxes.ignored[places],
        scores=None if boxes.scores is None else boxes.scores[places],
    )


def _ranks(groups: npt.NDArray[np.int64]) -> Places:
    """The place of every element in its run of equal values of sorted ``groups`` (d,)."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))


def _candidates(
    ours: Boxes,
    our_groups: npt.NDArray[np.int64],
    theirs: Boxes,
    groups: npt.NDArray[np.int64],
    least: float,
) -> tuple[Places, Places, Floats]:
    """The pairs of one group that overlap by ``least`` or more: answer, label, overlap; those
    of an answer together.
    """
    first, last = (np.searchsorted(groups, our_groups, side=side) for side in ("left", "right"))
    widths = last - first
    found: list[tuple[Places, Places, Floats]] = []
    ends = np.cumsum(widths)
    start = 0
    while start < len(widths):
        behind = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, behind + _PAIRS, side="right")))
        answer = np.repeat(np.arange(start, stop), widths[start:stop])
        inner = np.arange(len(answer)) - np.repeat(
            ends[start:stop] - widths[start:stop] - behind, widths[start:stop]
        )
        label = first[answer] + inner
        near = _boxes_meet(ours.corners, theirs.corners, answer, label)
        answer, label = answer[near], label[near]
        shares = overlaps(ours.corners[answer], theirs.corners[label], theirs.ignored[label])
        enough = shares >= min(least, 1 - 1e-10)
        found.append((answer[enough], label[enough], shares[enough]))
        start = stop
    if not found:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    answer, label, share = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return answer, label, share


def _boxes_meet(ours: Floats, theirs: Floats, answer: Places, label: Places) -> Flags:
    """Which pairs may overlap at all, by their bounds."""
    (left, top, right, bottom), (x0, y0, x1, y1) = _bounds(ours), _bounds(theirs)
    across = (left[answer] < x1[label]) & (x0[label] < right[answer])
    return np.asarray(across & (top[answer] < y1[label]) & (y0[label] < bottom[answer]))


def _bounds(corners: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    x, y = corners[:, 0::2], corners[:, 1::2]
    return x.min(axis=1), y.min(axis=1), x.max(axis=1), y.max(axis=1)


def _matched(
    pairs: tuple[Places, Places, Floats],
    ranks: Places,
    is_out: Flags,
    is_crowd: Flags,
    least: Floats,
) -> npt.NDArray[np.intp]:
    """The label that each answer takes at each overlap: (t, d), -1 where none."""
    answer, label, share = pairs
    # the first of the pairs of an answer that is left is the one it takes
    order = np.lexsort((-label, -share, is_out[label], answer))
    answer, label, share = answer[order], label[order], share[order]
    taken = np.full((len(least), len(ranks)), -1, np.intp)
    gone = np.zeros((len(least), len(is_out)), np.bool_)
    enough = share >= np.minimum(least, 1 - 1e-10)[:, None]
    by_rank = np.argsort(ranks[answer], kind="stable")
    limits = np.searchsorted(ranks[answer][by_rank], np.arange(int(ranks.max(initial=-1)) + 2))
    for start, stop in pairwise(limits):
        chosen = by_rank[start:stop]
        one, other = answer[chosen], label[chosen]
        level, place = np.nonzero(enough[:, chosen] & (~gone[:, other] | is_crowd[other]))
        keys = level * len(ranks) + one[place]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        taken[level[first], one[place[first]]] = other[place[first]]
        gone[level[first], other[place[first]]] = True
    return taken


# Average precision: the mean, over 101 recalls 0, 0.01 … 1, of the highest precision at that recall
# or a higher one.
#
#     precision after k boxes = right / (right + wrong)    recall = right / labels
#     boxes by falling score
#
# Source: pycocotools' ``COCOeval.accumulate``. The highest precision is always reached at a right
# box, so only these are looked at. With weights, a picture counts as often as it was drawn.

_RECALLS = np.linspace(0.0, 1.0, 101)
_HELD = 1_000_000
"""Weighted boxes that are counted at once: 8 MB an array."""


def precisions(
    matches: Matches, weights: Floats, groups: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
) -> Floats:
    """The average precision of every group of boxes, mean over the overlaps of ``matches``.

    Args:
        weights: (b, pictures) how often each picture counts.
        groups: numbers from 0 of the answers and of the labels of ``matches``: of what has a
            precision of its own, such as a class.

    Returns:
        (b, groups); NaN where a group has no label.
    """
    boxes, (ours, theirs) = matches.boxes, groups
    count = int(max(ours.max(initial=-1), theirs.max(initial=-1))) + 1
    scores = (
        np.zeros(len(boxes), np.int64) if boxes.scores is None else boxes.scores.astype(np.int64)
    )
    order = np.lexsort((boxes.pictures, -scores, ours))
    same = not matches.left_out.any()
    levels = [
        _Ranking.of(right[counted], ours[counted], boxes.pictures[counted])
        for right, left_out in zip(matches.right, matches.left_out, strict=True)
        for counted in (order if same else order[~left_out[order]],)
    ]
    total = np.empty((count, len(weights)))
    block = max(1, _HELD // max(1, len(order), count))
    # boxes down, resamples across: a box is one row that is copied whole
    across = np.ascontiguousarray(weights.T)
    for start in range(0, len(weights), block):
        some = np.ascontiguousarray(across[:, start : start + block])
        labels = _summed(some[matches.labels.pictures], theirs, count)
        seen = np.cumsum(some[levels[0].pictures], axis=0) if same else None
        found = sum(one.precision(some, labels, seen) for one in levels) / len(levels)
        total[:, start : start + block] = np.where(labels > 0, found, np.nan)
    return total.T


def _summed(values: Floats, groups: npt.NDArray[np.int64], count: int) -> Floats:
    """The sums of ``values`` (l, b) over each of ``count`` groups: (count, b)."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sums = np.zeros((count, values.shape[1]))
    if len(order):
        sums[groups[order][starts]] = np.add.reduceat(values[order], starts, axis=0)
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class _Ranking:
    """d boxes at one overlap, ordered by group and falling score.

    Args:
        pictures: (d,) of all.
        places: (r,) of the right ones.
        groups: (g,) that have one.
        starts: (g,) the first of each among ``places``, ``firsts`` among all.
        runs: (r,) which of ``groups`` each right one is in.
    """

    pictures: npt.NDArray[np.int64]
    places: Places
    groups: npt.NDArray[np.int64]
    starts: Places
    firsts: Places
    runs: Places

    @classmethod
    def of(
        cls, right: Flags, groups: npt.NDArray[np.int64], pictures: npt.NDArray[np.int64]
    ) -> "_Ranking":
        places = np.flatnonzero(right)
        group = groups[places]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        runs = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(group)))
        return cls(
            pictures, places, group[starts], starts, np.searchsorted(groups, group[starts]), runs
        )

    def precision(self, weights: Floats, labels: Floats, seen: Floats | None) -> Floats:
        """(groups, b) average precision; ``labels`` (groups, b) weights, ``seen`` (d, b) sums
        of the boxes so far.
        """
        found = np.zeros(labels.shape)
        if not len(self.places):
            return found
        seen = np.cumsum(weights[self.pictures], axis=0) if seen is None else seen
        hits = np.cumsum(weights[self.pictures[self.places]], axis=0)
        hits -= np.where(self.starts[:, None] > 0, hits[self.starts - 1], 0.0)[self.runs]
        best = seen[self.places]
        best -= np.where(self.firsts[:, None] > 0, seen[self.firsts - 1], 0.0)[self.runs]
        best += np.spacing(1)
        np.divide(hits, best, out=best)
        # the highest from here on, group by group: a later group has a lower offset
        offset = 2.0 * (len(self.starts) - self.runs)[:, None]
        best += offset
        backwards = best[::-1]
        np.maximum.accumulate(backwards, axis=0, out=backwards)
        best -= offset
        hits /= np.maximum(labels[self.groups], 1)[self.runs]
        nearest = np.rint(100 * hits).astype(np.intp)
        reached = nearest + (_RECALLS[nearest] <= hits)
        steps = np.diff(reached, axis=0, prepend=0)
        steps[self.starts] = reached[self.starts]
        best *= steps
        found[self.groups] = np.add.reduceat(best, self.starts, axis=0) / len(_RECALLS)
        return found
