"""What LiteRT's backends say of themselves, and without their extra; tests/oracles runs them."""

import sys

import pytest
from onnx import TensorProto, helper
from onnx_ir import from_proto

from qbench.backends import get_backend
from qbench.errors import InputError, NotFetchedError, UnsupportedError
from qbench.extension import install_command
from qbench_engines import write_tflite

NAMES = ("litert-reference", "litert-builtin", "litert-xnnpack")


def graph(operator: str, *shape: int | str):
    nodes = [helper.make_node(operator, ["x"], ["y"], "it")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    made = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return from_proto(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


@pytest.mark.parametrize(
    ("name", "arithmetic"), list(zip(NAMES, ("gemmlowp", "litert-x64", "xnnpack"), strict=True))
)
def test_each_set_of_kernels_has_an_arithmetic(name, arithmetic) -> None:
    backend = get_backend(name)
    assert (backend.name, backend.arithmetic, backend.packages) == (
        name,
        arithmetic,
        ("ai-edge-litert",),
    )


@pytest.mark.parametrize("name", NAMES)
def test_without_the_extra_a_backend_names_what_to_install(name, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(NotFetchedError) as caught:
        get_backend(name).prepare(graph("Relu", "N", 4))
    assert install_command("litert") in caught.value.remedy


def test_an_operator_that_tflite_lacks_is_refused_by_name_before_anything_is_written(
    monkeypatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(UnsupportedError) as caught:
        write_tflite(graph("Erf", "N", 4))
    assert caught.value.found.startswith("Erf 'it'")


def test_free_axes_other_than_the_batch_need_a_size(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(InputError) as caught:
        write_tflite(graph("Relu", "N", "T"))
    assert "x[1]" in caught.value.found
