"""ONNX files that are damaged or hostile, through two commands each: none may end in a
traceback, hang, crash or score.

    python benchmarks/onnx_fuzz.py [--to 3000] [--results F --resume] [--only N --keep DIR]

Every trial is one file: a seed model (convolutions with Q/DQ pairs, control flow, functions,
external data, attention, a plain MLP) with one to three mutations of its bytes or of its message,
drawn from a generator that is seeded by the number of the trial. ``qbench eval`` is the first
command, another one the second. ONNX Runtime opens the same file as it is; a score for a file that
it refuses as invalid is wrong, and so is a score that differs from ONNX Runtime's. Both run the
same batches: a graph that mixes the samples of a batch (a mean of all of them decides a branch,
Softmax over the axis of samples) has another score for each size of them.

Trials run inside worker processes with an address-space limit; one that computes for more than 20
seconds is killed with its worker. The options of numbers and files are those of all trials
(``benchmarks/trials.py``).
"""

import argparse
import contextlib
import io
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from fuzz_models import METADATA, data_file, put_outside, seeds
from trials import Program, Result, Work, parser, run

from qbench.subjects import BATCH

TIMEOUT = 20.0
ADDRESS_SPACE_GB = 8
SAMPLES = 24
LACKING = (
    "not a registered function/op",
    "No Op registered for",
    "Could not find an impl",
    "only *guarantees* support",
)
"""How ONNX Runtime says that it is the engine that lacks something."""

# Mutations of the message
# -----------------------------------------------------------------------------------------

Draw = np.random.Generator
STRANGE = ("", "nowhere", "x", "\u202eabc", "y", "::error::", "a" * 300)
LOCATIONS = (
    "/etc/passwd",
    "../secret",
    "net.data",
    "link",
    "parent/passwd",
    "nothing",
    ".",
    "fifo",
    "sub/../net.data",
    "",
)


def pick(draw: Draw, items: Any) -> Any:  # noqa: ANN401 - any repeated field
    """One of ``items``, or None when it is empty."""
    return items[int(draw.integers(len(items)))] if len(items) else None


def graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """Every graph, those of attributes too."""
    found, waiting = [], [model.graph]
    while waiting:
        graph = waiting.pop()
        found.append(graph)
        waiting += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return found


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Every node, those of functions too."""
    return [node for graph in graphs(model) for node in graph.node] + [
        n for f in model.functions for n in f.node
    ]


def tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Every tensor: initializers, and constants in attributes."""
    inside = [a.t for node in nodes(model) for a in node.attribute if a.HasField("t")]
    return [tensor for graph in graphs(model) for tensor in graph.initializer] + inside


def names(model: onnx.ModelProto) -> list[str]:
    """Every name that a value has somewhere, and strange ones."""
    return [name for node in nodes(model) for name in (*node.input, *node.output)] + list(STRANGE)


def _rename_input(model: onnx.ModelProto, draw: Draw) -> None:
    node = pick(draw, [n for n in nodes(model) if n.input])
    if node:
        node.input[int(draw.integers(len(node.input)))] = pick(draw, names(model))


def _rename_output(model: onnx.ModelProto, draw: Draw) -> None:
    node = pick(draw, [n for n in nodes(model) if n.output])
    if node:
        node.output[int(draw.integers(len(node.output)))] = pick(draw, names(model))


def _change_inputs(model: onnx.ModelProto, draw: Draw) -> None:
    node = pick(draw, nodes(model))
    if draw.integers(2) or not node.input:
        node.input.append(pick(draw, names(model)))
    else:
        del node.input[int(draw.integers(len(node.input)))]


def _drop_node(model: onnx.ModelProto, draw: Draw) -> None:
    graph = pick(draw, graphs(model))
    if graph.node:
        del graph.node[int(draw.integers(len(graph.node)))]


