"""The graphs that a cell runs, and what is known of them before they run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from qbench.errors import UnsupportedError
from qbench.evaluation.artifacts import Quantized
from qbench.evaluation.request import Request
from qbench.evaluation.rewriting import rewrite_note, rewrite_quantized
from qbench.graph import constant_bytes, kept_type, values_by_name
from qbench.judging import Calibrated
from qbench.number_text import counted
from qbench.storage import digest_plain, plain

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Backend
    from qbench.quantization import Schema


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellModel:
    """What a cell runs.

    Args:
        graphs: by name; empty where answers are only read.
        quantized: their plans; None: they are not quantized.
        reports: whether the engine is asked what it ran in integers.
        facts: of the graphs, as fields of a ``Measurement``.
    """

    graphs: "Mapping[str, ir.Model]" = field(default_factory=dict)
    quantized: Quantized | None = None
    reports: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """``quantized``: of the written graphs, where they are quantized."""
        return {} if self.quantized is None else {"quantized": self.quantized.digest}


NO_MODEL = CellModel()
"""Of answers that were recorded elsewhere."""


def model_of(request: Request) -> CellModel:
    """The graphs of ``request``: quantized by its schema and rewritten, as given, or those of
    the float model.

    Raises:
        QbenchError: they cannot be made.
    """
    schema, quantized = request.schema, _quantized(request)
    if quantized is None:
        graphs = request.shared.graphs
        return CellModel(graphs=graphs, facts={"constant_bytes": _bytes_of(graphs)})
    rewritten = None
    if request.rewriting is not None:
        done = rewrite_quantized(quantized, request.rewriting)
        quantized = done.quantized
        rewritten = rewrite_note(done, request.shared, request.backend, threads=request.threads)
    types = {name for plan in quantized.plans.values() for name in plan.float_types}
    if schema is None or schema.made_by is not None:
        weights_only = quantized.is_of_weights_alone
        by_weights = weights_only or bool(types)
    else:
        weights_only = schema.weights_only
        by_weights = weights_only or schema.has_floats
    simulated = types & request.backend.capabilities.simulated
    facts = {
        "integer_macs": quantized.integer_macs,
        "weight_macs": quantized.weight_macs if by_weights else None,
        "simulated": tuple(sorted(simulated)),
        "float8_macs": quantized.float8_macs,
        "cache": cache_words(quantized),
        "quantized_units": sum(len(plan.quantized_units) for plan in quantized.plans.values()),
        "refusals": quantized.refusals,
        "run_in_float": quantized.run_in_float,
        "idle_rules": quantized.idle_rules,
        "constant_bytes": _bytes_of(quantized.models),
        "rewritten": rewritten,
        "quantizer": quantized.note,
        "calibrated": _calibrated(request),
        "made": _made(request, quantized),
    }
    takes = request.backend.capabilities
    reports = not weights_only or takes.rounds_data or takes.sums_floats
    return CellModel(graphs=quantized.models, quantized=quantized, reports=reports, facts=facts)


def cache_words(quantized: Quantized) -> str:
    """What a decoder keeps in codes, in words, and of how many keys and values an operator stores
    the codes themselves: ``8 keys and values in int8, 4 of them stored so by the engine``; or
    empty.
    """
    from qbench.quantization import cached_types

    count, types = cached_types(quantized.plans.values())
    if not count:
        return ""
    words = f"{count} keys and values in {types}"
    nodes = (node for model in quantized.models.values() for node in model.graph)
    stored = 2 * sum(1 for node in nodes if kept_type(node))  # a key and a value
    if not stored:
        return words
    if stored < count:
        return f"{words}, {stored} of them stored so by the engine"
    return f"{words}, stored so by the engine"


def _quantized(request: Request) -> Quantized | None:
    if request.cell.is_given:
        return request.shared.given
    if request.schema is None:
        return None
    return request.shared.quantized(request.schema, request.backend.capabilities)


def _bytes_of(graphs: "Mapping[str, ir.Model]") -> int:
    return sum(map(constant_bytes, graphs.values()))


def refuse_slow(request: Request, *backends: "Backend") -> None:
    """Check that each of ``backends`` runs the model in useful time.

    Raises:
        UnsupportedError: one does not.
    """
    for backend in backends:
        limit, macs = backend.capabilities.max_macs, request.shared.macs
        if limit is not None and macs > limit:
            raise UnsupportedError(
                f"Running '{request.subject.model.id}' on '{backend.name}'",
                found=f"{macs / 1e6:.0f} million multiply-accumulates a sample",
                expected=f"at most {limit / 1e6:.0f} million, which it runs in useful time",
                remedy="Choose another backend for this model.",
            )


_RANGE_DIGITS = 5
"""Digits of a calibrated range. More would differ between computers."""
_RULE_DIGITS = 12


def _calibrated(request: Request) -> Calibrated | None:
    """The extremes that the qparams of ``request`` come from; None where its schema asks for no
    profile.
    """
    schema = request.schema
    if schema is None or request.cell.is_given or not schema.needs_profile:
        return None
    key = "+".join(filter(None, (schema.canonical, request.recalibrated)))
    return Calibrated(key=key, ranges=_ranges(request, schema), samples=_calibration_words(request))


def _ranges(request: Request, schema: "Schema") -> dict[str, tuple[float, float]]:
    """Value of the canonical graphs → (low, high); values without calibration data are left out."""
    shared = request.shared
    profiles = shared.profiles(schema.canonical, channels=schema.wants_channels)
    ranges = {}
    for graph, model in shared.canonical(schema.canonical).items():
        prefix, seen = f"{graph}::" if len(profiles) > 1 else "", profiles[graph].values
        for name in values_by_name(model):
            if name in seen and seen[name].count:
                ranges[prefix + name] = (_short(seen[name].low), _short(seen[name].high))
    return ranges


def _calibration_words(request: Request) -> str:
    data = request.shared.subject.calibration
    return f"{counted(len(data), 'sample')} of '{data.id}'"


def _made(request: Request, quantized: Quantized) -> dict[str, str]:
    """What the cell was quantized by, in words and digests: the calibration samples, the ranges
    by hand, and the rules of the schema, or the quantizer in their place.
    """
    schema = request.schema
    if schema is None or request.cell.is_given:
        return {}
    if schema.made_by is not None:
        named = {"quantizer": "" if quantized.note is None else quantized.note.name}
        taken = schema.made_by.takes_samples
        return named | ({"calibration": _calibration_words(request)} if taken else {})
    made = {"calibration": _calibration_words(request)} if schema.needs_profile else {}
    if (hand := schema.by_hand) is not None:
        made["ranges"] = f"{counted(len(hand.names), 'value')} of '{hand.file}' (#{hand.digest})"
    rules = plain(replace(schema, name=""))
    del rules["by_hand"], rules["made_by"]  # so that the digest is that of the rules alone
    rules["kept"] = rules.pop("cache")  # accepted results hold digests with the former name
    if not schema.fits_weights:
        del rules["weight_codes"]  # accepted results hold digests from before there was a choice
    return {**made, "schema": digest_plain(rules)[:_RULE_DIGITS]}


def _short(end: float) -> float:
    """``end`` with few digits, so that a record and a baseline hold the same number."""
    return float(f"{end:.{_RANGE_DIGITS}g}")
