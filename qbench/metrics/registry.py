"""The metrics that can be named."""

from collections.abc import Callable, Iterable, Mapping
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


def _mrr() -> "Metric":
    from qbench.metrics.ranking import MRR

    return MRR


def _wer() -> "Metric":
    from qbench.metrics.sequences import WER

    return WER


def _cer() -> "Metric":
    from qbench.metrics.sequences import CER

    return CER


def _chrf() -> "Metric":
    from qbench.metrics.sequences import CHRF

    return CHRF


def _bleu() -> "Metric":
    from qbench.metrics.sequences import BLEU

    return BLEU


def _eer() -> "Metric":
    from qbench.metrics.verification import EER

    return EER


def _sqnr() -> "Metric":
    from qbench.metrics.distances import SQNR

    return SQNR


def _cosine() -> "Metric":
    from qbench.metrics.distances import COSINE

    return COSINE


def _kl() -> "Metric":
    from qbench.metrics.distances import KL

    return KL


def _smape() -> "Metric":
    from qbench.metrics.distances import SMAPE

    return SMAPE


def _flips() -> "Metric":
    from qbench.metrics.agreement import FLIPS

    return FLIPS


def _negative_flips() -> "Metric":
    from qbench.metrics.agreement import NEGATIVE_FLIPS

    return NEGATIVE_FLIPS


def _ties() -> "Metric":
    from qbench.metrics.agreement import TIES

    return TIES


def _recall5() -> "Metric":
    from qbench.metrics.ranking import RECALL5

    return RECALL5


def _recall10() -> "Metric":
    from qbench.metrics.ranking import RECALL10

    return RECALL10


def _map() -> "Metric":
    from qbench.metrics.ranking import MAP

    return MAP


def _perplexity() -> "Metric":
    from qbench.metrics.sequences import PERPLEXITY

    return PERPLEXITY


_OWN: Mapping[str, Callable[[], "Metric"]] = {
    "top1": _top1,
    "top5": _top5,
    "mrr": _mrr,
    "agreement": _agreement,
    "exact": _exact,
    "per": _per,
    "wer": _wer,
    "cer": _cer,
    "chrf": _chrf,
    "bleu": _bleu,
    "eer": _eer,
    "sqnr": _sqnr,
    "cosine": _cosine,
    "kl": _kl,
    "smape": _smape,
    "flips": _flips,
    "negative_flips": _negative_flips,
    "ties": _ties,
    "recall5": _recall5,
    "recall10": _recall10,
    "map": _map,
    "perplexity": _perplexity,
}


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Metric]":
    """Our metrics and those that ``extensions`` add."""
    return Catalogue("metric", _OWN).extended(extensions)


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
