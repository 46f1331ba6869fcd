"""One side of a comparison: a model by a schema or in float, on a backend."""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.backends import Backend, Unoptimized, runs_as_written
from qbench.diagnosis.target import Target, watches_itself


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """What runs on one side.

    Args:
        name: how results call it. original: the float graph.
        quantized: what was written into it, in QDQ form, after passes if there are any; None: the float graph runs.
        backend, threads: what runs it.
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
        """The side as a target, watched on the backend that may be tapped."""
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
        """The backend on which taps change nothing, or next to nothing; None: there is no such backend.

        Float graphs are tapped without optimizations: what those change there is the order of float32 sums.
        """
        backend = self.backend
        if watches_itself(backend) or runs_as_written(backend):
            return backend
        if self.quantized is not None:
            return None
        return (backend.unoptimized() if isinstance(backend, Unoptimized) else None) or backend
