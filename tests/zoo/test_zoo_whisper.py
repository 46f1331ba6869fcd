"""Whisper: its file of weights, the front end, words, the greedy loop on made-up runners, and
the real network.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.metrics import get_metric, text_of
from qbench.storage import Cache
from qbench.subjects import Dataset, Samples, get_dataset, get_model, prepare_samples
from qbench_zoo.networks.transformers import WhisperSize, whisper_networks
from qbench_zoo.readers.array_files import read_ctranslate2
from qbench_zoo.spectrograms import LONGEST, LogMel, log_mel, mel_bands
from qbench_zoo.speech_prompts import Prompt, plain_words, prompts, read_transcripts, scored_prompts
from qbench_zoo.whisper import BytePairs, Transcription

Arrays = dict[str, npt.NDArray[Any]]

# -- the file


def text(name: str) -> bytes:
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


KINDS = {"<f4": 0, "|i1": 1, "<i2": 2, "<i4": 3, "<f2": 4}


def written(
    arrays: Arrays, aliases: Mapping[str, str] | None = None, version: int = 6, **changes: int
) -> bytes:
    """A file of ``arrays``; ``changes`` lie about the first array's ``kind``,
    ``size`` or ``length``.
    """
    data = struct.pack("<I", version) + text("WhisperSpec") + struct.pack("<II", 3, len(arrays))
    for name, array in arrays.items():
        sizes = [changes.get("size", n) for n in array.shape]
        data += text(name) + struct.pack(f"<B{len(sizes)}I", len(sizes), *sizes)
        data += struct.pack(
            "<BI", changes.get("kind", KINDS[array.dtype.str]), changes.get("length", array.nbytes)
        )
        data += array.tobytes()
    data += struct.pack("<I", len(aliases or {}))
    return data + b"".join(text(second) + text(first) for second, first in (aliases or {}).items())


STORED: Arrays = {
    "a/weight": np.arange(6, dtype="<f2").reshape(2, 3),
    "b": np.array([1, -1], "<i4"),
    "c": np.array(3, "|i1"),
    "d": np.ones((1, 2, 1), "<f4"),
    "e": np.zeros(0, "<i2"),
}


def test_arrays_come_out_as_they_went_in() -> None:
    found = read_ctranslate2(written(STORED, {"tied": "d"}), "x")
    assert list(found) == [*STORED, "tied"]
    for name, array in {**STORED, "tied": STORED["d"]}.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@settings(max_examples=60)
@given(st.integers(0, len(written(STORED, {"tied": "d"})) - 1))
def test_files_cut_short_are_refused_in_a_sentence(length: int) -> None:
    with pytest.raises(InputError, match="the CTranslate2 file 'x': found its end at byte"):
        read_ctranslate2(written(STORED, {"tied": "d"})[:length], "x")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (written(STORED, version=5), "version 5"),
        (written({"a": np.ones(2, "<f4")}, kind=9), "'a' of an unknown type 9"),
        (written({"a": np.ones(2, "<f4")}, size=3), r"'a' of shape \(3,\) in 8 bytes"),
        (written({"a": np.ones(2, "<f4")}, size=2**32 - 1), "'a' of shape"),
        (written({"a": np.ones(2, "<f4")}, length=4), "in 4 bytes"),
        (written(STORED, {"tied": "none"}), "a second name 'tied' for 'none'"),
        (written(STORED, {"b": "d"}), "a second name 'b' for 'd'"),
        (written(STORED) + b"x", "1 bytes behind its end"),
        (
            written({"a": np.ones(1, "<f4")}).replace(text("a"), b"\x02\x00aa"),
            "a text without its end",
        ),
        (written({"a": np.ones(1, "<f4")}).replace(text("a"), b"\x02\x00\xff\0"), "utf-8"),
        (
            written({"a": np.ones(1, "<f4"), "b": np.ones(1, "<f4")}).replace(text("b"), text("a")),
            "two arrays 'a'",
        ),
        (b"PK\3\4 something else", "version"),
    ],
)
def test_files_that_cannot_be_are_refused(data: bytes, found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_ctranslate2(data, "x")


# -- the front end and words


def test_the_spectrogram_is_its_formula() -> None:
    speech = np.random.default_rng(0).normal(0, 0.1, 4000)
    found = log_mel(speech)
    assert found.shape == (80, 1500)
    filled = np.concatenate([speech[200:0:-1], speech, np.zeros(240_000)])
    hann = np.sin(np.pi * np.arange(400) / 400) ** 2
    loudness = []
    for t in (0, 1, 13, 30):
        spectrum = np.fft.fft(filled[160 * t : 160 * t + 400] * hann)[:201]
        loudness.append(np.log10(np.maximum(mel_bands(80) @ np.abs(spectrum) ** 2, 1e-10)))
    np.testing.assert_allclose(found[:, [0, 1, 13]].T, (np.array(loudness[:3]) + 4) / 4, rtol=1e-9)
    assert found.max() - found.min() == pytest.approx(
        2.0
    )  # silence is 8 below the loudest, in quarters
    assert (loudness[3] == -10).all()
    assert (found[:, 30] == found.min()).all()


@pytest.mark.parametrize("shape", [(0,), (LONGEST + 1,), (2, 8000)])
def test_what_is_no_recording_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="at most 15 s"):
        LogMel().prepare(np.zeros(shape, np.int16))


def test_the_longest_recording_fits() -> None:
    assert LogMel().prepare(np.ones(LONGEST, np.int16))["mel"].shape == (80, 1500)


@pytest.mark.parametrize(
    ("written_text", "heard"),
    [
        (
            " Press 'One' to Re-enter your party's number...",
            "press 1 to reenter your party's number",
        ),
        ("I\u2019m - sorry; caf\u00e9_bar", "i'm sorry caf\u00e9 bar"),
        ("28.8 kilobit, zero  NINE ten", "28 8 kilobit 0 9 ten"),
        ("'' - !", ""),
    ],
)
def test_words_are_what_is_heard(written_text: str, heard: str) -> None:
    assert plain_words(written_text) == heard
    assert plain_words(heard) == heard


def test_bytes_become_text() -> None:
    pieces = BytePairs.of("a\n\u0120b\n\u00c3\n\u00a9\n\u010a\n<|end|>\n<|more|>\n", "<|end|>")
    assert pieces.decode([0, 1, 2, 3, 4, 5, 6]) == "a b\u00e9\n"
    assert pieces.decode([0, 2, 0]) == "a\ufffda"
    assert pieces.decode([]) == ""
    with pytest.raises(InputError, match="none of them '<x>'"):
        BytePairs.of("a\nb\n", "<x>")


def test_every_byte_has_a_letter() -> None:
    letters = [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 256 + 68)]
    pieces = BytePairs.of("\n".join([*map(chr, letters), "<|end|>"]), "<|end|>")
    assert {pieces.decode([i]) for i in range(256)} >= {chr(byte) for byte in range(128)}


def test_transcripts_of_what_is_said() -> None:
    lines = (
        "; a comment: that is left out\n\na/b: Press 1 for One-way.\nc: [a beep of four words]\n"
        "d: three words only\n"
    )
    lines += (
        "e: say what you will: now\nf: press * for more words\ng: one two (or more) words\n"
        "no colon at all here\n"
    )
    assert list(read_transcripts(lines)) == [
        Prompt("a/b", "press 1 for oneway"),
        Prompt("e", "say what you will now"),
    ]


# -- the graphs, small and with random numbers

SMALL = WhisperSize(
    width=8, heads=2, layers=2, words=11, mels=3, sounds=6, places=7, usual_sounds=4, usual_tokens=2
)


def weights(size: WhisperSize = SMALL, seed: int = 0) -> Arrays:
    random, arrays, width = np.random.default_rng(seed), {}, size.width

    def add(key: str, *shape: int) -> None:
        arrays[key] = random.normal(0, 0.4, shape).astype(np.float16)

    def linear(key: str, inputs: int, outputs: int) -> None:
        add(f"{key}/weight", outputs, inputs)
        add(f"{key}/bias", outputs)

    def norm(key: str) -> None:
        add(f"{key}/gamma", width)
        add(f"{key}/beta", width)

    for name, inputs in (("conv1", size.mels), ("conv2", width)):
        add(f"encoder/{name}/weight", width, inputs, 3)
        add(f"encoder/{name}/bias", width)
    add("encoder/position_encodings/encodings", size.sounds, width)
    add("decoder/position_encodings/encodings", size.places, width)
    add("decoder/embeddings/weight", size.words, width)
    arrays["decoder/projection/weight"] = arrays["decoder/embeddings/weight"]
    for side in ("encoder", "decoder"):
        norm(f"{side}/layer_norm")
        arrays[f"{side}/num_heads"] = np.array(size.heads, np.int16)
        for index in range(size.layers):
            key = f"{side}/layer_{index}"
            parts = (
                ("self_attention", "ffn")
                if side == "encoder"
                else ("self_attention", "attention", "ffn")
            )
            for part in parts:
                norm(f"{key}/{part}/layer_norm")
            linear(f"{key}/self_attention/linear_0", width, 3 * width)
            linear(f"{key}/self_attention/linear_1", width, width)
            linear(f"{key}/ffn/linear_0", width, 4 * width)
            linear(f"{key}/ffn/linear_1", 4 * width, width)
            if side == "decoder":
                for place, outputs in enumerate((width, 2 * width, width)):
                    linear(f"{key}/attention/linear_{place}", width, outputs)
    return arrays


def nothing(rows: int, size: WhisperSize = SMALL) -> Arrays:
    depth = size.width // size.heads
    shapes = {"key": (rows, size.heads, depth, 0), "value": (rows, size.heads, 0, depth)}
    return {
        f"{role}_{i}": np.zeros(s, np.float32)
        for i in range(size.layers)
        for role, s in shapes.items()
    }


def steps(
    graphs: Mapping[str, ir.Model], mel: npt.NDArray[Any], tokens: npt.NDArray[Any], backend: str
) -> list[Arrays]:
    """The decoder's outputs for one token after the other."""
    with get_backend(backend).prepare(graphs["encoder"]) as encoder:
        feeds = {**encoder.run({"mel": mel}), **nothing(len(mel))}
    found = []
    with get_backend(backend).prepare(graphs["decoder_step"]) as decoder:
        for token in tokens.T:
            found.append(decoder.run({**feeds, "token": token[:, None]}))
            feeds |= {
                name.removeprefix("next_"): a for name, a in found[-1].items() if name != "logits"
            }
    return found


