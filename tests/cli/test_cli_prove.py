"""``qbench prove``: what a suite lets through, what would catch it, and how a proof goes on, is
divided and joined.
"""

import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qbench.faults import CATALOGUE
from qbench.suite import ProofNight, ProofShares
from qbench.tracking import ProofCell, ProofStart, proof_file

CHEAP = "last-channel-block-not-written,bias-dropped,weight-transposed,signed-read-as-unsigned"
"""Kinds that even the weak suite catches, so that no remedy is searched."""
CELL = "integer-ort-x64+w8a8_asym_pc"
WEAK = """
[suite]
tolerance = 0.2
agreement = 0.1
backends = ["integer-ort-x64", "ort-cpu-precise"]
schemas = ["w8a8_asym_pc"]
flips = { "*" = 20 }

[[model]]
id = "digits_cnn"
data = "digits_test"
samples = 40
calibration = { data = "digits_train", count = 64 }
metrics = ["top1"]
"""
STRONG = """
[suite]
tolerance = 0.005
backends = ["integer-ort-x64", "ort-cpu-precise"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "digits_cnn"
data = "digits_test"
calibration = { data = "digits_train", count = 64 }
metrics = ["top1", "agreement"]
equal_to = { "integer-ort-x64+*" = "ort-cpu-precise" }
"""


def accept(path, extensions=()):
    """Accept what the suite at ``path`` measures here."""
    from qbench.suite import Bench, Settings, approve_run, expand, gather, load_suite
    from qbench.tracking import Accepting, Scope

    suite, catalogues = load_suite(path), gather(extensions, suites=path.parent)
    settings = Settings(
        baselines=Path("baselines"),
        suite_path=str(path),
        today=datetime.date(2026, 11, 24),
        accepting=Accepting(scope=Scope.NEW, fp32=True, reason="first"),
    )
    bench = Bench(suite, catalogues, settings)
    approve_run(bench, [(cell, bench.measure(cell)) for cell in expand(suite, catalogues)])


def make_suite(project, text, name="s"):
    path = project / "suites" / f"{name}.qbench.toml"
    path.write_text(text)
    accept(path)
    return path


@pytest.fixture
def weak(project):
    return make_suite(project, WEAK)


def proven(qbench, *arguments, code=0):
    """The facts of a proof with the exit code ``code``, and what it says."""
    found, out, err = qbench("prove", *arguments, "--json")
    assert found == code, err
    return json.loads(out), err


def by_fault(facts):
    return {one["fault"]: one for one in facts["faults"]}


def without_times(facts):
    return json.dumps(facts, sort_keys=True)


def test_a_weak_suite_lets_faults_through_and_an_equality_gate_that_is_proposed_catches_them(
    weak, qbench
):
    facts, err = proven(
        qbench, "s", "--faults", "truncated,weight-transposed", "--detect", "0.9", code=1
    )
    assert facts["caught"]["of"] == facts["caught"]["caught"] + facts["let_through"]
    assert facts["caught"]["share"] < 0.9
    low, high = facts["caught"]["interval"]
    assert low < facts["caught"]["share"] < high
    weakest = by_fault(facts)["truncated"]
    assert (weakest["caught"], weakest["of"]) == (0, 1)
    assert weakest["cells_without_place"] == 1  # the engine's kernels cannot be reached
    (missed,) = weakest["let_through"]
    assert missed["cell"] == f"digits_cnn::{CELL}"
    remedy = next(one for one in missed["remedies"] if one["name"] == "an equality gate")
    assert remedy["tried"]
    setting = re.match(r"(equal_to = .*), model digits_cnn", remedy["setting"])[1]
    assert "truncated" in err  # said as soon as it is known
    # applied as it is written
    weak.write_text(WEAK + setting + "\n")
    facts, _ = proven(qbench, "s", "--faults", "truncated", "-o", "again.jsonl", "--detect", "1")
    assert by_fault(facts)["truncated"]["caught"] == 1
    assert by_fault(facts)["truncated"]["let_through"] == []


