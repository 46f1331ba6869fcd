"""Trials with numbers: parts on several machines, files that are continued, one table of them."""

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A program whose trials divisible by 7 are wrong; ``toy.ran``: which ran."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.chdir(tmp_path)
    import trials

    class Toy:
        ran: list[int]
        extra = 0
        stops_at = -1
        settings: dict

        def work(self, numbers):
            for number in numbers:
                if number == self.stops_at:
                    raise KeyboardInterrupt
                self.ran.append(number)
                yield trials.Result(
                    trial=number,
                    group="even" if number % 2 == 0 else "odd",
                    counts={"runs": 2 + self.extra},
                    wrong=("divisible",) if number and number % 7 == 0 else (),
                )

        def __call__(self, *words):
            self.ran = []
            options = trials.parser("toy", count=20).parse_args(words)
            return trials.run(options, trials.Program(work=self.work, settings=self.settings))

    monkeypatch.setattr(trials.sys, "argv", ["benchmarks/toy.py"])
    monkeypatch.setattr(trials, "code", lambda: "c" * 16)
    made = Toy()
    made.trials, made.settings = trials, {"seed": 3}
    return made


def kept(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()[1:]]


def test_a_file_is_continued_where_it_was_cut(toy):
    toy.stops_at = 4
    with pytest.raises(KeyboardInterrupt):
        toy("--to", "6", "--results", "r.jsonl")
    toy.stops_at = -1
    with Path("r.jsonl").open("a") as file:
        file.write('{"trial": 4, "cou')  # as a kill leaves it
    assert toy("--to", "6", "--results", "r.jsonl", "--resume") == 0
    assert toy.ran == [4, 5]
    lines = Path("r.jsonl").read_text().splitlines()
    assert [json.loads(line)["trial"] for line in lines[1:] if line.endswith("}}")] == [*range(6)]
    assert toy("--to", "6", "--results", "r.jsonl", "--resume") == 0
    assert toy.ran == []


def test_results_are_not_added_to_a_file_without_being_asked(toy, capsys):
    toy("--to", "2", "--results", "r.jsonl")
    before = Path("r.jsonl").read_bytes()
    assert toy("--to", "3", "--results", "r.jsonl") == 2
    assert "--resume" in capsys.readouterr().err
    assert (toy.ran, Path("r.jsonl").read_bytes()) == ([], before)


def test_the_parts_of_three_machines_are_one_table(toy, capsys):
    for part in (1, 2, 3):
        assert toy("--to", "7", "--shard", f"{part}/3", "--results", f"{part}.jsonl") == 0
    capsys.readouterr()
    assert toy("--to", "7", "--table", "3.jsonl", "1.jsonl", "2.jsonl") == 0
    together = capsys.readouterr().out
    toy("--to", "7", "--results", "whole.jsonl")
    assert capsys.readouterr().out == together
    assert "| all | 7 | 14 | 0 |" in together
    assert toy.ran == [*range(7)]


def test_missing_trials_are_named(toy, capsys):
    toy("--from", "0", "--to", "7", "--shard", "2/3", "--results", "2.jsonl")
    capsys.readouterr()
    assert toy("--to", "7", "--table", "2.jsonl") == 4
    assert "missing: 5 (0, 2, 3, 5, 6)" in capsys.readouterr().out


def test_a_wrong_trial_is_kept_with_the_command_that_repeats_it(toy, capsys):
    assert toy("--from", "10", "--results", "r.jsonl") == 1
    text = capsys.readouterr().out
    assert "WRONG 1 × even divisible\n    trials 14\n" in text
    assert "python benchmarks/toy.py --seed=3 --only 14" in text
    assert [one["trial"] for one in kept("r.jsonl") if "wrong" in one] == [14]
    assert toy("--only", "14") == 1
    assert toy.ran == [14]
    assert toy("--only", "15") == 0


def test_a_trial_that_ends_otherwise_elsewhere_is_named(toy, capsys):
    toy("--to", "3", "--results", "a.jsonl")
    toy.extra = 1
    toy("--from", "2", "--to", "5", "--results", "b.jsonl")
    capsys.readouterr()
    assert toy("--to", "5", "--table", "a.jsonl", "b.jsonl") == 1
    assert "DIFFERENT RESULTS 2" in capsys.readouterr().out
    assert toy("--to", "5", "--table", "b.jsonl", "a.jsonl") == 1
    assert toy("--from", "2", "--to", "5", "--table", "b.jsonl") == 0


@pytest.mark.parametrize("changed", ["settings", "code", "program"])
def test_results_of_something_else_are_refused(toy, monkeypatch, capsys, changed):
    toy("--to", "3", "--results", "r.jsonl")
    if changed == "settings":
        toy.settings = {"seed": 4}
    elif changed == "code":
        monkeypatch.setattr(toy.trials, "code", lambda: "d" * 16)
    else:
        monkeypatch.setattr(toy.trials.sys, "argv", ["benchmarks/other.py"])
    assert toy("--to", "3", "--results", "r.jsonl", "--resume") == 2
    assert f"expected {changed}" in capsys.readouterr().err
    assert toy.ran == []


def test_no_trial_begins_after_the_time_that_was_given(toy, capsys):
    assert toy("--to", "1000000", "--until", "0", "--results", "r.jsonl") == 4
    assert len(toy.ran) < 1000000
    assert "missing" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "-1/2"])
def test_a_shard_that_is_none_is_refused(toy, text):
    with pytest.raises(SystemExit):
        toy("--shard", text)


def test_the_digest_of_the_code_covers_the_package(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import trials

    monkeypatch.setattr(trials, "ROOT", tmp_path)
    (tmp_path / "qbench").mkdir()
    digests = set()
    for text in ("", "x = 1", "x = 2"):
        (tmp_path / "qbench" / "a.py").write_text(text)
        digests.add(trials.code())
    assert len(digests) == 3
