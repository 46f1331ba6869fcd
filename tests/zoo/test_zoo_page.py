"""The page of the zoo: its table has every network, as the script that writes it lists them."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from qbench.extension import installed_extensions
from qbench.metrics import get_metric
from qbench.subjects import dataset_catalogue, model_catalogue

ROOT = Path(__file__).parents[2]
MODELS = model_catalogue(installed_extensions())
DATASETS = dataset_catalogue(installed_extensions())
PAGE = (ROOT / "docs" / "zoo.md").read_text()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "zoo_scores", ROOT / "benchmarks" / "zoo_scores.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "zoo_scores", module)
        spec.loader.exec_module(module)
    return module


def rows() -> list[list[str]]:
    table = PAGE.partition("<!-- table: begin -->")[2].partition("<!-- table: end -->")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]


def test_every_network_is_scored_and_every_row_is_a_network(script: ModuleType) -> None:
    assert {judged.model for judged in script.SUBJECTS} == set(MODELS.names())
    assert [row[0].strip("`") for row in rows()] == [judged.model for judged in script.SUBJECTS]


def test_the_rows_are_what_the_script_would_write(script: ModuleType) -> None:
    for judged, row in zip(script.SUBJECTS, rows(), strict=True):
        assert row[2].strip("`") == judged.data
        assert row[3] == f"{DATASETS.factory(judged.data).samples:,}"
        assert row[4] == " / ".join(judged.metrics)
        assert len(row[5].split(" / ")) == len(judged.metrics)
        assert judged.why in " | ".join(row)
        assert judged.tried is None or row[6] == " / ".join(
            f"{value:.2f}" for value in judged.tried
        )
        assert [get_metric(name).name for name in judged.metrics] == list(judged.metrics)


def test_a_difference_is_explained(script: ModuleType) -> None:
    for judged, row in zip(script.SUBJECTS, rows(), strict=True):
        tried = row[6].split(" / ")
        if row[5].split(" / ")[: len(tried)] != tried:
            assert judged.why, judged.model


def test_every_network_is_of_a_kind() -> None:
    kinds = PAGE.partition("| kind | subjects |")[2].partition("\n\n")[0]
    named = [
        name
        for line in kinds.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", line.split("|")[2])
    ]
    assert sorted(named) == sorted(MODELS.names())


def test_writing_replaces_the_table_and_nothing_else(script: ModuleType) -> None:
    page = f"before\n{script.BEGIN}\nold\n{script.END}\nafter\n"
    assert script.page_with("new", page) == f"before\n{script.BEGIN}\n\nnew\n{script.END}\nafter\n"
