"""What a pass is: a small frozen value that changes a model in place and says honestly whether it did."""

from typing import Protocol, runtime_checkable

import onnx_ir as ir


@runtime_checkable
class Pass(Protocol):
    """A named change of a graph; its class docstring says what it requires and what it ensures.

    Idempotent: run again on its own result it returns False and changes nothing.
    """

    @property
    def name(self) -> str:
        """Short kebab; how pipelines and messages call it."""
        ...

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place.

        Returns:
            Whether anything changed.

        Raises:
            QbenchError: the model is one this pass cannot be applied to.
        """
        ...
