"""How fast declared accumulators sum products of floats, and how far they are from exact sums.

    python benchmarks/float_sums.py [--depth 1024]

64 rows by 128 columns of random normal numbers as float8e4m3fn, the largest 7. Of each arithmetic:
millions of products per second of processor, compiled and by numpy; the largest and the root mean
square difference from exact sums, in shares of the root mean square of these.
"""

import argparse
import time

import numpy as np

from qbench.interpreter.gemm import float_gemm
from qbench.interpreter.kernel import Means
from qbench.interpreter.summed_columns import sums_by
from qbench.numerics import FLOAT_FORMATS, FloatSums, get_arithmetic, list_arithmetics

ROWS, COLUMNS, REPEATS = 64, 128, 3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=1024)
    depth = parser.parse_args().depth
    random, form = np.random.default_rng(28), FLOAT_FORMATS["float8e4m3fn"]
    left, right = (
        form.numbers[form.encode(x / np.abs(x).max() * form.largest)].astype(np.float64)
        for x in (random.normal(size=(ROWS, depth)), random.normal(size=(depth, COLUMNS)))
    )
    left /= 64  # else float16 overflows, which has 65504 for its largest
    right /= 64
    exact = left @ right  # in float64: whole multiples of 2⁻³⁰ that 53 bits hold
    size = np.sqrt(np.mean(exact**2))
    print("arithmetic           compiled  numpy  largest    rms")
    for name in list_arithmetics():
        rules = get_arithmetic(name).floats
        if rules is None:
            continue
        sums, compiled = timed(left, right, rules, compiled=True)
        _, plain = timed(left, right, rules, compiled=False)
        error = np.abs(sums - exact) / size
        rms = np.sqrt(np.mean(error**2))
        print(f"{name:20} {compiled:8.0f} {plain:6.0f}  {error.max():.2g}  {rms:.2g}")


def timed(
    left: np.ndarray, right: np.ndarray, rules: FloatSums, *, compiled: bool
) -> tuple[np.ndarray, float]:
    """The sums, and millions of products per second of processor."""
    sums = sums_by(rules, Means(float_gemm, compiled=compiled))
    found = sums(left, right)  # compiled here, before it is timed
    return found, rate(lambda: sums(left, right), left.shape[1])


def rate(run: object, depth: int) -> float:
    """Millions of products per second of processor, the best of a few runs."""
    assert callable(run)
    best = np.inf
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return ROWS * COLUMNS * depth / best / 1e6


if __name__ == "__main__":
    main()
