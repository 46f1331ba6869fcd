"""Operators that a library brings for itself are named, with the library that loads them."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import get_backend
from qbench.diagnosis import lint_products
from qbench.errors import InputError, UnsupportedError
from qbench.graph import LIBRARIES, library_operators, library_remedy


def model_of(domain: str = "com.amd.quark", count: int = 2) -> ir.Model:
    """Nodes of one domain in a row, and a product behind them; no Q or DQ of ONNX."""
    nodes = [
        helper.make_node(f"Extended{i % 2}", [f"v{i}"], [f"v{i + 1}"], f"n{i}", domain=domain)
        for i in range(count)
    ]
    graph = helper.make_graph(
        [*nodes, helper.make_node("MatMul", [f"v{count}", "w"], ["y"], "fc")],
        "net",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.ones((4, 3), np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def test_nodes_of_a_domain_are_counted_by_operator() -> None:
    (found,) = library_operators(model_of(count=5))
    assert found.domain == "com.amd.quark"
    assert dict(found.counts) == {"Extended0": 3, "Extended1": 2}
    assert "quark.onnx.get_library_path" in found.library
    assert str(found) == "5 nodes of the domain 'com.amd.quark' (3 Extended0, 2 Extended1)"


@pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx.ml", "com.microsoft.nchwc"])
def test_what_engines_have_is_not_of_a_library(domain: str) -> None:
    assert library_operators(model_of(domain)) == ()


def test_a_function_of_the_model_is_not_of_a_library() -> None:
    proto = ir.to_proto(model_of("mine", 1))
    body = [helper.make_node("Relu", ["a"], ["b"])]
    proto.functions.append(
        helper.make_function("mine", "Extended0", ["a"], ["b"], body, proto.opset_import)
    )
    onnx.checker.check_model(proto)
    assert library_operators(ir.from_proto(proto)) == ()


@pytest.mark.parametrize("domain", [*LIBRARIES, "acme.nobody_knows"])
def test_a_remedy_says_which_library_or_that_none_is_known(domain: str) -> None:
    remedy = library_remedy(library_operators(model_of(domain)))
    assert LIBRARIES.get(domain, "docs/extending.md") in remedy


def test_an_engine_and_lint_name_the_library() -> None:
    with pytest.raises(UnsupportedError) as refused:
        get_backend("ort-cpu").prepare(model_of())
    assert "quark.onnx.get_library_path" in refused.value.remedy
    with pytest.raises(InputError) as linted:
        lint_products(model_of())
    assert "2 nodes of the domain 'com.amd.quark'" in linted.value.found
