"""The front of Pareto of a sweep, compared with its definition, and its file of results."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError, StoreError
from qbench.tracking import SweepCell, fronts_of, kept_results, pareto_front, sweep_file


def cell(name, loss=0.0, size=1, ms=1.0, **more):
    return SweepCell(backend="b", schema=name, loss=loss, file_bytes=size, ms=ms, **more)


def dominates(one, other, cost, further):
    """By the definition: nowhere worse, somewhere better; of equal ones less of the other cost."""
    pairs = [(one.loss, other.loss), (cost(one), cost(other))]
    if all(a == b for a, b in pairs):
        return further(one) < further(other)
    return all(a <= b for a, b in pairs)


@given(st.lists(st.tuples(*(st.integers(0, 4),) * 3), max_size=9))
def test_the_front_is_what_no_other_dominates(numbers):
    cells = [
        cell(f"s{place}", loss, size, float(ms)) for place, (loss, size, ms) in enumerate(numbers)
    ]
    costs = {"size": lambda one: one.file_bytes, "time": lambda one: one.ms}
    for name, other in itertools.permutations(costs):
        expected = {
            one.name
            for one in cells
            if not any(dominates(two, one, costs[name], costs[other]) for two in cells)
        }
        found = pareto_front(cells, name)
        assert {one.name for one in found} == expected
        assert [costs[name](one) for one in found] == sorted(costs[name](one) for one in found)
        assert {key for key, fronts in fronts_of(cells).items() if name in fronts} == expected


def test_cells_without_a_number_are_on_no_front():
    cells = [cell("a", 1.0), cell("b", 0.0, size=None), cell("c", None)]
    assert [one.schema for one in pareto_front(cells, "size")] == ["a"]
    assert [one.schema for one in pareto_front(cells, "time")] == ["b"]


MADE = {"model": "m", "data": "d", "schema": "s"}


def test_what_was_added_is_read(tmp_path):
    file = sweep_file(tmp_path / "r.jsonl")
    assert file.read() == ()
    added = [
        cell("a", 0.25, made=MADE, interval=(-0.5, 1.0), seconds={"cell": 1.5}),
        cell("b", made={**MADE, "schema": "t"}, ms_interval=(0.5, 2.0)),
    ]
    for one in added:
        file.add(one)
    assert file.read() == tuple(added)
    # half a line, as a kill leaves it, is not read, and the next is whole
    file.path.write_bytes(file.path.read_bytes()[:-30])
    assert file.read() == (added[0],)
    file.add(added[1])
    assert file.read() == tuple(added)
    file.path.write_bytes(file.path.read_bytes() + b"remark\n")
    with pytest.raises(InputError, match="line 4: found a line that no sweep wrote"):
        file.read()


@pytest.mark.parametrize("loss", ['{"a":' * 100_000, "NaN", "Infinity", "1e999", '"\xff"'])
def test_a_line_that_no_sweep_can_write_is_left_out(tmp_path, loss):
    file = sweep_file(tmp_path / "r.jsonl")
    file.add(cell("a", loss=0.25))
    line = file.path.read_text(encoding="latin-1")
    file.path.write_text(line.replace("0.25", loss) + line, encoding="latin-1")
    assert file.read() == (cell("a", loss=0.25),)


def test_a_result_is_called_as_the_sweep_calls_it(tmp_path):
    made = {**MADE, "backend": "b"}
    (one,) = kept_results([cell("s\nschemas = []", made=made)], [made], tmp_path).values()
    assert one.name == "b+s"


def test_a_key_of_a_newer_version_is_ignored(tmp_path):
    file = sweep_file(tmp_path / "r.jsonl")
    file.add(cell("a"))
    file.path.write_text(file.path.read_text().replace('"backend"', '"later": 1, "backend"'))
    assert file.read() == (cell("a"),)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="expected a file that can be written"):
        sweep_file(tmp_path / "none" / "r.jsonl").add(cell("a"))


def test_only_what_is_of_equal_parts_is_kept(tmp_path):
    old, new = cell("a", 0.5, made=MADE), cell("a", 0.25, made=MADE)
    other = {**MADE, "schema": "t"}
    kept = kept_results([old, new], [other, MADE], tmp_path)
    assert {place: one.loss for place, one in kept.items()} == {1: 0.25}
    assert kept[1].kept
    # of what cannot be known nothing is kept
    assert kept_results([cell("a", made={})], [{}], tmp_path) == {}


@pytest.mark.parametrize("part", ["model", "data", "qbench", "computer"])
def test_results_of_which_none_has_a_part_are_refused(part, tmp_path):
    ours = {**MADE, part: "ours"}
    with pytest.raises(InputError, match=r"results of (an)?other"):
        kept_results([cell("a", made={**ours, part: "theirs"})], [ours], tmp_path)
    both = [cell("a", made={**ours, part: "theirs"}), cell("b", made={**ours, "schema": "t"})]
    assert kept_results(both, [ours], tmp_path) == {}
