"""COCO's metrics on 5,000 pictures with 36,000 boxes, compared with pycocotools and
faster-coco-eval on the same files.

Usage: python benchmarks/boxes.py [pictures]; needs the extra ``oracle``. Seconds are processor time
    of this process.
"""

import contextlib
import io
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics import BoxAnswers, box_labels, get_metric, score

METRICS = ("box_map", "box_map50", "box_map75", "box_map_small", "box_map_medium", "box_map_large")
CLASSES, EACH, SIDE, NEAR = 80, 7.3, 500, 4.0
Floats = npt.NDArray[np.float64]


@dataclass
class Files:
    """The same boxes twice: as the libraries take them, and as qbench does."""

    images: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    detections: list[dict[str, Any]] = field(default_factory=list)
    labels: list[Floats] = field(default_factory=list)
    found: list[tuple[Floats, Floats, npt.NDArray[np.int64]]] = field(default_factory=list)


def made(pictures: int, *, is_rounded: bool = True) -> Files:
    """Labels at random; nine of ten are answered with a box near them, and one more for every
    ten is wrong.

    ``is_rounded``: answers are as qbench keeps them, in 1/256 pixel and millionths of score.
    """
    draw, files = np.random.default_rng(0), Files()
    for index in range(pictures):
        files.images.append({"id": index + 1})
        count = int(draw.poisson(EACH))
        place, size = draw.uniform(0, SIDE, (count, 2)), draw.uniform(5, 200, (count, 2))
        classes = draw.integers(0, CLASSES, count)
        files.labels.append(box_labels(np.concatenate([place, place + size], axis=1), classes))
        for box in range(count):
            files.annotations.append(
                {
                    "id": len(files.annotations) + 1,
                    "image_id": index + 1,
                    "category_id": int(classes[box]) + 1,
                    "bbox": [*place[box], *size[box]],
                    "area": float(size[box].prod()),
                    "iscrowd": 0,
                }
            )
        kept, wrong = draw.random(count) < 0.9, int(draw.poisson(EACH / 10))
        near = np.concatenate(
            [place[kept] + draw.normal(0, NEAR, (kept.sum(), 2)), draw.uniform(0, SIDE, (wrong, 2))]
        )
        wide = np.concatenate(
            [size[kept] * draw.uniform(0.8, 1.2, (kept.sum(), 2)), draw.uniform(5, 200, (wrong, 2))]
        )
        named = np.concatenate([classes[kept], draw.integers(0, CLASSES, wrong)])
        scores = draw.random(len(named))
        if is_rounded:
            near, wide, scores = (
                np.rint(unit * one) / unit
                for unit, one in ((256, near), (256, wide), (1e6, scores))
            )
        files.found.append((np.concatenate([near, near + wide], axis=1), scores, named))
        for box in range(len(named)):
            files.detections.append(
                {
                    "image_id": index + 1,
                    "category_id": int(named[box]) + 1,
                    "bbox": [*near[box], *wide[box]],
                    "score": float(scores[box]),
                }
            )
    return files


def library(files: Files, coco: Any, judge: Any) -> list[float]:  # noqa: ANN401 - the types of a library
    """The six values of COCO's summary."""
    with contextlib.redirect_stdout(io.StringIO()):
        labels = coco()
        categories = [{"id": index + 1} for index in range(CLASSES)]
        labels.dataset = {
            "images": files.images,
            "categories": categories,
            "annotations": files.annotations,
        }
        labels.createIndex()
        found = judge(labels, labels.loadRes(files.detections), "bbox")
        found.evaluate()
        found.accumulate()
        found.summarize()
    return [float(value) for value in found.stats[:6]]


def timed(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what ``work`` gives
    """Prints the processor time of ``work``."""
    start = time.process_time()
    result = work()
    print(f"{name:60} {time.process_time() - start:8.2f} s")
    return result


def main() -> None:
    """Prints a table."""
    import faster_coco_eval
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    files = made(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
    labels = tuple(files.labels)
    print(
        f"{len(labels)} pictures, {len(files.annotations)} labels, "
        f"{len(files.detections)} answers\n"
    )
    slow = timed("pycocotools, six values", lambda: library(files, COCO, COCOeval))
    fast = timed(
        "faster-coco-eval, six values",
        lambda: library(files, faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster),
    )
    answers = timed(
        "qbench: answers of arrays", lambda: BoxAnswers.of(*zip(*files.found, strict=True))
    )
    counted = timed(
        "qbench: six values",
        lambda: [get_metric(name).count(answers, labels, None).sums for name in METRICS],
    )
    timed("qbench: box_map alone", lambda: get_metric("box_map").count(answers, labels, None))
    timed(
        "qbench: box_map of two answers, with the interval of the change",
        lambda: score(get_metric("box_map"), answers, labels=labels, reference=answers),
    )
    values = [hits / out_of for hits, out_of in counted]
    for name, judged in (("pycocotools", slow), ("faster-coco-eval", fast)):
        print(f"largest difference from {name}: {np.abs(np.array(values) - judged).max():.1e}")
    exact = library(
        made(len(labels), is_rounded=False), faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster
    )
    print(
        "largest difference that rounding the answers makes: "
        f"{np.abs(np.array(fast) - exact).max():.1e}"
    )


if __name__ == "__main__":
    main()