def test_the_graphs_are_valid_named_and_free_in_batch_and_length() -> None:
    graphs = whisper_networks(weights(), SMALL)
    for model in graphs.values():
        proto = ir.to_proto(model)
        onnx.checker.check_model(proto, full_check=True)
        assert [(o.domain, o.version) for o in proto.opset_import] == [("", 21)]
        names = [node.name for node in model.graph]
        assert len(set(names)) == len(names)
    assert [str(v.shape) for v in graphs["encoder"].graph.inputs] == ["[N,3,T]"]
    ends = {v.name: str(v.shape) for v in graphs["decoder_step"].graph.inputs}
    assert (ends["token"], ends["key_1"], ends["heard_value_0"]) == (
        "[N,1]",
        "[N,2,4,S]",
        "[N,2,H,4]",
    )


def test_two_engines_agree_and_samples_do_not_mix() -> None:
    random, graphs = np.random.default_rng(1), whisper_networks(weights(), SMALL)
    mel, tokens = random.normal(0, 1, (2, 3, 8)).astype(np.float32), random.integers(0, 11, (2, 3))
    first, second = (
        steps(graphs, mel, tokens, "ort-cpu"),
        steps(graphs, mel, tokens, "onnx-reference"),
    )
    alone = steps(graphs, mel[1:], tokens[1:], "ort-cpu")
    for place, (a, b, c) in enumerate(zip(first, second, alone, strict=True)):
        assert a["next_key_0"].shape == (2, 2, 4, place + 1)
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=0, atol=2e-5)
            np.testing.assert_allclose(a[name][1:], c[name], rtol=0, atol=2e-5)
    assert np.abs(first[2]["logits"][0] - first[2]["logits"][1]).max() > 0.01


