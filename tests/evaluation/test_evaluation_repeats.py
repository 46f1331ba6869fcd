"""Runs of one cell in another order and other batches: what the engine gets,
and what is compared.
"""

import dataclasses
import functools

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import get_backend
from qbench.evaluation import MetricUse, Subject, SubjectArtifacts, measure_cell
from qbench.evaluation.repeats import picked_answers, shuffled
from qbench.evaluation.request import Request
from qbench.judging import EnvironmentClass
from qbench.metrics import AnswerKind, IntegerAnswers, get_metric
from qbench.storage import Cache
from qbench.subjects import Classification, Dataset, NearestNeighbour, ReadyArray, ZooModel

HERE = EnvironmentClass("here", ())
SCORED = 21


def network():
    rng = np.random.default_rng(3)
    arrays = {
        "w": rng.normal(size=(6, 5)).astype(np.float32),
        "b": rng.normal(size=5).astype(np.float32),
    }
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="classes")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def points(name, count, labels=True):
    x = np.random.default_rng(len(name)).normal(size=(count, 6)).astype(np.float32)
    ids = tuple(f"{name}{i}" for i in range(count))
    right = tuple((i % 5,) for i in range(count)) if labels else None
    return Dataset(
        id=name,
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=right,
        content=name,
        load=lambda i: x[i],
    )


class Watching:
    """An engine that notes its batches,
    and answers otherwise from one load to the next by ``shift``.
    """

    capabilities, packages, name = get_backend("ort-cpu").capabilities, (), "watching"

    def __init__(self, shift=0.0, by_place=False):
        self.loads, self.shift, self.by_place = [], shift, by_place

    def prepare(self, model, *, taps=(), threads=1):
        self.loads.append((threads, []))
        return Executor(get_backend("ort-cpu").prepare(model, taps=taps), self)


class Executor:
    def __init__(self, executor, engine):
        self.executor, self.engine = executor, engine

    def run(self, feeds):
        outputs = self.executor.run(feeds)
        batches = self.engine.loads[-1][1]
        batches.append(feeds["x"].copy())
        step = self.engine.shift * len(self.engine.loads)
        place = np.arange(len(feeds["x"]))[:, None] * self.engine.by_place
        return {
            name: one + step * np.sin(np.arange(one.shape[1]) + place).astype(np.float32)
            for name, one in outputs.items()
        }

    def close(self):
        self.executor.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def measured(engine, tmp_path, task=None, repeats=5, **options):
    net = ZooModel(
        id="net",
        graphs={"model": network},
        preprocess=ReadyArray(),
        task=task or Classification(),
        origin="drawn",
    )
    names = ("top1", "agreement", "sqnr") if task is None else ("top1",)
    subject = Subject(
        model=net,
        data={"scored": points("scored", SCORED)},
        metrics=tuple(MetricUse(name, get_metric(name), "scored") for name in names),
        calibration=points("spare", 8),
    )
    shared = SubjectArtifacts(subject, Cache(tmp_path), get_backend("ort-cpu"), "here")
    return measure_cell(shared, engine, None, environment=HERE, repeats=repeats, **options)


def test_the_second_run_has_all_samples_in_another_order_and_other_batches(words, tmp_path):
    engine = Watching()
    words(measured(engine, tmp_path).repeats.text)
    (_, first), (_, second) = engine.loads
    assert [len(batch) for batch in first] == [8, 8, 5]
    assert [len(batch) for batch in second] == [5, 5, 5, 5, 1]
    one, other = np.concatenate(first), np.concatenate(second)
    assert not np.array_equal(one, other)
    assert np.array_equal(np.sort(one, axis=0), np.sort(other, axis=0))
    assert shuffled("d", 9, 1) == shuffled("d", 9, 1) != shuffled("d", 9, 2)


