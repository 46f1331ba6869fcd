"""Faults of single quantized values, and faults too small for one layer to show."""

from dataclasses import replace

from qbench.faults import arithmetics, biases, weight_grids
from qbench.faults.fault import Fault, Story

_BY_NAME = {one.name: one for one in (*arithmetics.FAULTS, *biases.FAULTS, *weight_grids.FAULTS)}


def _several(of: str, name: str, count: int, summary: str, story: Story) -> Fault:
    return replace(_BY_NAME[of], name=name, at_once=count, summary=summary, story=story)


FAULTS = (
    _several(
        "weight-scale-as-float16",
        "two-layers-with-float16-scales",
        2,
        "Two layers store their scales in half precision.",
        Story("microsoft/onnxruntime#25259", "Two optimizers, each harmless by itself, changed a model's results."),
    ),
    _several(
        "multiplier-of-seven-bits",
        "two-layers-with-short-multipliers",
        2,
        "Two layers keep 7 bits of their multipliers.",
        Story("qualcomm/aimet#3978", "The gap between simulation and device grew with every layer."),
    ),
    _several(
        "rounded-twice",
        "three-layers-rounded-twice",
        3,
        "Three layers round their products twice.",
        Story("ARM-software/CMSIS-NN#214", "Products are rounded twice, those of the dense layer once."),
    ),
    _several(
        "bias-in-eight-bits",
        "three-layers-with-short-biases",
        3,
        "Three layers keep 8 significant bits of their biases.",
        Story("Samsung/ONE#10111", "Scales that were too small let biases of several layers overflow."),
    ),
)
"""Those of this file."""