@pytest.mark.parametrize(
    "name",
    [
        "encoder/conv1/weight",
        "decoder/layer_1/attention/linear_1/bias",
        "decoder/embeddings/weight",
    ],
)
def test_weights_of_another_network_are_refused(name: str) -> None:
    arrays = weights()
    with pytest.raises(InputError, match=f"'{name}'"):
        whisper_networks({**arrays, name: arrays[name][1:]}, SMALL)
    with pytest.raises(InputError, match="'more'"):
        whisper_networks({**arrays, "more": arrays[name]}, SMALL)


# -- the loop

END, WORDS = 9, 12


class Hearing:
    """What is heard is the sound itself."""

    def run(self, feeds: Mapping[str, Any]) -> Arrays:
        return {"heard": feeds["mel"]}


class Speaking:
    """Says tokens 1, 2, 3 … as often as it hears a number, then the end;
    remembers what it was given.
    """

    def __init__(self, change: Callable[[Any], Any] = lambda logits: logits) -> None:
        self.change = change
        self.seen: list[tuple[list[int], list[int], int]] = []

    def run(self, feeds: Mapping[str, Any]) -> Arrays:
        token, key, heard = feeds["token"], feeds["key_0"], feeds["heard"]
        key = np.concatenate(
            [key, np.broadcast_to(token[:, :, None, None], (len(token), 1, 1, 1))], axis=3
        )
        self.seen.append((token[:, 0].tolist(), heard[:, 0].astype(int).tolist(), key.shape[3]))
        said = key.shape[3] - 2  # behind a prompt of two
        logits = np.zeros((len(token), WORDS), np.float32)
        for row, count in enumerate(heard[:, 0]):
            logits[row, END if said >= count else said + 1] = 2
        logits[:, WORDS - 1] = 5  # never answered
        return {
            "logits": self.change(logits),
            "next_key_0": key,
            "next_value_0": key.swapaxes(2, 3),
        }


