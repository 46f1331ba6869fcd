"""OpenVINO against its arithmetics: products between Q and DQ, element for element, on this
processor, without its AMX, and on AVX2.
"""

import itertools
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import arithmetic_of, get_backend
from qbench.host import has_amx, processor_class, processor_features

pytestmark = pytest.mark.oracle
with_vnni = pytest.mark.skipif(
    processor_class() not in ("x64-avx512-vnni", "x64-avx2-vnni"),
    reason="the arithmetic follows kernels with VNNI",
)
with_avx2 = pytest.mark.skipif(
    "avx2" not in processor_features(), reason="this processor has no AVX2"
)
QEMU = shutil.which("qemu-x86_64")
with_qemu = pytest.mark.skipif(
    QEMU is None, reason="qemu-x86_64 is not installed; on Debian it is in the package qemu-user"
)

CHANNELS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 31, 32, 33, 48, 64)
KINDS = {"1x1": 1, "3x3": 3, "strided": 3, "depthwise": 3, "linear": 0}
GROUPED = {"grouped": 3, "two filters a channel": 3}
STORED = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


def block(
    random: np.random.Generator, kind: str, codes: str, *, ties: bool
) -> tuple[ir.Model, np.ndarray[Any, Any]]:
    """Q, DQ, one product, perhaps a bias and a Relu, Q, DQ; and a batch for it.

    Where ``ties``, products of scales are by the scale of the result as 1 to a power of two.
    """
    channels, filters = (int(random.choice(CHANNELS)) for _ in range(2))
    kernel = (KINDS | GROUPED)[kind]
    per_channel, biased, relu = random.random() < 0.5, random.random() < 0.7, random.random() < 0.5
    depth, groups = channels, 1
    if kind == "grouped":
        groups, depth = int(random.integers(2, 5)), int(random.integers(2, 9))
        channels, filters = groups * depth, groups * int(random.integers(1, 9))
    elif kind != "linear" and kind not in KINDS:
        groups, depth, filters = channels, 1, 2 * channels
    elif kind == "depthwise":
        groups, depth, filters = channels, 1, channels
    shape = (filters, depth, kernel, kernel) if kernel else (channels, filters)
    low, high = (-128, 127) if codes == "int8" else (0, 255)
    x_zero, y_zero = (0, 0) if codes == "int8" else random.integers(0, 256, 2)
    x, w = (np.float32(random.uniform(0.001, 0.1)) for _ in range(2))
    weights = random.integers(-127, 128, shape).astype(np.int8)
    scales = (w * random.uniform(0.3, 1, filters)).astype(np.float32) if per_channel else w
    fan = weights.size / filters
    y = (
        x
        * w
        * np.float32(2.0 ** np.ceil(np.log2(90 * np.sqrt(fan))) if ties else 90 * np.sqrt(fan))
    )
    constants = {"w": weights, "ws": scales, "wz": np.zeros(np.shape(scales), np.int8)}
    constants |= {
        "xs": x,
        "xz": np.array(x_zero, codes),
        "ys": np.float32(y),
        "yz": np.array(y_zero, codes),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0 if kernel else 1),
    ]
    operands = ["xd", "wd"]
    if biased:
        of_bias = np.asarray(x * scales, np.float32)
        constants |= {"b": random.integers(-5000, 5000, filters).astype(np.int32), "bs": of_bias}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0))
        operands.append("bd")
    layout = {"pads": [kernel // 2] * 4, "strides": [2, 2] if kind == "strided" else [1, 1]}
    layout["group"] = groups
    nodes.append(
        helper.make_node(
            "Conv" if kernel else "Gemm", operands, ["c"], **(layout if kernel else {})
        )
    )
    if relu:
        nodes.append(helper.make_node("Relu", ["c"], ["r"]))
    nodes.append(helper.make_node("QuantizeLinear", ["r" if relu else "c", "ys", "yz"], ["yq"]))
    nodes.append(helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]))
    sides = [channels, 6, 6] if kernel else [channels]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *sides])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    held = [
        numpy_helper.from_array(np.ascontiguousarray(array), name)
        for name, array in constants.items()
    ]
    graph = helper.make_graph(nodes, kind, inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    batch = ((random.integers(low, high + 1, (2, *sides)) - x_zero) * x).astype(np.float32)
    batch += (random.uniform(-0.5, 0.5, batch.shape) * x).astype(np.float32)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model)), batch


