"""Schemas that quantize what a decoder keeps of earlier tokens, on small decoders with a cache and
without, and next to ONNX Runtime's GroupQueryAttention with a quantized cache.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from qbench.backends import get_backend
from qbench.calibration import Profile, calibrate
from qbench.cli.quantize import in_form
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation import build_subject
from qbench.graph import cache_values, kept_type, node_macs, quantized_cache, save_model
from qbench.metrics import get_metric, score
from qbench.numerics import QParams
from qbench.passes import channels_of_cache, lower_attention, plannable
from qbench.passes.canonical.cache_channels import CacheChannels
from qbench.quantization import (
    Plan,
    get_schema,
    insert_qdq,
    is_quantized,
    make_plan,
    read_plan,
)
from qbench.storage import Cache
from qbench.subjects import (
    Dataset,
    GreedyText,
    Samples,
    decoder_form,
    holds_past,
    prepare_samples,
)
from qbench.subjects.sample_folders import ReadyArray
from qbench_zoo.gloss_decoder import gloss_decoder
from qbench_zoo.networks.decoder import DecoderSize, build_decoder, parameter_shapes

SIZE = DecoderSize(words=50, width=32, heads=4, kept_heads=2, layers=2, places=24)
TOKENS = np.random.default_rng(3).integers(SIZE.words, size=(3, 12))
BACKEND = get_backend("ort-cpu")
Outputs = Mapping[str, Any]


def decoder(size: DecoderSize = SIZE, *, keeps: bool = True) -> ir.Model:
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(size).items()
    arrays = {name: rng.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes}
    return build_decoder(arrays, size, keeps=keeps)


def feeds(tokens: Any, past: Outputs | None = None, of: ir.Model | None = None) -> dict[str, Any]:
    form = decoder_form(of or decoder())
    kept = {
        one.past: one.nothing(len(tokens)) if past is None else past[one.present]
        for one in form.cache
    }
    return {"input_ids": tokens, **kept}


@pytest.fixture(scope="module")
def profile() -> Profile:
    return calibrate(decoder(), [feeds(TOKENS)], channels=True)


@pytest.fixture(scope="module")
def plain_profile() -> Profile:
    return calibrate(decoder(keeps=False), [{"input_ids": TOKENS}], channels=True)


@functools.cache
def profiles_by_channels() -> dict[bool, Profile]:
    return {}


def profile_by_channels(model: ir.Model) -> Profile:
    keeps, known = len(model.graph.inputs) > 1, profiles_by_channels()
    if keeps not in known:
        fed = feeds(TOKENS) if keeps else {"input_ids": TOKENS}
        known[keeps] = calibrate(model, [fed], channels=True, pipeline="cache_channels")
    return known[keeps]


def planned(model: ir.Model, profile: Profile, schema: str) -> tuple[Plan, ir.Model]:
    chosen = get_schema(schema)
    if chosen.canonical != "default":
        profile = profile_by_channels(model)
    plan = make_plan(model, profile, chosen, capabilities=BACKEND.capabilities)
    return plan, insert_qdq(plannable(model, chosen.canonical), plan)


def run(model: ir.Model, *runs: dict[str, Any]) -> Iterator[Outputs]:
    with BACKEND.prepare(model) as executor:
        for one in runs:
            yield executor.run(one)


def levels(qparams: QParams, heads: int) -> Any:
    """The scale of each head, (heads, 1, 1), or of each number of it, (heads, 1, numbers)."""
    if qparams.scale.size > heads:
        return qparams.scale.reshape(heads, 1, -1)
    return np.broadcast_to(qparams.scale.reshape(-1), heads).reshape(heads, 1, 1)


@pytest.mark.parametrize(
    ("schema", "most"),
    [("kv8t", 127), ("kv8h", 127), ("kv8c", 127), ("kv4t", 8), ("kv4h", 8), ("kv4c", 8)],
)
def test_what_is_stored_is_a_code_of_its_head_and_is_read_back(
    schema: str, most: int, profile: Profile
) -> None:
    plan, written = planned(decoder(), profile, schema)
    assert len(plan.cached_values) == len(decoder_form(decoder()).cache) == 4
    with BACKEND.prepare(written) as executor:
        first = executor.run(feeds(TOKENS[:, :8]))
        second = executor.run(feeds(TOKENS[:, 8:], first))
        whole = executor.run(feeds(TOKENS))
    (plain,) = run(decoder(), feeds(TOKENS))
    for one, qparams in zip(
        cache_values(plannable(decoder(), "default").graph),
        plan.cached_values.values(),
        strict=True,
    ):
        steps = whole[one.present] / levels(qparams, SIZE.kept_heads)
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
        assert np.abs(steps).max() <= most + 1e-3
        assert qparams.scale.size == {"t": 1, "h": 2, "c": 16}[schema[-1]]
        np.testing.assert_array_equal(second[one.present][:, :, :8], first[one.present])
        np.testing.assert_allclose(
            second[one.present], whole[one.present], atol=1.01 * qparams.scale.max()
        )
    assert np.abs(whole["logits"] - plain["logits"]).max() > 1e-3
    np.testing.assert_allclose(first["logits"], whole["logits"][:, :8], atol=1e-4)


@pytest.mark.parametrize("place", ["h", "c"])
def test_a_float_cache_holds_numbers_of_its_type(place: str, profile: Profile) -> None:
    import ml_dtypes

    plan, written = planned(decoder(), profile, f"kvf8e4m3{place}")
    (found,) = run(written, feeds(TOKENS))
    qparams = qparams_of(plan, "layer0.key.heads")
    numbers = (found["present.0.key"] / levels(qparams, SIZE.kept_heads)).astype(np.float32)
    rounded = numbers.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_allclose(numbers, rounded, rtol=1e-6)


@pytest.mark.parametrize("schema", ["kv8t", "kv8c"])
def test_without_a_cache_the_values_that_attention_reads_are_its_slots(
    schema: str, profile: Profile, plain_profile: Profile
) -> None:
    model = decoder(keeps=False)
    plan, written = planned(model, plain_profile, schema)
    assert [one.role for one in cache_values(plannable(model, "default").graph)] == [
        "key",
        "value",
    ] * SIZE.layers
    (found,) = run(written, {"input_ids": TOKENS})
    (cached,) = run(planned(decoder(), profile, schema)[1], feeds(TOKENS))
    np.testing.assert_allclose(found["logits"], cached["logits"], atol=1e-4)
    assert len(plan.cached_values) == 2 * SIZE.layers


def qparams_of(plan: Plan, name: str) -> QParams:
    """Of the kept value ``name``, or of its channels."""
    return plan.cached_values.get(name) or plan.cached_values[f"{name}.channels"]


def given_windows(folder: Path, tokens: Any) -> Samples:
    ids = tuple(f"w{place}" for place in range(len(tokens)))
    data = Dataset(
        id="windows",
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=None,
        content="windows",
        load=lambda place: {"input_ids": tokens[place], "length": np.array(len(tokens[place]))},
    )
    return prepare_samples(data, ReadyArray(), Cache(folder))


@pytest.mark.parametrize("keeps", [True, False])
def test_channels_of_a_cache_get_an_axis_of_their_own_and_change_no_number(keeps: bool) -> None:
    model = plannable(decoder(keeps=keeps))
    given = model.clone()
    assert CacheChannels().run(given)
    assert not CacheChannels().run(given)
    forms = [channels_of_cache(one.value) for one in cache_values(given.graph)]
    sizes = [None if one is None else one.shape[1] for one in forms]
    assert sizes == [16 if keeps else 32] * 2 * SIZE.layers  # without a cache heads are repeated
    fed = feeds(TOKENS) if keeps else {"input_ids": TOKENS}
    (before,), (after,) = run(model, fed), run(given, fed)
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


def test_kept_outputs_alone_have_channels_under_their_names() -> None:
    """Of a run in front of all others, which has no past."""
    node = helper.make_node("Relu", ["x"], ["present.0.key"])
    of = helper.make_tensor_value_info
    shape = ["N", 2, "T", 3]
    graph = helper.make_graph(
        [node],
        "first",
        [of("x", TensorProto.FLOAT, shape)],
        [of("present.0.key", TensorProto.FLOAT, shape)],
    )
    opsets = [helper.make_opsetid("", 21)]
    model = ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    x = np.random.default_rng(0).normal(size=(2, 2, 5, 3)).astype(np.float32)
    profile = calibrate(model, [{"x": x}], channels=True, pipeline="cache_channels")
    plan = make_plan(model, profile, get_schema("kv8c"))
    (found,) = run(insert_qdq(plannable(model, "cache_channels"), plan), {"x": x})
    real = np.maximum(x, 0)
    scales = real.max(axis=(0, 2), keepdims=True) / 127
    np.testing.assert_allclose(found["present.0.key"], np.rint(real / scales) * scales, rtol=1e-5)


def test_greedy_text_reads_what_a_quantized_cache_holds(profile: Profile, tmp_path: Path) -> None:
    """Its divergence length counts the tokens before the first that float text has otherwise."""
    samples, limit = given_windows(tmp_path, TOKENS), 8
    written = planned(decoder(), profile, "kv4h")[1]
    task = GreedyText(form=decoder_form(decoder()), limit=limit)
    with BACKEND.prepare(written) as quantized, BACKEND.prepare(decoder()) as real:
        text, other = (task.answer({"model": one}, samples) for one in (quantized, real))
        rows, reference = text.arrays()["ids"], other.arrays()["ids"]
        given = TOKENS[:, :6]
        for step in range(limit):  # all tokens at once, behind no cache
            logits = quantized.run(feeds(given))["logits"][:, -1]
            np.testing.assert_array_equal(rows[:, step], logits.argmax(axis=1))
            given = np.concatenate([given, rows[:, step, None].astype(np.int64)], axis=1)
    same = [(np.append(a != b, True)).argmax() for a, b in zip(rows, reference, strict=True)]
    found = score(get_metric("same_start"), text, labels=None, reference=other)
    assert (found.hits, found.out_of) == (sum(same), limit * len(TOKENS))
    assert found.hits < found.out_of


def test_words_of_a_cache_stand_behind_those_of_weights(profile: Profile) -> None:
    for name in ("w4_sym_b32_kv8h", "w8a8_asym_pc_dyn_kv4h", "w4a16_kv8t", "wmxfp4_sym_b32_kv8h"):
        schema = get_schema(name)
        base = get_schema(name.rpartition("_")[0])
        assert schema.name == name
        assert schema.rules == base.rules
        assert schema.cache is not None
    plan, _ = planned(decoder(), profile, "w8_sym_pc_kv8h")
    assert plan.weight_mac_count > 0
    assert len(plan.cached_values) == 4


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("w8a8_asym_pc_kv8h", "behind 'w8a8_asym_pc'"),
        ("kv8", "'kv8'"),
        ("kv8x", "'kv8x'"),
        ("kv1h", "keys and values of 1 bits"),
        ("kv8h_kv4h", "behind 'kv8h'"),
        ("w8x_kv8h", "'w8x'"),
    ],
)
def test_names_of_caches_that_no_schema_has_are_one_sentence(name: str, named: str) -> None:
    with pytest.raises(InputError) as caught:
        get_schema(name)
    assert named in caught.value.found
    assert "\n" not in str(caught.value)


def test_a_graph_that_keeps_nothing_leaves_the_schema_idle() -> None:
    from qbench.subjects import get_model

    model = get_model("digits_cnn").graphs["model"]()
    shape = [size if isinstance(size, int) else 2 for size in model.graph.inputs[0].shape]
    image = np.zeros(shape, np.float32)
    profile = calibrate(model, [{model.graph.inputs[0].name: image}], channels=True)
    plan = make_plan(model, profile, get_schema("kv8h"))
    assert not plan.cached_values
    assert plan.idle_rules == ("the cache",)


def test_past_and_present_that_do_not_match_are_one_sentence(profile: Profile) -> None:
    model = decoder()
    outputs = model.graph.outputs
    outputs.remove(next(one for one in outputs if one.name == "present.1.key"))
    with pytest.raises(InputError) as caught:
        cache_values(model.graph)
    assert "'past_key_values.1.key'" in caught.value.found
    assert "\n" not in str(caught.value)


def test_samples_that_hold_a_value_of_the_past_are_those_of_a_later_run() -> None:
    model = decoder()
    assert holds_past(model, {"input_ids", "past_key_values.1.key"})
    assert not holds_past(model, {"input_ids", "attention_mask"})


# -- ONNX Runtime's operator


def attention(bits: int, mode: str) -> onnxruntime.InferenceSession:
    """GroupQueryAttention with a quantized cache; skips where the installed one has none."""
    stored, depth = (TensorProto.INT8, 8) if bits == 8 else (TensorProto.UINT8, 4)
    width = {"q": SIZE.width, "k": 16, "v": 16}
    scales = [1] if mode == "PER_TENSOR" else [1, SIZE.kept_heads, 1, 8]
    of = helper.make_tensor_value_info
    inputs = [of(name, TensorProto.FLOAT, ["N", "T", size]) for name, size in width.items()]
    inputs += [of(name, stored, ["N", SIZE.kept_heads, "S", depth]) for name in ("pk", "pv")]
    inputs += [of("last", TensorProto.INT32, ["N"]), of("total", TensorProto.INT32, [1])]
    inputs += [of(name, TensorProto.FLOAT, scales) for name in ("ks", "vs")]
    fed = ["q", "k", "v", "pk", "pv", "last", "total", "", "", "", "", "", "ks", "vs"]
    node = helper.make_node(
        "GroupQueryAttention",
        fed,
        ["y", "ok", "ov"],
        domain="com.microsoft",
        name="kept",
        num_heads=SIZE.heads,
        kv_num_heads=SIZE.kept_heads,
        scale=1.0,  # the decoder divides its queries itself
        k_quant_type=mode,
        v_quant_type=mode,
        kv_cache_bit_width=bits,
    )
    outputs = [of("y", TensorProto.FLOAT, ["N", "T", SIZE.width])]
    outputs += [of(name, stored, ["N", SIZE.kept_heads, "U", depth]) for name in ("ok", "ov")]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    found = quantized_cache(ir.from_proto(model))
    assert found == "the GroupQueryAttention 'kept' with a quantized cache"
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        if "quant_type" in str(error) or "bit_width" in str(error):
            pytest.skip(f"this ONNX Runtime keeps floats alone: {onnxruntime.__version__}")
        raise


def codes_of(stored: Any, bits: int) -> Any:
    """Whole numbers of a stored cache; of 4 bits the lower half of a byte comes first."""
    if bits == 8:
        return stored.astype(np.int64)
    pairs = np.stack([stored & 15, stored >> 4], axis=-1).astype(np.int64) - 8
    return pairs.reshape(*stored.shape[:-1], -1)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("place", ["t", "h", "c"])
def test_the_simulation_is_what_onnx_runtimes_quantized_cache_does(
    bits: int, place: str, profile: Profile
) -> None:
    session = attention(bits, "PER_TENSOR" if place == "t" else "PER_CHANNEL")
    plan, written = planned(decoder(), profile, f"kv{bits}{place}")
    watched = {"q": "layer0.query.scaled", "k": "layer0.key", "v": "layer0.value"}
    values = {value.name: value for node in written.graph for value in node.outputs}
    for name in (*watched.values(), "layer0.together", "layer0.key.heads", "layer0.value.heads"):
        written.graph.outputs.append(values[name])
    qparams = [qparams_of(plan, f"layer0.{role}.heads") for role in ("key", "value")]
    scales = [levels(one, SIZE.kept_heads)[None] for one in qparams]
    whole = (1, SIZE.kept_heads, 1, 8)
    spread = [
        one.reshape(-1)[:1] if place == "t" else np.broadcast_to(one, whole).copy()
        for one in scales
    ]
    past, cache = None, [np.zeros((1, 2, 0, 8), np.int8), np.zeros((1, 2, 0, 8), np.int8)]
    if bits == 4:
        cache = [one[..., :4].astype(np.uint8) for one in cache]
    before = 0
    for tokens in (TOKENS[:1, :7], TOKENS[:1, 7:8], TOKENS[:1, 8:9]):
        (ours,) = run(written, feeds(tokens, past))
        past, total = ours, before + tokens.shape[1]
        theirs, *cache = session.run(
            None,
            {name: ours[value] for name, value in watched.items()}
            | {"pk": cache[0], "pv": cache[1], "ks": spread[0], "vs": spread[1]}
            | {"last": np.array([total - 1], np.int32), "total": np.array([total], np.int32)},
        )
        for stored, role, one in zip(cache, ("key", "value"), scales, strict=True):
            most = 2 ** (bits - 1) - 1
            codes = np.rint(ours[f"layer0.{role}.heads"] / one.astype(np.float32))
            new = np.clip(codes, -most - (bits < 8), most).astype(np.int64)
            np.testing.assert_array_equal(codes_of(stored, bits)[:, :, before:], new)
        np.testing.assert_allclose(theirs, ours["layer0.together"], atol=2e-5)
        before = total


# -- decoders written with that operator


def written_with_the_operator(schema: str, size: DecoderSize = SIZE) -> tuple[Plan, Any, ir.Model]:
    """A plan by two tokens, so that others saturate; the interpreter of it, and the new model."""
    model, chosen = decoder(size), get_schema(schema)
    few = [feeds(TOKENS[:, :2], of=model)]
    profile = calibrate(model, few, channels=True, pipeline=chosen.canonical)
    plan = make_plan(model, profile, chosen)
    written = insert_qdq(plannable(model, chosen.canonical), plan)
    return plan, get_backend("integer-ideal").prepare(written), lower_attention(written)


def spread(qparams: QParams, size: DecoderSize) -> Any:
    heads = size.kept_heads
    return np.broadcast_to(levels(qparams, heads), (heads, 1, size.depth)).astype(np.float32)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize(
    ("schema", "kept_heads"),
    [("kv8c", 4), ("kv4h", 2), ("kv8h", 2), ("kv8t", 2), ("kv4t", 1), ("kv4c", 2), ("kv6c", 2)],
)
def test_the_operator_holds_the_codes_of_the_interpreter(schema: str, kept_heads: int) -> None:
    size = replace(SIZE, kept_heads=kept_heads, layers=1)
    plan, ours, model = written_with_the_operator(schema, size)
    bits = 4 if "4" in schema else 8
    most = 2 ** (int(schema[2]) - 1) - 1
    form = decoder_form(model)
    assert is_quantized(model)
    assert sum(node_macs(model).values()) == sum(node_macs(decoder(size)).values())
    assert [kept_type(node) for node in model.graph if kept_type(node)] == [f"int{bits}"]
    assert read_plan(model).cached_values.keys() == {one.past for one in form.cache}
    before = {one.past: one.nothing(3) for one in form.cache}
    past, reached = None, set[int]()
    with BACKEND.prepare(model) as theirs, ours:
        for tokens in (TOKENS[:, :7], TOKENS[:, 7:8], TOKENS[:, 8:9]):
            past = ours.run(feeds(tokens, past, of=decoder(size)))
            found = theirs.run({"input_ids": tokens, **before})
            before = {one.past: found[one.present] for one in form.cache}
            np.testing.assert_allclose(found["logits"], past["logits"], atol=2e-5)
            for (name, qparams), one in zip(plan.cached_values.items(), form.cache, strict=True):
                codes = np.rint(past[one.present] / spread(qparams, size)).astype(np.int64)
                np.testing.assert_array_equal(codes_of(found[one.present], bits), codes, name)
                reached |= {end for end in (-most, most) if (codes == end).any()}
    assert reached == {-most, most}


@pytest.mark.parametrize("backend", ["integer-ideal", "onnx-reference"])
def test_a_backend_without_the_operator_names_one_that_may_have_it(
    backend: str, profile: Profile
) -> None:
    model = lower_attention(planned(decoder(), profile, "kv8h")[1])
    with pytest.raises(UnsupportedError) as caught:
        get_backend(backend).prepare(model)
    assert "GroupQueryAttention" in caught.value.found
    assert "ort-cpu may have it" in caught.value.found
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scale", [np.nan, 0.0, -1.0, np.inf])
def test_scales_of_an_operator_that_mean_nothing_are_one_sentence(
    scale: float, profile: Profile
) -> None:
    model = lower_attention(planned(decoder(), profile, "kv8h")[1])
    value = model.graph.initializers["present.0.value_scale"]
    numbers = value.const_value.numpy().copy()
    numbers[0, 1, 0, 3] = scale
    value.const_value = ir.tensor(numbers, name=value.name)
    with pytest.raises(InputError) as caught:
        read_plan(model)
    assert caught.value.found == f"a scale of {scale:g}"
    assert "GroupQueryAttention" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_present_outputs_can_have_any_order(profile: Profile) -> None:
    pairs = planned(decoder(), profile, "kv8h")[1]
    pairs.graph.outputs[1:] = pairs.graph.outputs[:0:-1]
    model = lower_attention(pairs)
    form, past = decoder_form(model), None
    before = {one.past: one.nothing(3) for one in form.cache}
    with BACKEND.prepare(model) as theirs, BACKEND.prepare(pairs) as ours:
        for tokens in (TOKENS[:, :7], TOKENS[:, 7:8]):
            past = ours.run(feeds(tokens, past))
            found = theirs.run({"input_ids": tokens, **before})
            before = {one.past: found[one.present] for one in form.cache}
            np.testing.assert_allclose(found["logits"], past["logits"], atol=2e-5)


@pytest.mark.parametrize(("schema", "stored"), [("kv8h", 8), ("kv4h", 4)])
def test_how_many_numbers_are_stored_is_known_where_present_leaves_it_open(
    schema: str, stored: int, profile: Profile
) -> None:
    pairs = planned(decoder(), profile, schema)[1]
    for value in pairs.graph.outputs[1:]:
        value.shape = ir.Shape(["N", 2, "S + T", "D"])
    outputs = lower_attention(pairs).graph.outputs[1:]
    assert [value.shape[-1] for value in outputs if value.shape] == [stored] * 4


def value_of(model: ir.Model, name: str) -> ir.Value:
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    return next(value for value in values if value.name == name)


def leaves(model: ir.Model, name: str) -> None:
    model.graph.outputs.append(value_of(model, name))


def is_read(model: ir.Model, name: str, operator: str) -> None:
    """Another output, what ``operator`` makes of the value."""
    node = ir.node(operator, [value_of(model, name)], name="other")
    node.outputs[0].name = "seen"
    model.graph.append(node)
    model.graph.outputs.append(node.outputs[0])


def joins_heads(model: ir.Model, name: str) -> None:
    concat = value_of(model, name).producer()
    assert concat is not None
    concat.attributes["axis"] = ir.AttrInt64("axis", 1)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ((leaves, "layer0.weights"), "'layer0.weights', inside its attention, is an output"),
        ((leaves, "layer1.key.shared"), "'layer1.key.shared', inside its attention, is an output"),
        ((is_read, "layer0.scores", "Shape"), "'layer0.scores' is read 2 times"),
        ((is_read, "present.0.value", "Identity"), "'present.0.value' is read 2 times"),
        ((is_read, "past_key_values.1.key", "ReduceMax"), "the ReduceMax 'other' reads 'past_key"),
        ((is_read, "past_key_values.1.key", "Shape"), "the Shape 'other' reads how many numbers"),
        ((leaves, "past_key_values.1.value"), "'past_key_values.1.value' is an output, too"),
        ((joins_heads, "present.0.key"), "along another axis than that of tokens"),
    ],
)
def test_what_else_reads_keys_values_and_attention_is_one_sentence(
    edit: tuple[Any, ...], words: str, profile: Profile
) -> None:
    model = planned(decoder(), profile, "kv8h")[1]
    change, *names = edit
    change(model, *names)
    with pytest.raises(UnsupportedError) as caught:
        lower_attention(model)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("has_present", [False, True])
def test_an_input_that_is_only_called_key_is_no_past(has_present: bool) -> None:
    model = decoder(keeps=False)
    key = ir.val("key", ir.DataType.FLOAT, ("N", 3))
    model.graph.inputs.append(key)
    if has_present:
        is_read(model, "layer0.key.heads", "Identity")
        model.graph.outputs[-1].name = "present.0.key"
    with pytest.raises(UnsupportedError, match="no inputs of the past"):
        lower_attention(model)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("w8_sym_pc", "are in floats, as 'past_key_values.0.key' is"),
        ("kvf8e4m3h", "other codes than integers"),
        ("kv8h", "is no constant triangle"),
        ("kv8t", "no equal multiples of 8"),
        ("", "no inputs of the past"),
    ],
)
def test_a_decoder_of_another_shape_is_one_sentence(
    schema: str, words: str, profile: Profile
) -> None:
    size = replace(SIZE, width=16) if schema == "kv8t" else SIZE
    model = decoder(size, keeps=bool(schema))
    if schema == "kv8t":
        profile = calibrate(model, [feeds(TOKENS, of=model)], channels=True)
    if schema == "kv8h":
        sees_all = np.zeros((SIZE.places, SIZE.places), np.float32)
        model.graph.initializers["future"].const_value = ir.tensor(sees_all, name="future")
        profile = calibrate(model, [feeds(TOKENS)], channels=True)
    written = planned(model, profile, schema)[1] if schema else model
    with pytest.raises(UnsupportedError) as caught:
        lower_attention(written)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# -- graphs that come with that operator, in floats


GROUPED = replace(SIZE, width=64, layers=1)
"""Of 16 numbers a head, as the operator rotates no fewer."""


def grouped_decoder(*, rotates: bool = False) -> ir.Model:
    """The decoder with the operator in floats."""
    model = written_with_the_operator("kv4t", GROUPED)[2]
    (node,) = (one for one in model.graph if one.op_type == "GroupQueryAttention")
    for name in ("k_quant_type", "v_quant_type", "kv_cache_bit_width"):
        del node.attributes[name]
    node.resize_inputs(9)
    if rotates:
        turns = np.outer(np.arange(SIZE.places), 10.0 ** -np.arange(GROUPED.depth // 2))
        for place, array in enumerate((np.cos(turns), np.sin(turns)), 7):
            name = f"turns{place}"
            tensor = ir.tensor(array.astype(np.float32), name=name)
            value = ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)
            model.graph.initializers[name] = value
            node.replace_input_with(place, value)
        node.attributes["do_rotary"] = ir.AttrInt64("do_rotary", 1)
    of_cache = [one for one in model.graph.inputs if "past" in str(one.name)]
    for value in (*of_cache, *model.graph.outputs[1:]):
        value.type = ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape([*value.shape[:-1], GROUPED.depth])
    return model


def grouped_pairs(model: ir.Model, schema: str, tokens: Any = TOKENS[:1, :2]) -> Any:
    chosen = get_schema(schema)
    pipeline = chosen.canonical
    profile = calibrate(model, [feeds(tokens, of=model)], channels=True, pipeline=pipeline)
    plan = make_plan(model, profile, chosen)
    return plan, insert_qdq(plannable(model, pipeline), plan)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize("schema", ["kv8h", "kv4c", "kv8c", "kv8t", "kv4t", "kv4h"])
def test_an_operator_in_floats_gets_the_codes_that_its_floats_have(
    schema: str, rotates: bool
) -> None:
    model = grouped_decoder(rotates=rotates)
    plan, pairs = grouped_pairs(model, schema)
    written = lower_attention(pairs)
    bits, form = int(schema[2]), decoder_form(written)
    assert [kept_type(one) for one in written.graph if kept_type(one)] == [f"int{bits}"]
    assert read_plan(written).cached_values.keys() == {one.past for one in form.cache}
    tokens = TOKENS[:1]
    (real,) = run(model, feeds(tokens, of=model))
    past = None
    with BACKEND.prepare(written) as executor:
        for step in (tokens[:, :7], tokens[:, 7:8], tokens[:, 8:]):
            past = executor.run(feeds(step, past, of=written))
    assert past is not None
    assert np.abs(past["logits"] - real["logits"][:, 8:]).max() > 1e-4
    for (name, qparams), one in zip(plan.cached_values.items(), form.cache, strict=True):
        half = 1 << (bits - 1)
        is_narrow = bits == 8 and not (rotates and "key" in one.present)
        exact = np.rint(real[one.present] / levels(qparams, GROUPED.kept_heads)[None])
        expected = np.clip(exact, is_narrow - half, half - 1).astype(np.int64)
        assert (np.abs(exact) > half).any() or schema == "kv4t"  # of which two tokens are enough
        np.testing.assert_array_equal(codes_of(past[one.present], bits), expected, name)


def test_pairs_behind_an_operator_in_floats_are_no_form_of_their_own() -> None:
    _, pairs = grouped_pairs(grouped_decoder(), "kv8h")
    for form in ("qdq", "nbits", "qoperator"):
        with pytest.raises(UnsupportedError, match="--form gqa") as caught:
            in_form(pairs, form)
        assert "GroupQueryAttention" in caught.value.found
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "edit", "words"),
    [
        ("w8_sym_pc", (), "are in floats, as 'past_key_values.0.key' is"),
        ("kvf8e4m3h", (), "in other codes than integers"),
        ("kv8h", (is_read, "past_key_values.0.key", "ReduceMax"), "reads 'past_key_values.0.key'"),
        ("kv8h", (is_read, "past_key_values.0.value", "Shape"), "how many numbers"),
    ],
)
def test_what_an_operator_in_floats_cannot_keep_is_one_sentence(
    schema: str, edit: tuple[Any, ...], words: str
) -> None:
    pairs = grouped_pairs(grouped_decoder(), schema)[1]
    for change, *names in [edit] if edit else []:
        change(pairs, *names)
    with pytest.raises(UnsupportedError) as caught:
        lower_attention(pairs)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# -- files next to a float model of the catalogue


def test_a_file_is_fed_and_judged_as_its_float_model_is(tmp_path: Path) -> None:
    network, path = gloss_decoder(), tmp_path / "given.onnx"
    graph = network.loaded()["model"]
    save_model(graph, path)
    words = ("gloss_windows_few", None, (), None)
    given = build_subject("gloss_decoder", *words, given=str(path)).given
    assert given is not None
    assert (given.task, given.preprocess) == (network.task, network.preprocess)
    with pytest.raises(InputError, match="with --fp32"):
        build_subject(str(path), *words)
    with pytest.raises(InputError, match="Leave --output out"):
        build_subject("gloss_decoder", *words, given=str(path), output="logits")
    graph.graph.outputs[0].name = "scores"
    save_model(graph, path)
    with pytest.raises(InputError, match="other inputs or outputs: logits, scores"):
        build_subject("gloss_decoder", *words, given=str(path))


# -- a reference that ran with a quantized cache


def test_a_quantized_cache_is_found_in_a_model(profile: Profile) -> None:
    assert quantized_cache(decoder()) == ""
    assert quantized_cache(decoder(keeps=False)) == ""
    for schema in ("kv8h", "kv8c"):
        found = quantized_cache(planned(decoder(), profile, schema)[1])
        assert found == "'present.0.key' between QuantizeLinear and DequantizeLinear"
    narrow = decoder()
    value = next(one for one in narrow.graph.inputs if one.name == "past_key_values.1.value")
    value.dtype = ir.DataType.INT8
    assert quantized_cache(narrow) == "'past_key_values.1.value' in int8"
