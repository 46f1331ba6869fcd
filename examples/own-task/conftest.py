"""A task with answers of a form of its own: when something begins in a signal, with a metric
and a network for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from qbench import Extension
from qbench.metrics import Against, Answers, Counts, Direction, Metric
from qbench.subjects import Dataset, ReadyArray, ZooModel

LENGTH = 128

# ---- the answers: what is compared, stored and scored


@dataclass(frozen=True, eq=False)
class Onsets(Answers):
    """``times`` (n, m) int16: where something begins in each signal, in steps, rising;
    −1 behind the last.
    """

    times: np.ndarray

    form = "onsets"

    def arrays(self) -> Mapping[str, np.ndarray]:
        """All that is stored, with one row for each signal."""
        return {"times": self.times}

    def agreement_with(self, reference: "Onsets") -> tuple[np.ndarray, np.ndarray]:
        """What ``agreement`` counts: onsets at the very step of one of fp32's, out of the
        larger number of the two.
        """
        pairs = [(set(of(a)), set(of(b))) for a, b in zip(self.times, reference.times, strict=True)]
        hits = [len(now & before) if now or before else 1 for now, before in pairs]
        return np.array(hits), np.array([max(len(now), len(before), 1) for now, before in pairs])


def of(row: np.ndarray) -> list[int]:
    """The onsets of one signal."""
    return row[row >= 0].tolist()


# ---- the task: outputs → answers, and stored arrays → the same answers


@dataclass(frozen=True)
class OnsetFinding:
    name: str = "onsets where strength rises above 0.5"
    graphs: tuple[str, ...] = ("model",)

    def answer(self, runners: Mapping[str, Any], samples: Any) -> Onsets:
        strength = np.concatenate(
            [runners["model"].run(feeds)["strength"][:, 0] for feeds in samples.batches()]
        )
        above = np.pad(strength > 0.5, ((0, 0), (1, 0)))
        starts = above[:, 1:] & ~above[:, :-1]
        times = np.full((len(strength), max(1, int(starts.sum(axis=1).max()))), -1, np.int16)
        for row, found in zip(times, starts, strict=True):
            row[: found.sum()] = np.flatnonzero(found)
        return Onsets(times)

    def restored(self, arrays: Mapping[str, np.ndarray]) -> Onsets:
        return Onsets(arrays["times"])


# ---- the metric: answers and labels (arrays of any length) → whole numbers for each sample


def count_errors(answers: Onsets, labels: tuple[np.ndarray, ...], reference: None) -> Counts:
    """Onsets that are missed and those that are none, out of the labelled ones; within two
    steps each is found once.
    """
    hits, out_of = [], []
    for row, right in zip(answers.times, labels, strict=True):
        left, found = right.tolist(), of(row)
        for time in found:
            near = [one for one in left if abs(one - time) <= 2]
            left = [one for one in left if one not in near[:1]]
        wrong = len(found) - (len(right) - len(left))
        hits.append(len(left) + wrong)
        out_of.append(len(right))
    return Counts(hits=np.array(hits), out_of=np.array(out_of))


def onset_errors() -> Metric:
    return Metric(
        name="onset_errors",
        title="Onset error rate",
        direction=Direction.LOWER,
        against=Against.LABELS,
        count=count_errors,
        least_margin=0.02,
        proportion=False,  # no 0 or 1 of 1: a signal has several onsets
        array_labels=True,  # labels are arrays, not class numbers
    )


# ---- a network and signals, so that the example runs by itself


def network() -> ir.Model:
    """``x`` (N, 1, 128) → how much louder the next 4 steps are than the last 4, ``strength``
    (N, 1, 128), from 0 on.
    """
    held = {
        "rise": np.repeat([-0.25, 0.25], 4).reshape(1, 1, 8),
        "mix": np.ones((1, 1, 1)),
        "bias": np.array([-0.1]),
    }
    nodes = [
        helper.make_node("Abs", ["x"], ["loudness"], name="loudness"),
        helper.make_node(
            "Conv",
            ["loudness", "rise"],
            ["change"],
            name="rise.conv",
            pads=[4, 3],
            kernel_shape=[8],
        ),
        helper.make_node("Relu", ["change"], ["positive"], name="rise.relu"),
        helper.make_node(
            "Conv", ["positive", "mix", "bias"], ["mixed"], name="mix.conv", kernel_shape=[1]
        ),
        helper.make_node("Relu", ["mixed"], ["strength"], name="mix.relu"),
    ]
    shape = ["N", 1, LENGTH]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    strength = helper.make_tensor_value_info("strength", TensorProto.FLOAT, shape)
    constants = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()
    ]
    graph = helper.make_graph(nodes, "onsets", [x], [strength], constants)
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def signals(name: str, count: int, seed: int) -> Dataset:
    """``count`` signals of noise in which one to four tones begin,
    each of a loudness of its own.
    """
    draw = np.random.default_rng(seed)
    waves, labels = draw.normal(0, 0.05, (count, 1, LENGTH)).astype(np.float32), []
    for wave in waves:
        starts = np.sort(
            draw.choice(np.arange(8, LENGTH - 24, 24), draw.integers(1, 5), replace=False)
        )
        starts = starts + draw.integers(0, 6, len(starts))
        for start in starts:
            tone = draw.uniform(0.6, 2.0) * np.sign(np.sin(np.arange(12) * 2.1 + 0.5))
            wave[0, start : start + 12] += tone.astype(np.float32)
        labels.append(starts)
    ids = tuple(f"{name}{i}" for i in range(count))
    return Dataset(
        id=name,
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=tuple(labels),
        content=f"{count} signals drawn by seed {seed}",
        load=waves.__getitem__,
    )


def onset_finder() -> ZooModel:
    return ZooModel(
        id="onset_finder",
        graphs={"model": network},
        preprocess=ReadyArray(input="x"),
        task=OnsetFinding(),
        origin="written by hand",
    )


def pytest_qbench_extension(config: object) -> Extension:
    return Extension(
        name="own task",
        models={"onset_finder": onset_finder},
        datasets={
            "signals": lambda: signals("signals", 200, seed=1),
            "signals_calibration": lambda: signals("signals_calibration", 32, seed=2),
        },
        metrics={"onset_errors": onset_errors},
    )