class Counts:
    """A sample is how many tokens are to be said."""

    name, kinds = "counts", ("count",)

    def prepare(self, sample: Any) -> Arrays:
        return {"mel": np.array([sample], np.float32)}

    def finish(self, batch: Arrays) -> Arrays:
        return batch


def spoken(ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + i) for i in ids)


def transcription(**changes: Any) -> Transcription:
    settings = {"limit": 6, "batch": 3, **changes}
    return Transcription(
        title="letters",
        text=spoken,
        prompt=(7, 8),
        end=END,
        answered=WORDS - 1,
        layers=1,
        heads=1,
        depth=1,
        **settings,
    )


def counted(counts: list[int], folder: Path) -> Samples:
    names = tuple(f"s{i}" for i in range(len(counts)))
    data = Dataset(
        id="counts",
        kind="count",
        sample_ids=names,
        sources=names,
        labels=None,
        content=str(counts),
        load=counts.__getitem__,
    )
    return prepare_samples(data, Counts(), Cache(folder))


def test_every_row_says_what_it_hears(tmp_path: Path) -> None:
    speaking = Speaking()
    answers = transcription().answer(
        {"encoder": Hearing(), "decoder_step": speaking}, counted([2, 0, 4, 0, 1], tmp_path)
    )
    assert [answers.text(i) for i in range(5)] == ["bc", "", "bcde", "", "b"]
    assert answers.ties == 0
    assert speaking.seen[:2] == [([7, 7, 7], [2, 0, 4], 1), ([8, 8, 8], [2, 0, 4], 2)]
    # the row that has ended repeats the first one that goes on, with all that it heard and
    # remembers
    assert speaking.seen[2:6] == [
        ([1, 1, 1], [2, 2, 4], 3),
        ([2, 2, 2], [2, 2, 4], 4),
        ([3, 3, 3], [4, 4, 4], 5),
        ([4, 4, 4], [4, 4, 4], 6),
    ]
    assert [key for _, _, key in speaking.seen[6:]] == [1, 2, 3]


def test_answers_end_at_the_limit(tmp_path: Path) -> None:
    speaking = Speaking()
    answers = transcription(limit=3).answer(
        {"encoder": Hearing(), "decoder_step": speaking}, counted([8, 1], tmp_path)
    )
    assert [answers.text(i) for i in range(2)] == ["bcd", "b"]
    assert len(speaking.seen) == 4


def test_ties_go_to_the_lower_id_and_are_counted(tmp_path: Path) -> None:
    def level(logits: Any) -> Any:
        return np.minimum(logits, 0)  # all equal

    answers = transcription().answer(
        {"encoder": Hearing(), "decoder_step": Speaking(level)}, counted([1, 1], tmp_path)
    )
    assert [answers.text(i) for i in range(2)] == ["aaaaaa", "aaaaaa"]
    assert answers.ties == 2


def test_a_number_that_is_none_names_its_sample(tmp_path: Path) -> None:
    def broken(logits: Any) -> Any:
        logits[1, 0] = np.nan
        return logits

    with pytest.raises(InputError, match="token 0, sample 's1'"):
        transcription().answer(
            {"encoder": Hearing(), "decoder_step": Speaking(broken)}, counted([1, 1], tmp_path)
        )
    with pytest.raises(InputError, match="'decoder_step'"):
        transcription().answer({"encoder": Hearing()}, counted([1], tmp_path))


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="a limit"):
        transcription(limit=0)


# -- the real thing


@pytest.mark.slow
def test_prompts_are_chosen_as_said() -> None:
    every, scored, others = (
        prompts(),
        get_dataset("speech_prompts"),
        get_dataset("speech_prompts_calibration"),
    )
    assert (len(every), len(scored), len(others)) == (217, 110, 32)
    assert not {*scored.sources} & {*others.sources}
    assert all(len(prompt.words.split()) >= 3 for prompt in every)  # "Call-Forward" is one
    assert scored.labels is not None
    assert [text_of(label) for label in scored.labels] == [
        prompt.words for prompt in scored_prompts()
    ]
    assert max(len(data.load(i)) for data in (scored, others) for i in range(len(data))) <= 80_000


@pytest.mark.slow
def test_what_the_network_writes() -> None:
    model, data = get_model("whisper_tiny_en"), get_dataset("speech_prompts")
    samples = prepare_samples(data, model.preprocess, Cache.default())
    backend = get_backend("ort-cpu")
    with (
        backend.prepare(model.graphs["encoder"]()) as encoder,
        backend.prepare(model.graphs["decoder_step"]()) as decoder,
    ):
        answers = model.task.answer({"encoder": encoder, "decoder_step": decoder}, samples)
    counts = get_metric("wer").count(answers, data.labels, None)
    assert counts.out_of.sum() == 859
    assert counts.hits.sum() == pytest.approx(40, abs=3)
