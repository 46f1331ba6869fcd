"""ONNX Runtime on the operator-oriented form: a QDQ graph is lowered to QLinearConv and its kin before the session.

What the engine's own optimizer does with a QDQ graph depends on its version and on where the pairs stand; here the
integer operators are ours, and optimizing changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from qbench.backends.ort import OrtBackend
from qbench.backends.protocol import Executor
from qbench.backends.tapping import loaded, with_taps
from qbench.graph import Capabilities, Form
from qbench.passes import lower_to_qoperator

_NAME = "ort-cpu-qoperator"
_FORMS = frozenset({Form.FLOAT, Form.QOPERATOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredOrtBackend:
    """ONNX Runtime's CPU provider behind our lowering; float graphs run as they are.

    Signed activations are counted 20 times slower than unsigned ones on x64 (onnxruntime issue 12072).
    """

    name: str = _NAME
    engine: OrtBackend = field(default_factory=lambda: OrtBackend(name=_NAME))
    capabilities: Capabilities = field(
        default_factory=lambda: replace(OrtBackend(name=_NAME).capabilities, forms=_FORMS)
    )
    packages: tuple[str, ...] = ("onnxruntime",)

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over the lowered ``model``; a tapped operator stays float, as its result has another reader.

        Raises:
            What ``OrtBackend.prepare`` raises.
        """
        return self.engine.prepare(self.lowered(loaded(model), taps), threads=threads)

    def lowered(self, model: ir.Model, taps: Sequence[str] = ()) -> ir.Model:
        """``model`` on operators on integers, with ``taps`` as outputs.

        Raises:
            InputError: a tap names no value of it.
        """
        return lower_to_qoperator(with_taps(model, taps))