def differing(model: ir.Model, batch: "np.ndarray[Any, Any]") -> tuple[int, int]:
    """Codes that differ between the engine and the arithmetic that it declares,
    and by how much at most.
    """
    engine = get_backend("openvino")
    arithmetic = arithmetic_of(engine)
    assert arithmetic is not None
    scale = model.graph.initializers["ys"].const_value
    assert scale is not None
    with (
        engine.prepare(model) as theirs,
        get_backend(f"integer-{arithmetic.name}").prepare(model) as ours,
    ):
        # OpenVINO computes the scale of signed results anew from their range, so floats may differ
        # in the last bit
        codes = [
            np.rint(run.run({"x": batch})["y"] / scale.numpy()).astype(int)
            for run in (theirs, ours)
        ]
    return int((codes[0] != codes[1]).sum()), int(np.abs(codes[0] - codes[1]).max())


@with_vnni
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("codes", ["uint8", "int8"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "linear"])
def test_convolutions(kind: str, codes: str, ties: bool, openvino: ModuleType) -> None:
    random = np.random.default_rng(21)
    assert [differing(*block(random, kind, codes, ties=ties)) for _ in range(12)] == [(0, 0)] * 12


@with_vnni
@pytest.mark.parametrize("codes", ["uint8", "int8"])
def test_linear_products_differ_next_to_ties_alone(codes: str, openvino: ModuleType) -> None:
    """OpenVINO corrects their sums for the zero point in float, behind the scale."""
    random = np.random.default_rng(22)
    found = [differing(*block(random, "linear", codes, ties=False)) for _ in range(40)]
    assert max(most for _, most in found) <= 1
    assert sum(count for count, _ in found) <= 2


@with_vnni
@pytest.mark.slow
def test_a_thousand_convolutions(openvino: ModuleType) -> None:
    random = np.random.default_rng(23)
    kinds = random.choice([kind for kind in KINDS if kind != "linear"], 1000)
    blocks = (block(random, str(kind), str(random.choice([*STORED])), ties=False) for kind in kinds)
    assert sum(differing(*one)[0] for one in blocks) == 0


# Sums behind a convolution, which OpenVINO fuses into it.


