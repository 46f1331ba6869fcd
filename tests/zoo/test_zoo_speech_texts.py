"""Whisper's decoder as a language model: several tokens in a run and one by one, what an encoder
gives to every run, and the real network on real transcripts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from test_zoo_whisper import SMALL, nothing, steps, weights

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.graph import save_model
from qbench.metrics import TokenStreams
from qbench.storage import Cache
from qbench.subjects import (
    CausalLanguageModel,
    Dataset,
    Samples,
    causal_lm,
    decoder_form,
    get_dataset,
    get_model,
    model_from_file,
    prepare_samples,
)
from qbench.subjects.sample_folders import ReadyArray
from qbench_zoo.networks.transformers import whisper_decoder, whisper_networks
from qbench_zoo.speech_texts import heard_values, whisper_form
from qbench_zoo.whisper import BytePairs, vocabulary

Arrays = dict[str, npt.NDArray[Any]]
LENGTHS = (7, 4, 7, 5)


@pytest.fixture(scope="module")
def heard() -> Arrays:
    """What the encoder makes of four sounds."""
    mel = np.random.default_rng(1).normal(0, 1, (len(LENGTHS), 3, 8)).astype(np.float32)
    with get_backend("ort-cpu").prepare(whisper_networks(weights(), SMALL)["encoder"]) as encoder:
        return {**encoder.run({"mel": mel}), "mel": mel}


@pytest.fixture(scope="module")
def decoder() -> Iterator[tuple[ir.Model, Any]]:
    model = whisper_decoder(weights(), SMALL)
    with get_backend("ort-cpu").prepare(model) as executor:
        yield model, executor


TOKENS = np.random.default_rng(2).integers(0, SMALL.words, (len(LENGTHS), max(LENGTHS)))


def samples(heard: Mapping[str, Any], folder: Path, *, without: str = "mel") -> Samples:
    names = tuple(f"s{place}" for place in range(len(LENGTHS)))
    held = {name: one for name, one in heard.items() if name not in ("mel", without)}
    data = Dataset(
        id="heard",
        kind="array",
        sample_ids=names,
        sources=names,
        labels=None,
        content=without,
        load=lambda place: {
            "token": TOKENS[place],
            "length": np.array(LENGTHS[place]),
            **{name: one[place] for name, one in held.items()},
        },
    )
    return prepare_samples(data, ReadyArray(), Cache(folder))


def task(**settings: Any) -> CausalLanguageModel:
    return CausalLanguageModel(form=whisper_form(SMALL), sequence="token", **settings)


def test_tokens_in_one_run_are_those_of_steps(heard: Arrays, decoder: Any) -> None:
    onnx.checker.check_model(ir.to_proto(decoder[0]), full_check=True)
    one_by_one = steps(whisper_networks(weights(), SMALL), heard["mel"], TOKENS[:, :5], "ort-cpu")
    given = {name: one for name, one in heard.items() if name != "mel"}
    first = decoder[1].run({"token": TOKENS[:, :2], **given, **nothing(len(LENGTHS))})
    kept = {name.removeprefix("next_"): one for name, one in first.items() if name != "logits"}
    second = decoder[1].run({"token": TOKENS[:, 2:5], **given, **kept})
    logits = np.concatenate([first["logits"], second["logits"]], axis=1)
    for place, step in enumerate(one_by_one):
        np.testing.assert_allclose(logits[:, place], step["logits"], rtol=0, atol=2e-5)
    np.testing.assert_allclose(second["next_key_1"], one_by_one[-1]["next_key_1"], atol=2e-5)


def test_what_was_heard_is_what_the_encoder_gives(heard: Arrays) -> None:
    encoder = whisper_networks(weights(), SMALL)["encoder"]
    with get_backend("ort-cpu").prepare(encoder, taps=("states",)) as executor:
        states = executor.run({"mel": heard["mel"]})["states"]
    found = heard_values(states, weights(), SMALL)
    assert set(found) == set(heard) - {"mel"}
    for name, array in found.items():
        np.testing.assert_allclose(array, heard[name], rtol=0, atol=2e-5)


@pytest.mark.parametrize("run_tokens", [0, 1, 3])
def test_a_text_is_scored_given_what_was_heard(
    run_tokens: int, heard: Arrays, decoder: Any, tmp_path: Path
) -> None:
    model, executor = decoder
    form = decoder_form(model, given=whisper_form(SMALL).given)
    assert form == whisper_form(SMALL)
    asked = task(context=2, k=4, batch=2, run_tokens=run_tokens)
    found = asked.answer({"model": executor}, samples(heard, tmp_path))
    assert isinstance(found, TokenStreams)
    assert found.lengths.tolist() == [length - 2 for length in LENGTHS]
    given = {name: one for name, one in heard.items() if name != "mel"}
    logits = executor.run({"token": TOKENS, **given, **nothing(len(LENGTHS))})["logits"]
    shares = logits.astype(np.float64)
    shares -= np.log(np.exp(shares).sum(axis=2, keepdims=True))
    expected = [
        shares[row, place - 1, TOKENS[row, place]]
        for row, length in enumerate(LENGTHS)
        for place in range(2, length)
    ]
    np.testing.assert_allclose(found.realised, expected, rtol=0, atol=1e-5)


def test_what_an_encoder_made_and_is_not_there_is_one_sentence(
    heard: Arrays, decoder: Any, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        task().answer({"model": decoder[1]}, samples(heard, tmp_path, without="heard_value_1"))
    assert "'heard_value_1'" in caught.value.expected
    assert "encoder" in caught.value.remedy
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("name", ["next_key_1", "key_1"])
def test_past_and_present_that_do_not_match_are_one_sentence(name: str) -> None:
    model = whisper_decoder(weights(), SMALL)
    graph = model.graph
    for values in (graph.inputs, graph.outputs):
        for value in [one for one in values if one.name == name]:
            values.remove(value)
    with pytest.raises(InputError) as caught:
        decoder_form(model, given=whisper_form(SMALL).given)
    assert "'key_1'" in caught.value.found or "'next_key_1'" in caught.value.found


def test_names_with_encoder_in_them_are_given(heard: Arrays, decoder: Any, tmp_path: Path) -> None:
    model = whisper_decoder(weights(), SMALL)
    for value in (*model.graph.inputs, *model.graph.outputs):
        name = str(value.name)
        role, _, layer = name.removeprefix("heard_").removeprefix("next_").partition("_")
        kind = "encoder" if name.startswith("heard") else "decoder"
        when = "present" if name.startswith("next") else "past_key_values"
        if layer:
            value.name = f"{when}.{layer}.{kind}.{role}"
    path = tmp_path / "decoder.onnx"
    save_model(model, path)
    found = model_from_file(path).task
    assert isinstance(found, CausalLanguageModel)
    assert found == causal_lm(model)
    renamed = {
        name.replace("heard_key_", "past_key_values.").replace("heard_value_", "past_key_values.")
        + (".encoder.key" if "key" in name else ".encoder.value"): one
        for name, one in heard.items()
        if name != "mel"
    }
    assert set(found.form.given) == set(renamed)
    with get_backend("ort-cpu").prepare(model) as executor:
        other = found.answer({"model": executor}, samples(renamed, tmp_path / "renamed"))
    same = task().answer({"model": decoder[1]}, samples(heard, tmp_path / "heard"))
    assert isinstance(same, TokenStreams)
    assert isinstance(other, TokenStreams)
    np.testing.assert_allclose(other.realised, same.realised, rtol=0, atol=1e-6)


def test_a_context_of_nothing_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="context"):
        replace(task(), context=0)


def test_samples_picked_of_picked_ones_are_their_own(heard: Arrays, tmp_path: Path) -> None:
    picked = samples(heard, tmp_path).picked([3, 1, 0]).picked([2, 0])
    assert picked.ids == ("s0", "s3")
    (feeds,) = picked.batches(2)
    assert (feeds["token"] == TOKENS[[0, 3]]).all()
    assert (picked.noted("token") == TOKENS[[0, 3]]).all()


def test_pairs_are_joined_in_the_order_of_their_ids() -> None:
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 324))]
    pieces = BytePairs.of("\n".join([*letters, "bc", "ab", "Ġa", "<|end|>"]), "<|end|>")
    joined = [pieces.pieces[token] for token in pieces.encode("abc ab a's é")]
    assert joined == ["a", "bc", "Ġ", "ab", "Ġa", "'", "s", "Ġ", "Ã", "©"]
    assert pieces.decode(pieces.encode("abc ab_1\n é!")) == "abc ab_1\n é!"


@pytest.mark.slow
def test_the_decoder_knows_what_is_said() -> None:
    # as GPT-2 cuts them, whose vocabulary it is
    assert vocabulary().encode("hello world") == [31373, 995]
    model, data = get_model("whisper_decoder"), get_dataset("speech_texts_few").take(10)
    ready = prepare_samples(data, model.preprocess, Cache.default())
    graph = model.graphs["model"]()
    assert decoder_form(graph, given=whisper_form().given) == whisper_form()
    with get_backend("ort-cpu").prepare(graph) as executor:
        streams = model.task.answer({"model": executor}, ready)
    assert isinstance(streams, TokenStreams)
    assert len(set(data.drawn_from)) == 10
    assert -streams.realised.mean() == pytest.approx(0.7424, abs=1e-3)