@pytest.mark.slow
def test_every_setting_that_was_tried_catches_its_fault_when_it_is_written(weak, qbench):
    """Each remedy of a kind of its own, one after the other."""
    facts, _ = proven(qbench, "s", "--seed", "3")
    wanted = {
        (one["name"], one["setting"]): (fault["fault"], trial["cell"])
        for fault in facts["faults"]
        for trial in fault["let_through"]
        for one in trial["remedies"]
        if one["tried"]
    }
    first = {}
    for (name, setting), trial in wanted.items():
        first.setdefault(name, (setting, trial))
    assert {"an equality gate", "a stricter tolerance", "the metric sqnr", "no flips"} <= set(first)
    for number, (name, (setting, (fault, cell))) in enumerate(first.items()):
        weak.write_text(applied(name, setting))
        select = f"backend={cell.partition('::')[2].partition('+')[0]}"
        again, _ = proven(
            qbench, "s", "--seed", "3", "--faults", fault, "--select", select,
            "-o", f"{number}.jsonl",
        )  # fmt: skip
        tally = by_fault(again)[fault]
        assert (tally["caught"], tally["of"]) == (1, 1), (name, setting, fault)


def applied(name, setting):
    """The weak suite with ``setting`` as a user would write it."""
    if name == "no flips":
        return WEAK.replace('flips = { "*" = 20 }', "")
    text = WEAK
    lines = re.sub(r", model \w+$", "", setting)
    if lines.startswith("metrics"):
        added = re.search(r'"(\w+)"\]', lines)[1]
        text = text.replace('metrics = ["top1"]', f'metrics = ["top1", "{added}"]')
        lines = lines.partition("], ")[2]
    return text + lines + "\n"


@pytest.mark.slow
def test_strong_gates_catch_every_fault_that_changes_something(project, qbench):
    make_suite(project, STRONG)
    facts, _ = proven(qbench, "s", "--detect", "1", "--places", "2")
    assert facts["let_through"] == 0
    assert facts["caught"]["caught"] == facts["caught"]["of"] > 60
    assert facts["remedies"] == []
    # an equivalent mutant is neither caught nor let through
    silent = by_fault(facts)["zero-point-before-rounding"]
    assert (silent["of"], silent["no_effect"], silent["share"]) == (0, 2, None)
    assert "softmax-one-step-low" in facts["not_applicable"]


def test_ranges_that_were_never_accepted_let_a_calibration_through(weak, qbench):
    """What would catch it is computed here, and catches it once the ranges are accepted."""
    file = Path("baselines/s/digits_cnn.json")
    whole = file.read_text()
    table = json.loads(whole)
    del table["calibrations"]
    file.write_text(json.dumps(table))
    chosen = ("--faults", "calibrated-unnormalized")
    facts, _ = proven(qbench, "s", *chosen)
    assert facts["let_through"] == 2
    remedy = next(one for one in facts["remedies"] if "ranges" in one["name"])
    assert (remedy["name"], remedy["tried"]) == ("accepted calibrated ranges", False)
    assert remedy["catches"] == 2
    file.write_text(whole)
    facts, _ = proven(qbench, "s", *chosen, "-o", "again.jsonl", "--detect", "1")
    assert facts["by_gate"]["calibration"] == facts["caught"]["caught"] == 2


def test_without_accepted_results_of_its_class_less_is_caught(project, qbench):
    """As after an upgrade of the engine: the accepted predictions are of another class."""
    make_suite(project, STRONG.replace("equal_to", "# equal_to"))
    chosen = ("--faults", "truncated")
    same, _ = proven(qbench, "s", *chosen)
    assert same["caught"]["caught"] == same["caught_by_class_alone"] == 1
    new, _ = proven(qbench, "s", *chosen, "--new-class", "-o", "new.jsonl")
    assert (new["caught"]["caught"], new["let_through"]) == (0, 1)
    assert "an equality gate" in {one["name"] for one in new["remedies"]}
    # the two are not one proof
    code, _, err = qbench("prove", "--merge", "prove-s.jsonl", "new.jsonl")
    assert code == 2
    assert "--new-class" in err


