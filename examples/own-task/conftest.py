"""A task with answers of a form of its own: boxes, one for each picture, with metrics and a network that finds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from qbench import Extension
from qbench.metrics import Against, Answers, Counts, Direction, Metric
from qbench.subjects import Dataset, ReadyArray, ZooModel

SIDE = 16
EDGES = ("left", "right", "top", "bottom")

# ---- the answers: what is compared, stored and scored


@dataclass(frozen=True, eq=False)
class Boxes(Answers):
    """``edges`` (n, 4) float32: left, right, top and bottom of the box in each picture, in pixels."""

    edges: np.ndarray

    form = "boxes"

    def arrays(self) -> Mapping[str, np.ndarray]:
        """All that is stored, with one row for each picture."""
        return {"edges": self.edges}

    def best(self, index: int) -> tuple[int, ...]:
        """What agrees with fp32: the box in whole pixels."""
        return tuple(np.rint(self.edges[index]).astype(int).tolist())


# ---- the task: outputs → answers, and stored arrays → the same answers


@dataclass(frozen=True)
class BoxFinding:
    name: str = "box finding"
    graphs: tuple[str, ...] = ("model",)

    def answer(self, runners: Mapping[str, Any], samples: Any) -> Boxes:
        outputs = [runners["model"].run(feeds) for feeds in samples.batches()]
        edges = [np.concatenate([one[edge] for edge in EDGES], axis=1) for one in outputs]
        return Boxes(np.concatenate(edges).round(2))

    def restored(self, arrays: Mapping[str, np.ndarray]) -> Boxes:
        return Boxes(arrays["edges"])


# ---- the metrics: answers → whole numbers for each sample


def overlap(found: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (n, 4) and (n, 4): (n,)."""
    sides = [
        (np.minimum(found[:, i + 1], right[:, i + 1]) - np.maximum(found[:, i], right[:, i])).clip(0) for i in (0, 2)
    ]
    both = sides[0] * sides[1]
    areas = [((box[:, 1] - box[:, 0]) * (box[:, 3] - box[:, 2])).clip(0) for box in (found, right)]
    return both / np.maximum(areas[0] + areas[1] - both, 1e-9)


def count_hits(answers: Boxes, labels: Any, reference: Any) -> Counts:
    hits = overlap(answers.edges, np.array(labels)) >= 0.75
    return Counts(hits=hits.astype(np.int64), out_of=np.ones(len(answers), np.int64))


def count_error(answers: Boxes, labels: Any, reference: Any) -> Counts:
    hundredths = np.rint(100 * np.abs(answers.edges - np.array(labels)).sum(axis=1))
    return Counts(hits=hundredths.astype(np.int64), out_of=np.full(len(answers), 400))


def iou75() -> Metric:
    against, better = Against.LABELS, Direction.HIGHER
    return Metric(name="iou75", title="Boxes found", direction=better, against=against, count=count_hits)


def edge_error() -> Metric:
    return Metric(
        name="edge_error",
        title="Mean error of an edge",
        direction=Direction.LOWER,
        against=Against.LABELS,
        count=count_error,
        unit="px",
        proportion=False,
        least_margin=0.1,
    )


# ---- a network and pictures, so that the example runs by itself


def network() -> ir.Model:
    """``x`` (N, 1, 16, 16) → where the profile along each axis rises (left, top) and falls (right, bottom), (N, 1)."""
    nodes, constants, outputs = [], {}, []
    for axis, (first, last) in {"x": EDGES[:2], "y": EDGES[2:]}.items():
        window, along = ([SIDE, 1], [1, 2]) if axis == "x" else ([1, SIDE], [2, 1])
        nodes.append(helper.make_node("MaxPool", ["x"], [f"profile_{axis}"], kernel_shape=window))
        for edge, signs in ((first, [-1.0, 1.0]), (last, [1.0, -1.0])):
            before, after = int(edge == first), int(edge == last)
            pads = [0, before, 0, after] if axis == "x" else [before, 0, after, 0]
            constants[f"{edge}_w"] = np.array(signs, np.float32).reshape(1, 1, *along)
            constants[f"{edge}_places"] = (np.arange(SIDE, dtype=np.float32) + (edge == last)).reshape(SIDE, 1)
            inputs = [f"profile_{axis}", f"{edge}_w"]
            nodes += [
                helper.make_node("Conv", inputs, [f"{edge}_step"], name=f"{edge}.conv", pads=pads, kernel_shape=along),
                helper.make_node("Relu", [f"{edge}_step"], [f"{edge}_here"], name=f"{edge}.relu"),
                helper.make_node("Flatten", [f"{edge}_here"], [f"{edge}_flat"], name=f"{edge}.flat"),
                helper.make_node("Gemm", [f"{edge}_flat", f"{edge}_places"], [edge], name=f"{edge}.place"),
            ]
    outputs = [helper.make_tensor_value_info(edge, TensorProto.FLOAT, ["N", 1]) for edge in EDGES]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, SIDE, SIDE])
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "boxes", [x], outputs, held)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def pictures(name: str, count: int, seed: int) -> Dataset:
    """``count`` pictures of a bright box on a dark ground."""
    draw = np.random.default_rng(seed)
    images, labels = np.zeros((count, 1, SIDE, SIDE), np.float32), []
    for image in images:
        left, top = draw.integers(0, SIDE - 4, 2)
        right, bottom = left + draw.integers(3, SIDE - left), top + draw.integers(3, SIDE - top)
        image[0, top:bottom, left:right] = 1
        labels.append((int(left), int(right), int(top), int(bottom)))
    ids = tuple(f"{name}{i}" for i in range(count))
    return Dataset(
        id=name,
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=tuple(labels),
        content=f"{count} boxes drawn by seed {seed}",
        load=images.__getitem__,
    )


def box_finder() -> ZooModel:
    return ZooModel(
        id="box_finder",
        graphs={"model": network},
        preprocess=ReadyArray(input="x"),
        task=BoxFinding(),
        origin="written by hand",
    )


def pytest_qbench_extension(config: object) -> Extension:
    return Extension(
        name="own task",
        models={"box_finder": box_finder},
        datasets={
            "boxes": lambda: pictures("boxes", 100, seed=1),
            "boxes_calibration": lambda: pictures("boxes_calibration", 32, seed=2),
        },
        metrics={"iou75": iou75, "edge_error": edge_error},
    )
