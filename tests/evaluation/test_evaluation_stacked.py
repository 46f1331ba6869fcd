"""The samples of many batches along one axis, as quantizers and fitting receive them."""

import numpy as np

from qbench.evaluation.quantizer_run import stacked


def test_the_most_frequent_shape_is_that_of_most_samples() -> None:
    sizes = [(64, 4), (1, 5), (1, 5)]
    batches = [{"x": np.ones(shape, np.float32)} for shape in sizes]
    assert stacked(batches, "Fitting", "Stop.")["x"].shape == (64, 4)