def residual(
    random: np.random.Generator, codes: str
) -> tuple[ir.Model, dict[str, "np.ndarray[Any, Any]"]]:
    """Q, DQ, a convolution, Q, DQ, the sum with another input behind its Q and DQ; and a batch."""
    channels, first = int(random.choice((3, 8, 16, 24))), random.random() < 0.5
    zeros = [0] * 4 if codes == "int8" else random.integers(0, 256, 4).tolist()
    x, w = (np.float32(random.uniform(0.001, 0.1)) for _ in range(2))
    scales = (
        np.asarray(w * random.uniform(0.3, 1, channels), np.float32)
        if random.random() < 0.5
        else np.asarray(w)
    )
    y = np.float32(x * w * 60 * np.sqrt(channels))
    constants: dict[str, Any] = {
        "w": random.integers(-127, 128, (channels, channels, 1, 1)).astype(np.int8)
    }
    constants |= {"ws": scales, "wz": np.zeros(scales.shape, np.int8)}
    steps = {"x": x, "c": y, "r": y * random.uniform(0.5, 2), "y": y * random.uniform(0.8, 2)}
    for (name, step), zero in zip(steps.items(), zeros, strict=True):
        constants |= {f"{name}s": np.float32(step), f"{name}z": np.array(zero, codes)}

    def pair(name: str, of: str) -> list[onnx.NodeProto]:
        grid = [f"{name}s", f"{name}z"]
        quantizer = helper.make_node("QuantizeLinear", [of, *grid], [f"{name}q"])
        return [quantizer, helper.make_node("DequantizeLinear", [f"{name}q", *grid], [f"{name}d"])]

    nodes = [
        *pair("x", "x"),
        *pair("r", "r"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
    ]
    nodes += [helper.make_node("Conv", ["xd", "wd"], ["conv"]), *pair("c", "conv")]
    nodes += [
        helper.make_node("Add", ["cd", "rd"] if first else ["rd", "cd"], ["sum"]),
        *pair("y", "sum"),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", channels, 6, 6])
        for name in "xr"
    ]
    outputs = [helper.make_tensor_value_info("yd", TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "residual", inputs, outputs, held),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    ends = np.iinfo(codes)
    batch = {
        name: (
            (random.integers(ends.min, ends.max + 1, (2, channels, 6, 6)) - zero) * steps[name]
        ).astype(np.float32)
        for name, zero in (("x", zeros[0]), ("r", zeros[2]))
    }
    return ir.from_proto(onnx.shape_inference.infer_shapes(model)), batch


@with_vnni
@pytest.mark.parametrize("codes", ["uint8", "int8"])
def test_sums_take_unrounded_products(codes: str, openvino: ModuleType) -> None:
    random, lost, apart = np.random.default_rng(27), [], 0
    arithmetic = arithmetic_of(get_backend("openvino"))
    assert arithmetic is not None
    for _ in range(30):
        model, batch = residual(random, codes)
        scale = float(np.ravel(model.graph.initializers["ys"].const_value)[0])
        with (
            get_backend("openvino").prepare(model) as theirs,
            get_backend(f"integer-{arithmetic.name}").prepare(model) as ours,
        ):
            found = [np.rint(run.run(batch)["yd"] / scale).astype(int) for run in (theirs, ours)]
        with get_backend("integer-onednn").prepare(model) as other:
            apart += int((np.rint(other.run(batch)["yd"] / scale).astype(int) != found[0]).sum())
        lost.append(np.abs(found[0] - found[1]))
    assert max(int(one.max()) for one in lost) <= 1
    assert sum(int(one.sum()) for one in lost) <= 1  # a sum next to a tie
    assert apart > 1000


# Codes that another operator on codes reads. What comes behind them is a product by one, whose
# codes are the same.

ONWARD = ("product", "clip and product", "reals")


def passed_on(
    random: np.random.Generator, codes: str, onward: str, *, zero: int
) -> tuple[ir.Model, "np.ndarray[Any, Any]"]:
    """Q, DQ, a 1×1 convolution with a bias, Q, a Clip of codes or none, DQ, perhaps a
    convolution by one, Q, DQ.
    """
    x, w = (np.float32(random.uniform(0.001, 0.1)) for _ in range(2))
    y = np.float32(x * w * 1024)  # a power of two: most sums are ties
    ends = np.iinfo(codes)
    constants: dict[str, Any] = {
        "w": random.integers(-127, 128, (16, 16, 1, 1)).astype(np.int8),
        "ws": w,
    }
    constants |= {"b": random.integers(-5000, 5000, 16).astype(np.int32), "bs": np.float32(x * w)}
    constants |= {"xs": x, "xz": np.array(0, codes), "ys": y, "yz": np.array(zero, codes)}
    constants |= {"one": np.eye(16, dtype=np.int8).reshape(16, 16, 1, 1), "ones": np.float32(1)}
    constants |= {"low": np.array(zero, codes), "high": np.array(ends.max, codes)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"]),
        helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"]),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
    ]
    if onward == "clip and product":
        nodes.append(helper.make_node("Clip", ["cq", "low", "high"], ["limited"]))
    read = "limited" if onward == "clip and product" else "cq"
    nodes.append(
        helper.make_node(
            "DequantizeLinear", [read, "ys", "yz"], ["y" if onward == "reals" else "cd"]
        )
    )
    if onward != "reals":
        nodes.append(helper.make_node("DequantizeLinear", ["one", "ones"], ["oned"]))
        nodes.append(helper.make_node("Conv", ["cd", "oned"], ["same"]))
        nodes.append(helper.make_node("QuantizeLinear", ["same", "ys", "yz"], ["yq"]))
        nodes.append(helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16, 6, 6])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "passed_on", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    batch = (random.integers(ends.min, ends.max + 1, (4, 16, 6, 6)) * x).astype(np.float32)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model)), batch


@with_vnni
@pytest.mark.parametrize("onward", ONWARD)
@pytest.mark.parametrize(
    ("codes", "zero"), [("uint8", 0), ("uint8", 113), ("int8", 0), ("int8", 7)]
)
def test_codes_count_by_where_they_go(
    codes: str, zero: int, onward: str, openvino: ModuleType
) -> None:
    random = np.random.default_rng(31)
    assert [differing(*passed_on(random, codes, onward, zero=zero)) for _ in range(12)] == [
        (0, 0)
    ] * 12


# OpenVINO on a processor with less than this one: its oneDNN limited by a variable, or the
# processor emulated. Both in a process of their own.


