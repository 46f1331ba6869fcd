"""One operator on trial: right kernels pass,
wrong ones are told where and by what mistake they differ.
"""

import ast
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from trial_kernels import Conv, add_half_up

from qbench.backends import get_backend
from qbench.diagnosis import check_operator
from qbench.errors import InputError
from qbench.numerics import get_arithmetic
from qbench.subjects import bias_codes, fed_codes, get_operator, weight_codes

TIES = "op.conv.dense.u8s8.ties"


@pytest.mark.parametrize(
    "subject",
    [
        *(
            "op.conv.dense.u8s8.real",
            "op.conv.grouped.s8s8.pc",
            "op.conv.depthwise.u8s8.pc",
            "op.conv.dilated.u8s8.ties",
        ),
        *("op.conv.asymmetric.u8s8.pc", "op.conv.strided.s8s8.pc", "op.conv.in3.out31.u8s8.pc"),
    ],
)
def test_a_right_kernel_passes(subject) -> None:
    check_operator(Conv(), subject, "ort-x64")


@pytest.mark.slow
def test_a_multiplier_of_few_bits_is_tried_with_sums_that_fit_it():
    with pytest.raises(AssertionError, match="a clamp, beyond the codes"):
        check_operator(Conv(wrapping=True), "op.conv.dense.s8s8.real", "ideal")


STEP, CLAMP = r"a step, \d+ codes? away, and no tie", r"a clamp, beyond the codes -128 … 127"


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("kernel", "subject", "rule", "mistake"),
    [
        (Conv(half_up=True), TIES, "a tie, halfway", "rounding 'half_up' in place of 'half_even'"),
        (Conv(zero_padding=True), TIES, STEP, "padding with code 0 in place of the zero point"),
        (Conv(saturating=True), TIES, "codes away", "pairs of products that saturate in 16 bits"),
        (
            Conv(wrapping=True),
            "op.conv.dense.s8s8.real",
            CLAMP,
            "codes that wrap in place of being clamped",
        ),
        (Conv(no_bias=True), "op.conv.pointwise.u8s8.pc", "", "a bias that is left out"),
    ],
)
def test_a_mistake_is_named(kernel, subject, rule, mistake) -> None:
    with pytest.raises(AssertionError) as caught:
        check_operator(kernel, subject, "ort-x64")
    first, where, there, last = str(caught.value).splitlines()
    assert first.startswith(f"{subject} on 'conv': ")
    assert " elements differ from 'ort-x64', by at most " in first
    assert where.startswith("First at [")
    assert "accumulator" in there
    assert re.search(rule, there)
    assert last == f"Every element is what 'ort-x64' gives with {mistake}."


def test_the_first_element_is_told_in_numbers_that_are_right() -> None:
    """Against sums by hand, at the place that the message names."""
    with pytest.raises(AssertionError) as caught:
        check_operator(Conv(half_up=True), "op.conv.pointwise.u8s8.ties", "ort-x64")
    text = str(caught.value)
    place = tuple(ast.literal_eval(re.search(r"First at (\[.*?\])", text).group(1)))
    subject = get_operator("op.conv.pointwise.u8s8.ties")
    (x,), sample, channel = fed_codes(subject), place[0], place[1]
    centred = x[sample, :, place[2], place[3]] - subject.inputs[0].qparams.zero_point
    total = int(centred @ weight_codes(subject)[channel, :, 0, 0] + bias_codes(subject)[channel])
    multiplier = Fraction(subject.multipliers[0])
    assert f"accumulator {total}, multiplier {float(multiplier)}" in text
    exact = total * multiplier + subject.output.zero_point
    assert exact.denominator == 2
    expected, found = (
        int(number) for number in re.search(r"expected (\d+), found (\d+)", text).groups()
    )
    assert found == exact + Fraction(1, 2)
    assert expected == found - 1
    assert (expected - subject.output.zero_point) % 2 == 0


@pytest.mark.slow
def test_a_mistake_that_is_not_known_is_not_made_up() -> None:
    def off_by_one(*arrays):
        codes = Conv()(*arrays)
        codes[3, 2, 1, 1] ^= 1
        return codes

    with pytest.raises(AssertionError) as caught:
        check_operator(off_by_one, TIES, "ort-x64")
    assert "on 'off_by_one': 1 of 2240 elements differ from 'ort-x64', by at most 1 code." in str(
        caught.value
    )
    assert "First at [3, 2, 1, 1]" in str(caught.value)
    assert "Every element" not in str(caught.value)


@pytest.mark.slow
def test_operators_without_a_sum_tell_the_exact_result() -> None:
    with pytest.raises(AssertionError) as caught:
        check_operator(add_half_up, "op.add.u8.ties", "ideal")
    assert "exact result" in str(caught.value)
    assert "a tie, halfway between two codes" in str(caught.value)
    check_operator(add_half_up, "op.add.u8.ties", "tflite-single")


@pytest.mark.slow
def test_backends_are_tried_as_kernels_are(tmp_path) -> None:
    check_operator("ort-cpu-precise", TIES, "ort-x64")
    check_operator(get_backend("integer-gemmlowp"), "op.add.u8.ties", get_arithmetic("gemmlowp"))
    with pytest.raises(AssertionError, match=r"on 'integer-ort-x64-avx2': \d+ of 2240 elements"):
        check_operator("integer-ort-x64-avx2", TIES, "ort-x64")
    with pytest.raises(AssertionError, match="Every element is what 'gemmlowp' gives"):
        check_operator("integer-gemmlowp", "op.add.u8.ties", "ort-x64")


@pytest.mark.slow
def test_an_engine_that_leaves_the_grid_is_told_so() -> None:
    with pytest.raises(AssertionError, match="not a code, a real number between two codes"):
        check_operator("ort-cpu", "op.requantize.u8.real", "ort-x64")


def test_an_arithmetic_may_be_a_file(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nsource = "a data sheet"\n[scaling]\nform = "float32"\n'
        'precision = "single"\n'
        'stages = [{ rounding = "half_up" }]\n'
    )
    check_operator(Conv(half_up=True), TIES, path)
    check_operator(Conv(half_up=True), TIES, str(path))
    with pytest.raises(
        AssertionError,
        match=r"differ from 'mine'.*\n.*\n.*tie.*\n.*'mine' gives with rounding 'half_even'",
    ):
        check_operator(Conv(), TIES, path)


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(
        AssertionError, match=r"found codes of shape \(2240,\); expected \(8, 8, 7, 5\)"
    ):
        check_operator(lambda *arrays: Conv()(*arrays).reshape(-1), TIES, "ort-x64")
    with pytest.raises(TypeError, match="integers, not float32"):
        check_operator(lambda *arrays: Conv()(*arrays).astype(np.float32), TIES, "ort-x64")
    with pytest.raises(InputError, match="Did you mean 'ort-x64'"):
        check_operator(Conv(), TIES, "ort-x46")
    with pytest.raises(InputError, match="power of two"):
        check_operator(Conv(), "op.conv.dense.u8s8.real", "tqt")


def test_a_subject_may_be_changed() -> None:
    subject = get_operator(TIES)
    check_operator(
        Conv(), replace(subject, attributes={**subject.attributes, "strides": (2, 2)}), "ort-x64"
    )
