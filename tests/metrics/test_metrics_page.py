"""The page on metrics lists every one as it is, with a nightly subject that is scored by it."""

import re
import tomllib
from pathlib import Path

from qbench.metrics import catalogue

ROOT = Path(__file__).parents[2]


def rows():
    """Metric → the cells of its row."""
    found = {}
    for line in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 7 and cells[0].startswith("`"):
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells)
    return found


def test_the_table_has_every_metric_with_its_direction_and_unit():
    known = catalogue()
    assert set(rows()) == set(known.names())
    for name, (_, better, unit, *_) in rows().items():
        metric = known.get(name)
        assert (better, unit) == (metric.direction.value, metric.unit or "none"), name


def test_each_is_exercised_every_night_by_the_subject_that_is_named():
    suite = tomllib.loads((ROOT / "suites" / "nightly.qbench.toml").read_text(encoding="utf-8"))
    asked = {
        model["id"]: {one.partition("@")[0] for one in model["metrics"]} for model in suite["model"]
    }
    for name, cells in rows().items():
        subjects = re.findall(r"`(\w+)`", cells[6])
        assert subjects, name
        for subject in subjects:
            assert name in asked[subject], (name, subject)
