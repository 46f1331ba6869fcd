"""``qbench bisect package`` from the outside: environments that are there,
and real releases by pip.
"""

import json
import sys
from pathlib import Path

import pytest

LATER = "import onnxruntime\nreal = onnxruntime.InferenceSession.run\n"
WRONG = LATER + "onnxruntime.InferenceSession.run = lambda *a: [one + 0.25 for one in real(*a)]\n"
BROKEN = (
    LATER + "def run(*a): raise RuntimeError('no kernel')\nonnxruntime.InferenceSession.run = run\n"
)
SWAPPED = (
    LATER + "onnxruntime.InferenceSession.run = lambda *a: [one[:, ::-1] for one in real(*a)]\n"
)
SAYS = "import sys; from importlib.metadata import version; v = version('toy'); "


@pytest.fixture
def releases(small_python, blobs_files):
    """Five releases of a package: one cannot run a model,
    and from the fourth on all outputs are wrong.
    """
    starts = {"1.0": "", "1.2": "", "1.9": BROKEN, "1.10": WRONG, "1.11": WRONG}
    folders = [small_python(version, at_start=code) for version, code in starts.items()]
    return [word for folder in reversed(folders) for word in ("--venv", folder)]


def bisect(qbench, *options, good="1.0", bad="1.11"):
    return qbench("bisect", "package", "toy", "--good", good, "--bad", bad, *options)


MODEL = ["--model", "net.onnx", "--data", "test.npz"]


@pytest.mark.slow
def test_the_release_is_named_with_what_changed(qbench, releases):
    code, out, err = bisect(
        qbench, *releases, *MODEL, "--schema", "w8a8_asym_pc", "--calib", "train.npz"
    )
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "the first bad version of toy is one of 2 that cannot be distinguished"
    assert [line.split()[:2] for line in lines[1:]] == [
        ["1.2", "good:"],
        ["1.9", "skipped:"],
        ["1.10", "bad:"],
    ]
    assert "all 900 elements equal" in lines[1]
    assert "no kernel" in lines[2]
    assert "900 of 900 elements differ, by at most " in lines[3]
    assert "first at node 'second'" in lines[3]


