"""esp-ppq's analysers, asked about a faulty quantized graph: rankings of float operators, the
noisiest first.

It quantizes the float graph itself, 8 bits, weights per channel, in an environment of its own
(``esp_ppq_worker.py``). Where the faulty graph has another weight, bias or range than the right
one, the quantized side gets just that: as real numbers, or as scale and zero point. What is no such
difference cannot be said there.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from rival_ort import LEVELS, PAIRS, Array, Ranking, Sick, constants_of, grid_key

from qbench.backends import EnvironmentMaker
from qbench.graph import constant_value, is_constant, node_qparams, save_model
from qbench.numerics import QParams, dequantize

ESP_PPQ = ("esp-ppq layerwise", "esp-ppq graphwise")
REQUIREMENTS = ("esp-ppq==1.3.12", "torch==2.13.0", "onnx<1.20")
_WORKER = Path(__file__).with_name("esp_ppq_worker.py")


def ask_esp_ppq(
    sicks: Sequence[Sick], feeds: Sequence[Mapping[str, Array]]
) -> list[dict[str, Ranking | None]]:
    """The lists of esp-ppq's two analysers for every one of ``sicks``, all of one float graph;
    None: it has no place.

    It quantizes the float graph itself (8 bits, weights per channel). Where the faulty graph has
    another weight, bias or range than the right one, the quantized side gets just that, as real
    numbers or as scale and zero point. What is not such a difference cannot be said there.
    """
    arrays: dict[str, Array] = {}
    jobs = [job_of(sick, arrays) for sick in sicks]
    (names,) = {tuple(feed) for feed in feeds}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        save_model(sicks[0].original, here / "float.onnx")
        np.savez(
            here / "feeds.npz",
            **{name: np.concatenate([feed[name] for feed in feeds]) for name in names},
        )
        np.savez(here / "arrays.npz", **arrays)
        (here / "jobs.json").write_text(
            json.dumps([job for job in jobs if job is not None]), encoding="utf-8"
        )
        python = EnvironmentMaker().make(REQUIREMENTS)
        subprocess.run(
            [os.fspath(python), "-I", os.fspath(_WORKER), folder],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        answers = iter(json.loads((here / "answers.json").read_text(encoding="utf-8")))
    return [_esp_rankings(next(answers) if job is not None else None) for job in jobs]


def _esp_rankings(answer: Mapping[str, Mapping[str, float]] | None) -> dict[str, Ranking | None]:
    if answer is None:
        return dict.fromkeys(ESP_PPQ)
    tables = [answer[tool.split()[1]] for tool in ESP_PPQ]
    return {
        tool: [{name} for name in sorted(table, key=lambda name: -table[name])]
        for tool, table in zip(ESP_PPQ, tables, strict=True)
    }


def job_of(sick: Sick, arrays: dict[str, Array]) -> dict[str, Any] | None:
    """What differs, if it is parameters and ranges alone; arrays go to ``arrays``."""
    if _shape_of(sick.right) != _shape_of(sick.wrong):
        return None
    right, wrong = _grids(sick.right), _grids(sick.wrong)
    if any(len({grid_key(grid) for grid in grids}) > 1 for grids in wrong.values()):
        return None  # a Q and its DQ disagree
    ranges = {}
    for name, grids in wrong.items():
        if grid_key(grids[0]) != grid_key(right[name][0]):
            level = int(grids[0].zero_point) - grids[0].qtype.qmin - 128
            ranges[name.removesuffix(LEVELS)] = [float(grids[0].scale), level]
    parameters: dict[str, str] = {}
    before, after = _parameters(sick.right), _parameters(sick.wrong)
    for name, array in after.items():
        # biases that follow another range of their operand are rounded anew, which is no fault
        if not np.array_equal(array, before[name]) and not (ranges and _is_bias(name)):
            key = parameters[name.removesuffix(LEVELS)] = str(len(arrays))
            arrays[key] = array
    return {"parameters": parameters, "ranges": ranges} if parameters or ranges else None


def _is_bias(name: str) -> bool:
    return "bias" in name


def _shape_of(model: ir.Model) -> list[tuple[str, str]]:
    """The operators and their attributes, those of pairs left out."""
    return [
        (
            node.op_type,
            repr(sorted((name, str(one.value)) for name, one in node.attributes.items())),
        )
        for node in model.graph
        if node.op_type not in PAIRS
    ]


def _grids(model: ir.Model) -> dict[str, list[QParams]]:
    """Levels → the grids of their Q and DQs."""
    found: dict[str, list[QParams]] = {}
    for node in model.graph:
        grid = (
            node_qparams(node)
            if node.op_type in PAIRS and not is_constant(node.inputs[0])
            else None
        )
        if grid is not None:
            levels = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
            assert levels is not None
            found.setdefault(str(levels.name), []).append(grid)
    return found


def _parameters(model: ir.Model) -> dict[str, Array]:
    """Name of the constant levels, as in the right graph → real numbers."""
    found = {}
    for key, node in constants_of(model).items():
        levels, grid = constant_value(node.inputs[0]), node_qparams(node)
        assert levels is not None
        assert grid is not None
        found[key.split("_for_")[0]] = dequantize(levels, grid)
    return found
