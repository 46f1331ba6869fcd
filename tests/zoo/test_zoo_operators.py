"""Operator subjects: what their names say, and that their levels are where kernels part ways."""

import subprocess
import sys

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.extension import Extension
from qbench.graph import check_convention, graph_digest
from qbench.judging import Cell
from qbench.numerics import dequantize, get_arithmetic, quantize, requantize
from qbench.subjects import (
    WholeOutput,
    bias_codes,
    fed_codes,
    get_dataset,
    get_model,
    get_operator,
    list_operators,
    model_catalogue,
    operator_feeds,
    operator_graph,
    prepare_samples,
    weight_codes,
)

SOME = (
    "op.conv.dense.u8s8.ties",
    "op.gemm.plain.s8s8.pc",
    "op.add.u8.real",
    "op.concat.s8.ties",
    "op.pad.u8",
)


def test_all_names_fit_cells_and_all_operators_are_there() -> None:
    names = list_operators()
    for name in names:
        Cell("operators", name, "mine", "given")
    for operator in (
        *(
            "conv",
            "convtranspose",
            "gemm",
            "matmul",
            "add",
            "sub",
            "mul",
            "div",
            "concat",
            "averagepool",
            "maxpool",
        ),
        *(
            "globalaveragepool",
            "reducemean",
            "relu",
            "clip",
            "leakyrelu",
            "sigmoid",
            "tanh",
            "hardswish",
            "gelu",
        ),
        *("softmax", "resize", "pad", "requantize"),
    ):
        assert any(name.startswith(f"op.{operator}.") for name in names), operator
    assert list_operators("op.conv.depthwise.c*") == tuple(
        n for n in names if n.startswith("op.conv.depthwise.c")
    )


@pytest.mark.parametrize("operator", ["conv", "gemm", "add", "pad", "softmax", "clip"])
def test_graphs_keep_the_convention_and_feeds_are_levels(operator) -> None:
    for name in list_operators(f"op.{operator}.*"):
        subject = get_operator(name)
        assert check_convention(operator_graph(subject)) == (), name
        for operand, real, codes in zip(
            subject.inputs, operator_feeds(subject).values(), fed_codes(subject), strict=True
        ):
            assert real.dtype == np.float32
            assert np.array_equal(quantize(real, operand.qparams.as_arrays()), codes), name


@pytest.mark.parametrize("machine", ["ideal", "gemmlowp", "fbgemm", "glow-cpu"])
def test_no_rule_of_quantizing_moves_what_is_fed(machine) -> None:
    """Machines divide or multiply by the reciprocal,
    and add the zero point before or after rounding.
    """
    for qparams in {
        operand.qparams for name in list_operators() for operand in get_operator(name).inputs
    }:
        low, high = qparams.ends
        codes = np.arange(low, high + 1)
        real = dequantize(codes, qparams.as_arrays())
        assert np.array_equal(
            quantize(real, qparams.as_arrays(), get_arithmetic(machine)), codes
        ), qparams


@pytest.mark.parametrize("name", SOME)
def test_a_subject_is_the_same_whenever_it_is_made(name) -> None:
    subject = get_operator(name)
    assert graph_digest(operator_graph(subject)) == graph_digest(operator_graph(subject))
    assert get_dataset(name).digest == get_dataset(name).digest
    others = [other for other in SOME if other != name]
    assert get_dataset(name).digest not in {get_dataset(other).digest for other in others}


@pytest.mark.parametrize("types", ["u8s8", "s8s8", "u8u8"])
@pytest.mark.parametrize("operator", ["gemm", "matmul"])
def test_every_second_sum_of_ties_is_one(operator, types) -> None:
    subject = get_operator(f"op.{operator}.plain.{types}.ties")
    (x,), weight = fed_codes(subject), weight_codes(subject)
    assert subject.weight is not None
    (multiplier,) = subject.multipliers
    assert np.frexp(multiplier)[0] == 0.5
    sums = (x - subject.inputs[0].qparams.zero_point) @ (weight - subject.weight.qparams.zero_point)
    sums = sums + bias_codes(subject) if subject.bias else sums
    many = (len(x) - 4) // 2
    ties = sums[4 : 4 + many, ..., :-2] * multiplier % 1 == 0.5
    assert 0.35 < ties.mean() < 0.65
    codes = {
        name: requantize(
            sums, (multiplier, 1.0, 1.0), subject.output.zero_point, subject.output.qtype, name
        )
        for name in ("ideal", "tflite-single", "gemmlowp", "onednn")
    }
    for other in ("tflite-single", "gemmlowp", "onednn"):  # half up; twice; the zero point before
        assert np.count_nonzero(codes[other] != codes["ideal"]) > 5, other