def on_avx2(
    jobs: list[tuple[ir.Model, "np.ndarray[Any, Any]"]],
    folder: Path,
    *emulator: str,
    isa: str = "AVX2",
) -> list[Any]:
    """(results, the names of the kernels) of each job there, or with the instructions ``isa``."""
    asked, told = folder / "jobs", folder / "answers"
    asked.write_bytes(
        pickle.dumps([(ir.to_proto(model).SerializeToString(), batch) for model, batch in jobs])
    )
    script = Path(__file__).with_name("limited_openvino.py")
    limit = {} if emulator else {"ONEDNN_MAX_CPU_ISA": isa}
    command = [*emulator, sys.executable, str(script), str(asked), str(told)]
    done = subprocess.run(
        command, env={**os.environ, **limit}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[Any] = pickle.loads(told.read_bytes())
    return answers


def differing_on_avx2(
    jobs: list[tuple[ir.Model, "np.ndarray[Any, Any]"]], answers: Iterable[Any]
) -> tuple[int, int]:
    """Codes that differ from those of 'openvino-avx2', and from those of 'openvino-vnni'."""
    lost = [0, 0]
    for (model, batch), (theirs, kernels) in zip(jobs, answers, strict=True):
        assert not any("avx512" in kernel or "vnni" in kernel for kernel in kernels), kernels
        scale = model.graph.initializers["ys"].const_value
        assert scale is not None
        for index, name in enumerate(("openvino-avx2", "openvino-vnni")):
            with get_backend(f"integer-{name}").prepare(model) as ours:
                codes = [
                    np.rint(one / scale.numpy()).astype(int)
                    for one in (theirs, ours.run({"x": batch})["y"])
                ]
            lost[index] += int((codes[0] != codes[1]).sum())
    return lost[0], lost[1]


def blocks(seed: int, count: int) -> list[tuple[ir.Model, "np.ndarray[Any, Any]"]]:
    random = np.random.default_rng(seed)
    kinds = [str(random.choice([*KINDS, *GROUPED])) for _ in range(count)]
    return [
        block(
            random,
            kind,
            str(random.choice([*STORED])),
            ties=kind != "linear" and random.random() < 0.2,
        )
        for kind in kinds
    ]


@with_avx2
def test_products_on_avx2(openvino: ModuleType, tmp_path: Path) -> None:
    jobs = blocks(24, 60)
    equal, saturated = differing_on_avx2(jobs, on_avx2(jobs, tmp_path))
    assert equal == 0
    assert saturated > 1000


@with_avx2
@pytest.mark.slow
def test_a_thousand_products_on_avx2(openvino: ModuleType, tmp_path: Path) -> None:
    jobs = blocks(25, 1000)
    assert differing_on_avx2(jobs, on_avx2(jobs, tmp_path))[0] == 0


def transposed(levels: str, zero: int, groups: int, filters: int, stride: int) -> ir.Model:
    """A transposed convolution of 8 channels, whose pairs of products would not fit 16 bits."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 8, 7, 7] x) => (float y)
    <float s = {{0.02}}, {levels} z = {{{zero}}}, float ws = {{0.002}}, int8 wz = {{0}},
     float ys = {{0.05}}, uint8 yz = {{90}}> {{
      q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
      ud = DequantizeLinear (up, ws, wz)
      r = ConvTranspose <strides = [{stride}, {stride}], group = {groups}> (d, ud)
      rq = QuantizeLinear (r, ys, yz)  y = DequantizeLinear (rq, ys, yz) }}"""
    proto = onnx.parser.parse_model(text)
    weights = np.random.default_rng(3).integers(-127, 128, (8, filters // groups, 3, 3))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights.astype(np.int8), "up"))
    return ir.from_proto(proto)


@with_avx2
@pytest.mark.slow
@with_qemu
def test_transposed_convolutions_on_avx2(openvino: ModuleType, tmp_path: Path) -> None:
    """OpenVINO asks the processor itself where it chooses how to run them."""
    data = np.random.default_rng(1).normal(0, 1.5, (2, 8, 7, 7)).astype(np.float32)
    shapes = itertools.product(
        [("uint8", 113), ("uint8", 0), ("int8", 3), ("int8", 0)],
        [(1, 6), (1, 16), (2, 8), (8, 8)],
        [1, 2],
    )
    jobs = [(transposed(*levels, *groups, stride), data) for levels, groups, stride in shapes]
    emulator = (str(QEMU), "-cpu", "Haswell")
    assert differing_on_avx2(jobs, on_avx2(jobs, tmp_path, *emulator)) == (0, 0)


# Signed data behind a Clip of codes stay signed: whether weights lose their last bit there depends
# on the kernel. Another convolution reads them too: OpenVINO moves strides in front of a Clip that
# is read once, and counts in float.

POINTWISE = {(8, 8, 1, 0), (9, 6, 3, 0)}
"""Height, width, stride and padding of a convolution by windows
of one tap that is a product of matrices.
"""
BY_TAPS = {(7, 7, 2, 0), (8, 7, 2, 0), (7, 8, 2, 0), (8, 8, 1, 1)}
"""Of one that is not."""


def behind_a_clip(
    random: np.random.Generator, sides: tuple[int, int], stride: int, pad: int
) -> tuple[ir.Model, "np.ndarray[Any, Any]"]:
    """Q, Clip, DQ, a convolution by one tap, Q, DQ; and one by nine taps as a second output."""
    x, w = np.float32(0.02), np.float32(0.01)
    y = np.float32(x * w * 240)
    constants: dict[str, Any] = {
        "w": random.integers(-127, 128, (24, 16, 1, 1)).astype(np.int8),
        "ws": w,
        "xs": x,
    }
    constants |= {
        "v": random.integers(-127, 128, (24, 16, 3, 3)).astype(np.int8),
        "zero": np.int8(0),
        "ys": y,
    }
    constants |= {"b": random.integers(-5000, 5000, 24).astype(np.int32), "bs": np.float32(x * w)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "zero"], ["q"])]
    nodes += [
        helper.make_node("Clip", ["q", "zero"], ["c"]),
        helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"]),
    ]
    for name, result, pads in (("w", "y", pad), ("v", "other", 1)):
        nodes += [helper.make_node("DequantizeLinear", ["c", "xs", "zero"], [f"{name}x"])]
        nodes += [helper.make_node("DequantizeLinear", [name, "ws"], [f"{name}d"])]
        product, strides = [f"{name}x", f"{name}d", "bd"], [stride, stride]
        nodes += [helper.make_node("Conv", product, [f"{name}y"], strides=strides, pads=[pads] * 4)]
        nodes += [helper.make_node("QuantizeLinear", [f"{name}y", "ys", "zero"], [f"{name}q"])]
        nodes += [helper.make_node("DequantizeLinear", [f"{name}q", "ys", "zero"], [result])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16, *sides])]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "other")
    ]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "behind_a_clip", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    batch = (random.integers(-20, 128, (2, 16, *sides)) * x).astype(np.float32)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model)), batch


