"""Every fault by its name."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from qbench.errors import unknown_name
from qbench.faults import (
    arithmetics,
    biases,
    kernels,
    limits,
    memory,
    operands,
    profiles,
    values,
    weight_qparams,
    weights,
    windows,
)
from qbench.faults.fault import Fault, Story

_FILES = (
    kernels,
    windows,
    weight_qparams,
    weights,
    biases,
    operands,
    limits,
    values,
    memory,
    arithmetics,
    profiles,
)
_SINGLE: Mapping[str, Fault] = MappingProxyType(
    {fault.name: fault for file in _FILES for fault in file.FAULTS}
)


def _several(of: str, name: str, count: int, summary: str, story: Story) -> Fault:
    """The fault ``of`` at ``count`` operators at once: too small for one layer to show."""
    return replace(_SINGLE[of], name=name, at_once=count, summary=summary, story=story)


_SEVERAL = (
    _several(
        "weight-scale-as-float16",
        "two-layers-with-float16-scales",
        2,
        "Two layers store their scales in half precision.",
        Story(
            "microsoft/onnxruntime#25259",
            "Two optimizers, each harmless by itself, changed a model's results.",
        ),
    ),
    _several(
        "multiplier-of-seven-bits",
        "two-layers-with-short-multipliers",
        2,
        "Two layers keep 7 bits of their multipliers.",
        Story(
            "qualcomm/aimet#3978", "The gap between simulation and device grew with every layer."
        ),
    ),
    _several(
        "rounded-twice",
        "three-layers-rounded-twice",
        3,
        "Three layers round their products twice.",
        Story(
            "ARM-software/CMSIS-NN#214",
            "Products are rounded twice, those of the dense layer once.",
        ),
    ),
    _several(
        "bias-in-eight-bits",
        "three-layers-with-short-biases",
        3,
        "Three layers keep 8 significant bits of their biases.",
        Story(
            "Samsung/ONE#10111", "Scales that were too small let biases of several layers overflow."
        ),
    ),
)

CATALOGUE: Mapping[str, Fault] = MappingProxyType(
    {**_SINGLE, **{fault.name: fault for fault in _SEVERAL}}
)
"""Name → fault, in the order of docs/faults.md."""


def get_fault(name: str) -> Fault:
    """The fault called ``name``.

    Raises:
        InputError: no such fault; the nearest name is suggested.
    """
    if name not in CATALOGUE:
        raise unknown_name("Looking up a fault", "fault", name, CATALOGUE)
    return CATALOGUE[name]


# The catalogue as rows of a Markdown table: what docs/faults.md shows.

HEAD = (
    "| fault | stage | what it does | a right cause | where it happened |",
    "|---|---|---|---|---|",
)


def fault_rows() -> tuple[str, ...]:
    """One row a fault, in the order of the catalogue, below its head."""
    return HEAD + tuple(
        f"| `{fault.name}` | {fault.stage.value} | {fault.summary} | "
        f"{' or '.join(one.value for one in fault.causes)} "
        f"| {fault.story.thread}: {fault.story.sentence} |"
        for fault in CATALOGUE.values()
    )
