"""Language models: what a decoder's inputs are, windows scored in one run and step by step, greedy
text, and the decoder that was trained here.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.evaluation import NotedSamples
from qbench.graph import save_model
from qbench.metrics import PADDING, TokenStreams, get_metric, score, token_table
from qbench.storage import Cache
from qbench.subjects import (
    CausalLanguageModel,
    Dataset,
    GraphBuilder,
    GreedyText,
    Samples,
    causal_lm,
    decoder_form,
    get_dataset,
    get_model,
    model_from_file,
    prepare_samples,
    read_network,
)
from qbench.subjects.language import is_decoder
from qbench.subjects.sample_folders import ReadyArray
from qbench_zoo import gloss_decoder
from qbench_zoo.byte_pairs import BytePairMerges, learn_merges
from qbench_zoo.gloss_texts import (
    calibration_documents,
    documents,
    scored_documents,
    training_documents,
)
from qbench_zoo.networks.decoder import DecoderSize, build_decoder, parameter_shapes

SIZE = DecoderSize(words=50, width=16, heads=4, kept_heads=2, layers=2, places=24)
LENGTHS = (24, 17, 24, 3, 17, 24, 24)


def arrays(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(SIZE).items()
    return {name: rng.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes}


def windows(
    folder: Path,
    lengths: tuple[int, ...] = LENGTHS,
    last: int | None = None,
    *,
    first: float | None = None,
) -> Samples:
    rng = np.random.default_rng(1)
    tokens = rng.integers(SIZE.words, size=(len(lengths), max(lengths)))
    tokens = tokens if first is None else tokens.astype(type(first))
    if last is not None:
        tokens[-1, -1] = last
    if first is not None:
        tokens[-1, 0] = first
    ids = tuple(f"w{place}" for place in range(len(lengths)))
    data = Dataset(
        id="windows",
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=None,
        content=f"{lengths}{last}{first}",
        load=lambda place: {"input_ids": tokens[place], "length": np.array(lengths[place])},
    )
    return prepare_samples(data, ReadyArray(), Cache(folder))


class Counted:
    """An executor that counts its runs."""

    def __init__(self, executor: Any) -> None:
        self.executor, self.runs = executor, 0

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        self.runs += 1
        found: dict[str, Any] = self.executor.run(feeds)
        return found


@pytest.fixture(scope="module")
def kept() -> Iterator[tuple[ir.Model, Counted]]:
    model = build_decoder(arrays(), SIZE)
    with get_backend("ort-cpu").prepare(model) as executor:
        yield model, Counted(executor)


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[ir.Model, Counted]]:
    model = build_decoder(arrays(), SIZE, keeps=False)
    with get_backend("ort-cpu").prepare(model) as executor:
        yield model, Counted(executor)


def answered(pair: tuple[ir.Model, Counted], samples: Samples, **settings: Any) -> TokenStreams:
    task = replace(causal_lm(pair[0]), **settings)
    found = task.answer({"model": pair[1]}, samples)
    assert isinstance(found, TokenStreams)
    return found


def test_the_form_of_a_decoder_is_read_of_its_graph(kept: Any, plain: Any) -> None:
    form = decoder_form(kept[0])
    assert (form.tokens, form.logits, form.mask, len(form.cache)) == (
        "input_ids",
        "logits",
        None,
        4,
    )
    one = form.cache[0]
    assert (one.past, one.present) == ("past_key_values.0.key", "present.0.key")
    assert one.nothing(3).shape == (3, 2, 0, 4)
    assert (is_decoder(kept[0]), is_decoder(plain[0])) == (True, False)
    assert decoder_form(plain[0]).cache == ()


def test_windows_in_one_run_and_step_by_step_are_the_same_text(
    kept: Any, plain: Any, tmp_path: Path
) -> None:
    samples = windows(tmp_path)
    whole = answered(plain, samples)
    assert whole.lengths.tolist() == [length - length // 2 - 1 for length in LENGTHS]
    for run_tokens, runs in ((0, 3), (5, 9), (1, 23)):
        kept[1].runs = 0
        other = answered(kept, samples, run_tokens=run_tokens)
        assert kept[1].runs == runs
        for name in ("realised", "logprobs", "floor"):
            np.testing.assert_allclose(getattr(other, name), getattr(whole, name), atol=1e-5)
        assert (other.first == whole.first).all()


def test_batches_of_windows_are_those_of_their_samples(kept: Any, tmp_path: Path) -> None:
    """As many as the samples are split into, and who notes batches sees each that runs."""
    model, runner = kept
    ready = windows(tmp_path)
    sizes: list[int] = []
    seen: list[Sequence[str]] = []

    class Noting:
        def run(self, feeds: Any) -> Any:
            sizes.append(len(feeds["input_ids"]))
            assert len(seen[-1]) == sizes[-1]
            return runner.run(feeds)

    task = replace(causal_lm(model), batch=4)
    whole = task.answer({"model": runner}, ready)
    picked = ready.picked(range(len(ready)), split=Fraction(1, 2))
    halved = task.answer({"model": Noting()}, NotedSamples.of(picked, seen.append))
    assert isinstance(whole, TokenStreams)
    assert isinstance(halved, TokenStreams)
    assert max(sizes) == 2
    assert {one for ids in seen for one in ids} == set(ready.ids)
    np.testing.assert_allclose(halved.realised, whole.realised, rtol=0, atol=1e-5)


def test_scored_tokens_are_those_of_the_logits(plain: Any, tmp_path: Path) -> None:
    samples = windows(tmp_path, (10, 10))
    streams = answered(plain, samples, k=7)
    (feeds,) = samples.batches()
    tokens = feeds["input_ids"]
    logits = plain[1].run({"input_ids": tokens})["logits"].astype(np.float64)
    shares = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    for sample in range(2):
        for place, token in enumerate(range(6, 10)):
            row = 4 * sample + place
            of_token = shares[sample, token - 1]
            assert streams.realised[row] == pytest.approx(of_token[tokens[sample, token]], abs=1e-5)
            best = np.argsort(-of_token, kind="stable")[:7]
            assert streams.top[row].tolist() == best.tolist()
            np.testing.assert_allclose(streams.logprobs[row], of_token[best], atol=1e-5)
            assert of_token.min() - 1e-5 <= streams.floor[row] <= of_token.min() + 1e-9


def test_the_best_tokens_bound_the_whole_distribution(tmp_path: Path) -> None:
    samples, streams = windows(tmp_path), {}
    for seed in (0, 1):
        model = build_decoder(arrays(seed), SIZE, keeps=False)
        with get_backend("ort-cpu").prepare(model) as executor:
            for k in (5, 99):
                streams[seed, k] = answered((model, Counted(executor)), samples, k=k)
    part, whole = (token_table(streams[0, k], streams[1, k]) for k in (5, 99))
    assert streams[0, 99].is_whole
    for name in ("kld_mean", "kld_max", "kld_median"):
        row, exact = part.row(name), whole.row(name)
        assert exact.most is None
        assert row.most is not None
        assert row.value <= exact.value <= row.most
    assert part.row("ln_ratio") == whole.row("ln_ratio")


def test_answers_are_stored_and_scored_like_those_of_any_task(kept: Any, tmp_path: Path) -> None:
    task = causal_lm(kept[0])
    streams = answered(kept, windows(tmp_path))
    assert task.restored(streams.arrays()).digest == streams.digest
    assert task.usual_comparisons == ("token_perplexity", "token_kl", "token_top1")
    for name in (*task.usual_comparisons, "token_kl_most"):
        metric = get_metric(name)
        assert not metric.needs_labels
        found = score(metric, streams, labels=None, reference=streams)
        assert found.hits == found.reference_hits


def test_greedy_text_is_the_same_with_a_cache_and_without(
    kept: Any, plain: Any, tmp_path: Path
) -> None:
    samples = windows(tmp_path, (8, 8, 5))
    texts = [
        GreedyText(form=decoder_form(model), limit=6).answer({"model": executor}, samples)
        for model, executor in (kept, plain)
    ]
    assert texts[0].arrays()["ids"].tolist() == texts[1].arrays()["ids"].tolist()
    row = texts[0].arrays()["ids"][0].tolist()
    (feeds,) = samples.batches()
    given = feeds["input_ids"][:1, :4]
    for token in row:
        logits = plain[1].run({"input_ids": given})["logits"][0, -1]
        assert token == logits.argmax()
        given = np.concatenate([given, [[token]]], axis=1)
    ended = GreedyText(form=decoder_form(kept[0]), limit=6, end=row[2]).answer(
        {"model": kept[1]}, samples
    )
    assert ended.arrays()["ids"][0, : row.index(row[2]) + 1].tolist() == [
        *row[: row.index(row[2])],
        PADDING,
    ]
    found = score(get_metric("same_start"), ended, labels=None, reference=texts[0])
    assert found.out_of == 18
    assert found.hits < 18


def test_a_file_with_past_and_present_is_a_language_model(kept: Any, tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    save_model(kept[0], path)
    model = model_from_file(path)
    assert isinstance(model.task, CausalLanguageModel)
    assert model.task.form == decoder_form(kept[0])


def without(model: ir.Model, *names: str) -> ir.Model:
    graph = model.graph
    for name in names:
        for values in (graph.inputs, graph.outputs):
            found = [value for value in values if value.name == name]
            for value in found:
                values.remove(value)
    return model


def other_shape(model: ir.Model) -> ir.Model:
    value = next(one for one in model.graph.inputs if one.name == "past_key_values.1.value")
    value.shape = ir.Shape(["N", 4, "S", 4])
    return model


def two_inputs(model: ir.Model) -> ir.Model:
    model.graph.inputs.append(ir.val("token_type_ids", ir.DataType.INT64, ir.Shape(["N", "T"])))
    return model


def strange_input(model: ir.Model) -> ir.Model:
    model.graph.inputs.append(ir.val("heard", ir.DataType.FLOAT, ir.Shape(["N", "H", 4])))
    return model


def two_pasts(model: ir.Model) -> ir.Model:
    shape = ir.Shape(["N", 2, "S", 4])
    model.graph.inputs.append(ir.val("past_key_values.1.cross.value", ir.DataType.FLOAT, shape))
    return model


def no_logits(model: ir.Model) -> ir.Model:
    return without(model, "logits")


GRAPHS = {
    "no present": (lambda m: without(m, "present.1.key"), "'past_key_values.1.key', which has no"),
    "no past": (lambda m: without(m, "past_key_values.0.value"), "'present.0.value', which has no"),
    "other shape": (other_shape, "(N, 4, S, 4) float and 'present.1.value' of (N, 2"),
    "two tokens": (two_inputs, "2 inputs of whole numbers"),
    "strange input": (strange_input, "the input 'heard'"),
    "two pasts": (two_pasts, "two inputs for the key or the value of one layer"),
    "no logits": (no_logits, "no output 'logits'"),
}


@pytest.mark.parametrize("fault", GRAPHS)
def test_a_graph_that_is_no_decoder_is_one_sentence(fault: str) -> None:
    change, named = GRAPHS[fault]
    with pytest.raises(InputError) as caught:
        decoder_form(change(build_decoder(arrays(), SIZE)))
    assert named in caught.value.found
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("narrow", [ir.DataType.INT64, ir.DataType.INT32])
def test_a_position_and_a_mask_are_fed(tmp_path: Path, narrow: ir.DataType) -> None:
    graph = GraphBuilder("masked")
    ids, mask, places = (
        graph.input(name, ("N", length), dtype)
        for name, length, dtype in (
            ("input_ids", "T", ir.DataType.INT64),
            ("attention_mask", "S", narrow),
            ("position_ids", "T", narrow),
        )
    )
    past = graph.input("past_key_values.0.key", ("N", 1, "P", 1))
    axes = graph.constant("axes", np.array([1], np.int64))
    mask, places = (
        graph.node("Cast", [one], f"wide_{number}", {"to": ir.DataType.INT64.value})
        for number, one in enumerate((mask, places))
    )
    total = graph.node("ReduceSum", [mask, axes], "total", {"keepdims": 1})
    summed = graph.node("Add", [graph.node("Add", [ids, places], "placed"), total], "summed")
    real = graph.node("Cast", [summed], "real", {"to": ir.DataType.FLOAT.value})
    last = graph.constant("last", np.array([2], np.int64))
    wide = graph.node("Unsqueeze", [real, last], "wide")
    row = graph.constant("row", np.ones((1, 9), np.float32))
    first = graph.constant("first", np.array([1], np.int64))
    grown = graph.node(
        "Concat", [past, graph.node("Unsqueeze", [wide, first], "new")], "grown", {"axis": 2}
    )
    logits = graph.node("MatMul", [wide, row], "scores")
    model = graph.model({"logits": logits, "present.0.key": grown}, dims={"T": 4, "S": 4, "P": 4})
    form = decoder_form(model)
    assert (form.mask, form.positions) == ("attention_mask", "position_ids")
    seen = []

    class Executor(Counted):
        def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
            seen.append((feeds["attention_mask"].shape[1], feeds["position_ids"][0].tolist()))
            return super().run(feeds)

    with get_backend("ort-cpu").prepare(model) as executor:
        rng = np.random.default_rng(0).integers(9, size=(1, 8))
        data = Dataset(
            id="one",
            kind="array",
            sample_ids=("a",),
            sources=("a",),
            labels=None,
            content="one",
            load=lambda _: {"input_ids": rng[0]},
        )
        samples = prepare_samples(data, ReadyArray(), Cache(tmp_path))
        replace(causal_lm(model), run_tokens=2).answer({"model": Executor(executor)}, samples)
    assert seen == [(4, [0, 1, 2, 3]), (6, [4, 5]), (7, [6])]


@pytest.mark.parametrize(
    ("lengths", "last", "named"), [((2, 2), None, "2 tokens"), ((6, 6), 50, "token 50")]
)
def test_windows_that_cannot_be_scored_are_one_sentence(
    lengths: tuple[int, ...], last: int | None, named: str, plain: Any, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        answered(plain, windows(tmp_path, lengths, last))
    assert named in caught.value.found


@pytest.mark.parametrize(
    ("first", "named"),
    [(-1, "token -1"), (0.5, "float64 in 'input_ids'"), (SIZE.words, f"token {SIZE.words}")],
)
@pytest.mark.parametrize("writes", [False, True])
def test_ids_that_no_vocabulary_has_are_refused_where_nothing_is_scored(
    first: float, named: str, writes: bool, plain: Any, tmp_path: Path
) -> None:
    model, runner = plain
    task = GreedyText(form=decoder_form(model)) if writes else causal_lm(model)
    with pytest.raises(InputError) as caught:
        task.answer({"model": runner}, windows(tmp_path, (6, 6), first=first))
    assert named in caught.value.found


@pytest.mark.parametrize("scores", [SIZE.words, SIZE.words - 4, "words"])
def test_a_vocabulary_has_the_rows_of_the_table_that_tokens_are_looked_up_in(scores: Any) -> None:
    model = build_decoder(arrays(), SIZE)
    model.graph.outputs[0].shape = ir.Shape(["N", "T", scores])
    assert decoder_form(model).words == SIZE.words
    model.graph.inputs[0].replace_all_uses_with(ir.val("other", ir.DataType.INT64))
    assert decoder_form(model).words == (None if scores == "words" else scores)


def test_a_vocabulary_is_as_large_as_the_axis_that_tokens_are_looked_up_along() -> None:
    model = build_decoder(arrays(), SIZE)
    (lookup,) = (use.node for use in model.graph.inputs[0].uses() if use.node.op_type == "Gather")
    table = lookup.inputs[0]
    assert table is not None
    assert table.shape == ir.Shape([SIZE.words, SIZE.width])
    table.shape = ir.Shape([SIZE.width, SIZE.words])
    for axis in (1, -1):
        lookup.attributes["axis"] = ir.AttrInt64("axis", axis)
        assert decoder_form(model).words == SIZE.words
    lookup.domain, lookup.op_type = "com.microsoft", "GatherBlockQuantized"
    lookup.attributes["gather_axis"] = lookup.attributes.pop("axis")
    assert decoder_form(model).words == SIZE.words


def test_data_without_tokens_is_one_sentence(plain: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        answered(plain, windows(tmp_path), sequence="text")
    assert "tokenizer" in caught.value.remedy


# -- byte pairs and the decoder of the zoo


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(max_size=20), max_size=6), st.text(max_size=40))
def test_byte_pairs_lose_nothing(texts: list[str], other: str) -> None:
    pairs = learn_merges(["aab aab aabaab", *texts], 3)
    assert pairs.decode(pairs.encode(other)) == other.encode("utf-8", "replace").decode("utf-8")


def test_the_most_frequent_pairs_are_merged_in_order() -> None:
    pairs = learn_merges(["aab aab aabaab"], 2)
    assert pairs.merges == ((97, 97), (256, 98))
    assert pairs.encode("aab") == [257]
    with pytest.raises(ValueError, match="rank 0"):
        BytePairMerges(((256, 97),))


def test_a_decoder_without_its_tokenizer_is_one_sentence() -> None:
    stored = io.BytesIO()
    np.savez(stored, words=np.zeros((2, 2), np.float32))
    with pytest.raises(InputError) as caught:
        gloss_decoder.read_decoder(stored.getvalue())
    assert "merges" in caught.value.found


def test_the_weights_are_those_that_were_trained() -> None:
    path = Path(gloss_decoder.__file__).parent / "weights" / "gloss_decoder.npz"
    stored = path.read_bytes()
    assert len(stored) <= 5_000_000
    assert hashlib.sha256(stored).hexdigest() == gloss_decoder.DIGEST


@pytest.mark.slow
def test_what_trains_is_not_scored() -> None:
    parts = [set(scored_documents()), set(calibration_documents()), set(training_documents())]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(documents()) == 2566
    data = get_dataset("gloss_windows")
    assert len(data) == 162
    assert len(set(data.drawn_from)) == 81


@pytest.mark.slow
def test_the_decoder_has_learned_the_text() -> None:
    model, data = get_model("gloss_decoder"), get_dataset("gloss_windows")
    samples = prepare_samples(data, model.preprocess, Cache.default())
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        streams = model.task.answer({"model": executor}, samples)
    assert isinstance(streams, TokenStreams)
    assert -streams.realised.mean() == pytest.approx(4.1243, abs=1e-3)


def test_a_decoder_of_the_catalogue_takes_windows_of_tokens_alone() -> None:
    tokens = np.zeros((2, 256), np.int64)
    data = Dataset.from_arrays("windows", {"input_ids": tokens})
    assert read_network("gloss_decoder", data, ReadyArray()).graphs
