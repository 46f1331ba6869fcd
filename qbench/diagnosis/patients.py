"""The patients of a cell: its quantized graphs, each with the float graph that it was written from."""

from collections.abc import Mapping

from qbench.backends import Backend, get_backend
from qbench.diagnosis.engine.claims import stand_in
from qbench.diagnosis.patient import Patient, watches_itself
from qbench.errors import InputError
from qbench.evaluation import Quantized, Request, SharedWork, rewrite_quantized
from qbench.passes import plannable

AS_WRITTEN = "ort-cpu-noopt"
"""Is watched in place of an engine whose arithmetic nobody has written down: it counts in reals, and fuses nothing."""


def quantized_of(request: Request, shared: SharedWork) -> Quantized:
    """The graphs that the cell of ``request`` runs.

    Raises:
        InputError: the cell runs the float model.
        QbenchError: they cannot be made.
    """
    written = _written(request, shared)
    return written if request.rewriting is None else rewrite_quantized(written, request.rewriting).quantized


def _written(request: Request, shared: SharedWork) -> Quantized:
    """Before any passes of the request."""
    if request.cell.is_given:
        return shared.given
    if request.schema is None:
        raise InputError(
            f"Localising '{request.cell}'",
            found="the float model",
            expected="a quantized one: what is looked for is what quantization changes",
            remedy="Name a schema.",
        )
    return shared.quantized(request.schema, request.backend.capabilities)


def patients_of(request: Request, shared: SharedWork) -> Mapping[str, Patient]:
    """Graph → patient, in the order of the model's graphs.

    Args:
        request: the cell. shared: of its subject.

    Raises:
        InputError: the cell runs the float model.
        QbenchError: its graphs cannot be made.
    """
    quantized = quantized_of(request, shared)
    written = {} if request.rewriting is None else _written(request, shared).models
    watched = watched_for(request.backend)
    if request.schema is None:
        originals = {name: plannable(model) for name, model in shared.given.models.items()}
    else:
        originals = dict(shared.planned(request.schema.canonical))
    return {
        name: Patient(
            model=request.cell.model,
            graph=name,
            schema=request.cell.schema,
            original=originals[name],
            quantized=model,
            backend=request.backend,
            watched=watched,
            claims=claimed_by(request),
            threads=request.threads,
            written=written.get(name),
            rewriting=request.rewriting,
        )
        for name, model in quantized.models.items()
    }


def watched_for(backend: Backend) -> Backend:
    """Who is watched in place of ``backend``."""
    return stand_in(backend) or get_backend(AS_WRITTEN)


def claimed_by(request: Request) -> Backend | None:
    """The integer machine that the cell must equal, where it must equal one: as it counts, its backend should."""
    beside = request.beside
    is_machine = beside is not None and beside.criterion.is_exact and watches_itself(beside.backend)
    return beside.backend if beside is not None and is_machine else None
