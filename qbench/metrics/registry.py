"""The metrics that can be named."""

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.errors import InputError, unknown_name
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
        **dict.fromkeys(
            ("token_kl", "token_kl_most", "token_top1", "token_perplexity", "same_start"),
            "token_streams",
        ),
        "miou": "masks",
        "pixel_accuracy": "masks",
        "mae": "regression",
        "rmse": "regression",
        "mape": "regression",
        "oks": "regression",
        "spearman": "regression",
        "psnr": "restoration",
        "ssim": "restoration",
        **dict.fromkeys(
            (
                "box_map",
                "box_map50",
                "box_map75",
                "box_map_small",
                "box_map_medium",
                "box_map_large",
                "box_precision",
                "box_recall",
                "box_f1",
                "box_precision_75",
                "box_recall_75",
                "box_f1_75",
                "hmean",
            ),
            "boxes",
        ),
    }
)
"""Metric → the module that has it, in capitals: ``top1`` is ``ranking.TOP1``. The module is
loaded with the metric.
"""

_ALSO_CALLED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("acc", "acc1", "acc@1", "accuracy", "top-1", "top_1", "top1_accuracy"), "top1"
        ),
        **dict.fromkeys(("acc5", "acc@5", "top-5", "top_5", "top5_accuracy"), "top5"),
        **dict.fromkeys(("snr", "l2"), "sqnr"),
        **dict.fromkeys(("cos", "cosine_similarity"), "cosine"),
        **dict.fromkeys(("linf", "max_abs", "maxerr", "max_diff"), "max_error"),
        **dict.fromkeys(("agree", "match"), "agreement"),
        "exact_match": "exact",
        "ppl": "perplexity",
        **dict.fromkeys(("iou", "mean_iou", "jaccard"), "miou"),
        **dict.fromkeys(("acc_pixel", "pacc"), "pixel_accuracy"),
        **dict.fromkeys(("relative_error", "mre"), "mape"),
        **dict.fromkeys(("mse", "l2_error"), "rmse"),
        "rho": "spearman",
        **dict.fromkeys(("coco_map", "map50_95", "map_50_95", "bbox_map"), "box_map"),
        **dict.fromkeys(("map50", "map_50", "coco_map50"), "box_map50"),
        **dict.fromkeys(("map75", "map_75", "coco_map75"), "box_map75"),
    }
)
"""Names that other tools have for the same, or for what answers the same question → ours."""

_IOU = "iou_"
_MOST_CLASSES = 1 << 16
_DIGITS = 5
"""Of the number of a class; Python refuses to read one of thousands."""


def _load(name: str) -> "Metric":
    found: Metric = getattr(
        importlib.import_module(f"qbench.metrics.{_MODULES[name]}"), name.upper()
    )
    return found


class _OfOneClass:
    """``iou_3``: the intersection over union of class 3."""

    @property
    def form(self) -> str:
        """How a name is built."""
        return "iou_CLASS"

    def maker(self, name: str) -> "Callable[[], Metric] | None":
        """The factory of the metric called ``name``; None when that is not such a name."""
        number = name.removeprefix(_IOU)
        if (
            number == name
            or not number.isascii()
            or not number.isdecimal()
            or len(number) > _DIGITS
        ):
            return None
        if int(number) >= _MOST_CLASSES:
            return None
        return functools.partial(_iou_of, int(number))

    def unknown(self, doing: str, name: str, listed: Iterable[str]) -> InputError:
        """The error for another name."""
        names, meant = tuple(listed), _ALSO_CALLED.get(name.lower())
        added = [each for each in names if each not in _MODULES]
        return unknown_name(doing, "metric", name, names, added, first=_MODULES, meant=meant)


def _iou_of(number: int) -> "Metric":
    from qbench.metrics.masks import iou_of_class

    return iou_of_class(number)


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Metric]":
    """The metrics of qbench and those that ``extensions`` add."""
    own = {name: functools.partial(_load, name) for name in _MODULES}
    return Catalogue("metric", own, grammar=_OfOneClass(), also_called=_ALSO_CALLED).extended(
        extensions
    )


def get_metric(name: str) -> "Metric":
    """The metric called ``name``, without data: ``agreement``, not ``agreement@photo_crops``.

    Raises:
        InputError: no such metric; the nearest one is suggested.
    """
    return catalogue(known_extensions()).get(name)
