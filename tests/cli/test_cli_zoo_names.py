"""Verbs that run a float graph, on models of the zoo by name: the task makes what is fed."""

import json

import pytest

from qbench.calibration import Profile
from qbench.calibration.watch import Watch
from qbench.errors import InputError

MODELS = {
    "digits_cnn": "digits_train",
    "minilm_glosses": "glosses_calibration",
    "resemblyzer_verification": "voice_pairs_calibration",
    "gloss_decoder": "gloss_windows_calibration",
}
"""A picture, a text, a speech and a decoder, with their calibration samples."""
FED = {
    "digits_cnn": {"x": [(3, 1, 8, 8)]},
    "minilm_glosses": {"ids": [(1, 7), (1, 10), (1, 25)]},
    "resemblyzer_verification": {"mel": [(6, 160, 40)]},
    "gloss_decoder": {
        "input_ids": [(3, 128), (3, 64), (3, 63)],
        "past_key_values.0.key": [(3, 2, 0, 32), (3, 2, 128, 32), (3, 2, 192, 32)],
    },
}
"""The shapes in which the task feeds three samples: of a decoder a past that grows."""
VERBS = {
    "lint": ("--schema", "w8a8_asym_pc"),
    "profile": ("-o", "p.json"),
    "quantize": ("--schema", "w8a8_asym_pc", "--correct-bias", "-o", "q.onnx"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("model", MODELS)
def test_a_verb_feeds_the_samples_of_a_model_by_name_as_its_task_does(
    model, verb, qbench, monkeypatch
):
    run, shapes = Watch.run, []

    def noted(watch, feeds):
        shapes.append({name: array.shape for name, array in feeds.items()})
        return run(watch, feeds)

    monkeypatch.setattr(Watch, "run", noted)
    command = (verb, model, "--data", MODELS[model], "--count", "3", *VERBS[verb])
    code, _, err = qbench(*command)
    assert code == 0, err
    assert {name: [fed[name] for fed in shapes] for name in FED[model]} == FED[model]


@pytest.mark.slow
def test_a_profile_of_what_the_task_makes_is_checked_and_counted(qbench):
    command = ("profile", "resemblyzer_verification", "--data", "voice_pairs_calibration")
    code, out, err = qbench(*command, "--count", "3", "-o", "p.json", "--json")
    assert code == 0, err
    assert json.loads(out)["samples"] == Profile.load("p.json").rows == 6
    assert "the task feeds 3 samples as 6" in err
    assert qbench(*command, "--count", "3", "--check", "p.json")[0] == 0
    code, _, err = qbench(*command, "--count", "4", "--check", "p.json")
    assert code == 2
    assert "a profile of other samples" in err


@pytest.mark.slow
def test_fitting_takes_the_most_frequent_shape_that_a_task_makes(qbench, monkeypatch):
    seen = []

    def fit(_model, feeds, *_more, **_others):
        seen.append(feeds)
        raise InputError("Fitting", found="a test", expected="its samples", remedy="Stop.")

    monkeypatch.setattr("qbench.cli.fit._fitter", lambda _method: None)
    monkeypatch.setattr("qbench.quantization.fit_model", fit)
    command = ("fit", "minilm_glosses", "--calib", "glosses_calibration", "--count", "3")
    command = (*command, "--schema", "w8a8_asym_pc", "--method", "tqt", "-o", "fitted.onnx")
    code, _, err = qbench(*command)
    assert code == 2
    assert [(feeds.keys(), feeds["ids"].shape[0]) for feeds in seen] == [({"ids"}, 1)]
    assert "note: 3 samples that the task feeds in" in err
    code, _, err = qbench(*command, "--labels")
    assert (code, len(seen)) == (2, 1)
    assert "by labels" in err
