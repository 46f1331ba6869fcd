"""One side of a comparison: a model by a schema or in float, on a backend."""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.backends import Backend, Unoptimized, runs_as_written
from qbench.diagnosis.target import Target, watches_itself


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One side of a comparison.

    Args:
        name: its name in results. original: the float graph.
        quantized: the quantized graph in QDQ form, after any passes; None: the float graph runs.
        backend, threads: run it.
    """

    name: str
    original: ir.Model
    quantized: ir.Model | None = None
    backend: Backend
    threads: int = 1

    @property
    def model(self) -> ir.Model:
        """The graph that runs."""
        return self.original if self.quantized is None else self.quantized

    @property
    def target(self) -> Target:
        """The side as a target, watched on the backend that can be tapped."""
        return Target(
            model=self.name,
            original=self.original,
            quantized=self.model,
            backend=self.backend,
            watched=self.tapped or self.backend,
            threads=self.threads,
        )

    @property
    def tapped(self) -> Backend | None:
        """The backend on which taps change no number, or hardly any; None: there is no such backend.

        Float graphs are tapped without optimizations, which there change only the order of float32 sums.
        """
        backend = self.backend
        if watches_itself(backend) or runs_as_written(backend):
            return backend
        if self.quantized is not None:
            return None
        return (backend.unoptimized() if isinstance(backend, Unoptimized) else None) or backend