def test_channels_have_both_kinds_of_multipliers() -> None:
    subject = get_operator("op.conv.dense.u8s8.pc")
    fractions = np.frexp(np.array(subject.multipliers))[0]
    assert (fractions[::2] == 0.5).all()
    assert len(set(subject.multipliers[::2])) == 2
    assert (fractions[1::2] != 0.5).all()


def test_all_pairs_and_all_levels_are_fed_and_no_divisor_is_0() -> None:
    left, right = fed_codes(get_operator("op.add.s8.ties"))
    assert len({*zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)}) == 65536
    (unary,) = fed_codes(get_operator("op.sigmoid.u8"))
    assert {*unary[2].ravel().tolist()} == set(range(256))
    divide = get_operator("op.div.u8.real")
    assert (fed_codes(divide)[1] != divide.inputs[1].qparams.zero_point).all()


def test_ends_of_weights_biases_and_data_are_reached() -> None:
    subject = get_operator("op.conv.grouped.s8s8.pc")
    weight, bias, (x,) = weight_codes(subject), bias_codes(subject), fed_codes(subject)
    assert (weight[-2] == -128).all()
    assert (weight[-1] == 127).all()
    assert bias[1] == -bias[2] == 1 << 22
    assert (x[0] == -128).all()
    assert (x[1] == 127).all()


@pytest.mark.parametrize(
    "name", ["op.conv.asymmetric.u8s8.pc", "op.matmul.plain.u8u8.ties", "op.mul.u8.ties"]
)
def test_the_engine_counts_as_its_arithmetic(name) -> None:
    subject = get_operator(name)
    model, feeds = operator_graph(subject), operator_feeds(subject)
    with (
        get_backend("ort-cpu-precise").prepare(model) as engine,
        get_backend("integer-ort-x64").prepare(model) as ours,
    ):
        np.testing.assert_array_equal(engine.run(feeds)["y"], ours.run(feeds)["y"])


def test_the_zoo_knows_them_without_listing_them() -> None:
    assert get_model("op.add.u8.ties").id == "op.add.u8.ties"
    assert not any(name.startswith("op.") for name in model_catalogue().names())
    with pytest.raises(InputError, match=r"Did you mean 'op\.conv\.dense\.u8s8\.ties'"):
        get_model("op.conv.dens.u8s8.ties")
    with pytest.raises(InputError, match="Did you mean 'mobilenet_v2'"):
        get_model("mobilenet_v3")
    with pytest.raises(InputError, match=r"unknown operator subject 'op\.cnv\.\*'"):
        list_operators("op.cnv.*")
    with pytest.raises(InputError, match="'qbench' defines the same name"):
        model_catalogue([Extension(name="house", models={"op.add.u8.ties": lambda: None})])


def test_listing_them_loads_no_arrays() -> None:
    code = "import sys, qbench.subjects as z; z.list_operators(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Answering:
    """A runner with one answer."""

    def __init__(self, answer) -> None:
        self.answer = answer

    def run(self, feeds):
        return {"y": self.answer(feeds)}


def test_answers_are_equal_where_outputs_are(tmp_path) -> None:
    from qbench.storage import Cache

    samples = prepare_samples(
        get_dataset("op.sigmoid.u8"), get_model("op.sigmoid.u8").preprocess, Cache(tmp_path)
    )
    task = WholeOutput()
    same = task.answer({"model": Answering(lambda feeds: feeds["x"])}, samples)
    assert same.ids.shape == (len(samples), 3 * 7 * 13)
    signed = task.answer(
        {"model": Answering(lambda feeds: np.where(feeds["x"] == 0, np.float32(-0.0), feeds["x"]))},
        samples,
    )
    assert signed.digest == same.digest
    nudged = task.answer(
        {"model": Answering(lambda feeds: np.nextafter(feeds["x"], np.float32(9)))}, samples
    )
    assert nudged.digest != same.digest
    with pytest.raises(InputError, match="with NaN or Inf"):
        task.answer({"model": Answering(lambda feeds: feeds["x"] * np.float32("nan"))}, samples)
    with pytest.raises(InputError, match="4 samples along the first axis"):
        task.answer({"model": Answering(lambda feeds: feeds["x"][:1])}, samples)
