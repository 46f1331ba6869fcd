"""What a pass is: a small frozen value that changes a model in place and says honestly whether it did."""

from typing import Protocol, runtime_checkable

import onnx_ir as ir

from qbench.passes.effect import Effect


@runtime_checkable
class Pass(Protocol):
    """A named change of a graph; its class docstring says what it requires and what it ensures.

    A frozen dataclass whose fields are its settings, so that pipelines print, parse and digest. Idempotent: run again
    on its own result it returns False and changes nothing.
    """

    @property
    def name(self) -> str:
        """Short kebab; how pipelines and messages call it."""
        ...

    @property
    def effect(self) -> Effect:
        """The most it does to numbers, with its settings as they are."""
        ...

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place.

        Returns:
            Whether anything changed; a reason that was written into a node (``decline``) is no change.

        Raises:
            QbenchError: the model is one this pass cannot be applied to.
        """
        ...


@runtime_checkable
class Placed(Protocol):
    """A pass from outside that wants a place in the standard pipeline; without one it runs after all others."""

    @property
    def after(self) -> tuple[str, ...]:
        """Names of passes that it follows."""
        ...

    @property
    def before(self) -> tuple[str, ...]:
        """Names of passes that it precedes."""
        ...
