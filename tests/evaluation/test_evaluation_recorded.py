"""Recorded answers give the cell that the same run gives here, whatever kind they are of."""

import dataclasses
import json

import numpy as np
import pytest

from qbench.backends import AnswersBackend, get_backend
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation import (
    Request,
    build_subject,
    environment_here,
    measure_cell,
    measure_request,
    subject_artifacts,
)
from qbench.judging import RECORDED, Cell, GateKind
from qbench.metrics import AnswerKind, IntegerAnswers
from qbench.quantization import get_schema
from qbench.storage import Cache
from qbench.subjects import WholeOutput

SCHEMA = "w3a4_sym_pt"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The artifacts of the digits, whose cells are all counted against one reference."""
    subject = build_subject(
        "digits_cnn", "digits_test", "digits_train", ["top1", "top5", "agreement", "sqnr"], 64
    )
    return subject_artifacts(
        subject, get_backend("ort-cpu"), Cache(tmp_path_factory.mktemp("cache"))
    )


@pytest.fixture(scope="module")
def dumped(shared):
    """Sample → the outputs of the quantized digits; in batches as ever, since float kernels
    depend on their size.
    """
    backend = get_backend("ort-cpu")
    graphs = shared.quantized(get_schema(SCHEMA), backend.capabilities).models
    (dataset,) = shared.subject.data.values()
    samples = shared.samples(dataset)
    with backend.prepare(graphs["model"]) as executor:
        runs = [executor.run(feeds) for feeds in samples.batches()]
    whole = {key: np.concatenate([run[key] for run in runs]) for key in runs[0]}
    return {
        name: {key: array[row] for key, array in whole.items()}
        for row, name in enumerate(samples.ids)
    }


def facts(measurement):
    scores = {one.metric: dataclasses.astuple(one)[6:] for one in measurement.scores}
    return scores, measurement.predictions, measurement.changed, measurement.ties


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("form", ["npz", "folder of npy", "folder of npz"])
def test_raw_outputs_are_the_cell_itself(form, shared, dumped, tmp_path):
    direct = measure_cell(shared, "ort-cpu", SCHEMA)
    (name,) = next(iter(dumped.values()))
    path = tmp_path / ("dump.npz" if form == "npz" else "dump")
    if form == "npz":
        ids = sorted(dumped)
        np.savez(path, id=ids, **{name: np.stack([dumped[one][name] for one in ids])})
    else:
        for sample, arrays in dumped.items():
            place = path / f"{sample}.npy"
            place.parent.mkdir(parents=True, exist_ok=True)
            if form == "folder of npy":
                np.save(place, arrays[name])
            else:
                np.savez(place.with_name(f"{place.name[:-4]}.npz"), **arrays)
        (path / "header.json").write_text(
            json.dumps({"format": "qbench-answers/1", "provenance": {"device": "d 1"}})
        )
    recorded = measure_cell(shared, f"answers:{path}", None)
    assert facts(recorded) == facts(direct)
    assert recorded.score("agreement").losses > 0
    assert str(recorded.environment) == ("elsewhere" if form == "npz" else "d_1")


def test_records_are_the_cell_itself(shared, tmp_path):
    backend = get_backend("ort-cpu")
    graphs = shared.quantized(get_schema(SCHEMA), backend.capabilities).models
    (dataset,) = shared.subject.data.values()
    answers = shared.answer(backend, graphs, dataset, threads=1)
    labelled = dataclasses.replace(shared.subject, metrics=shared.subject.metrics[:3])
    lines = [
        {"id": sample, "answer": ids, "scores": scores}
        for sample, ids, scores in zip(
            dataset.sample_ids, answers.ids.tolist(), answers.scores.tolist(), strict=True
        )
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    direct, recorded = (
        measure_cell(labelled, *cell) for cell in (("ort-cpu", SCHEMA), (f"answers:{path}", None))
    )
    assert recorded.predictions == direct.predictions
    assert [dataclasses.astuple(one) for one in recorded.scores] == [
        dataclasses.astuple(one) for one in direct.scores
    ]


def test_recovery_and_slices_are_measured_as_in_the_cell_itself(shared, dumped, tmp_path):
    (name,) = next(iter(dumped.values()))
    np.savez(
        tmp_path / "dump.npz", id=list(dumped), **{name: [one[name] for one in dumped.values()]}
    )
    direct, recorded = (
        measure_request(
            Request(
                cell=Cell(
                    suite="s",
                    model="digits_cnn",
                    backend=backend.name,
                    schema=SCHEMA if schema else RECORDED,
                ),
                shared=shared,
                backend=backend,
                schema=schema,
                reference=shared.reference(),
                environment=environment_here(backend),
                asked={GateKind.RECOVERY: 0.9, GateKind.SLICES: "class"},
            )
        )
        for backend, schema in (
            (get_backend("ort-cpu"), get_schema(SCHEMA)),
            (get_backend(f"answers:{tmp_path / 'dump.npz'}"), None),
        )
    )
    assert direct.evidence == recorded.evidence
    assert direct.evidence[GateKind.RECOVERY] != ()
    assert len(recorded.evidence[GateKind.SLICES]) == 10


def test_slices_of_no_metric_that_is_a_sum_are_refused(shared):
    (use,) = [one for one in shared.subject.metrics if one.name == "top1"]
    whole = dataclasses.replace(
        use, metric=dataclasses.replace(use.metric, resampled=lambda *_: (-0.1, 0.1))
    )
    backend = get_backend("ort-cpu")
    artifacts = subject_artifacts(
        dataclasses.replace(shared.subject, metrics=(whole,)), backend, shared.made_with[0]
    )
    request = Request(
        cell=Cell(suite="s", model="digits_cnn", backend=backend.name, schema=SCHEMA),
        shared=artifacts,
        backend=backend,
        schema=get_schema(SCHEMA),
        reference=artifacts.reference(),
        environment=environment_here(backend),
        asked={GateKind.SLICES: "class"},
    )
    with pytest.raises(InputError, match="no sum over samples"):
        measure_request(request)


@dataclasses.dataclass(frozen=True)
class Spelling:
    """A task whose answers are of ``kind``."""

    kind: AnswerKind
    graphs = ("model",)

    @property
    def name(self):
        return f"spelling {self.kind.value}"

    def answer(self, runners, samples):
        rows = np.concatenate(
            [next(iter(runners["model"].run(feeds).values())) for feeds in samples.batches()]
        )
        best = rows.argmax(axis=1)
        table = {
            AnswerKind.TEXT: [[97 + one, 98] for one in best],
            AnswerKind.SEQUENCE: [[one, one + 1] for one in best],
            AnswerKind.LIKENESS: [[one * 100_000] for one in best],
        }[self.kind]
        return IntegerAnswers(np.array(table, np.int32), kind=self.kind)


KINDS = {
    AnswerKind.TEXT: (lambda row: "".join(map(chr, row)), 7),
    AnswerKind.SEQUENCE: (lambda row: row, "x"),
    AnswerKind.LIKENESS: (lambda row: row[0] / 1_000_000, 1.5),
}


def of_kind(shared, kind):
    subject = shared.subject
    model = dataclasses.replace(subject.model, task=Spelling(kind))
    uses = tuple(use for use in subject.metrics if use.name == "agreement")
    return dataclasses.replace(subject, model=model, metrics=uses)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer(kind, shared, tmp_path):
    subject = of_kind(shared, kind)
    artifacts = subject_artifacts(subject, get_backend("ort-cpu"), shared.made_with[0])
    ((name, dataset),) = subject.data.items()
    rows = artifacts.reference()[name].ids.tolist()
    written, wrong = KINDS[kind]
    path = tmp_path / "run.jsonl"

    def write(changed):
        lines = [
            {
                "id": sample,
                "answer": changed if index == 5 and changed is not None else written(row),
            }
            for index, (sample, row) in enumerate(zip(dataset.sample_ids, rows, strict=True))
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    write(None)
    assert measure_cell(artifacts, f"answers:{path}", None).score("agreement").losses == 0
    write(written(rows[6]) if rows[6] != rows[5] else written(rows[7]))
    assert measure_cell(artifacts, f"answers:{path}", None).changed_count == {name: 1}
    write(wrong)
    with pytest.raises(InputError):
        measure_cell(artifacts, f"answers:{path}", None)


def test_a_task_that_runs_its_graph_twice_is_refused_by_name(shared, dumped, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Twice(WholeOutput):
        def answer(self, runners, samples):
            for feeds in samples.batches():
                runners["model"].run(feeds)
                runners["model"].run(feeds)
            raise AssertionError

    subject = dataclasses.replace(of_kind(shared, AnswerKind.TEXT), model=shared.subject.model)
    subject = dataclasses.replace(subject, model=dataclasses.replace(subject.model, task=Twice()))
    np.savez(tmp_path / "dump.npz", id=list(dumped), logits=np.zeros((len(dumped), 10)))
    (name,) = subject.data
    reference = {name: shared.reference()[name]}
    with pytest.raises(UnsupportedError, match="whole output"):
        measure_cell(subject, f"answers:{tmp_path / 'dump.npz'}", None, reference=reference)


@pytest.mark.parametrize(
    ("header", "named"),
    [({"model": "another"}, "'another'"), ({"data": {"digest": "0" * 64}}, "digest")],
)
def test_a_header_of_something_else_is_refused(header, named, shared, dumped, tmp_path):
    (name,) = next(iter(dumped.values()))
    text = json.dumps({"format": "qbench-answers/1", **header})
    np.savez(
        tmp_path / "dump.npz",
        id=list(dumped),
        header=text,
        **{name: [one[name] for one in dumped.values()]},
    )
    with pytest.raises(InputError, match=named):
        measure_cell(shared, f"answers:{tmp_path / 'dump.npz'}", None)


def test_nothing_that_runs_a_graph_is_done_with_recorded_answers(shared, tmp_path):
    np.savez(tmp_path / "dump.npz", id=["a"], y=[[1.0]])
    backend = get_backend(f"answers:{tmp_path / 'dump.npz'}")
    assert backend == AnswersBackend(path=tmp_path / "dump.npz", name="answers-dump")
    with pytest.raises(UnsupportedError):
        backend.prepare(tmp_path / "net.onnx")
    with pytest.raises(InputError, match="schema"):
        measure_cell(shared, backend, SCHEMA)


def renamed(name, array):
    return {"foo": array}


def widened(name, array):
    return {name: np.pad(array, [(0, 0), (0, 1)])}


def squeezed(name, array):
    return {name: array[:, 0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (renamed, "found the output 'foo'"),
        (widened, "an array of 11"),
        (squeezed, "found one number"),
    ],
)
def test_outputs_that_the_model_does_not_have_are_refused(
    change, message, shared, dumped, tmp_path
):
    (name,) = next(iter(dumped.values()))
    np.savez(
        tmp_path / "dump.npz",
        id=list(dumped),
        **change(name, np.stack([one[name] for one in dumped.values()])),
    )
    with pytest.raises(InputError, match=message):
        measure_cell(shared, f"answers:{tmp_path / 'dump.npz'}", None)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"answer": [10, 1], "scores": [0.9, 0.1]},
            "found the class 10; expected classes from 0 to 9",
        ),
        ({"answer": 10}, "found the class 10; expected classes from 0 to 9"),
        ({"scores": [0.1] * 11}, "found 11 scores; expected 10"),
        ({"answer": [3, 1], "scores": [0.9]}, "found 1 score of 2 classes"),
    ],
)
def test_classes_that_the_model_does_not_have_are_refused(record, message, shared, tmp_path):
    (dataset,) = shared.subject.data.values()
    path = tmp_path / "run.jsonl"
    path.write_text(
        "".join(json.dumps({"id": sample, **record}) + "\n" for sample in dataset.sample_ids)
    )
    with pytest.raises(InputError, match=message):
        measure_cell(shared, f"answers:{path}", None)
