"""What a cell was calibrated by, in the few numbers that are the same on every machine: the extremes of its values."""

from qbench.evaluation.request import Request
from qbench.evaluation.shared import SharedWork
from qbench.graph import values_by_name
from qbench.judging import Calibrated

_DIGITS = 5


def calibrated_ranges(request: Request, shared: SharedWork) -> Calibrated | None:
    """The extremes that the grids of ``request`` come from; None where its schema asks for no profile."""
    schema = request.schema
    if schema is None or request.cell.is_given or not schema.needs_profile:
        return None
    profiles = shared.profiles(schema.canonical, channels=schema.wants_channels)
    ranges = {}
    for graph, model in shared.canonical(schema.canonical).items():
        prefix, seen = f"{graph}::" if len(profiles) > 1 else "", profiles[graph].values
        for name in values_by_name(model):
            if name in seen and seen[name].count:
                ranges[prefix + name] = (_short(seen[name].low), _short(seen[name].high))
    return Calibrated(key="+".join(filter(None, (schema.canonical, request.recalibrated))), ranges=ranges)


def _short(end: float) -> float:
    """So many digits that a record and a baseline hold the very same number."""
    return float(f"{end:.{_DIGITS}g}")
