"""Damaged files of every kind that people hand in end in a sentence or are read; what else is
raised is a fault.
"""

import json
from pathlib import Path

import pytest
from mutations import damaged_json
from readers import KINDS, use_damaged, use_sound, write_files


@pytest.fixture(scope="module")
def model_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


def _try(folder: Path, kind: str, seeds: range) -> None:
    use_sound(folder, kind)
    for seed in seeds:
        try:
            use_damaged(folder, kind, seed)
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}") from error


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(model_files, kind):
    _try(model_files, kind, range(40))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files_are_read_or_refused_in_a_sentence(model_files, kind):
    _try(model_files, kind, range(40, 3000))


def test_the_damage_is_the_same_for_the_same_seed():
    text = json.dumps({"a": [1, {"b": 2}], "c": "x"})
    assert damaged_json(text, 5) == damaged_json(text, 5)
    assert len({damaged_json(text, seed) for seed in range(20)}) > 10