@with_avx2
def test_windows_of_one_tap_behind_a_clip_on_avx2(openvino: ModuleType, tmp_path: Path) -> None:
    random = np.random.default_rng(29)
    cases = [*sorted(POINTWISE), *sorted(BY_TAPS)]
    jobs = [behind_a_clip(random, case[:2], *case[2:]) for case in cases]
    answers = on_avx2(jobs, tmp_path)
    kernels = [[name for name in names if "1x1" in name] for _, names in answers]
    assert kernels == [["jit_avx2_1x1_i8"]] * len(POINTWISE) + [[]] * len(BY_TAPS)
    assert differing_on_avx2(jobs, answers)[0] == 0


@pytest.mark.slow
@with_qemu
def test_an_emulated_processor_with_avx2_counts_alike(openvino: ModuleType, tmp_path: Path) -> None:
    jobs = blocks(26, 40)
    assert differing_on_avx2(jobs, on_avx2(jobs, tmp_path, str(QEMU), "-cpu", "Haswell"))[0] == 0


# A processor with AMX, whose OpenVINO is told to do without: what others with VNNI run.


@pytest.mark.skipif(not has_amx(), reason="this processor has no AMX")
def test_without_amx_signed_codes_become_unsigned(openvino: ModuleType, tmp_path: Path) -> None:
    random = np.random.default_rng(37)
    kinds = ("1x1", "3x3", "strided", "depthwise")
    jobs = [block(random, kind, "int8", ties=True) for kind in kinds for _ in range(6)]
    jobs += [
        passed_on(random, "int8", onward, zero=zero)
        for onward in ONWARD
        for zero in (0, 7)
        for _ in range(6)
    ]
    lost = {"openvino-vnni": 0, "openvino-amx": 0}
    answers = on_avx2(jobs, tmp_path, isa="AVX512_CORE_FP16")
    for (model, batch), (theirs, kernels) in zip(jobs, answers, strict=True):
        assert not any("amx" in kernel for kernel in kernels)
        scale = float(np.ravel(model.graph.initializers["ys"].const_value)[0])
        for name in lost:
            with get_backend(f"integer-{name}").prepare(model) as ours:
                found = [np.rint(one / scale) for one in (theirs, ours.run({"x": batch})["y"])]
            lost[name] += int((found[0] != found[1]).sum())
    assert lost["openvino-vnni"] == 0
    assert lost["openvino-amx"] > 0