def _swap_nodes(model: onnx.ModelProto, draw: Draw) -> None:
    graph = pick(draw, graphs(model))
    order = draw.permutation(len(graph.node))
    kept = [onnx.NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
    del graph.node[:]
    graph.node.extend(kept)


def _repeat_node(model: onnx.ModelProto, draw: Draw) -> None:
    graph = pick(draw, graphs(model))
    if graph.node:
        graph.node.add().CopyFrom(pick(draw, graph.node))


def _repeat_constant(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = pick(draw, model.graph.initializer)
    if tensor is not None:
        other = onnx.TensorProto.FromString(tensor.SerializeToString())
        if other.HasField("raw_data"):
            other.raw_data = bytes(len(other.raw_data))
        model.graph.initializer.append(other)


def _drop_constant(model: onnx.ModelProto, draw: Draw) -> None:
    if model.graph.initializer:
        del model.graph.initializer[int(draw.integers(len(model.graph.initializer)))]


def _change_dims(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = pick(draw, tensors(model))
    if tensor is None:
        return
    new = int(pick(draw, [0, 1, -1, 3, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1]))
    if tensor.dims and draw.integers(3):
        tensor.dims[int(draw.integers(len(tensor.dims)))] = new
    else:
        tensor.dims.append(new)


def _change_data(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = pick(draw, tensors(model))
    if tensor is None:
        return
    match int(draw.integers(4)):
        case 0:
            tensor.raw_data = tensor.raw_data[: int(draw.integers(len(tensor.raw_data) + 1))]
        case 1:
            tensor.raw_data = tensor.raw_data + draw.bytes(int(draw.integers(1, 9)))
        case 2:
            tensor.float_data.extend([float("nan"), 1.5])
        case _:
            tensor.string_data.append(b"\xff\xfe")


def _change_type(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = pick(draw, tensors(model))
    if tensor is not None:
        tensor.data_type = int(draw.integers(0, 28))


def _rename_constant(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = pick(draw, tensors(model))
    if tensor is not None:
        tensor.name = pick(draw, names(model))


def _send_outside(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = pick(draw, tensors(model))
    if tensor is not None:
        length = pick(draw, [None, 0, 64, 1 << 40, -1])
        put_outside(
            tensor,
            pick(draw, LOCATIONS),
            offset=int(pick(draw, [0, 0, 1, 1 << 33, -4])),
            length=length,
        )


def _change_operator(model: onnx.ModelProto, draw: Draw) -> None:
    kinds = (
        "Scatter",
        "Upsample",
        "SequenceConstruct",
        "RandomNormal",
        "NonZero",
        "",
        "Relu",
        "MatMul",
        "Loop",
        "If",
        "linear",
        "twice",
        "Constant",
        "Optional",
        "StringNormalizer",
        "Identity",
        "DequantizeLinear",
    )
    node = pick(draw, nodes(model))
    if draw.integers(3):
        node.op_type = pick(draw, kinds)
    else:
        node.domain = pick(draw, ["", "ai.onnx", "local", "com.microsoft", "ai.onnx.ml", "\u202e"])


def _change_attribute(model: onnx.ModelProto, draw: Draw) -> None:
    node = pick(draw, [n for n in nodes(model) if n.attribute])
    if node is None:
        return
    attribute = pick(draw, node.attribute)
    match int(draw.integers(8)):
        case 0:
            attribute.type = int(draw.integers(0, 16))
        case 1:
            attribute.i, attribute.type = (
                int(pick(draw, [-1, 0, 1 << 40, -(1 << 63)])),
                onnx.AttributeProto.INT,
            )
        case 2:
            attribute.s, attribute.type = b"\xff\xfe\x00", onnx.AttributeProto.STRING
        case 3:
            attribute.ref_attr_name = pick(draw, ["slope", "nothing", ""])
        case 4:
            attribute.name = pick(draw, ["axis", "to", "", "bogus", "value"])
        case 5:
            attribute.ints.extend([-7, 1 << 40])
            attribute.type = onnx.AttributeProto.INTS
        case 6:
            attribute.strings.append(b"\xff\xfe")
            attribute.type = onnx.AttributeProto.STRINGS
        case _:
            node.attribute.add().CopyFrom(attribute)


def _add_attribute(model: onnx.ModelProto, draw: Draw) -> None:
    node = pick(draw, nodes(model))
    made = onnx.helper.make_attribute(
        pick(draw, ["axis", "to", "bogus", "perm", "kernel_shape", "alpha", "value", "body"]),
        pick(draw, [1, -9, 1 << 50, 0.5, [1, 2], [0, 0, 0, 0], "text", b"\xff\xfe"]),
    )
    node.attribute.append(made)


def _drop_attribute(model: onnx.ModelProto, draw: Draw) -> None:
    node = pick(draw, [n for n in nodes(model) if n.attribute])
    if node:
        del node.attribute[int(draw.integers(len(node.attribute)))]


def _change_interface(model: onnx.ModelProto, draw: Draw) -> None:
    value = pick(draw, [*model.graph.input, *model.graph.output])
    if value is None:
        return
    match int(draw.integers(9)):
        case 0:
            value.name = pick(draw, names(model))
        case 1:
            value.ClearField("type")
        case 2:
            value.type.tensor_type.elem_type = int(draw.integers(0, 28))
        case 3:
            value.type.tensor_type.ClearField("shape")
        case 4:
            value.type.tensor_type.shape.dim.add().dim_value = int(pick(draw, [0, -1, 7, 1 << 40]))
        case 5:
            value.type.CopyFrom(
                onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(1, [1]))
            )
        case 6:
            value.type.CopyFrom(
                onnx.helper.make_optional_type_proto(onnx.helper.make_tensor_type_proto(1, [1]))
            )
        case 7:
            model.graph.input.add().CopyFrom(value)
        case _:
            model.graph.output.add().CopyFrom(value)


def _change_versions(model: onnx.ModelProto, draw: Draw) -> None:
    match int(draw.integers(4)):
        case 0:
            model.ir_version = int(pick(draw, [0, 1, 3, 4, 99, -1]))
        case 1:
            pick(draw, model.opset_import).version = int(pick(draw, [0, 1, 6, 9, 13, 26, 999, -3]))
        case 2:
            model.opset_import.add(
                domain=pick(draw, ["", "ai.onnx", "other"]), version=int(draw.integers(1, 22))
            )
        case _:
            del model.opset_import[int(draw.integers(len(model.opset_import)))]


def _add_bomb(model: onnx.ModelProto, draw: Draw) -> None:
    helper, graph = onnx.helper, model.graph
    match int(draw.integers(6)):
        case 0:  # 8 GB out of two numbers
            graph.initializer.append(
                onnx.numpy_helper.from_array(np.array([1 << 31], np.int64), "many")
            )
            graph.node.insert(
                0, helper.make_node("ConstantOfShape", ["many"], ["huge"], name="bomb")
            )
            graph.node.append(helper.make_node("ReduceSum", ["huge"], ["all"], name="sum"))
            graph.output.add().CopyFrom(helper.make_tensor_value_info("all", 1, None))
        case 1:  # 2^40 calls
            for level in range(40):
                calls = [
                    helper.make_node(f"f{level + 1}", ["a"], ["b"], domain="local"),
                    helper.make_node(f"f{level + 1}", ["b"], ["c"], domain="local"),
                ]
                last = [helper.make_node("Relu", ["a"], ["c"])]
                imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
                model.functions.append(
                    helper.make_function(
                        "local", f"f{level}", ["a"], ["c"], calls if level < 39 else last, imports
                    )
                )
            graph.node.insert(0, helper.make_node("f0", ["x"], ["x0"], domain="local"))
        case 2:  # a function that calls itself
            call = helper.make_node("again", ["a"], ["b"], domain="local")
            model.functions.append(
                helper.make_function(
                    "local", "again", ["a"], ["b"], [call], [helper.make_opsetid("local", 1)]
                )
            )
            graph.node.insert(0, helper.make_node("again", ["x"], ["x0"], domain="local"))
        case 3:  # a loop without an end
            loops = [n for n in nodes(model) if n.op_type == "Loop"]
            for tensor in graph.initializer:
                if loops and tensor.name == "trips":
                    tensor.CopyFrom(
                        onnx.numpy_helper.from_array(np.array(1 << 62, np.int64), "trips")
                    )
        case 4:  # graphs in graphs
            inner = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "g", [], [
                helper.make_tensor_value_info("z", 1, None)])  # fmt: skip
            for _ in range(int(draw.integers(5, 60))):
                node = helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner)
                inner = helper.make_graph(
                    [node], "g", [], [helper.make_tensor_value_info("z", 1, None)]
                )
                if inner.ByteSize() > 1 << 20:
                    break
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
            graph.node.append(inner.node[0])
        case _:
            graph.initializer.append(
                onnx.numpy_helper.from_array(np.array([1 << 16, 1 << 17], np.int64), "wide")
            )
            graph.node.append(helper.make_node("Expand", ["x", "wide"], ["z"], name="bomb"))


def _add_sparse(model: onnx.ModelProto, draw: Draw) -> None:
    values = onnx.numpy_helper.from_array(np.ones(3, np.float32), pick(draw, ["w2", "sparse", "x"]))
    indices = onnx.numpy_helper.from_array(np.array([0, 1, 1 << 40], np.int64), "i")
    if draw.integers(2):
        put_outside(values, pick(draw, LOCATIONS))
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [16, 4]))


def _add_training(model: onnx.ModelProto, draw: Draw) -> None:
    info = model.training_info.add()
    info.algorithm.name = "train"
    tensor = onnx.numpy_helper.from_array(np.ones(4, np.float32), "t")
    put_outside(tensor, pick(draw, LOCATIONS))
    info.algorithm.initializer.append(tensor)


def _constant_to_input(model: onnx.ModelProto, draw: Draw) -> None:
    tensor = pick(draw, model.graph.initializer)
    if tensor is not None:
        kind = tensor.data_type if draw.integers(2) else int(draw.integers(1, 17))
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, kind, list(tensor.dims))
        )


