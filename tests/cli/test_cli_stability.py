"""``qbench stability``: noise that is measured once, kept with the baselines,
and used by the runs after it.
"""

import json
import sys
from pathlib import Path

import pytest

SUITE = Path("suites/tiny.qbench.toml")
BASELINE = Path("baselines/tiny/blobs.json")
NOISY = """
import os

import numpy as np

from qbench.backends import get_backend
from qbench.extension import Extension


class Noise:
    def __init__(self, executor):
        Engine.loads += 1
        seed = Engine.loads + int(os.environ.get("SEED", "0"))
        self.executor, self.random = executor, np.random.default_rng(seed)

    def run(self, feeds):
        return {name: one + self.random.normal(0, 2.0, one.shape).astype(one.dtype)
                for name, one in self.executor.run(feeds).items()}

    def close(self):
        self.executor.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Engine:
    packages, name, loads = ("onnxruntime",), "noisy", 0

    @property
    def capabilities(self):
        return get_backend("ort-cpu").capabilities

    def prepare(self, model, *, taps=(), threads=1):
        return Noise(get_backend("ort-cpu").prepare(model, taps=taps))


EXTENSION = Extension(name="noisy", backends={"noisy": Engine})
"""


@pytest.fixture
def noisy(project, qbench, monkeypatch):
    """The project with a noisy engine next to one that repeats its answers; ``qbench`` with the
    engine's extension.
    """
    Path("noisy.py").write_text(NOISY)
    monkeypatch.delitem(sys.modules, "noisy", raising=False)
    text = SUITE.read_text().replace(
        '["ort-cpu", "ort-cpu-noopt"]', '["ort-cpu", "noisy"]\nfp32 = false\nrepeats = 4'
    )
    SUITE.write_text(
        text.replace('"w8a8_asym_pt", ', "").replace(
            "tolerance = 0.02", "tolerance = 0.5\nagreement = 0.5"
        )
    )

    def run(*words):
        return qbench(*words, "--extension", "noisy:EXTENSION")

    yield run
    sys.modules.pop("noisy", None)


def accept(noisy):
    from test_cli_run import accept_all

    from qbench.extension import named_also

    sys.path.insert(0, str(Path.cwd()))
    try:
        import noisy as module

        with named_also(lambda: (module.EXTENSION,)):
            accept_all()
    finally:
        sys.path.pop(0)
    assert BASELINE.exists()


def noise():
    cells = json.loads(BASELINE.read_text())["cells"]
    return {
        slug: next(iter(cell["noise"].values()), None)
        for slug, cell in cells.items()
        if "noise" in cell
    }


@pytest.mark.slow
def test_noise_is_kept_once_and_later_runs_do_not_repeat(noisy, monkeypatch):
    accept(noisy)
    before = BASELINE.read_text()
    code, out, err = noisy("stability", str(SUITE), "--repeats", "3", "--dry-run")
    assert code == 0, err
    assert BASELINE.read_text() == before
    assert "1 of 2 cells noisy" in out

    code, out, err = noisy("stability", str(SUITE), "--repeats", "3", "--json")
    assert code == 0, err
    told = {row["cell"]: row for row in json.loads(out)}
    steady, wild = told["blobs::ort-cpu+w8a8_asym_pc"], told["blobs::noisy+w8a8_asym_pc"]
    assert (steady["runs"], steady["differing"], steady["metric"], steady["kept"]) == (
        2,
        {},
        None,
        True,
    )
    assert (wild["runs"], wild["metric"], len(wild["hits"])) == (3, "top1", 3)
    assert noise() == {
        "ort-cpu+w8a8_asym_pc": {"runs": 2},
        "noisy+w8a8_asym_pc": {
            "runs": 3,
            "differing": wild["differing"],
            "flips": wild["flips"],
            "metrics": noise()["noisy+w8a8_asym_pc"]["metrics"],
        },
    }
    assert not list(Path("reports").rglob("*.jsonl"))  # it is no night of the history

    monkeypatch.setenv("SEED", "100")
    code, out, err = noisy("run", str(SUITE), "--json")
    cells = {cell["backend"]: cell for cell in json.loads(out)["cells"]}
    assert code == 0, (err, {name: cell["headline"] for name, cell in cells.items()})
    assert not any("repeats" in cell or "repeats" in cell["seconds"] for cell in cells.values())
    (drift,) = (gate for gate in cells["noisy"]["gates"] if gate["kind"] == "drift")
    assert drift["state"] == "holds"
    assert "3 runs" in drift["rule"]
    assert any("noise floor in the baseline" in notice for notice in cells["noisy"]["notices"])


@pytest.mark.slow
def test_what_was_never_accepted_has_no_place_for_its_noise(noisy):
    code, out, err = noisy("stability", str(SUITE), "--repeats", "2", "--select", "backend=noisy")
    assert code == 1, err
    assert "no baseline" in out
    assert not BASELINE.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--repeats", "1"), "one run alone"),
        (("--repeats", "-3"), "one run alone"),
        (("--select", "backend=nothing"), "no cell that"),
        (("--shard", "3/2"), "shard"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(noisy, words, sentence):
    code, out, err = noisy("stability", str(SUITE), *words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in out + err


def test_a_job_of_continuous_integration_does_not_write_baselines(noisy, monkeypatch):
    monkeypatch.setenv("CI", "true")
    code, _, err = noisy("stability", str(SUITE))
    assert code == 2
    assert "--in-ci" in err