@pytest.mark.slow
def test_one_release_and_json(qbench, releases):
    several = releases[:4] + releases[6:]  # without the one that cannot run
    code, out, err = bisect(qbench, *several, *MODEL, "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["line"] == ["1.0", "1.2", "1.10", "1.11"]  # as versions go, not as texts
    assert facts["suspects"] == ["1.10"]
    assert facts["tried"] == {"1.0": "good", "1.2": "good", "1.10": "bad", "1.11": "bad"}
    numbers = facts["trials"]["1.10"]["numbers"]
    assert (numbers["elements"], numbers["differing"]) == (900, 900)
    assert numbers["relative"] > 0


@pytest.mark.slow
def test_backwards_and_with_a_tolerance(qbench, releases):
    several = releases[:4] + releases[6:]
    code, out, err = bisect(qbench, *several, *MODEL, good="1.11", bad="1.0")
    assert code == 0, err
    assert out.startswith("toy 1.2 is the first bad version\n")
    code, _, err = bisect(qbench, *several, *MODEL, "--tolerance", "0.5")
    assert code == 3
    assert "a bad end" in err


@pytest.mark.slow
def test_a_metric_decides(qbench, small_python, blobs_files):
    starts = {"1.0": "", "1.1": WRONG, "1.2": SWAPPED, "1.3": SWAPPED}
    folders = [
        word for v, code in starts.items() for word in ("--venv", small_python(v, at_start=code))
    ]
    code, out, err = bisect(qbench, *folders, *MODEL, "--metric", "top1", bad="1.3")
    assert code == 0, err
    first, goes, *_ = out.splitlines()
    assert first == "toy 1.2 is the first bad version"  # 0.25 more on every score changes no answer
    assert goes.startswith("  top1 goes from 9")


@pytest.mark.slow
def test_a_command_decides_and_its_notes_are_kept(qbench, releases, project):
    script = SAYS + (
        "open('tried', 'a').write(v + ' '); sys.exit(125 if v == '1.9' else v in ('1.10', '1.11'))"
    )
    arguments = [*releases, "--", "{python}", "-c", script]
    code, out, err = bisect(qbench, *arguments)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["1.2", "1.9", "1.10"]
    tried = Path("tried").read_text().split()
    assert sorted(tried) == sorted({"1.0", "1.2", "1.9", "1.10", "1.11"})
    code, again, _ = bisect(qbench, *arguments)
    assert (code, again) == (0, out)
    assert Path("tried").read_text().split() == tried
    code, _, err = bisect(qbench, *releases, "--", "true")  # the one before has ended
    assert code == 3, err
    assert bisect(qbench, *arguments)[:2] == (
        0,
        out,
    )  # nor is there anything to go on with in one without an answer


@pytest.mark.slow
def test_an_interrupted_bisection_goes_on(qbench, releases):
    crash = SAYS + (
        "import os; os.path.exists('stop') and os.kill(os.getpid(), 9); open('stop', 'w'); "
        "sys.exit(v > '1.2')"
    )
    code, _, err = bisect(qbench, *releases, "--", "{python}", "-c", crash)
    assert code == 2
    assert "status -9" in err
    (notes,) = Path("reports/bisect").glob("toy-*.json")
    assert set(json.loads(notes.read_text())["trials"]) == {"1.0"}
    code, _, err = bisect(qbench, *releases, "--", "other-check")
    assert code == 2
    words = " ".join(err.split())
    assert "another task that has not ended: command: {python} -c " in words
    assert "the task of this command: command: other-check" in words
    assert f"mv '{notes}'" in words
    assert "PackageTask(" not in words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 2, "no command, and no model"),
        ([*MODEL, "--", "true"], 2, "both a model and a command"),
        ([*MODEL, "--calib", "train.npz"], 2, "--calib without --schema"),
        (["--versions", "1.0,1.11", "--", "true"], 2, "--venv with --versions"),
        (["--good", "1.1", "--", "true"], 2, "unknown version '1.1'"),
        (["--good", "new", "--", "true"], 2, "'new' for a version"),
        (["--good", "1.11", "--", "true"], 2, "one version at both ends"),
        (["--", "no-such-program"], 2, "Correct the command after '--'"),
        (["--", "true"], 3, "found that 1.11 is good"),
        (["--", "false"], 3, "found that 1.0 is bad"),
        (["--bad", "1.9", *MODEL], 2, "no kernel"),
    ],
)
def test_what_cannot_be_is_a_sentence(qbench, releases, options, code, words):
    named = [name for name in ("--good", "--bad") if name in options]
    ends = {name[2:]: options[options.index(name) + 1] for name in named}
    rest = options[2 * len(named) :]
    found, _, err = bisect(qbench, *releases, *rest, **ends)
    assert found == code
    assert words in err


@pytest.mark.slow
def test_a_model_under_another_python_is_scored(qbench, small_python, blobs_files):
    folder = small_python("1.0", at_start=SWAPPED)
    ours, theirs = (
        json.loads(qbench("eval", *MODEL[1:], *python, "--json")[1])
        for python in ([], ["--python", folder])
    )
    assert theirs["backend"].startswith("ort-cpu-")
    assert theirs["fp32"]["scores"][0]["value"] < ours["fp32"]["scores"][0]["value"]
    code, out, _ = qbench("eval", *MODEL[1:], "--python", sys.executable)
    assert code == 0
    assert "backend  ort-cpu-" in out


@pytest.mark.slow
def test_real_releases(qbench, blobs_files, monkeypatch):
    import onnx
    import onnx.parser

    text = (
        '<ir_version: 9, opset_import: ["" : 20]> n (float[N, 8] x) => (float[N, 8] y) '
        "{ y = Mish(x) }"
    )
    onnx.save(onnx.parser.parse_model(text), "mish.onnx")
    monkeypatch.delenv("QBENCH_CACHE")  # back to the user's: environments outlive a test
    options = ["--versions", "1.17.3,1.20.1,1.23.2", "--model", "mish.onnx", "--data", "test.npz"]
    code, out, err = qbench(
        "bisect", "package", "onnxruntime", "--good", "1.17.3", "--bad", "1.23.2", *options
    )
    if code == 2 and "pip said" in err:
        pytest.skip(err)
    assert code == 0, err
    assert out.startswith("onnxruntime 1.2")
    (notes,) = Path("reports/bisect").glob("onnxruntime-*.json")
    trials = json.loads(notes.read_text())["trials"]
    assert trials["1.17.3"]["numbers"]["differing"] == 0
    assert 0 < trials["1.23.2"]["numbers"]["differing"] < 2400
    assert trials["1.23.2"]["numbers"]["relative"] < 1e-5
