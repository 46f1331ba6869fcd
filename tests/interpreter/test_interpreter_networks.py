"""Trained networks, counted here and by ONNX Runtime: every logit equal, as
docs/evidence/arithmetics.md says.
"""

import functools
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from operator_cases.judges import HERE

from qbench.backends import get_backend
from qbench.calibration import Profile, calibrate
from qbench.graph import constant_value
from qbench.interpreter import KERNELS, Program
from qbench.numerics import get_arithmetic
from qbench.passes import lower_to_qoperator
from qbench.quantization import make_plan, quantize_model
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

Feeds = Mapping[str, np.ndarray]

SMALL = {"digits_cnn": "digits_test"}
LARGER = {"fashion_preact": "fashion_test", "fashion_mobile": "fashion_test"}
LARGEST = dict.fromkeys(("mobilenet_v2", "efficientnet_lite0", "squeezenet"), "photo_crops_128")
MIXED = {"magika": "magika_files"}
DATA = {**SMALL, **LARGER, **LARGEST, **MIXED}

UNSIGNED = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc", "w8a8_asym_pt_pow2")
SIGNED = "w8a8_sym_pc"


@functools.cache
def subject(name: str) -> tuple[ir.Model, Feeds, Profile]:
    """The float network, eight samples, and what was seen of them."""
    found = get_model(name)
    (load,) = found.graphs.values()
    samples = prepare_samples(get_dataset(DATA[name]).take(8), found.preprocess, Cache.default())
    feeds = {key: array[:8] for key, array in next(samples.batches()).items()}
    model = load()
    return model, feeds, calibrate(model, [feeds])


def quantized(name: str, schema: str) -> tuple[ir.Model, Feeds]:
    model, feeds, profile = subject(name)
    return quantize_model(model, make_plan(model, profile, schema)), feeds


def answer(backend: str, model: ir.Model, feeds: Feeds) -> np.ndarray:
    return next(iter(get_backend(backend).prepare(model).run(feeds).values()))


def check(name: str, schema: str) -> None:
    """Signed activations: what the engine's optimizer leaves to floats differs, so that our
    lowering is judged.
    """
    model, feeds = quantized(name, schema)
    pairs = {"ort-cpu-qoperator": HERE}
    if schema != SIGNED:
        pairs |= {"ort-cpu-precise": "ort-x64", "ort-cpu": HERE}
    for engine, machine in pairs.items():
        ours, theirs = answer(f"integer-{machine}", model, feeds), answer(engine, model, feeds)
        np.testing.assert_array_equal(ours, theirs, err_msg=engine)
        assert len(np.unique(ours)) > 10


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("schema", [*UNSIGNED, SIGNED])
@pytest.mark.parametrize("name", SMALL)
def test_every_logit_is_the_engines(name: str, schema: str) -> None:
    check(name, schema)


@pytest.mark.slow
@pytest.mark.parametrize("schema", [*UNSIGNED, SIGNED])
@pytest.mark.parametrize("name", [*LARGER, *LARGEST])
def test_every_logit_of_a_larger_network_is_the_engines(name: str, schema: str) -> None:
    check(name, schema)


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", SIGNED])
@pytest.mark.parametrize("name", MIXED)
def test_what_is_integer_in_a_mixed_network_is_the_engines(name: str, schema: str) -> None:
    """Node by node on the engine's own values;
    floats between them may differ in a bit and so move a level.
    """
    model, feeds = quantized(name, schema)
    lowered = ir.serde.serialize_model(lower_to_qoperator(model))
    theirs = every_value(lowered, feeds)
    judged = set()
    for node in ir.serde.deserialize_model(lowered).graph:
        if (node.domain, node.op_type) in KERNELS and node.outputs[0].name in theirs:
            ours = alone(node, theirs)
            np.testing.assert_array_equal(
                ours, theirs[node.outputs[0].name], err_msg=f"{node.op_type} {node.name}"
            )
            judged.add(node.op_type)
    assert judged >= {
        "QuantizeLinear",
        "DequantizeLinear",
        "QLinearConv",
        "QGemm",
        "MatMulIntegerToFloat",
    }
    # Where pairs saturate, the optimized engine saturates signed ones in graphs of its own making.
    machine, engine = ("ort-x64", "ort-cpu-precise") if schema == SIGNED else (HERE, "ort-cpu")
    ours, engines = answer(f"integer-{machine}", model, feeds), answer(engine, model, feeds)
    assert np.abs(ours - engines).max() <= 0.01 * np.abs(engines).max()
    np.testing.assert_array_equal(ours.argmax(axis=-1), engines.argmax(axis=-1))


def every_value(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray]:
    """All that the engine computes, none of it fused."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = [name for node in copy.graph.node for name in node.output if name]
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = copy.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return {**feeds, **dict(zip(names, session.run(names, dict(feeds)), strict=True))}


def alone(node: ir.Node, values: Feeds) -> np.ndarray:
    """What our kernel of ``node`` makes of these values."""
    known = {value.name: constant_value(value) for value in node.inputs if value is not None}
    fed = {name: values[name] for name, array in known.items() if array is None}
    graph = onnx.helper.make_graph(
        [ir.to_proto(node)],
        "one",
        [
            onnx.helper.make_tensor_value_info(name, _kind(array), None)
            for name, array in fed.items()
        ],
        [onnx.ValueInfoProto(name=node.outputs[0].name)],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in known.items()
            if array is not None
        ],
    )
    imports = [onnx.helper.make_opsetid(*one) for one in node.graph.opset_imports.items()]
    proto = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    program = Program(ir.serde.deserialize_model(proto), get_arithmetic(HERE))
    return program.run(fed)[node.outputs[0].name]


def _kind(array: np.ndarray) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
