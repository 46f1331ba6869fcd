"""A detector that finds the bright rectangle of a picture,
and folders of such pictures with COCO's labels.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

SIDE = 64
FORMS = ("three", "one", "no batch")
"""Of outputs: boxes, scores and labels; one with all; three without the axis of the batch."""


def write_detector(path: Path, form: str = "three", *, shift: float = 0.0) -> Path:
    """``x`` (N, 3, 64, 64) → the rectangle of the greatest value, ``shift`` pixels further
    right, and the value.
    """
    nodes = [
        helper.make_node("ReduceMax", ["x", f"{axis}_axes"], [f"{axis}_profile"], keepdims=0)
        for axis in "xy"
    ]
    for axis in "xy":
        for end, last in (("first", 0), ("last", 1)):
            nodes += [
                helper.make_node(
                    "ArgMax",
                    [f"{axis}_profile"],
                    [f"{axis}_{end}_at"],
                    axis=1,
                    keepdims=1,
                    select_last_index=last,
                ),
                helper.make_node(
                    "Cast", [f"{axis}_{end}_at"], [f"{axis}_{end}_float"], to=TensorProto.FLOAT
                ),
                helper.make_node(
                    "Add", [f"{axis}_{end}_float", f"{axis}_{end}_shift"], [f"{axis}_{end}"]
                ),
            ]
    held = {
        "x_axes": np.array([1, 2]),
        "y_axes": np.array([1, 3]),
        "score_axes": np.array([1, 2, 3]),
        "one": np.array([1]),
    }
    held |= {
        f"{axis}_{end}_shift": np.array([shift * (axis == "x") + (end == "last")], np.float32)
        for axis in "xy"
        for end in ("first", "last")
    }
    corners = ["x_first", "y_first", "x_last", "y_last"]
    nodes += [
        helper.make_node("Concat", corners, ["corners"], axis=1),
        helper.make_node("ReduceMax", ["x", "score_axes"], ["score"], keepdims=0),
        helper.make_node("Unsqueeze", ["score", "one"], ["score_column"]),
        helper.make_node("Sub", ["score_column", "score_column"], ["class_column"]),
    ]
    if form == "one":
        nodes += [
            helper.make_node(
                "Concat", ["corners", "score_column", "class_column"], ["row"], axis=1
            ),
            helper.make_node("Unsqueeze", ["row", "one"], ["detections"]),
        ]
        outputs = {"detections": ["N", 1, 6]}
    elif form == "three":
        nodes += [
            helper.make_node("Unsqueeze", ["corners", "one"], ["boxes"]),
            helper.make_node("Identity", ["score_column"], ["scores"]),
            helper.make_node("Identity", ["class_column"], ["labels"]),
        ]
        outputs = {"boxes": ["N", 1, 4], "scores": ["N", 1], "labels": ["N", 1]}
    else:
        nodes += [
            helper.make_node("Identity", ["corners"], ["boxes"]),
            helper.make_node("Identity", ["score"], ["scores"]),
            helper.make_node("Squeeze", ["class_column", "one"], ["labels"]),
        ]
        outputs = {"boxes": ["M", 4], "scores": ["M"], "labels": ["M"]}
    graph = helper.make_graph(
        nodes,
        "detector",
        [
            helper.make_tensor_value_info(
                "x", TensorProto.FLOAT, [1 if form == "no batch" else "N", 3, SIDE, SIDE]
            )
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path
    )
    return path


def write_pictures(folder: Path, count: int = 6, *, size: tuple[int, int] = (64, 64)) -> dict:
    """``count`` PNG files with a bright rectangle each, and the content of their COCO file."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    coco = {"images": [], "annotations": [], "categories": [{"id": 7, "name": "lamp"}]}
    wide, high = size
    for number in range(count):
        width, height = int(draw.integers(8, 24)), int(draw.integers(8, 24))
        left, top = int(draw.integers(0, wide - width)), int(draw.integers(0, high - height))
        pixels = np.full((high, wide, 3), 20, np.uint8)
        pixels[top : top + height, left : left + width] = 255
        name = f"p{number}.png"
        Image.fromarray(pixels).save(folder / name)
        coco["images"].append({"id": 10 + number, "file_name": name, "width": wide, "height": high})
        box = [left, top, width, height]
        coco["annotations"].append(
            {"id": number, "image_id": 10 + number, "category_id": 7, "bbox": box}
        )
    return coco


def write_labels(path: Path, coco: dict) -> Path:
    path.write_text(json.dumps(coco), encoding="utf-8")
    return path
