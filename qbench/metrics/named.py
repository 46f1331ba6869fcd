"""The metrics that can be asked for by name: qbench's own and those of extensions.

In suites a metric may name its data, ``agreement@photo_crops``; ``split_name`` takes the two apart.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, installed_extensions

if TYPE_CHECKING:
    from qbench.metrics.metric import Metric


def _top1() -> "Metric":
    from qbench.metrics.ranking import TOP1

    return TOP1


def _top5() -> "Metric":
    from qbench.metrics.ranking import TOP5

    return TOP5


def _agreement() -> "Metric":
    from qbench.metrics.agreement import AGREEMENT

    return AGREEMENT


def _exact() -> "Metric":
    from qbench.metrics.sequences import EXACT

    return EXACT


def _per() -> "Metric":
    from qbench.metrics.sequences import PER

    return PER


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Metric]":
    """Our metrics and those that ``extensions`` add."""
    own = {"top1": _top1, "top5": _top5, "agreement": _agreement, "exact": _exact, "per": _per}
    return Catalogue("metric", own).extended(extensions)


def get_metric(name: str) -> "Metric":
    """The metric called ``name``, without data: ``agreement``, not ``agreement@photo_crops``.

    Raises:
        InputError: no such metric; the nearest one is suggested.
    """
    return catalogue(installed_extensions()).get(name)


def split_name(written: str) -> tuple[str, str | None]:
    """(metric, data set) of a name as suites write it; None: the model's own data."""
    metric, _, data = written.partition("@")
    return metric, data or None
