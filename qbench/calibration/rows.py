"""Taking a batch apart into runs of one sample, so that a value's bits depend on its sample alone.

    run(x₁ … x_n) = join(run(x₁), …, run(x_n))        along the axes that are called as the batch is

Engines choose their kernels by the size of a batch, and with them the last bit of a sum; a profile that must not depend
on how its samples were batched cannot let them. It also keeps no more than one sample's values in memory. Outputs whose
free first axis bears another name are taken to run over samples too. A graph that leaves no first axis free to do so is
run with whole batches; one of a fixed batch b with b samples at a time.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Feeds
from qbench.calibration.watched import batch_of, dimensions, sample_axis
from qbench.errors import InputError
from qbench.graph import with_shapes

_WHOLE = 1 << 62
"""More samples than any batch has."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How batches of one graph come apart.

    Args:
        first: the input that tells how many samples there are, by its first axis.
        inputs: graph input → the axis that runs over samples; those without one belong whole to every sample.
        outputs: graph output → such an axis.
        size: samples a run takes.
    """

    first: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    size: int

    @classmethod
    def of(cls, model: ir.Model) -> "Rows":
        """Those of ``model``.

        Raises:
            InputError: it takes no data.
        """
        graph = with_shapes(model).graph
        batch = batch_of(graph)
        fed = [value for value in graph.inputs if value.name not in graph.initializers]
        inputs, outputs = _axes(fed, batch), _axes(graph.outputs, batch)
        if isinstance(batch, str):
            outputs |= {str(v.name): 0 for v in graph.outputs if v.name not in outputs and _free_first(v)}
        whole = batch is None or len(outputs) < len(graph.outputs)
        size = batch if isinstance(batch, int) and batch > 0 else 1
        return cls(
            str(fed[0].name), inputs or {str(value.name): 0 for value in fed}, outputs, _WHOLE if whole else size
        )

    def count(self, feeds: Feeds) -> int:
        """How many samples are in ``feeds``.

        Raises:
            InputError: the first input is missing or has no axis to count samples by.
        """
        first = feeds.get(self.first)
        if first is None or not np.ndim(first):
            raise InputError(
                "Calibrating",
                found=f"a batch without '{self.first}', or with it as one number",
                expected="an array whose first axis runs over samples",
                remedy="Feed the graph's inputs by name.",
            )
        return len(first)

    def parts(self, feeds: Feeds, count: int) -> Iterator[tuple[int, int, dict[str, Array]]]:
        """``feeds`` of ``count`` samples run by run: the first sample of each, the one behind its last, its feeds."""
        for start in range(0, max(count, 1), self.size):
            stop = min(count, start + self.size)
            yield start, stop, {name: self._part(name, feeds[name], count, start, stop) for name in feeds}

    def joined(self, results: Sequence[Mapping[str, Array]], names: Sequence[str]) -> dict[str, Array]:
        """The outputs ``names`` of the runs as one batch."""
        if len(results) == 1:
            return {name: results[0][name] for name in names}
        return {name: np.concatenate([part[name] for part in results], axis=self.outputs[name]) for name in names}

    def digests(self, feeds: Feeds, count: int) -> list[str]:
        """The digest of what each sample is fed: names, dtypes, shapes and bytes of its parts."""
        return [
            _digest({name: self._part(name, feeds[name], count, row, row + 1) for name in sorted(feeds)})
            for row in range(count)
        ]

    def _part(self, name: str, feed: Any, count: int, start: int, stop: int) -> Array:  # noqa: ANN401 - what is fed
        array, axis = np.asarray(feed), self.inputs.get(name)
        if axis is None or array.ndim <= axis or array.shape[axis] != count or (start == 0 and stop == count):
            return array
        return np.ascontiguousarray(array[(slice(None),) * axis + (slice(start, stop),)])


def _digest(parts: Mapping[str, Array]) -> str:
    state = hashlib.sha256()
    for name, part in parts.items():
        state.update(f"{name}|{part.dtype.str}|{part.shape}|".encode())
        state.update(np.ascontiguousarray(part).data if part.dtype.kind in "biufc" else repr(part.tolist()).encode())
    return state.hexdigest()


def _free_first(value: ir.Value) -> bool:
    """Whether nothing says how long its first axis is."""
    return value.shape is None or not isinstance((dimensions(value) or [0])[0], int)


def _axes(values: Sequence[ir.Value], batch: int | str | None) -> dict[str, int]:
    found = {str(value.name): sample_axis(value, batch) for value in values}
    return {name: axis for name, axis in found.items() if axis is not None}
