"""Replay files: what was tried is never tried again, and belongs to one search."""

import json

import pytest

from qbench.diagnosis.capture import Budget
from qbench.diagnosis.repair.search import Probed, replayed, search_repair
from qbench.errors import InputError, StoreError

IDENTITY = {"model": "m1", "schema": "s1", "data": "d1"}
NAMES = tuple("abcdefgh")


class Counting:
    """A probe that restores with 'c' and 'f' in float, and counts what it is asked."""

    def __init__(self, limit=None):
        self.asked = []
        self.limit = limit

    def __call__(self, nodes):
        if self.limit is not None and len(self.asked) == self.limit:
            raise KeyboardInterrupt
        self.asked.append(nodes)
        return Probed(
            restored={"c", "f"} <= nodes, macs_share=len(nodes) / 8, said=f"{len(nodes)} in float"
        )


def search(probe):
    endless = Budget(seconds=None, timer=lambda: 0.0, started=0.0)
    return search_repair(NAMES, lambda nodes: probe(nodes).restored, endless)


def test_a_search_that_is_cut_off_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "tries.jsonl"
    whole = Counting()
    expected = search(whole)
    assert expected.nodes == ("c", "f")
    first = Counting(limit=3)
    with pytest.raises(KeyboardInterrupt):
        search(replayed(first, path, IDENTITY))
    second = Counting()
    assert search(replayed(second, path, IDENTITY)) == expected
    assert first.asked + second.asked == whole.asked
    third = Counting()
    known = replayed(third, path, IDENTITY)
    assert search(known) == expected
    assert third.asked == []
    assert known(frozenset("cf")) == Probed(restored=True, macs_share=0.25, said="2 in float")


def test_a_line_that_was_cut_short_is_tried_again(tmp_path):
    path = tmp_path / "tries.jsonl"
    search(replayed(Counting(), path, IDENTITY))
    whole = path.read_text()
    path.write_text(whole[:-9])
    again = Counting()
    search(replayed(again, path, IDENTITY))
    assert len(again.asked) == 1
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        json.loads(line) for line in whole.splitlines()
    ]


def test_lines_of_a_later_kind_are_passed_over(tmp_path):
    path = tmp_path / "tries.jsonl"
    search(replayed(Counting(), path, IDENTITY))
    with path.open("a") as file:
        file.write('{"type": "weather", "rain": true}\n')
    again = Counting()
    search(replayed(again, path, IDENTITY))
    assert again.asked == []


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({**IDENTITY, "model": "m2"}, "another model"),
        ({**IDENTITY, "schema": "s2", "data": "d2"}, "another data and another schema"),
        ({"model": "m1", "schema": "s1"}, "another data"),
    ],
)
def test_the_file_of_another_search_is_refused_and_left_alone(tmp_path, other, found):
    path = tmp_path / "tries.jsonl"
    search(replayed(Counting(), path, IDENTITY))
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        replayed(Counting(), path, other)
    assert found in caught.value.found
    assert str(path) in caught.value.doing
    assert caught.value.remedy
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "no json at all\n",
        "[1, 2]\n",
        '{"type": "run", "format": "qbench-run/1"}\n',
        "half a line",
        (
            '{"type": "replay", "format": "qbench-replay/1", "identity": {"model": "m1", "schema": '
            '"s1", "data": "d1"}}\n'
            '{"type": "probe", "nodes": ["a"]}\n'
        ),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "tries.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match="Reading the replay file"):
        replayed(Counting(), path, IDENTITY)
    assert path.read_text() == text


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Writing the replay file"):
        replayed(Counting(), tmp_path / "file" / "tries.jsonl", IDENTITY)


def test_without_a_file_nothing_is_kept(tmp_path):
    probe = Counting()
    assert search(replayed(probe, None, IDENTITY)).nodes == ("c", "f")
    assert list(tmp_path.iterdir()) == []
