"""What people say of alerts: the file, its mistakes, what it covers."""

import os

import pytest

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.tracking import Annotation, Ruling, load_annotations

GOOD = """
[[annotation]]
commit = "3f2a91c"
cell = "mobilenet_v2::ort-*"
state = "expected"
author = "ann"
reason = "rounds half away from zero"
"""
CELL = Cell("nightly", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc")


def loaded(tmp_path, text):
    path = tmp_path / "annotations.toml"
    path.write_text(text)
    return load_annotations(path)


def test_no_file_says_nothing(tmp_path):
    assert load_annotations(tmp_path / "annotations.toml") == ()
    assert loaded(tmp_path, "") == ()


def test_a_file_is_read(tmp_path):
    (note,) = loaded(tmp_path, GOOD)
    assert note.state is Ruling.EXPECTED
    assert (note.commit, note.author, note.metric, note.suite) == ("3f2a91c", "ann", "*", "*")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("reason", "raeson", "Did you mean 'reason'"),
        ("expected", "exspected", "'acknowledged', 'expected', 'invalid', 'fixed'"),
        ('"3f2a91c"', '"HEAD"', "7 to 64 hexadecimal digits"),
        ('author = "ann"\n', "", "no key 'author'"),
        ('"rounds half away from zero"', '" "', "the reason is empty"),
        ('"ann"', "7", "an integer"),
        ("[[annotation]]", "[[annotations]]", "Did you mean 'annotation'"),
        ('author = "ann"', "author = ann", "expected a TOML file"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, old, new, words):
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, GOOD.replace(old, new))
    assert words in str(caught.value)
    assert "annotations.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("globs", "covers"),
    [
        ({}, True),
        ({"cell": "mobilenet_v2::ort-*"}, True),
        ({"cell": "mobilenet_v2::integer-*"}, False),
        ({"metric": "top1"}, True),
        ({"metric": "top1@photos"}, True),
        ({"metric": "top5"}, False),
        ({"suite": "nightly"}, True),
        ({"suite": "smoke"}, False),
    ],
)
def test_what_is_covered(globs, covers):
    note = Annotation(commit="3f2a91c", state=Ruling.INVALID, author="ann", reason="disk", **globs)
    assert note.covers(CELL, "top1@photos") == covers


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "annotations.toml")
    with pytest.raises(InputError) as caught:
        load_annotations(tmp_path / "annotations.toml")
    assert caught.value.found == "not a plain file"
