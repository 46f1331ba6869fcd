"""COCO's average precision is that of pycocotools and of faster-coco-eval, on random cases."""

import contextlib
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from qbench.metrics import get_metric

sys.path.insert(0, str(Path(__file__).parents[1] / "metrics"))
from box_cases import Case, random_case

METRICS = ("box_map", "box_map50", "box_map75", "box_map_small", "box_map_medium", "box_map_large")
CASES = 10_000
"""A case gives six values."""

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


def judged(case: Case, coco_type, eval_type) -> list[float]:
    with contextlib.redirect_stdout(io.StringIO()):
        labels, answers = coco_type(), coco_type()
        images = [{"id": index + 1} for index in range(len(case.labels))]
        table = {
            "images": images,
            "categories": [{"id": index + 1} for index in range(case.classes)],
        }
        labels.dataset = {**table, "annotations": [dict(one) for one in case.annotations]}
        labels.createIndex()
        if case.detections:
            answers = labels.loadRes([dict(one) for one in case.detections])
        else:
            answers.dataset = {**table, "annotations": []}
            answers.createIndex()
        judge = eval_type(labels, answers, "bbox")
        judge.params.imgIds = [image["id"] for image in images]
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return list(judge.stats[:6])


def ours(case: Case) -> list[float]:
    sums = [get_metric(name).count(case.answers, case.labels, None).sums for name in METRICS]
    return [hits / out_of if out_of else -1.0 for hits, out_of in sums]


def test_values_are_those_of_pycocotools() -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    for seed in range(CASES):
        case = random_case(seed)
        np.testing.assert_allclose(
            ours(case), judged(case, COCO, COCOeval), rtol=0, atol=1e-9, err_msg=f"seed {seed}"
        )


def test_values_are_those_of_faster_coco_eval() -> None:
    from faster_coco_eval import COCO, COCOeval_faster

    for seed in range(200):
        case = random_case(seed)
        if case.detections and case.annotations:  # its own reader takes no empty lists
            expected = judged(case, COCO, COCOeval_faster)
            np.testing.assert_allclose(
                ours(case), expected, rtol=0, atol=1e-9, err_msg=f"seed {seed}"
            )
