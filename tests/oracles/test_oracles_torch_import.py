"""Float graphs as torch modules: ONNX Runtime gives the same numbers, operator by operator and on
whole networks.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from float_operators import CASES, CONVOLUTION, Case, feeds_of, model_of

from qbench.backends import get_backend
from qbench.errors import UnsupportedError
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

pytestmark = pytest.mark.oracle

Array = npt.NDArray[Any]
ERROR = 2e-5
"""Of the largest result: float32 sums in another order."""


@pytest.fixture(autouse=True)
def _one_thread(torch: ModuleType) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def both(torch: ModuleType, model: ir.Model, feeds: Mapping[str, Array]) -> list[Any]:
    """(ONNX Runtime's, PyTorch's) of every output."""
    from qbench_engines import torch_module

    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        expected = executor.run(feeds)
    with torch.no_grad():
        found = torch_module(model)(*(torch.from_numpy(np.array(one)) for one in feeds.values()))
    results = found if isinstance(found, tuple) else (found,)
    return [(expected[name], one.numpy()) for name, one in zip(expected, results, strict=True)]


def assert_equal(torch: ModuleType, model: ir.Model, feeds: Mapping[str, Array]) -> None:
    for expected, found in both(torch, model, feeds):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= ERROR * max(np.abs(expected).max(), 1.0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_gives_what_onnx_runtime_gives(torch: ModuleType, case: Case) -> None:
    assert_equal(torch, model_of(case), feeds_of(case))


def test_every_operator_has_a_case(torch: ModuleType) -> None:
    from qbench_engines.torch_operators import OPERATORS

    assert OPERATORS.keys() - {case.operator for case in CASES} == set()


NETWORKS = {
    "digits_cnn": "digits_test",
    "fashion_preact": "fashion_test",
    "fashion_mobile": "fashion_test",
    "squeezenet": "calibration_crops",
    "mobilenet_v2": "calibration_crops",
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_gives_what_onnx_runtime_gives(torch: ModuleType, name: str) -> None:
    network, data = get_model(name), get_dataset(NETWORKS[name]).take(4)
    samples = prepare_samples(data, network.preprocess, Cache.default())
    assert_equal(torch, network.graphs["model"](), next(iter(samples.batches())))


def test_products_are_layers_that_a_quantizer_of_pytorch_finds(torch: ModuleType) -> None:
    from qbench_engines import torch_module

    kinds = [
        type(one).__name__
        for one in torch_module(get_model("digits_cnn").graphs["model"]()).modules()
    ]
    assert {"Conv2d", "Linear", "ReLU"} <= set(kinds)


def test_a_module_can_be_exported_for_any_batch(torch: ModuleType) -> None:
    from qbench_engines import torch_module

    module = torch_module(get_model("fashion_mobile").graphs["model"]())
    many = torch.export.Dim("many", min=1, max=64)
    example = torch.zeros(2, 1, 28, 28)
    exported = torch.export.export(module, (example,), dynamic_shapes=({0: many},)).module()
    five = torch.rand(5, 1, 28, 28)
    assert torch.equal(exported(five), module(five))


def test_an_operator_that_has_no_translation_is_named(torch: ModuleType) -> None:
    from qbench_engines import torch_module

    with pytest.raises(UnsupportedError) as caught:
        torch_module(model_of(Case("Det", fed=((3, 3),))))
    assert caught.value.found == "the operator Det of the node 'it'"


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (
            Case("Conv", constants=CONVOLUTION, attributes={"auto_pad": "SAME_UPPER"}),
            "with auto_pad for any size of picture",
        ),
        (
            Case("Resize", constants={2: np.array([1, 1, 2, 2], np.float32)}),
            "by nearest, half_pixel, round_prefer_floor",
        ),
        (
            Case(
                "MaxPool",
                attributes={"kernel_shape": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1},
            ),
            "with unequal padding, its windows rounded up",
        ),
    ],
    ids=("unknown-size", "resize", "ceil"),
)
def test_a_form_that_has_no_translation_is_named(torch: ModuleType, case: Case, found: str) -> None:
    from qbench_engines import torch_module

    model = model_of(case)
    if case.operator == "Conv":
        size = ir.SymbolicDim("size")
        model.graph.inputs[0].shape = ir.Shape([2, 4, size, size])
    with pytest.raises(UnsupportedError) as caught:
        torch_module(model)
    assert caught.value.found == f"{case.operator} 'it' {found}"
