"""Every stored format refuses a file of a newer version by name,
and its keys are pinned to its version.
"""

import dataclasses
import datetime
import json
import typing

import msgspec
import numpy as np
import pytest

from qbench.calibration import Profile
from qbench.errors import QbenchError
from qbench.judging import (
    ANY_CLASS,
    Accepted,
    Cell,
    ChangedSample,
    QuarantineEntry,
    SampleChanges,
)
from qbench.metrics import AnswerPart, answer_files, open_answers
from qbench.quantization import load_plan
from qbench.storage import KEYS, require_format
from qbench.suite import describe_start, job_plan, load_job_plan, load_suite, suite_file
from qbench.tracking import (
    PROOF_FORMAT,
    SWEEP_FORMAT,
    AcceptedCell,
    CellRecord,
    ProofCell,
    ProofRemedy,
    ProofStart,
    ProofTrial,
    StoredData,
    SweepCell,
    SweepMetric,
    annotations,
    baseline_file,
    load_annotations,
    load_baseline,
    record,
    samples_line,
)

SUITE = (
    '[suite]\nbackends = ["ort-cpu"]\nschemas = ["w8a8_asym_pc"]\n[[model]]\nid = "a"\ndata = "b"\n'
)
SUITE += 'calibration = { data = "c", count = 1 }\nmetrics = ["top1"]\n'


def suite_of(folder, text="", quarantine=None):
    (folder / "s.qbench.toml").write_text(text + SUITE)
    if quarantine is not None:
        (folder / "s.quarantine.toml").write_text(quarantine)
    return load_suite(folder / "s.qbench.toml")


def written(folder, name, table):
    (folder / name).write_text(table if isinstance(table, str) else json.dumps(table))
    return folder / name


NEWER = {
    "plan of jobs": lambda folder: load_job_plan(
        written(folder, "j.json", {"format": "qbench-plan/9", "jobs": []})
    ),
    "baseline": lambda folder: load_baseline(
        written(folder, "a.json", {"format": "qbench-baseline/9", "more": 1})
    ),
    "plan": lambda folder: load_plan(
        written(folder, "p.json", {"format": "qbench-plan", "version": 9})
    ),
    "profile": lambda folder: Profile.load(
        written(folder, "p.json", {"format": "qbench-profile", "version": 9})
    ),
    "answers": lambda folder: open_answers(
        written(folder, "a.jsonl", {"format": "qbench-answers/9", "more": [1]})
    ),
    "suite": lambda folder: suite_of(folder, 'format = "qbench-suite/9"\nmore = 1\n'),
    "quarantine": lambda folder: suite_of(
        folder, quarantine='format = "qbench-quarantine/9"\nmore = 1\n'
    ),
    "annotations": lambda folder: load_annotations(
        written(folder, "a.toml", 'format = "qbench-annotations/9"\nmore = 1\n')
    ),
}


@pytest.mark.parametrize("kind", NEWER)
def test_a_file_of_a_newer_version_is_refused_by_name_and_left_alone(kind, tmp_path):
    with pytest.raises(QbenchError, match="made by a newer qbench"):
        NEWER[kind](tmp_path)


@pytest.mark.parametrize("version", ["", 'format = "qbench-suite/1"\n'])
def test_a_suite_may_say_its_version(version, tmp_path):
    assert suite_of(tmp_path, version, 'format = "qbench-quarantine/1"\n').models[0].id == "a"


ENTRY = '[[cell]]\ncell = "*"\nmeasured = "m"\nreason = "r"\nowner = "o"\nexpires = "2999-01-01"\n'
HALF = {"top1": 0.5}


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ('[cell.values]\n"a::b+c" = { top1 = 0.5 }\n', {ANY_CLASS: {"a::b+c": HALF}}),  # version 2
        ('[cell.values.x64]\n"a::b+c" = { top1 = 0.5 }\n', {"x64": {"a::b+c": HALF}}),
        (
            '[cell.values]\n"a::b+c" = { top1 = 0.5 }\n[cell.values.x64]\n'
            '"a::b+c" = { top1 = 0.5 }\n',
            {ANY_CLASS: {"a::b+c": HALF}, "x64": {"a::b+c": HALF}},
        ),
    ],
)
def test_a_quarantine_file_of_version_2_is_read_as_values_of_any_class(values, read, tmp_path):
    (entry,) = suite_of(tmp_path, quarantine=ENTRY + values).quarantine
    assert entry.values == read


