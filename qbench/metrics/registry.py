"""The metrics that can be named."""

import functools
import importlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, known_extensions

if TYPE_CHECKING:
    from qbench.metrics.metric import Metric


_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "top1": "ranking",
        "top5": "ranking",
        "mrr": "ranking",
        "agreement": "agreement",
        "exact": "sequences",
        "per": "sequences",
        "wer": "sequences",
        "cer": "sequences",
        "chrf": "sequences",
        "bleu": "sequences",
        "eer": "verification",
        "sqnr": "distances",
        "cosine": "distances",
        "kl": "distances",
        "smape": "distances",
        "max_error": "distances",
        "flips": "agreement",
        "negative_flips": "agreement",
        "ties": "agreement",
        "recall5": "ranking",
        "recall10": "ranking",
        "map": "ranking",
        "perplexity": "sequences",
    }
)
"""Metric → the module that has it, in capitals: ``top1`` is ``ranking.TOP1``. The module is loaded with the metric."""

_ALSO_CALLED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("acc", "acc1", "acc@1", "accuracy", "top-1", "top_1", "top1_accuracy"), "top1"),
        **dict.fromkeys(("acc5", "acc@5", "top-5", "top_5", "top5_accuracy"), "top5"),
        **dict.fromkeys(("snr", "psnr", "mse", "rmse", "l2"), "sqnr"),
        **dict.fromkeys(("cos", "cosine_similarity"), "cosine"),
        **dict.fromkeys(("mae", "linf", "max_abs", "maxerr", "max_diff"), "max_error"),
        **dict.fromkeys(("agree", "match"), "agreement"),
        "exact_match": "exact",
        "ppl": "perplexity",
    }
)
"""Names that other tools have for the same, or for what answers the same question → ours."""


def _load(name: str) -> "Metric":
    found: Metric = getattr(importlib.import_module(f"qbench.metrics.{_MODULES[name]}"), name.upper())
    return found


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Metric]":
    """The metrics of qbench and those that ``extensions`` add."""
    own = {name: functools.partial(_load, name) for name in _MODULES}
    return Catalogue("metric", own, also_called=_ALSO_CALLED).extended(extensions)


def get_metric(name: str) -> "Metric":
    """The metric called ``name``, without data: ``agreement``, not ``agreement@photo_crops``.

    Raises:
        InputError: no such metric; the nearest one is suggested.
    """
    return catalogue(known_extensions()).get(name)
