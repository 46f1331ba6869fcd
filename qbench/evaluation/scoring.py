"""Answers counted by the metrics of a subject."""

import contextlib
from collections.abc import Mapping

from qbench.errors import InputError
from qbench.evaluation.request import Request
from qbench.evaluation.subject import MetricUse
from qbench.metrics import Against, Answers, Score, get_metric, score
from qbench.subjects import Dataset


def score_of(
    request: Request,
    use: MetricUse,
    answers: Answers,
    reference: Answers,
    data: Dataset | None = None,
) -> Score:
    """What the metric of ``use`` counts in ``answers`` and ``reference``.

    Args:
        data: what was answered; None: all of the data of ``use``.

    Raises:
        InputError: the metric does not count such answers, or not with such labels.
    """
    data = data or request.shared.subject.data[use.data]
    labels, sources = data.labels, data.drawn_from
    try:
        return score(
            use.metric, answers, labels=labels, reference=reference, name=use.name, sources=sources
        )
    except ValueError as error:
        raise InputError(
            f"Scoring '{request.shared.subject.model.id}' on '{use.data}' with metric '{use.name}'",
            found=str(error),
            expected="a metric that counts what this model answers, and data that it can count",
            remedy=_other_metric(use, answers, reference, data),
        ) from error


def _other_metric(use: MetricUse, answers: Answers, reference: Answers, data: Dataset) -> str:
    fitting = _fitting(use.metric.name, answers, reference, data)
    remedy = f"Choose {' or '.join(fitting)} instead" if fitting else "Leave the metric out"
    if data.labels is not None and data.whole_labels is None:
        remedy += ", or give the model the task of such labels: model_from_file(path, task=…)"
    return f"{remedy}."


def _fitting(wrong: str, answers: Answers, reference: Answers, data: Dataset) -> list[str]:
    """The names of the usual metrics of ``answers`` that can count them, other than ``wrong``."""
    found = []
    usual = answers.usual_metrics if data.labels is not None else ()
    for name in (*usual, "agreement"):
        with contextlib.suppress(ValueError):
            if name != wrong:
                score(get_metric(name), answers, labels=data.labels, reference=reference, name=name)
                found.append(name)
    return found


def of_today(request: Request, reference: Mapping[str, Answers]) -> Mapping[str, Answers]:
    """``reference``, with what only a run has where a metric counts that: today's outputs, ties
    and likelihoods.
    """
    asked = {use.data for use in request.shared.subject.metrics if use.metric.of_run}
    if not asked:
        return reference
    run = request.shared.reference()
    found = dict(reference)
    for name in asked:
        today = run[name]
        found[name] = reference[name].with_run(
            outputs=today.outputs, tied=today.tied, likelihoods=today.likelihoods
        )
    return found


def uses_against_labels(request: Request, key: str) -> list[MetricUse]:
    """The metrics against labels, which the ``key`` of the suite is about.

    Raises:
        InputError: there is none.
    """
    uses = [use for use in request.subject.metrics if use.metric.against is Against.LABELS]
    if not uses:
        raise InputError(
            f"Measuring '{request.cell}'",
            found=f"'{key}', and no metric that counts against labels",
            expected="one, in which something can be lost",
            remedy=f"Add a metric such as top1, or leave '{key}' out.",
        )
    return uses