def test_a_budget_that_leaves_kinds_out_ends_with_4_and_is_resumed(weak, qbench):
    part, err = proven(qbench, "s", "--faults", CHEAP, "--trials", "2", code=4)
    assert part["trials"] == 2
    assert len(part["untried"]) == 2
    assert all(name in err for name in part["untried"])
    # the file is not mixed with another run by mistake
    code, _, err = qbench("prove", "s", "--faults", CHEAP)
    assert code == 2
    assert "--resume" in err
    resumed, err = proven(qbench, "s", "--faults", CHEAP, "--resume")
    assert "2 trials are taken" in err
    whole, _ = proven(qbench, "s", "--faults", CHEAP, "-o", "whole.jsonl")
    assert without_times(resumed) == without_times(whole)
    # nothing is done again
    _, err = proven(qbench, "s", "--faults", CHEAP, "--resume")
    assert f"{whole['trials']} trials are taken" in err
    code, _, err = qbench("prove", "s", "--faults", CHEAP, "--resume", "--seed", "9")
    assert code == 2
    assert "another seed" in err


def test_shards_of_an_array_join_to_the_whole_in_any_order(weak, qbench, monkeypatch):
    whole, _ = proven(qbench, "s", "--faults", CHEAP, "-o", "whole.jsonl")
    words = ("prove", "s", "--faults", CHEAP, "--resume")
    for index in (1, 2, 3):
        with monkeypatch.context() as job:
            job.setenv("SLURM_ARRAY_TASK_ID", str(index))
            qbench(*words, "--shard", "3", "-o", f"{index}.jsonl")
    qbench(*words, "--shard", "2/3", "-o", "2.jsonl")  # started again: nothing is left of it
    files = ("3.jsonl", "1.jsonl", "2.jsonl")
    merged, _ = proven(qbench, "--merge", *files, "1.jsonl", "-o", "all.jsonl")
    assert without_times(merged) == without_times(whole)
    again, _ = proven(qbench, "--merge", "all.jsonl")
    assert without_times(again) == without_times(whole)
    # some shares are not all: what is missing is named, and no kind is said to have no place
    part, err = proven(qbench, "--merge", "1.jsonl", "3.jsonl", "--detect", "0.5", code=4)
    assert part["lacking"] == ["no results of share 2/3"]
    assert "share 2/3" in err
    tried = {one["fault"] for one in part["faults"]}
    assert set(part["untried"]) == set(CHEAP.split(",")) - tried
    for index in (1, 2, 3):
        share, _ = proven(qbench, *words[1:], "--shard", f"{index}/3", "-o", f"{index}.jsonl")
        assert share["not_applicable"] == []
    # nor is a share that did not end
    lines = Path("2.jsonl").read_text().splitlines(keepends=True)
    Path("2.jsonl").write_text("".join(line for line in lines if '"type":"end"' not in line))
    for files in (("2.jsonl", "3.jsonl", "1.jsonl", "-o", "torn.jsonl"), ("torn.jsonl",)):
        joined, err = proven(qbench, "--merge", *files, code=4)
        assert joined["lacking"] == ["no end of share 2/3"]
        assert joined["faults"] == whole["faults"]
        assert "share 2/3" in err


IDEAL = WEAK.replace('"integer-ort-x64", "ort-cpu-precise"', '"integer-ideal"')


