"""Cells that run several times, from outside: an engine that repeats its answers,
and one that does not.
"""

import json

import pytest

NOISY = """
from qbench.backends import get_backend


class Noise:
    # adds to every output what no run before it added: the loads of an engine are counted, as a
    # seed would be
    def __init__(self, executor, scale, seed):
        self.executor, self.scale, self.random = executor, scale, np.random.default_rng(seed)

    def run(self, feeds):
        outputs = self.executor.run(feeds)
        noise = {name: self.random.normal(0, self.scale, one.shape)
                 for name, one in outputs.items()}
        return {name: one + noise[name].astype(one.dtype) for name, one in outputs.items()}

    def close(self):
        self.executor.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Engine:
    capabilities, packages, loads = get_backend("ort-cpu").capabilities, ("onnxruntime",), 0

    def __init__(self, name, scale):
        self.name, self.scale = name, scale

    def prepare(self, model, *, taps=(), threads=1):
        Engine.loads += 1
        with open(os.path.join(os.path.dirname(__file__), "loads.txt"), "a") as file:
            file.write(f"{self.name} {threads}\\n")
        seed = int(os.environ.get("NOISE_SEED", "0")) * 1000 + Engine.loads
        executor = get_backend("ort-cpu").prepare(model, taps=taps, threads=threads)
        return Noise(executor, self.scale, seed) if self.scale else executor
"""

MORE = (
    'MORE = dict(backends={"noisy": lambda: Engine("noisy", 0.02), "wild": lambda: Engine("wild", '
    "0.05), "
    '"steady": lambda: Engine("steady", 0.0)})'
)

SUITE = """
[suite]
tolerance = {tolerance}
agreement = 0.5
backends = ["{backend}"]
schemas = ["w8a8_asym_pc"]
fp32 = false
{settings}

[[model]]
id = "{model}"
data = "points"
calibration = {{ data = "spare", count = 64 }}
metrics = ["top1", "agreement"]
"""


@pytest.fixture
def write(project):
    project.write_conftest(f"{NOISY}\n{MORE}")

    def write(backend, settings="repeats = 5", tolerance=0.1, model="tiny_a"):
        project.write_suite(
            SUITE.format(backend=backend, settings=settings, tolerance=tolerance, model=model)
        )
        return project

    return write


def loads(project, backend):
    path = project.path / "loads.txt"
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [int(threads) for name, threads in words if name == backend]


def accept(project):
    project.accept()
    assert cell(project)["outcome"] == "accepted"


def cell(project):
    (found,) = project.lines(kind="cell")
    return found


@pytest.mark.slow
def test_an_engine_that_repeats_its_answers_runs_twice_whatever_was_asked_for(write):
    project = write("steady")
    accept(project)
    assert len(loads(project, "steady")) == 2
    assert cell(project)["repeats"] == {"runs": 2, "differing": {}, "flips": {}, "metrics": {}}
    assert cell(project)["seconds"].keys() == {"prepare", "inference", "repeats"}
    assert not any("repeat" in notice for notice in cell(project)["notices"])


@pytest.mark.slow
def test_without_repeats_a_cell_runs_once_and_its_line_says_nothing_of_them(write):
    project = write("steady", settings="")
    accept(project)
    assert len(loads(project, "steady")) == 1
    assert "repeats" not in cell(project)


@pytest.mark.slow
def test_the_runs_of_a_noisy_engine_are_counted_and_its_drift_is_held_to_them(write, monkeypatch):
    project = write("noisy")
    accept(project)
    assert len(loads(project, "noisy")) == 5
    repeats = cell(project)["repeats"]
    assert repeats["runs"] == 5
    assert 0 < repeats["differing"]["points"] < 400
    assert len(repeats["metrics"]["top1"]["hits"]) == 5
    assert repeats["metrics"]["top1"]["hits"][0] == cell(project)["metrics"]["top1"]["hits"]

    monkeypatch.setenv("NOISE_SEED", "1")  # other noise: other predictions, and no drift
    project.run().assert_outcomes(passed=1)
    assert any("does not repeat its answers" in notice for notice in cell(project)["notices"])
    (drift,) = (gate for gate in cell(project)["gates"] if gate["kind"] == "drift")
    assert drift["state"] == "holds"
    assert "within noise" in drift["detail"]
    assert "5 runs" in drift["rule"]

    project.run("--qbench-accept=all", "--qbench-reason=the same again").assert_outcomes(passed=1)
    files = project.path / "baselines" / "scratch" / "tiny_a.json"
    accepted = json.loads(files.read_text())["cells"]["noisy+w8a8_asym_pc"]["accepted"]
    assert "reason" not in next(
        iter(accepted.values())
    )  # nothing was replaced: what noise moves is no change

    write(
        "noisy", settings=""
    )  # one run, and no floor: the answers are not those that were accepted
    project.run().assert_outcomes(failed=1)
    assert cell(project)["outcome"] == "drifted"


def test_a_broken_engine_drifts_though_it_is_noisy(write):
    project = write("noisy")
    accept(project)
    project.write_conftest(
        f"{NOISY}\n{MORE}".replace(
            "outputs = self.executor.run(feeds)",
            (
                "outputs = {k: np.roll(v, 1, axis=1) if len(v) else v for k, v in "
                "self.executor.run("
                "{k: v * (np.arange(v.shape[1]) > 3).astype(v.dtype) for k, v in "
                "feeds.items()}).items()}"
            ),
        )
    )
    project.run().assert_outcomes(failed=1)
    (drift,) = (gate for gate in cell(project)["gates"] if gate["kind"] == "drift")
    assert drift["state"] == "broken"
    assert "more than noise" in drift["detail"]


@pytest.mark.slow
def test_noise_beyond_the_margin_is_inconclusive_and_says_how_many_runs_it_needs(write):
    project = write("wild", settings='repeats = { "wild" = 3 }', tolerance=0.02, model="tiny_b")
    project.accept()
    project.run().assert_outcomes()
    line = cell(project)
    assert line["outcome"] == "inconclusive"
    assert "mean of 3 runs" in line["headline"]
    (wanting,) = (notice for notice in line["notices"] if notice.startswith("top1: 3 runs gave"))
    needed = int(wanting.rpartition("repeats = ")[2].rstrip(")"))
    assert needed > 3
    assert f'repeats = {{ "wild+w8a8_asym_pc" = {needed} }}' in line["remedy"]


@pytest.mark.slow
def test_repeats_take_the_threads_of_the_suite_in_turn(write):
    project = write("noisy", settings="repeats = 4\nrepeat_threads = [2, 1]")
    project.accept()
    assert loads(project, "noisy") == [1, 2, 1, 2]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("repeats = 0", "repeats = 0"),
        ("repeats = -2", "repeats = -2"),
        ('repeats = { "noisy" = 0 }', "repeats = 0"),
        ("repeats = 2.5", "expected an integer"),
        ('repeats = { "nosy" = 2 }', "unknown cell 'nosy'"),
        ("repeat_threads = [0]", "repeat_threads"),
    ],
)
def test_impossible_repeats_are_one_sentence(write, settings, sentence):
    project = write("noisy", settings=settings)
    result = project.run()
    text = "\n".join(line for line in result.outlines if "expected" in line)
    assert sentence in text
    assert "Traceback" not in str(result.stdout)
