"""Likelihoods are asked for only where a metric counts them, of both runs, and calibration
never sees a label.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.evaluation import MetricUse, RecordingTask, Subject, SubjectArtifacts, measure_cell
from qbench.judging import EnvironmentClass
from qbench.metrics import get_metric
from qbench.storage import Cache
from qbench.subjects import Dataset, ZooModel
from qbench.subjects.sequences import Transduction
from qbench.subjects.tasks import forced_likelihoods
from qbench_zoo.networks.sequences import STATE, g2p_networks
from qbench_zoo.pronunciation import Spelling

LETTERS, PHONEMES = 29, 9
WORDS, SPARE = ("cab", "dad", "face", "ghee"), ("bead", "feed", "hide")
RIGHT = ((4, 5), (6,), (7, 8, 4), ())


def graphs():
    random = np.random.default_rng(5)
    shapes = {
        **{
            f"{part}_emb": (tokens, STATE) for part, tokens in (("enc", LETTERS), ("dec", PHONEMES))
        },
        **{
            f"{part}_w_{side}": (3 * STATE, STATE)
            for part in ("enc", "dec")
            for side in ("ih", "hh")
        },
        **{f"{part}_b_{side}": (3 * STATE,) for part in ("enc", "dec") for side in ("ih", "hh")},
        "fc_w": (PHONEMES, STATE),
        "fc_b": (PHONEMES,),
    }
    arrays = {
        name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()
    }
    made = g2p_networks(arrays, letters=LETTERS, phonemes=PHONEMES)
    return {name: lambda model=model: model.clone() for name, model in made.items()}


def words(name, chosen, labels):
    return Dataset(
        id=name,
        kind="word",
        sample_ids=chosen,
        sources=chosen,
        labels=labels,
        content=name,
        load=chosen.__getitem__,
    )


@dataclass
class Counting:
    """A task that counts how often it is asked for likelihoods."""

    task: Transduction = field(
        default_factory=lambda: Transduction(state=STATE, start=2, end=3, limit=4)
    )
    asked: int = 0

    @property
    def name(self):
        return self.task.name

    @property
    def graphs(self):
        return self.task.graphs

    def answer(self, runners, samples):
        return self.task.answer(runners, samples)

    def likelihoods(self, runners, samples):
        assert samples.data == "scored", "calibration saw a label"
        self.asked += 1
        return self.task.likelihoods(runners, samples)


def shared_work(tmp_path, task, *metrics):
    model = ZooModel(id="spoken", graphs=graphs(), preprocess=Spelling(), task=task, origin="drawn")
    uses = tuple(MetricUse(name, get_metric(name), "scored") for name in metrics)
    data = {"scored": words("scored", WORDS, RIGHT)}
    subject = Subject(
        model=model,
        data=data,
        metrics=uses,
        calibration=words("spare", SPARE, ((4,),) * len(SPARE)),
    )
    return SubjectArtifacts(subject, Cache(tmp_path / "cache"), get_backend("ort-cpu"), "x64-test")


def measured(shared, schema=None):
    stored = {
        name: replace(run, outputs=None, likelihoods=None)
        for name, run in shared.reference().items()
    }
    environment = EnvironmentClass("x64-test")
    return measure_cell(
        shared, "ort-cpu", schema, reference=stored, environment=environment, timer=lambda: 0.0
    )


@pytest.mark.slow
def test_it_is_asked_of_both_runs_and_never_while_calibrating(tmp_path):
    task = Counting()
    shared = shared_work(tmp_path, task, "per", "perplexity")
    fp32 = measured(shared).score("perplexity")
    assert task.asked == 2  # of the fp32 run, which stays in the cache, and of the cell
    assert (fp32.value, fp32.losses, fp32.gains, fp32.n) == (fp32.reference_value, 0, 0, len(WORDS))
    assert fp32.out_of == 1_000_000 * sum(len(label) + 1 for label in RIGHT)
    quantized = measured(shared, "w8a8_asym_pt").score("perplexity")
    assert task.asked == 3
    assert quantized.reference_hits == fp32.hits
    assert quantized.hits != fp32.hits


def test_it_is_not_asked_where_no_metric_counts_it_and_the_runs_are_kept_apart(tmp_path):
    task = Counting()
    without = shared_work(tmp_path, task, "per")
    measured(without)
    assert task.asked == 0
    assert without.reference()["scored"].likelihoods is None
    again = shared_work(tmp_path, task, "perplexity").reference()["scored"].likelihoods
    assert again is not None
    assert without.reference()["scored"].likelihoods is None


def test_kept_answers_hold_them_too(tmp_path):
    kept = RecordingTask(Transduction(state=STATE, start=2, end=3, limit=4))
    found = measured(shared_work(tmp_path, kept, "perplexity")).score("perplexity")
    assert kept.last is not None
    assert kept.last.likelihoods is not None
    assert int(kept.last.likelihoods.surprise.sum()) == found.hits


def test_a_task_that_does_not_tell_is_refused_through_kept_answers(tmp_path):
    class Mute:
        name, graphs = "mute", ()

    with pytest.raises(InputError, match="task 'mute', which does not compute"):
        forced_likelihoods(
            RecordingTask(Mute()),
            {},
            shared_work(tmp_path, Counting()).samples(words("x", WORDS, RIGHT)),
        )