def test_an_engine_that_answers_by_the_place_in_the_batch_is_noisy(tmp_path):
    measurement = measured(Watching(shift=1.0, by_place=True), tmp_path, repeats=3)
    repeats = measurement.repeats
    assert repeats.runs == 3
    assert 0 < repeats.differing["scored"] <= SCORED
    assert repeats.metrics.keys() == {
        "top1",
        "agreement",
    }  # a distance is of outputs, which a repeat does not hold
    assert repeats.metrics["top1"].hits[0] == measurement.score("top1").hits
    assert repeats.metrics["agreement"].hits[0] == measurement.score("agreement").hits
    assert set(measurement.kept) == {"scored"}  # what later runs are compared with


def test_a_repeat_counts_like_a_plain_sum(tmp_path):
    engine = Watching(shift=0.7)
    repeats = measured(engine, tmp_path, repeats=3).repeats
    labels = np.arange(SCORED) % 5
    runs = []
    for load, (_, batches) in enumerate(engine.loads, start=1):
        x = np.concatenate(batches)
        everything = (
            np.random.default_rng(len("scored")).normal(size=(SCORED, 6)).astype(np.float32)
        )
        places = [int(np.flatnonzero((everything == row).all(axis=1))[0]) for row in x]
        rng = np.random.default_rng(3)
        w, b = rng.normal(size=(6, 5)).astype(np.float32), rng.normal(size=5).astype(np.float32)
        answers = np.zeros(SCORED, int)
        answers[places] = (x @ w + b + 0.7 * load * np.sin(np.arange(5))).argmax(axis=1)
        runs.append(answers)
    hits = [tuple(run == labels) for run in runs]
    assert repeats.metrics["top1"].hits == tuple(map(sum, hits))
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[:i]]
    assert repeats.flips["scored"] == sum(int((a != b).sum()) for a, b in pairs)
    assert repeats.metrics["top1"].pairs == sum(
        x != y for i, a in enumerate(hits) for b in hits[:i] for x, y in zip(a, b, strict=True)
    )


def test_a_task_that_compares_samples_keeps_their_order(tmp_path):
    engine = Watching()
    assert measured(engine, tmp_path, task=NearestNeighbour()).repeats.runs == 2
    (_, first), (_, second) = engine.loads
    assert np.array_equal(np.concatenate(first), np.concatenate(second))
    assert len(first) != len(second)


def test_one_run_is_no_repeat(tmp_path):
    engine = Watching()
    assert measured(engine, tmp_path, repeats=1).repeats is None
    assert len(engine.loads) == 1


@pytest.mark.parametrize("count", [0, -1, 2.5, "2", True])
def test_another_number_of_repeats_is_one_sentence(tmp_path, count):
    from qbench.errors import InputError

    with pytest.raises(InputError, match="repeats"):
        measured(Watching(), tmp_path, repeats=count)


def test_rows_of_answers_keep_what_each_sample_has():
    ids = np.arange(12, dtype=np.int32).reshape(4, 3)
    answers = IntegerAnswers(
        ids, ids.astype(np.float32), np.array([True, False, False, True]), kind=AnswerKind.RANKING
    )
    picked = picked_answers(Classification(), answers, [2, 0])
    assert picked.ids.tolist() == [[6, 7, 8], [0, 1, 2]]
    assert picked.scores.tolist() == [[6, 7, 8], [0, 1, 2]]
    assert picked.tied.tolist() == [False, True]


# Cells that end early.


def stopping(tmp_path, sources, *, task=None, labels=None, decision=None, tolerance=0.3):
    """The request of a cell whose answers are all right, with 320 samples of these ``sources``."""
    from qbench.backends import as_backend
    from qbench.evaluation import Request
    from qbench.judging import Cell, Rules, StopRule, Tolerance

    data = points("many", len(sources), labels=False).with_sources(sources)
    net = ZooModel(
        id="net",
        graphs={"model": network},
        preprocess=ReadyArray(),
        task=task or Classification(),
        origin="drawn",
    )
    bare = Subject(model=net, data={"many": data}, metrics=(), calibration=points("spare", 8))
    found = (
        SubjectArtifacts(bare, Cache(tmp_path), get_backend("ort-cpu"), "here")
        .reference()["many"]
        .ids[:, 0]
    )
    data = dataclasses.replace(data, labels=tuple((int(one),) for one in found))
    subject = dataclasses.replace(
        bare, data={"many": data}, metrics=(MetricUse("top1", get_metric("top1"), "many"),)
    )
    shared = SubjectArtifacts(subject, Cache(tmp_path), get_backend("ort-cpu"), "here")
    rules = Rules() if decision is None else Rules(decision=decision)
    return Request(
        cell=Cell("s", "net", "ort-cpu", "given"),
        shared=shared,
        backend=as_backend("ort-cpu"),
        schema=None,
        reference=shared.reference(),
        environment=HERE,
        stop=StopRule(tolerance=Tolerance(tolerance), rules=rules),
    )


