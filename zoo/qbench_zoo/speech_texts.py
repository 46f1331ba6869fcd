"""Whisper's decoder alone as a language model, ``whisper_decoder``: what is said in a recording,
scored token by token, given what the encoder made of the sound.

    ln p(t + 1) = logits(t)[token t + 1] − ln Σ exp logits(t)      given the sound and tokens 0 … t

    states = encoder(mel)                                 (750, 384), in float, once for a recording
    heard_key_i = states · Kᵢ, heard_value_i = states · Vᵢ + vᵢ         equal in all runs of a text

The text is the transcript of the recording between <|startoftranscript|> <|notimestamps|> and
<|endoftext|>. All of it is scored, its end included: the sound is its context. Each recording is a
document.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Executor, get_backend
from qbench.errors import InputError
from qbench.subjects import Array, CachedValue, CausalLanguageModel, Dataset, DecoderForm, ZooModel
from qbench_zoo.networks.transformers import WhisperSize, whisper_decoder
from qbench_zoo.packages import WHISPER
from qbench_zoo.spectrograms import LogMel
from qbench_zoo.speech_prompts import speech_prompts, speech_prompts_calibration, spoken_texts
from qbench_zoo.whisper import END, NO_TIMES, START, vocabulary, whisper_arrays, whisper_tiny_en

RECORDING_AND_TEXT = "recording with text"
"""The kind of raw sample: speech (n,) int16 at 8 kHz, and what is said."""

PROMPT = (START, NO_TIMES)
LIMIT = 32
"""Tokens of the longest text, prompt and end included."""
_STATES = "states"
_RUN_TOKENS = 8
_FEW = 3


@dataclass(frozen=True, slots=True)
class HeardText:
    """A recording and its text → ``token`` (32,), ``length``, and of each layer ``heard_key_i`` (6,
    64, 750) and ``heard_value_i`` (6, 750, 64) float32.

    Kept are the states of the encoder as float16, 16 times smaller than keys and values.
    """

    sound: LogMel = field(default_factory=LogMel)

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"{self.sound.name}, states of whisper's encoder in float16, at most {LIMIT} tokens"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Recordings with their texts."""
        return (RECORDING_AND_TEXT,)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - as ``kinds`` says
        """The states of the encoder, and the tokens, filled up with the end.

        Raises:
            InputError: as of ``LogMel``; or the text is too long.
        """
        recording, text = sample
        tokens = [*PROMPT, *vocabulary().encode(f" {text}"), END]
        if len(tokens) > LIMIT:
            raise InputError(
                "Cutting what is said into tokens",
                found=f"{len(tokens)} tokens in '{text:.40}…'",
                expected=f"{LIMIT} at most, prompt and end included",
                remedy="Leave the recording out, or cut it.",
            )
        mel = self.sound.prepare(recording)["mel"]
        states = _encoder().run({"mel": mel[None]})[_STATES][0]
        filled = np.full(LIMIT, END, np.uint16)
        filled[: len(tokens)] = tokens
        return {
            _STATES: states.astype(np.float16),
            "token": filled,
            "length": np.array(len(tokens), np.uint8),
        }

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Keys and values of what was heard."""
        states = batch[_STATES].astype(np.float32)
        given = heard_values(states, _checkpoint())
        tokens = {name: batch[name].astype(np.int64) for name in ("token", "length")}
        return {**tokens, **given}


def heard_values(
    states: Array, arrays: Mapping[str, Array], size: WhisperSize | None = None
) -> dict[str, Array]:
    """``heard_key_i`` (N, heads, depth, H) and ``heard_value_i`` (N, heads, H, depth) float32 of
    the encoder's ``states`` (N, H, width), by the weights (2 · width, width) of each layer.
    """
    size = size or WhisperSize()
    found = {}
    for layer in range(size.layers):
        key = f"decoder/layer_{layer}/attention/linear_1"
        both = states @ arrays[f"{key}/weight"].astype(np.float32).T
        both += arrays[f"{key}/bias"].astype(np.float32)
        apart = both.reshape(*states.shape[:2], 2, size.heads, size.width // size.heads)
        found[f"heard_key_{layer}"] = np.ascontiguousarray(apart[:, :, 0].transpose(0, 2, 3, 1))
        found[f"heard_value_{layer}"] = np.ascontiguousarray(apart[:, :, 1].transpose(0, 2, 1, 3))
    return found


@functools.cache
def _checkpoint() -> Mapping[str, Array]:
    """The checkpoint, read once."""
    return whisper_arrays()


@functools.cache
def _encoder() -> Executor:
    model = whisper_tiny_en().graphs["encoder"]()
    return get_backend("ort-cpu").prepare(model, taps=(_STATES,))


def whisper_form(size: WhisperSize | None = None) -> DecoderForm:
    """The form of a graph of ``networks.transformers.whisper_decoder``."""
    size = size or WhisperSize()
    depth = size.width // size.heads
    shapes = {"key": (-1, size.heads, depth, -1), "value": (-1, size.heads, -1, depth)}
    roles = [(role, layer) for layer in range(size.layers) for role in shapes]
    return DecoderForm(
        tokens="token",
        logits="logits",
        words=size.words,
        cache=tuple(
            CachedValue(
                f"{role}_{layer}",
                f"next_{role}_{layer}",
                shapes[role],
                axis=3 if role == "key" else 2,
                dtype="float32",
            )
            for role, layer in roles
        ),
        given=tuple(f"heard_{role}_{layer}" for role, layer in roles),
    )


def whisper_decoder_model() -> ZooModel:
    """The next token of what is said."""
    return ZooModel(
        id="whisper_decoder",
        graphs={"model": _graph},
        preprocess=HeardText(),
        task=CausalLanguageModel(
            form=whisper_form(), run_tokens=_RUN_TOKENS, sequence="token", context=len(PROMPT)
        ),
        origin=f"{WHISPER.requirement} (MIT)",
    )


def _graph() -> ir.Model:
    return whisper_decoder(_checkpoint())


def speech_texts() -> Dataset:
    """What is said in the 110 prompts."""
    return _with_text("speech_texts", speech_prompts(), 1)


def speech_texts_few() -> Dataset:
    """Every third of them."""
    return _with_text("speech_texts_few", speech_prompts(), _FEW)


def speech_texts_calibration() -> Dataset:
    """What is said in 16 others."""
    return _with_text("speech_texts_calibration", speech_prompts_calibration(), 2)


def _with_text(name: str, spoken: Dataset, step: int) -> Dataset:
    texts = spoken_texts()
    places = range(0, len(spoken), step)
    return Dataset(
        id=name,
        kind=RECORDING_AND_TEXT,
        sample_ids=spoken.sample_ids[::step],
        sources=spoken.drawn_from[::step],
        labels=None,
        content=f"{spoken.content} {WHISPER.sha256}",
        load=lambda index: (spoken.load(places[index]), texts[spoken.sample_ids[places[index]]]),
    )
