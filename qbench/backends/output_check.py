"""What an engine returns, against the outputs that its graph declares.

names        exactly those of the graph
kind         floats, integers or booleans, as declared; their width is the engine's
rank, sizes  as declared; a free dimension is free, and the axis over samples has as many as were
fed
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends.protocol import Array, Closing, Executed, Executor, Feeds, executed_by
from qbench.errors import InputError, nearest

_KINDS = {"f": "floats", "i": "integers", "u": "integers", "b": "booleans", "V": "floats"}
"""By numpy's letters; ``V`` is bfloat16 and the narrower floats of ml_dtypes."""
_OTHERS = {
    "U": "text",
    "S": "text",
    "T": "text",
    "O": "Python objects",
    "c": "complex numbers",
    "M": "dates",
    "m": "times",
}


@dataclass(frozen=True, slots=True)
class OutputFact:
    """One declared output.

    Args:
        kind: of its numbers, one of ``_KINDS``; empty: not declared, or text.
        shape: a whole number for a fixed size, None for a free one; None: not declared.
        by_sample: whether its first axis is the one over samples.
    """

    kind: str
    shape: tuple[int | None, ...] | None
    by_sample: bool

    def problem(self, array: Array, rows: int | None) -> str | None:
        """Why ``array``, the result for ``rows`` samples (None: not known), does not fit; None:
        it fits.
        """
        kind = _KINDS.get(
            array.dtype.kind, _OTHERS.get(array.dtype.kind, f"values of type {array.dtype}")
        )
        if self.kind and kind != self.kind:
            return f"{kind} where the graph has {self.kind}"
        if self.shape is None:
            return None
        wanted = self.shape
        if self.by_sample and self.shape:
            wanted = (rows, *self.shape[1:])
        fits = len(wanted) == array.ndim and all(
            want in (None, have) for want, have in zip(wanted, array.shape, strict=True)
        )
        if fits:
            return None
        words = ["?" if dim is None else str(dim) for dim in wanted]
        found = "×".join(map(str, array.shape)) or "of a scalar"
        return f"shape {found} where the graph has {'×'.join(words) or 'a scalar'}"


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """The declared outputs of a graph, in order, and the input whose first axis counts samples."""

    graph: str
    backend: str
    outputs: Mapping[str, OutputFact]
    samples: str

    @classmethod
    def of(cls, model: ir.Model, backend: str) -> "OutputCheck":
        """The check for ``model`` on ``backend``."""
        inputs = [
            value for value in model.graph.inputs if value.name not in model.graph.initializers
        ]
        first = next(
            (value for value in inputs if value.shape is not None and len(value.shape)), None
        )
        batch = None if first is None or first.shape is None else first.shape[0]
        free = batch if isinstance(batch, ir.SymbolicDim) else None
        return cls(
            model.graph.name or "model",
            backend,
            {str(value.name): _fact(value, free) for value in model.graph.outputs},
            str(first.name) if first is not None and free is not None else "",
        )

    def checked(self, feeds: Feeds, results: Any) -> dict[str, Array]:  # noqa: ANN401 - of an engine of any maker
        """``results`` of one batch as arrays, in the order of the graph.

        Raises:
            InputError: they are not what the graph declares.
        """
        if not isinstance(results, Mapping):
            raise self._error(f"a {type(results).__name__}", "Return a dict: output name → array.")
        for name in results:
            if name not in self.outputs:
                close = nearest(str(name), self.outputs)
                remedy = (
                    f"Return it as '{close}'."
                    if close
                    else "Return the outputs of the graph alone."
                )
                raise self._error(f"an output '{name}' that the graph does not have", remedy)
        arrays = {}
        rows = len(feeds[self.samples]) if np.ndim(feeds.get(self.samples, 0)) else None
        for name, fact in self.outputs.items():
            if name not in results:
                raise self._error(f"no output '{name}'", "Return every output of the graph.")
            arrays[name] = np.asarray(results[name])
            if problem := fact.problem(arrays[name], rows):
                raise self._error(
                    f"output '{name}' with {problem}",
                    "Correct the backend, or what the model declares.",
                )
        return arrays

    def _error(self, found: str, remedy: str) -> InputError:
        return InputError(
            f"Reading the results of '{self.graph}' on '{self.backend}'",
            found=found,
            expected=f"the outputs of the graph: {', '.join(map(repr, self.outputs))}",
            remedy=remedy,
        )


def _fact(value: ir.Value, batch: ir.SymbolicDim | None) -> OutputFact:
    is_number = value.dtype is not None and value.dtype is not ir.DataType.STRING
    kind = (
        _KINDS.get(np.dtype(value.dtype.numpy()).kind, "")
        if is_number and value.dtype is not None
        else ""
    )
    if value.shape is None:
        return OutputFact(kind, None, by_sample=False)
    shape: list[int | None] = [dim if isinstance(dim, int) else None for dim in value.shape]
    first = value.shape[0] if len(value.shape) else None
    named = batch is not None and batch.value is not None and isinstance(first, ir.SymbolicDim)
    by_sample = (
        named
        and isinstance(first, ir.SymbolicDim)
        and batch is not None
        and first.value == batch.value
    )
    if batch is not None and isinstance(first, int):
        # a size that the export of one sample left behind
        shape[0] = None
    return OutputFact(kind, tuple(shape), by_sample)


class CheckedExecutor(Closing):
    """An executor whose results are checked before any task sees them; it closes the inner one."""

    def __init__(self, executor: Executor, check: OutputCheck) -> None:
        self.executor = executor
        self.check = check

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output name → array.

        Raises:
            InputError: as ``OutputCheck.checked``. QbenchError: what the inner executor raises.
        """
        return self.check.checked(feeds, self.executor.run(feeds))

    def executed(self) -> Mapping[str, Executed]:
        """As the inner executor."""
        return executed_by(self.executor)

    def close(self) -> None:
        """Close the inner executor."""
        self.executor.close()