def _change_function(model: onnx.ModelProto, draw: Draw) -> None:
    function = pick(draw, model.functions)
    if function is None:
        return
    match int(draw.integers(4)):
        case 0:
            model.functions.add().CopyFrom(function)
        case 1:
            function.output.append(pick(draw, names(model)))
        case 2:
            del function.input[-1:]
        case _:
            function.opset_import.add(domain="", version=9)


def _change_shape_info(model: onnx.ModelProto, draw: Draw) -> None:
    name = pick(draw, names(model))
    model.graph.value_info.append(
        onnx.helper.make_tensor_value_info(name, int(draw.integers(0, 20)), [2, 3, 1 << 33])
    )


def _write_metadata(model: onnx.ModelProto, draw: Draw) -> None:
    """Entries that qbench itself writes, on a node, a value, the graph or the model; whole,
    damaged, or of another.
    """
    # The digests of "plan" and "canonical" are only compared; an entry that was forged to match is
    # not a mutation.
    values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
    for name in dict.fromkeys(value for node in model.graph.node for value in node.output if value):
        if draw.integers(2) and name not in {value.name for value in values}:
            value = onnx.helper.make_tensor_value_info(name, 1, None)
            value.type.ClearField("tensor_type")
            values.append(model.graph.value_info.add())
            values[-1].CopyFrom(value)
    for _ in range(int(draw.integers(1, 5))):
        key = pick(draw, list(METADATA))
        whole = METADATA[key]
        text = pick(
            draw,
            [
                whole,
                whole,
                *METADATA.values(),
                "",
                "{",
                "null",
                "[[1]]",
                "[" * 5000,
                "9" * 400,
                "\u202e",
            ],
        )
        if draw.integers(3) == 0 and text:
            at = int(draw.integers(len(text)))
            text = (
                text[:at]
                + pick(draw, ["", "0", "-", "1e999", '"', "[", "NaN", "99999999999999999999"])
                + text[at + 1 :]
            )
        owner = pick(
            draw,
            [model, model.graph, pick(draw, nodes(model)), pick(draw, values), pick(draw, values)],
        )
        owner.metadata_props.add(key=key.strip(), value=text)


