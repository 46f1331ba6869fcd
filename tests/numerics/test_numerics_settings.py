"""Settings that no machine has are one sentence when they are written down,
not wrong numbers later.
"""

from dataclasses import replace

import numpy as np
import pytest

from qbench.errors import InputError
from qbench.numerics import (
    Accumulator,
    MultiplierForm,
    Override,
    Rounding,
    Stage,
    get_arithmetic,
    load_arithmetic,
    requantize,
)

GEMMLOWP = get_arithmetic("gemmlowp")
FIXED = GEMMLOWP.scaling


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bits": 0}, "2 to 64 bits"),
        ({"bits": -1}, "2 to 64 bits"),
        ({"bits": 65}, "2 to 64 bits"),
        ({"pair_bits": -3}, "'pair_bits'"),
        ({"pair_bits": 1}, "'pair_bits'"),
        ({"pair_bits": 33}, "'pair_bits'"),
    ],
)
def test_registers(settings, words):
    with pytest.raises(ValueError, match=words):
        Accumulator(**settings)


@pytest.mark.parametrize("bits", [-3, 0, 63, 70])
def test_stages(bits):
    with pytest.raises(ValueError, match="1 to 62 bits"):
        Stage(Rounding.HALF_UP, bits)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inner_bits": -2}, "'inner_bits'"),
        ({"inner_bits": 1}, "'inner_bits'"),
        ({"inner_bits": 41}, "'inner_bits'"),
        ({"form": MultiplierForm.SHORT, "bits": 0, "product_bits": -1}, "'product_bits'"),
        ({"form": MultiplierForm.SHORT, "bits": 0, "product_bits": 65}, "'product_bits'"),
        (
            {
                "stages": (
                    Stage(Rounding.FLOOR, 40),
                    Stage(Rounding.FLOOR, 40),
                    Stage(Rounding.FLOOR),
                )
            },
            "62 bits in all",
        ),
    ],
)
def test_scalings(settings, words):
    with pytest.raises(ValueError, match=words):
        replace(FIXED, **settings)


def test_sums_and_factors_fit_a_product_of_64_bits():
    wide = Accumulator(bits=40)
    with pytest.raises(ValueError, match="40 bits times a multiplier of 31"):
        replace(GEMMLOWP, overrides=(), accumulator=wide)
    for override in (
        Override(operators=("Conv",), accumulator=wide),
        Override(operators=("Conv",), scaling=FIXED),
    ):
        own = replace(FIXED, bits=15, stages=FIXED.stages[1:])
        with pytest.raises(ValueError, match="times a multiplier of 31"):
            replace(
                GEMMLOWP,
                scaling=FIXED if override.accumulator else own,
                accumulator=Accumulator() if override.accumulator else wide,
                overrides=(override,),
            )
    assert (
        replace(
            GEMMLOWP, overrides=(), accumulator=wide, scaling=replace(FIXED, bits=23)
        ).accumulator
        == wide
    )
    assert replace(get_arithmetic("ideal"), accumulator=Accumulator(bits=64)).accumulator.bits == 64


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("accumulator = { bits = 100 }", "2 to 64 bits"),
        ('adding = { scheme = "weighted" }', "weights of 8 to 31 bits"),
        (
            'overrides = [{ operators = ["Conv"], accumulator = { bits = 50 } }]',
            "50 bits times a multiplier of 31",
        ),
    ],
)
def test_a_file_says_so_when_it_is_read(line, words, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f'source = "x"\nscaling = {{ form = "fixed", bits = 31 }}\n{line}\n')
    with pytest.raises(InputError, match=words):
        load_arithmetic(path)


@pytest.mark.parametrize("machine", ["nvdla", "gemmlowp", "neon", "glow-cpu", "tvm-tonearest"])
def test_channels_do_not_see_each_other(machine):
    """One that shifts left beside one that does not, sums wider than what is shifted."""
    sums = np.array([[(1 << 33) - 1, 65535 * 1000, -70_000, 12345]]).T * np.ones((1, 2), np.int64)
    weights = np.array([2.0**16, 0.001], np.float32)
    both = requantize(sums, (1.0, weights, 1.0), 0, "int32", machine)
    for channel, weight in enumerate(weights):
        alone = requantize(sums[:, channel], (1.0, weight, 1.0), 0, "int32", machine)
        np.testing.assert_array_equal(both[:, channel], alone)


@pytest.mark.parametrize("multiplier", [2.0**31, 2.0**70, 1e30])
def test_a_factor_beyond_every_integer_is_one_sentence(multiplier):
    with pytest.raises(InputError, match=r"below 2\^31"):
        requantize([1], (multiplier, 1.0, 1.0), 0, "int8", "glow-cpu")
