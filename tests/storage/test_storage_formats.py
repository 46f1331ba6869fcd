"""Every stored format refuses a file of a newer version by name, and its keys are pinned to its version."""

import json

import msgspec
import numpy as np
import pytest

from qbench.calibration import Profile
from qbench.errors import QbenchError
from qbench.judging import Accepted, QuarantineEntry
from qbench.metrics import answer_files, open_answers
from qbench.quantization import load_plan
from qbench.storage import require_format
from qbench.suite import load_suite, suite_file
from qbench.tracking import (
    AcceptedCell,
    StoredData,
    annotations,
    baseline_file,
    load_annotations,
    load_baseline,
)

SUITE = '[suite]\nbackends = ["ort-cpu"]\nschemas = ["w8a8_asym_pc"]\n[[model]]\nid = "a"\ndata = "b"\n'
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
    "baseline": lambda folder: load_baseline(written(folder, "a.json", {"format": "qbench-baseline/9", "more": 1})),
    "plan": lambda folder: load_plan(written(folder, "p.json", {"format": "qbench-plan", "version": 9})),
    "profile": lambda folder: Profile.load(written(folder, "p.json", {"format": "qbench-profile", "version": 9})),
    "answers": lambda folder: open_answers(written(folder, "a.jsonl", {"format": "qbench-answers/9", "more": [1]})),
    "suite": lambda folder: suite_of(folder, 'format = "qbench-suite/9"\nmore = 1\n'),
    "quarantine": lambda folder: suite_of(folder, quarantine='format = "qbench-quarantine/9"\nmore = 1\n'),
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


@pytest.mark.parametrize("found", ["qbench-plan/1", 3, "", "qbench-suite"])
def test_a_file_of_another_kind_is_refused(found):
    with pytest.raises(QbenchError) as caught:
        require_format({"format": found}, "qbench-suite/1", "Reading")
    assert "newer" not in caught.value.found


def keys(kind):
    fields = getattr(kind, "__struct_fields__", None)
    return sorted(fields if fields is not None else kind.__dataclass_fields__)


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
}


def test_the_keys_of_each_version(golden):
    """A key that an older version must not ignore needs a higher version: then change both in this file.

    JSON: an older qbench ignores keys that it does not know, so a new key may change nothing about the others.
    TOML: people write it, so an unknown key is an error there. The keys of run files and suites are in docs.
    """
    lines = [f"{name}  {kind.__name__}: {', '.join(keys(kind))}" for name, kinds in FORMATS.items() for kind in kinds]
    golden("format_keys.txt", "\n".join(lines) + "\n")


def test_an_unknown_key_of_a_baseline_is_ignored(tmp_path):
    value = msgspec.convert({"samples": 1, "digest": "a", "reference": "b", "later": np.pi}, StoredData)
    assert (value.samples, value.digest) == (1, "a")