def test_where_no_fault_changes_anything_nothing_is_proven(project, qbench):
    """``rounded-twice`` cannot be put into an engine with products of 64 bits."""
    make_suite(project, IDEAL)
    for floor, code in (((), 0), (("--detect", "0"), 4)):
        words = ("s", "--faults", "rounded-twice", "-o", f"{code}.jsonl", *floor)
        facts, err = proven(qbench, *words, code=code)
        assert ("nothing was proven: no trial was made" in err) is bool(code)
        assert (facts["trials"], facts["faults"]) == (0, [])
        (place,) = facts["not_put"]
        assert (place["fault"], place["cell"]) == (
            "rounded-twice", "digits_cnn::integer-ideal+w8a8_asym_pc",
        )  # fmt: skip
        assert "do not fit a product" in place["reason"]
    _, out, _ = qbench("prove", "--merge", "0.jsonl")
    assert "rounded-twice could not be put at 1 place: ValueError: " in out


def test_a_red_suite_is_refused_and_a_red_cell_is_left_out(project, qbench):
    path = project / "suites" / "s.qbench.toml"
    path.write_text(WEAK)
    kind = ("--faults", "bias-doubled")
    for added in ((), ("--resume",)):
        code, out, err = qbench("prove", "s", *kind, *added)
        assert (code, out) == (2, "")
        assert "none of which is green" in err
        assert "missing" in err
        assert not Path("prove-s.jsonl").exists()  # it would refuse the next proof
    accept(path)
    # the accepted results of one cell are gone
    file = project / "baselines" / "s" / "digits_cnn.json"
    table = json.loads(file.read_text())
    del table["cells"][CELL]
    file.write_text(json.dumps(table))
    facts, err = proven(qbench, "s", "--faults", "bias-doubled,weight-transposed", "-o", "b.jsonl")
    assert [one["cell"] for one in facts["left_out"]] == [f"digits_cnn::{CELL}"]
    assert facts["green"] == 1
    assert {t["cell"] for one in facts["faults"] for t in one["let_through"]} <= {
        "digits_cnn::ort-cpu-precise+w8a8_asym_pc"
    }


def test_a_backend_that_is_not_installed_is_left_out(weak, qbench):
    """And a package that it needs is named."""
    Path("gone.py").write_text(
        "from qbench.extension import Extension\n"
        "def engine():\n    import no_such_engine\n"
        "E = Extension(name='gone', backends={'gone': engine})\n"
    )
    weak.write_text(WEAK.replace('"ort-cpu-precise"]', '"ort-cpu-precise", "gone"]'))
    facts, err = proven(qbench, "s", "--faults", "weight-transposed", "--extension", "gone:E")
    (left,) = facts["left_out"]
    assert left["cell"] == "digits_cnn::gone+w8a8_asym_pc"
    assert "no_such_engine" in left["headline"]
    assert facts["green"] == facts["caught"]["caught"] == 2
    assert "no_such_engine" in err


