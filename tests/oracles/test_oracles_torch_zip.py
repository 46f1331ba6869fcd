"""Checkpoints as torch writes them today, read by our reader: the same arrays, or a refusal of
what is no tensor.
"""

import io
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from qbench.errors import InputError
from qbench_zoo.readers.torch_files import read_torch_legacy, read_torch_zip

pytestmark = pytest.mark.oracle


def saved(torch: ModuleType, value: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def state_dict(torch: ModuleType) -> dict[str, Any]:
    """Of a real module, with views, a scalar, and every kind of number that is read."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(4, 5)
    )
    state = module.state_dict()
    whole = torch.arange(24.0).reshape(4, 6)
    state |= {"part": whole[1:3, 2:5], "turned": whole.T}
    for name in ("float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"):
        state[name] = torch.tensor([0, 1, 3]).to(getattr(torch, name))
    return dict(state)


def test_what_torch_saves_is_read(torch: ModuleType) -> None:
    state = state_dict(torch)
    for found in (
        read_torch_zip(saved(torch, state), "state.pt"),
        read_torch_zip(saved(torch, {"epoch": 3, "network": state}), "run.pt", entry="network"),
        read_torch_legacy(saved(torch, state, _use_new_zipfile_serialization=False), "old.pt"),
    ):
        assert list(found) == list(state)
        for name, tensor in state.items():
            np.testing.assert_array_equal(found[name], tensor.numpy(), strict=True)


@pytest.mark.parametrize("kind", ["module", "bfloat16", "complex64", "uint16"])
def test_what_is_no_tensor_of_known_numbers_is_refused(torch: ModuleType, kind: str) -> None:
    value = (
        torch.nn.Linear(2, 2) if kind == "module" else {"a": torch.ones(3).to(getattr(torch, kind))}
    )
    with pytest.raises(InputError, match="the name"):
        read_torch_zip(saved(torch, value), "state.pt")