@pytest.mark.parametrize(
    "values", ["values = 3", 'values = { "a::b+c" = 3 }', 'values = { x64 = { "a::b+c" = 3 } }']
)
def test_values_of_another_form_are_refused(values, tmp_path):
    with pytest.raises(QbenchError):
        suite_of(tmp_path, quarantine=f"{ENTRY}{values}\n")


@pytest.mark.parametrize("found", ["qbench-plan/1", 3, "", "qbench-suite"])
def test_a_file_of_another_kind_is_refused(found):
    with pytest.raises(QbenchError) as caught:
        require_format({"format": found}, "qbench-suite/1", "Reading")
    assert "newer" not in caught.value.found


def keys(kind):
    """The keys as they are written."""
    if is_struct(kind):
        return sorted(kind.__struct_encode_fields__)
    fields = dataclasses.fields(kind)
    gathered = [key for field in fields for key in field.metadata.get(KEYS, ())]
    return sorted([*gathered, *(field.name for field in fields if KEYS not in field.metadata)])


def is_struct(kind):
    return hasattr(kind, "__struct_encode_fields__")


def held(kind):
    """``kind`` and all tables that its fields hold, each once,
    in the order in which they are met.
    """
    found, waiting = {}, [kind]
    while waiting:
        one = waiting.pop(0)
        waiting += typing.get_args(one)
        if (
            isinstance(one, type)
            and (is_struct(one) or dataclasses.is_dataclass(one))
            and one not in found
        ):
            found[one] = None
            waiting += typing.get_type_hints(one, include_extras=True).values()
    return list(found)


FORMATS = {
    baseline_file.FORMAT: [
        baseline_file._File,
        baseline_file._Model,
        baseline_file._Fp32,
        StoredData,
        AcceptedCell,
        Accepted,
    ],
    answer_files.FORMAT: [answer_files.Header, answer_files.AnswerRecord, answer_files.TokenRecord],
    suite_file.QUARANTINE_FORMAT: [suite_file.QuarantineText, QuarantineEntry],
    annotations.ANNOTATIONS_FORMAT: [annotations.Annotation],
    record.FORMAT: held(CellRecord),
    suite_file.FORMAT: held(suite_file.SuiteText),
    job_plan.FORMAT: held(job_plan._WrittenPlan),
    SWEEP_FORMAT: [SweepCell, SweepMetric],
    PROOF_FORMAT: [ProofStart, ProofCell, ProofTrial, ProofRemedy],
}


def lines_of_a_run(folder):
    """The lines of a run file that are no cells: type → keys, with all that a run can say."""
    start = describe_start(
        folder,
        suite="s",
        planned=2,
        selected=1,
        select="",
        limit=None,
        backends=["ort-cpu"],
        shard="1/2",
        started=datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC),
        token="abc",
    )
    sample = ChangedSample(
        id="a",
        effect="lost",
        label="cat",
        change=0.5,
        fp32=(AnswerPart("cat"),),
        quantized=(AnswerPart("dog"),),
        values=(0.0, 1.0),
    )
    changes = SampleChanges(
        metric="top1",
        digest="1f",
        lost=1,
        gained=1,
        changed=2,
        is_probability=True,
        private=True,
        samples=(sample,),
    )
    samples = samples_line(Cell("s", "m", "b", "s"), {"val": changes})
    with start.open(folder) as run:
        run.write(samples)
        run.close(exit_code=0)
    (file,) = folder.glob("*.jsonl")
    lines = map(json.loads, file.read_text().splitlines())
    found = {line.pop("type"): sorted(line) for line in lines}
    table = samples["data"]["val"]
    return found | {"samples data": sorted(table), "samples row": sorted(table["samples"][0])}


def test_the_keys_of_each_version(golden, tmp_path):
    """A key that an older version must not ignore needs a higher version: then change both in this
    file.

    JSON: an older qbench ignores keys that it does not know, so a new key may change nothing about
        the others.
    TOML: people write it, so an unknown key is an error there.
    """
    lines = [
        f"{name}  {kind.__name__}: {', '.join(keys(kind))}"
        for name, kinds in FORMATS.items()
        for kind in kinds
    ]
    lines += [
        f"{record.FORMAT}  {kind} line: {', '.join(names)}"
        for kind, names in lines_of_a_run(tmp_path).items()
    ]
    golden("format_keys.txt", "\n".join(lines) + "\n")


def test_an_unknown_key_of_a_baseline_is_ignored(tmp_path):
    value = msgspec.convert(
        {"samples": 1, "digest": "a", "reference": "b", "later": np.pi}, StoredData
    )
    assert (value.samples, value.digest) == (1, "a")