STRUCTURAL: tuple[Callable[[onnx.ModelProto, Draw], None], ...] = (
    _rename_input, _rename_output, _change_inputs, _drop_node, _swap_nodes, _repeat_node,
    _repeat_constant, _drop_constant, _change_dims, _change_data, _change_type, _rename_constant,
    _send_outside, _change_operator, _change_attribute, _add_attribute, _drop_attribute,
    _change_interface, _change_versions, _add_bomb, _add_sparse, _add_training, _constant_to_input,
    _change_function, _change_shape_info, _write_metadata,
)  # fmt: skip


def change_bytes(data: bytes, draw: Draw) -> bytes:
    """``data`` with one to eight bytes, or a part, changed."""
    array = bytearray(data)
    for _ in range(int(draw.integers(1, 9))):
        at = int(draw.integers(len(array))) if array else 0
        match int(draw.integers(6)):
            case 0:
                return bytes(array[:at])
            case 1:
                array[at : at + 1] = draw.bytes(int(draw.integers(0, 5)))
            case 2:
                part = array[at : at + int(draw.integers(1, 64))]
                other = int(draw.integers(len(array) + 1))
                array[other:other] = part
            case _ if array:
                array[at] = (
                    int(draw.integers(256))
                    if draw.integers(2)
                    else array[at] ^ (1 << int(draw.integers(8)))
                )
    return bytes(array)