def run(request):
    from contextlib import ExitStack

    from qbench.evaluation.artifacts import prepare_runners
    from qbench.evaluation.sequential import run_until_decided

    shared = request.shared
    with ExitStack() as stack:
        runners = prepare_runners(request.backend, shared.graphs, stack, threads=1)
        samples = {name: shared.samples(data) for name, data in request.subject.data.items()}
        return run_until_decided(request, runners, samples, request.reference)


def test_whole_sources_are_drawn_in_an_order_of_their_own(tmp_path):
    sources = [f"s{i // 5}" for i in range(320)]
    request = stopping(tmp_path, sources)
    done = run(request)
    rows = done.rows["many"]
    assert len(rows) == done.stopped.samples["many"] < 320
    for source in {sources[row] for row in rows}:
        assert {row for row in rows if sources[row] == source} == {
            i for i in range(320) if sources[i] == source
        }
    assert list(rows) != sorted(rows)
    assert run(request).rows == done.rows
    expected = request.reference["many"].ids[list(rows)]
    assert np.array_equal(done.answers["many"].ids, expected)


def test_few_large_sources_decide_later_than_as_many_samples_of_their_own(tmp_path):
    alone = run(stopping(tmp_path, [f"s{i}" for i in range(320)], decision=_ci(), tolerance=0.1))
    together = run(
        stopping(tmp_path, [f"s{i // 40}" for i in range(320)], decision=_ci(), tolerance=0.1)
    )
    assert alone.stopped is not None
    assert together.stopped is None
    request = stopping(tmp_path, [f"s{i // 40}" for i in range(320)])
    assert np.array_equal(
        together.answers["many"].ids, request.reference["many"].ids
    )  # in the order of the data


def _ci():
    from qbench.judging import DecisionRule
    from qbench.judging.statistics import Decision

    return Decision(DecisionRule.CI)


def test_tasks_that_compare_samples_and_float_cells_are_run_whole(tmp_path):
    from qbench.evaluation.sequential import can_stop
    from qbench.judging import Cell

    sources = [f"s{i}" for i in range(320)]
    request = stopping(tmp_path, sources)
    assert can_stop(request, request.reference)
    assert not can_stop(stopping(tmp_path, sources, task=NearestNeighbour()), request.reference)
    for other in ({"cell": Cell("s", "net", "ort-cpu", "fp32")}, {"repeats": 2}, {"stop": None}):
        assert not can_stop(dataclasses.replace(request, **other), request.reference)


class BadWithThreads(Watching):
    """An engine whose answers differ with three threads alone."""

    def prepare(self, model, *, taps=(), threads=1):
        found = super().prepare(model, taps=taps, threads=threads)
        self.shift = float(threads == 3)
        return found


@pytest.mark.parametrize("repeats", [2, 5])
def test_each_listed_number_of_threads_is_tried_before_answers_count_as_the_same(
    words, repeats, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "qbench.evaluation.measure.Request", functools.partial(Request, repeat_threads=(2, 3))
    )
    same = Watching()
    words(measured(same, tmp_path, repeats=repeats).repeats.text)
    assert [threads for threads, _ in same.loads] == [1, 2, 3]
    other = BadWithThreads()
    assert measured(other, tmp_path, repeats=repeats).repeats.is_noisy
    assert [threads for threads, _ in other.loads] == [1, 2, 3, 2, 3][: max(repeats, 3)]