@pytest.mark.slow
def test_passes_and_a_model_that_came_quantized(project, qbench, monkeypatch):
    """The fault is put into the graph that runs: a rewritten one, or the one that was given."""
    from qbench import calibrate, make_plan, quantize_model, save_model
    from qbench.subjects import digits_arrays, get_model

    net = get_model("digits_cnn").graphs["model"]()
    pictures = digits_arrays(test=False)[0][:64].reshape(-1, 1, 8, 8)
    profile = calibrate(net, [{"x": (pictures / 16).astype("float32")}])
    save_model(quantize_model(net, make_plan(net, profile, "w8a8_asym_pc")), project / "q.onnx")
    Path("proven_models.py").write_text(
        "from dataclasses import replace\n"
        "from qbench import load_model\n"
        "from qbench.extension import Extension\n"
        "from qbench.subjects import get_model\n"
        "def q():\n"
        "    graphs = {'model': lambda: load_model('q.onnx')}\n"
        "    return replace(get_model('digits_cnn'), id='q', graphs=graphs)\n"
        "E = Extension(name='mine', models={'q': q})\n"
    )
    text = STRONG.replace("equal_to", 'variants = { exact = { passes = "exact" } }\n# equal_to')
    path = project / "suites" / "s.qbench.toml"
    path.write_text(text + '[[model]]\nid = "q"\nfp32 = "digits_cnn"\n')
    monkeypatch.syspath_prepend(str(project))
    from proven_models import E

    accept(path, [E])
    kinds = "weight-transposed,bias-dropped,stale-calibration"
    added = ("--extension", "proven_models:E")
    facts, _ = proven(qbench, "s", *added, "--faults", kinds, "--detect", "1")
    tallies = by_fault(facts)
    assert facts["green"] == 6
    assert tallies["weight-transposed"]["of"] == tallies["bias-dropped"]["of"] == 6
    # a model that came quantized is not calibrated here
    assert tallies["stale-calibration"]["of"] == 4
    assert tallies["stale-calibration"]["cells_without_place"] == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["prove"], "no SUITE"),
        (["prove", "none"], "none"),
        (["prove", "tiny", "--faults", "bias-dropt"], "bias-dropped"),
        (["prove", "tiny", "--select", "schema=fp32"], "no quantized cell"),
        (["prove", "tiny", "--shard", "3/2"], "3/2"),
        (["prove", "tiny", "--detect", "1.5"], "a share from 0 to 1"),
        (["prove", "tiny", "--budget", "soon"], "such as 90s"),
        (["prove", "--merge", "nothing.jsonl"], "no file 'nothing.jsonl'"),
        (["prove", "--merge", "suites/tiny.qbench.toml"], "a line that no proof wrote"),
    ],
)
def test_bad_input_is_one_sentence(project, qbench, words, says):
    code, out, err = qbench(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_the_pages_are_written(weak, qbench):
    code, out, err = qbench("prove", "s", "--faults", "truncated", "--report", "out")
    assert code == 0, err
    page = Path("out/index.html").read_text()
    assert "What suite s lets through" in page
    assert "an equality gate" in page
    text = Path("out/prove.md").read_text()
    assert "| `truncated` | engine | 0 of 1 |" in text
    assert "what would catch what was let through" in out
    assert "truncated" in out


@pytest.mark.slow
def test_a_proof_that_was_killed_goes_on_to_the_same_table(weak, qbench):
    """Killed in the middle of a line, too."""
    words = ("s", "--faults", ",".join(sorted(CATALOGUE)[::4]))
    whole, _ = proven(qbench, *words, "-o", "whole.jsonl")
    count = len(Path("whole.jsonl").read_bytes().splitlines())
    command = [sys.executable, "-m", "qbench", "prove", *words, "-o", "killed.jsonl"]
    process = subprocess.Popen(
        command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    file = Path("killed.jsonl")
    while process.poll() is None and (not file.exists() or len(file.read_bytes().splitlines()) < 8):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = file.read_bytes().splitlines(keepends=True)
    assert 6 < len(lines) < count
    file.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    resumed, _ = proven(qbench, *words, "-o", "killed.jsonl", "--resume")
    assert without_times(resumed) == without_times(whole)


KILLS_ONE = """
import os, signal
from concurrent.futures import ThreadPoolExecutor


class Farm(ThreadPoolExecutor):
    died = False

    def submit(self, function, order):
        if not Farm.died:
            Farm.died = True
            words = ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
            order = {**order, "words": words}
        return super().submit(function, order)
"""


@pytest.mark.slow
def test_shares_on_workers_give_the_table_of_one_process_also_where_one_dies(weak, qbench):
    whole, _ = proven(qbench, "s", "--faults", CHEAP, "-o", "whole.jsonl")
    Path("farm.py").write_text(KILLS_ONE)
    words = ("s", "--faults", CHEAP, "--executor", "farm:Farm", "--jobs", "2")
    facts, err = proven(qbench, *words)
    assert without_times(facts) == without_times(whole)
    assert "is tried again: its process ended by signal SIGKILL" in err
    files = sorted(Path("prove-s.shares").glob("*.jsonl"))
    assert [file.name for file in files] == ["share-1-of-2.jsonl", "share-2-of-2.jsonl"]
    # without --resume nothing is mixed; with it nothing is done again
    code, _, err = qbench("prove", *words)
    assert code == 2
    assert "--resume" in err
    before = [file.read_bytes() for file in files]
    again, _ = proven(qbench, "s", "--faults", CHEAP, "--cluster", "local:1", "--resume")
    assert without_times(again) == without_times(whole)
    assert [file.read_bytes() for file in files] == before
    merged, _ = proven(qbench, "--merge", *map(str, files))
    assert without_times(merged) == without_times(whole)


def test_a_share_that_dies_with_new_facts_has_got_further(tmp_path):
    shares = ProofShares(suite="s", made={}, folder=tmp_path, count=1)
    file = proof_file(shares.files[0])
    night = ProofNight(
        plan=shares, workers=None, history=tmp_path, order={}, needs=lambda _: (), tell=print
    )
    seen = []
    for number in range(3):
        file.add(ProofStart(made={}, suite="s", cells=("a",), kinds=()))
        file.add(ProofCell(made={}, cell=f"cell {number}"))
        seen.append(night._runs_of(shares.jobs[0]))
    assert [(one.attempts, one.cells) for one in seen] == [(1, 1), (2, 2), (3, 3)]


def test_shares_that_no_worker_takes_are_named_and_end_with_4(weak, qbench):
    Path("farm.py").write_text(
        "class Full:\n    def submit(self, function, order):\n"
        "        raise RuntimeError('no room')\n"
    )
    command = ("prove", "s", "--faults", CHEAP, "--executor", "farm:Full", "--jobs", "2")
    words = "no results of share 1/2, 2/2"
    code, out, err = qbench(*command)
    assert code == 4
    assert f"not complete: {words}\n" in err
    assert f"not complete: {words}\n" in out
    assert "--resume goes on" in err
    assert "--resume goes on" not in out
    code, out, _ = qbench(*command, "--resume", "--json")
    assert (code, json.loads(out)["lacking"]) == (4, [words])
    # the end of an earlier run that left trials is none of this one; the words are those of --merge
    file = "prove-s.shares/share-1-of-2.jsonl"
    part = ("prove", "s", "--faults", CHEAP, "--shard", "1/2", "--trials", "1", "-o", file)
    qbench(*part)
    code, out, _ = qbench(*command, "--resume", "--json")
    lacking = ["no results of share 2/2", "no end of share 1/2"]
    assert (code, json.loads(out)["lacking"]) == (4, lacking)
    code, out, _ = qbench("prove", "--merge", file, "--json")
    assert (code, json.loads(out)["lacking"]) == (4, lacking[:1])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--jobs", "2"), "found --jobs without --cluster"),
        (("--cluster", "here"), "Reading --cluster: found 'here'"),
        (("--cluster", "local:1", "--shard", "1/2"), "found --shard"),
        (("--cluster", "local:1", "--trials", "5"), "found --trials"),
    ],
)
def test_wrong_workers_of_a_proof_are_one_sentence(weak, qbench, words, says):
    code, out, err = qbench("prove", "s", *words)
    assert (code, out) == (2, "")
    assert says in err


def test_a_share_without_a_green_cell_is_no_mistake(project, qbench):
    (project / "suites" / "s.qbench.toml").write_text(WEAK)  # nothing is accepted
    words = ("s", "--faults", "bias-dropped", "--trials", "1")
    assert qbench("prove", *words)[0] == 2
    assert qbench("prove", *words, "--shard", "1/1", "-o", "share.jsonl")[0] in (0, 4)
    assert qbench("prove", "--merge", "share.jsonl")[0] == 2
