"""What is fed to a prepared graph and returned of it: batches checked against its inputs, and
taps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.backends.protocol import Array, Feeds
from qbench.errors import InputError, nearest
from qbench.graph import AnyModel, as_model, values_by_name, with_shapes


@dataclass(frozen=True, slots=True)
class InputFact:
    """Dtype and shape of one graph input, with None for every free dimension; None: not
    declared.
    """

    dtype: np.dtype[np.generic] | None
    shape: tuple[int | None, ...] | None

    def problem(self, array: Array) -> str | None:
        """Why ``array`` does not fit; None: it fits."""
        if self.dtype is not None and array.dtype != self.dtype:
            return f"dtype {array.dtype} where the graph takes {self.dtype}"
        if self.shape is None:
            return None
        fits = len(array.shape) == len(self.shape) and all(
            want in (None, have) for want, have in zip(self.shape, array.shape, strict=True)
        )
        if fits:
            return None
        wanted = "×".join("?" if dim is None else str(dim) for dim in self.shape) or "a scalar"
        # the size of the batch is none that a user chose: free axes are shown as such
        free = (
            [dim is None for dim in self.shape]
            if len(self.shape) == len(array.shape)
            else [False] * array.ndim
        )
        found = "×".join(
            "?" if any_ else str(have) for any_, have in zip(free, array.shape, strict=True)
        )
        return f"shape {found or 'of a scalar'} where the graph takes {wanted}"

    def of_nothing(self, array: Array) -> Array:
        """``array``; where samples hold no numbers, as a cache before the first token, and it has
        as many axes as the input, of the type and the sizes that the graph has.
        """
        shape = self.shape or ()
        if self.dtype is None or 0 not in array.shape[1:] or len(shape) != array.ndim:
            return array
        sizes = [
            have if want is None else want for have, want in zip(array.shape, shape, strict=True)
        ]
        return np.zeros(sizes, self.dtype) if 0 in sizes[1:] else array


@dataclass(frozen=True, slots=True)
class FeedCheck:
    """A check of batches against the inputs of a graph, before an engine runs them.

    ``required`` excludes inputs with an initializer, which is their default. ``constants`` are the
    initializers that are not inputs: in canonical and quantized graphs these include former
    defaults.
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
            InputError: an input is missing, unknown, or has a dtype, rank or shape that the graph
                does not accept.
        """
        for name in self.required:
            if name not in feeds:
                raise self._error(
                    f"no input '{name}'", f"Feed it; the graph's inputs are {self._listed()}."
                )
        arrays = {}
        for name, given in feeds.items():
            if name in self.constants or f"{name}_quantized" in self.constants:
                raise self._error(
                    f"a feed for '{name}', which is a constant", f"Feed only {self._listed()}."
                )
            if name not in self.inputs:
                close = nearest(name, self.inputs)
                hint = (
                    f"Did you mean '{close}'?"
                    if close
                    else f"The graph's inputs are {self._listed()}."
                )
                raise self._error(f"an unknown input '{name}'", hint)
            arrays[name] = self.inputs[name].of_nothing(np.asarray(given))
            if problem := self.inputs[name].problem(arrays[name]):
                raise self._error(
                    f"input '{name}' with {problem}", "Check that the data fits the model."
                )
        return arrays

    def _listed(self) -> str:
        return ", ".join(f"'{name}'" for name in self.inputs)

    def _error(self, found: str, remedy: str) -> InputError:
        return InputError(
            f"Running '{self.graph}' on '{self.backend}'",
            found=found,
            expected="inputs of the graph",
            remedy=remedy,
        )


def _fact(value: ir.Value) -> InputFact:
    dtype = None
    if value.dtype is not None and value.dtype is not ir.DataType.STRING:
        dtype = np.dtype(value.dtype.numpy())
    if value.shape is None:
        return InputFact(dtype, None)
    return InputFact(dtype, tuple(dim if isinstance(dim, int) else None for dim in value.shape))


def loaded(model: AnyModel) -> ir.Model:
    """``model`` itself, or the model in the message or the file.

    Raises:
        InputError: it is not an ONNX model.
    """
    return as_model(model)


def with_taps(model: ir.Model, taps: Sequence[str]) -> ir.Model:
    """A copy of ``model`` that returns the values in ``taps`` too; itself without taps.

    Raises:
        InputError: a tap names no value of the main graph.
    """
    outputs = {value.name for value in model.graph.outputs}
    wanted = [name for name in dict.fromkeys(taps) if name not in outputs]
    if not wanted:
        return model
    known = values_by_name(model)
    typed = all(name in known and known[name].type is not None for name in wanted)
    tapped = model.clone() if typed else with_shapes(model)  # a graph output must carry a dtype
    values = values_by_name(tapped)
    require_taps(wanted, values, doing=f"Tapping '{model.graph.name}'", where="the graph")
    tapped.graph.outputs.extend(values[name] for name in wanted)
    return tapped


def require_taps(taps: Iterable[str], names: Iterable[str], *, doing: str, where: str) -> None:
    """Refuse ``taps`` that are not among ``names``, the values in ``where``.

    Raises:
        InputError: one of them is not; the nearest name is suggested.
    """
    known = frozenset(names)
    for name in taps:
        if name not in known:
            close = nearest(name, known)
            raise InputError(
                doing,
                found=f"no value '{name}' in {where}",
                expected="a value that is computed there",
                remedy=f"Did you mean '{close}'?" if close else "Look up the names of its values.",
            )
