"""Random pictures with labelled and answered boxes,
as the metrics take them and as COCO's files have them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.metrics import BoxAnswers, box_labels

SIDES = (20, 60, 200, 400)
MILLION = 1_000_000


@dataclass
class Case:
    """``annotations`` and ``detections`` are the same boxes as ``labels`` and ``answers``;
    image i + 1 is picture i.
    """

    labels: tuple[np.ndarray, ...]
    answers: BoxAnswers
    annotations: list[dict[str, Any]]
    detections: list[dict[str, Any]]
    classes: int


def random_case(seed: int, *, pictures: int | None = None, most: int = 12) -> Case:
    """A few pictures: empty ones, crowds, ties of scores and of overlaps, boxes beyond the
    picture, absent classes.
    """
    draw = np.random.default_rng(seed)
    count, classes = pictures or int(draw.integers(1, 6)), int(draw.integers(1, 4))
    side, unit = (
        int(draw.choice(SIDES)),
        int(draw.choice([1, 1, 256])),
    )  # whole pixels make equal overlaps likely
    found, case = [], Case((), BoxAnswers.of([], [], []), [], [], classes)
    for picture in range(count):
        right = _some(draw, most)
        place, size = draw.uniform(-20, 300, (right, 2)), draw.uniform(0, side, (right, 2))
        place, size = (np.rint(unit * values) / unit for values in (place, size))
        named, crowd = draw.integers(0, classes, right), draw.random(right) < 0.15
        area = size.prod(axis=1) * draw.choice([1, 0.5, 0.7], right)
        case.labels += (
            box_labels(np.concatenate([place, place + size], axis=1), named, area, crowd),
        )
        case.annotations += [
            {
                "id": len(case.annotations) + 1 + index,
                "image_id": picture + 1,
                "category_id": int(named[index]) + 1,
                "bbox": [*place[index], *size[index]],
                "area": area[index],
                "iscrowd": int(crowd[index]),
            }
            for index in range(right)
        ]
        answered = _some(draw, most)
        if right:
            chosen = draw.integers(0, right, answered)
            moved = place[chosen] + draw.normal(0, 3, (answered, 2))
            wide = np.abs(
                size[chosen] * draw.choice([1, 1, 0.9, 0.5], (answered, 1))
                + draw.normal(0, 2, (answered, 2))
            )
            same = draw.random(answered) < 0.3
            moved[same], wide[same] = place[chosen][same], size[chosen][same]
            guess = np.where(
                draw.random(answered) < 0.8, named[chosen], draw.integers(0, classes, answered)
            )
        else:
            moved, wide = (
                draw.uniform(-20, 300, (answered, 2)),
                draw.uniform(0, side, (answered, 2)),
            )
            guess = draw.integers(0, classes, answered)
        moved, wide = (np.rint(unit * values) / unit for values in (moved, wide))
        scores = draw.choice(
            [draw.integers(0, 5, answered) / 4, draw.integers(0, MILLION, answered) / MILLION]
        )
        found.append((np.concatenate([moved, moved + wide], axis=1), scores, guess))
        case.detections += [
            {
                "image_id": picture + 1,
                "category_id": int(guess[index]) + 1,
                "bbox": [*moved[index], *wide[index]],
                "score": float(scores[index]),
            }
            for index in range(answered)
        ]
    boxes, scores, named = zip(*found, strict=True)
    case.answers = BoxAnswers.of(boxes, scores, named)
    return case


def _some(draw: np.random.Generator, most: int) -> int:
    return int(draw.integers(0, most)) if draw.random() < 0.85 else 0
