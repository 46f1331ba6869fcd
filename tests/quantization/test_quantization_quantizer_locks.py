"""Locks of quantizers with the versions of another release."""

import pytest

from qbench.errors import InputError
from qbench.quantization import lock_with


def test_pins_take_the_place_of_the_same_package_and_hashes_are_dropped():
    lines = [
        "My_Tool[torch]==2.0 --hash=sha256:0 --hash=sha256:1",
        'numpy==2.1 ; python_version < "3.12" --hash=sha256:2',
        "onnx==1.17",
    ]
    assert lock_with(lines, ["my-tool==1.5", "numpy<2", "scipy==1.1"], "") == [
        "My_Tool[torch]==1.5",
        'numpy<2; python_version < "3.12"',
        "onnx==1.17",
        "scipy==1.1",
    ]
    assert lock_with([], ["my-tool==1.5"], "") == ["my-tool==1.5"]


@pytest.mark.parametrize("pin", ["/a", "--pre", "my-tool=1"])
def test_what_is_no_requirement_is_a_sentence(pin):
    with pytest.raises(InputError, match="found the requirement"):
        lock_with(["onnx==1.17"], [pin], "Changing a lock")
