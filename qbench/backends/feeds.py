"""Checking one batch against a graph's inputs before an engine sees it, so that the error is ours and one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.backends.protocol import Array, Feeds
from qbench.errors import InputError, nearest


@dataclass(frozen=True, slots=True)
class InputFact:
    """What one graph input takes: a dtype and a shape with None for every free dimension; None: not declared."""

    dtype: np.dtype[np.generic] | None
    shape: tuple[int | None, ...] | None

    def problem(self, array: Array) -> str | None:
        """Why ``array`` does not fit, or None when it does."""
        if self.dtype is not None and array.dtype != self.dtype:
            return f"dtype {array.dtype} where the graph takes {self.dtype}"
        if self.shape is None:
            return None
        fits = len(array.shape) == len(self.shape) and all(
            want in (None, have) for want, have in zip(self.shape, array.shape, strict=True)
        )
        wanted = "×".join("?" if dim is None else str(dim) for dim in self.shape) or "a scalar"
        return (
            None if fits else f"shape {'×'.join(map(str, array.shape)) or 'of a scalar'} where the graph takes {wanted}"
        )


@dataclass(frozen=True, slots=True)
class FeedCheck:
    """The inputs of one graph; ``required`` excludes those that have an initializer, their default.

    ``constants`` are the initializers that are not inputs: in canonical and quantized graphs, what once was a default.
    """

    graph: str
    backend: str
    inputs: Mapping[str, InputFact]
    required: tuple[str, ...]
    constants: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: ir.Model, backend: str) -> "FeedCheck":
        """The check for ``model`` on ``backend``."""
        graph = model.graph
        facts = {str(value.name): _fact(value) for value in graph.inputs}
        required = tuple(name for name in facts if name not in graph.initializers)
        constants = frozenset(graph.initializers) - facts.keys()
        return cls(graph.name or "model", backend, facts, required, constants)

    def checked(self, feeds: Feeds) -> dict[str, Array]:
        """``feeds`` as arrays.

        Raises:
            InputError: an input is missing, unknown, or has a dtype, rank or shape that the graph does not take.
        """
        for name in self.required:
            if name not in feeds:
                raise self._error(f"no input '{name}'", f"Feed it; the graph's inputs are {self._listed()}.")
        arrays = {}
        for name, given in feeds.items():
            if name in self.constants or f"{name}_quantized" in self.constants:
                raise self._error(f"a feed for '{name}', a constant here", f"Feed only {self._listed()}.")
            if name not in self.inputs:
                close = nearest(name, self.inputs)
                hint = f"Did you mean '{close}'?" if close else f"The graph's inputs are {self._listed()}."
                raise self._error(f"an unknown input '{name}'", hint)
            arrays[name] = np.asarray(given)
            if problem := self.inputs[name].problem(arrays[name]):
                raise self._error(f"input '{name}' with {problem}", "Check that the data fits the model.")
        return arrays

    def _listed(self) -> str:
        return ", ".join(f"'{name}'" for name in self.inputs)

    def _error(self, found: str, remedy: str) -> InputError:
        return InputError(
            f"Running '{self.graph}' on '{self.backend}'", found=found, expected="what the graph takes", remedy=remedy
        )


def _fact(value: ir.Value) -> InputFact:
    dtype = None if value.dtype is None or value.dtype is ir.DataType.STRING else np.dtype(value.dtype.numpy())
    shape = None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    return InputFact(dtype, shape)