def write_case(number: int, folder: Path) -> tuple[Path, str]:
    """The file of one case in ``folder``, which is made ready around it, and what was done to
    which seed model.
    """
    draw = np.random.default_rng((0, number))
    known = seeds()
    name = list(known)[number % len(known)]
    model, done = known[name], ["bytes"]
    if draw.integers(2):
        chosen = [pick(draw, STRUCTURAL) for _ in range(int(draw.integers(1, 4)))]
        done = []
        for mutate in chosen:
            with contextlib.suppress(
                ValueError, TypeError
            ):  # of a field that the message does not take
                mutate(model, draw)
                done.append(mutate.__name__.strip("_"))
        data = model.SerializeToString()
    else:
        data = change_bytes(model.SerializeToString(), draw)
    if not (folder / "net.data").exists():
        (folder / "net.data").write_bytes(data_file())
        (folder / "sub").mkdir()
        (folder / "link").symlink_to("/etc/passwd")
        (folder / "parent").symlink_to("/etc")
        os.mkfifo(folder / "fifo")
        x = np.random.default_rng(1).normal(size=(2 * SAMPLES, 1, 8, 8)).astype(np.float32)
        y = np.arange(2 * SAMPLES) % 4
        np.savez(folder / "test.npz", x=x[:SAMPLES], y=y[:SAMPLES])
        np.savez(folder / "calib.npz", x=x[SAMPLES:], y=y[SAMPLES:])
    path = folder / "case.onnx"
    path.write_bytes(data)
    return path, f"{name}: {', '.join(done)}"


# One case
# --------------------------------------------------------------------------------------------------


