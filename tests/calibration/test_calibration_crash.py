"""An engine that ends its process while it calibrates: an error with a sentence,
and this process goes on.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from qbench.backends import EngineCrashError, Executor
from qbench.calibration import prepare_watch
from qbench.graph import Capabilities


@dataclass(frozen=True)
class Ending:
    """A backend whose process ends without a word, as in a segmentation fault."""

    name: str = "ending"
    hang_s: float = 60.0
    packages: tuple[str, ...] = ()
    capabilities: Capabilities = field(default_factory=Capabilities)

    def prepare(self, model: Any, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        os._exit(11)


def test_calibration_with_an_engine_that_ends() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 2] x) => (float[N, 2] y) '
        "{ y = Relu (x) }"
    )
    model = ir.from_proto(onnx.parser.parse_model(text))
    with pytest.raises(EngineCrashError) as error:
        prepare_watch(model, Ending())
    assert "ended" in error.value.found