def commands(number: int, path: Path) -> Iterator[tuple[str, list[str]]]:
    """Two commands: a score first, then another verb; which ones depends on the case."""
    test, calib, cache = (
        path.parent / "test.npz",
        path.parent / "calib.npz",
        ["--cache", str(path.parent / "cache")],
    )
    backend = ("ort-cpu", "ort-cpu-noopt", "onnx-reference")[number // 6 % 3]
    yield (
        f"eval {backend}",
        ["eval", str(path), "--data", str(test), "--json", "--backend", backend, *cache],
    )
    out = str(path.parent / "out.onnx")
    integer = ("ort-cpu", "integer-ort-x64")[number // 3 % 2]
    others = {
        "quantize": ["quantize", str(path), "--schema", "w8_sym_pc", "-o", out],
        "lint": ["lint", str(path)],
        "profile": [
            "profile",
            str(path),
            "--data",
            str(calib),
            "-o",
            str(path.parent / "p.json"),
            *cache,
        ],
        "rewrite": ["rewrite", str(path), "--policy", "fast", "-o", out],
        "partition": ["partition", str(path), "--device", "conv-engine"],
        "quantize --read": ["quantize", str(path), "--read"],
        "eval schema": [
            *["eval", str(path), "--data", str(test), "--calib", str(calib), "--json", *cache],
            *["--schema", "w8a8_asym_pc", "--backend", integer],
        ],
    }
    yield list(others.items())[number // 2 % len(others)]


def run_command(argv: list[str], path: Path) -> dict[str, Any]:
    """How one command ended: its exit code, or where its traceback began; what it scored;
    whether it leaked a file.
    """
    from qbench.cli.program import main

    (path.parent / "out.onnx").unlink(missing_ok=True)
    out, err = io.StringIO(), io.StringIO()
    found: dict[str, Any] = {}
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found["code"] = main(argv)
    except BaseException as error:  # whatever leaves main is a traceback for the user
        frames = [
            f
            for f in traceback.extract_tb(error.__traceback__)
            if f"{os.sep}qbench{os.sep}" in f.filename
        ]
        last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition(f'qbench{os.sep}')[2]}:{last.lineno}"
        found |= {
            "code": 1,
            "traceback": f"{type(error).__name__} {where}",
            "error": str(error)[:200],
        }
    found["stderr"] = err.getvalue()[-400:]
    if found["code"] == 0 and argv[0] == "eval":
        found["top1"] = [
            cell["hits"] / cell["out_of"] for cell in top1_cells(json.loads(out.getvalue()))
        ]
    written = path.parent / "out.onnx"
    secret = Path("/etc/passwd").read_bytes()[:32]
    found["leak"] = secret in out.getvalue().encode() or (
        written.exists() and secret in written.read_bytes()
    )
    return found


def top1_cells(facts: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Every object of a JSON answer that scores top1."""
    if isinstance(facts, dict):
        own = [facts] if facts.get("metric") == "top1" else []
        return own + [cell for value in facts.values() for cell in top1_cells(value)]
    return (
        [cell for value in facts for cell in top1_cells(value)] if isinstance(facts, list) else []
    )


def engine(path: Path) -> dict[str, Any]:
    """What ONNX Runtime says to the same file: what it refuses it with,
    or the share of right answers.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its exceptions share no parent
        return {"refused": type(error).__name__, "words": str(error)[:300]}
    with np.load(path.parent / "test.npz") as data:
        x, y = data["x"], data["y"]
    name = session.get_inputs()[0].name
    try:
        answers = [
            session.run(None, {name: x[first : first + BATCH]})[0]
            for first in range(0, len(x), BATCH)
        ]
        return {"top1": float((np.concatenate(answers).argmax(-1) == y).mean())}
    except Exception as error:  # a model that cannot run
        return {"run": type(error).__name__, "words": str(error)[:200]}


def one_case(number: int, folder: Path) -> dict[str, Any]:
    """Everything about one case; commands run in this process."""
    path, done = write_case(number, folder)
    results = {name: run_command(argv, path) for name, argv in commands(number, path)}
    bomb = any(
        word in done for word in ("add_bomb", "change_dims")
    )  # which the engine itself would try to run
    return {
        "case": number,
        "done": done,
        "commands": results,
        "engine": {} if bomb else engine(path),
    }


def serve() -> None:
    """The worker: numbers of cases on stdin, one JSON line per case on what was stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_GB << 30, ADDRESS_SPACE_GB << 30))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    with tempfile.TemporaryDirectory(prefix="qbench-fuzz-") as folder:
        path, _ = write_case(0, Path(folder))
        path.write_bytes(seeds()["mlp"].SerializeToString())
        for _, argv in commands(0, path):  # imports are slow on a busy machine, and no case's fault
            run_command(argv, path)
        answers.write("\n")
        for line in sys.stdin:
            answers.write(json.dumps(one_case(int(line), Path(folder)), default=str) + "\n")


# The parent
# --------------------------------------------------------------------------------------------------


def start() -> "subprocess.Popen[str]":
    """A worker that has imported what it needs."""
    command = [sys.executable, __file__, "--worker"]
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def processor_seconds(process: int) -> float:
    """What ``process`` has computed so far, where /proc knows; elsewhere the clock."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answered(worker: "subprocess.Popen[str]", timeout: float) -> str | None:
    """The next line of ``worker``, empty when it has ended; None when it computes too long, or
    waits for something.
    """
    begun, since = processor_seconds(worker.pid), time.monotonic()
    while not select.select([worker.stdout], [], [], 0.5)[0]:
        # On a busy machine only the time that it computed shows a hang; one that waits (for a fifo)
        # computes nothing.
        if (
            processor_seconds(worker.pid) - begun > timeout
            or time.monotonic() - since > 10 * timeout
        ):
            return None
    assert worker.stdout is not None
    return worker.stdout.readline()


def watch(numbers: Iterable[int]) -> Iterator[Result]:
    """The results of ``numbers`` from one worker at a time; one that hangs or dies is replaced."""
    worker = start()
    for number in numbers:
        assert worker.stdin is not None
        worker.stdin.write(f"{number}\n")
        line = answered(worker, TIMEOUT)
        if line:
            yield counted(json.loads(line))
            continue
        if line is None:
            worker.kill()
        code = worker.wait()
        ended = "hang" if line is None else f"crash {code}"
        yield Result(trial=number, counts={ended.split(maxsplit=1)[0]: 1}, wrong=(ended,))
        worker = start()
    assert worker.stdin is not None
    worker.stdin.close()
    worker.wait()


def alone(folder: Path) -> Work:
    """What runs trials in this process, keeps their files in ``folder`` and prints all facts."""

    def work(numbers: Iterable[int]) -> Iterator[Result]:
        folder.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            facts = one_case(number, folder)
            print(json.dumps(facts, indent=1, default=str))
            yield counted(facts)

    return work


def counted(facts: dict[str, Any]) -> Result:
    """What one trial counts, and what of it must not happen."""
    verdict = facts["engine"]
    lacking = verdict.get("refused") == "NotImplemented" or any(
        word in verdict.get("words", "") for word in LACKING
    )
    invalid = "refused" in verdict and not lacking
    counts: Counter[str] = Counter()
    wrong = []
    for name, end in facts["commands"].items():
        counts["runs"] += 1
        if "traceback" in end:
            wrong.append(f"{name}: traceback {end['traceback']}")
        else:
            counts[f"exit {end['code']}"] += 1
        if end["leak"]:
            wrong.append(f"{name}: a leak")
        if end["code"] == 0 and name.startswith("eval"):
            counts["scores"] += 1
            if invalid:
                wrong.append(f"{name}: a score of what ONNX Runtime refuses")
            # Only its own kernels must give the very same answers.
            is_same = end["top1"][:1] in ([], [verdict.get("top1")])
            if name.startswith("eval ort") and "top1" in verdict and not is_same:
                wrong.append(f"{name}: another score than ONNX Runtime's")
    return Result(trial=facts["case"], counts=counts, wrong=wrong, about=facts["done"])


def main() -> int:
    """Run what is missing, print the table."""
    made = parser(__doc__, count=3000)
    made.add_argument(
        "--keep", type=Path, default=Path("fuzz-case"), help="folder that --only keeps its file in"
    )
    made.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.worker:
        serve()
        return 0
    kinds = ("runs", *(f"exit {code}" for code in range(5)), "scores", "hang", "crash")
    work = watch if options.only is None else alone(options.keep)
    return run(options, Program(work=work, kinds=kinds))


if __name__ == "__main__":
    sys.exit(main())
