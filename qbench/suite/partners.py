"""Models that came quantized, and the float model of the suite that each is judged against.

    [[model]]
    id = "mobilenet_int8"
    fp32 = "mobilenet_v2"       # data, samples and metrics are its own unless written here too

Its cells have the schema ``given``: nothing is calibrated, planned or written. With ``fp32 = false`` it has no float
model: what another backend answers (``criteria``) is its reference, and nothing of it is stored.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from qbench.errors import InputError, unknown_name

_BORROWED = ("data", "samples", "metrics", "calibration")
_OF_PLANNED = ("calibration", "schemas", "variants")
_METRICS = ("agreement",)


class Scored(Protocol):
    """What is asked of a model's table here."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def data(self) -> str:
        """The scored data set."""
        ...

    @property
    def samples(self) -> int | None:
        """How many of it; None: all."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """``name`` or ``name@data``."""
        ...


def with_borrowed(table: Mapping[str, Any], doing: str) -> dict[str, Any]:
    """``table`` of a suite with every model that has a partner given what it left to it.

    Raises:
        InputError: the partner is not in the suite, or came quantized itself; or the model has settings that are of
            models to be quantized.
    """
    models = table.get("model")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        return dict(table)
    known = {str(model.get("id")): model for model in models}
    return {**table, "model": [_borrowing(model, known, doing) for model in models]}


def refuse_other_data(doing: str, model: Scored, partner: Scored) -> None:
    """Check that the reference of ``partner`` has an answer to every sample that ``model`` is scored on.

    Raises:
        InputError: another data set, or another number of its samples.
    """
    mine, theirs = _data(model), _data(partner)
    found = ""
    if model.data != partner.data:
        found = f"data '{model.data}', where '{partner.id}' has '{partner.data}'"
    elif model.samples != partner.samples:
        found = f"samples = {model.samples or 'all'}, where '{partner.id}' has {partner.samples or 'all'}"
    elif missing := sorted(mine - theirs):
        found = f"a metric on '{missing[0]}', to which '{partner.id}' has no answers"
    if found:
        raise InputError(
            f"{doing}, model '{model.id}'",
            found=found,
            expected=f"the data of its fp32 partner '{partner.id}', whose answers it is judged against",
            remedy=f"Leave 'data', 'samples' and 'metrics' out, or score '{partner.id}' on the same.",
        )


def _data(model: Scored) -> set[str]:
    return {model.data, *(metric.partition("@")[2] or model.data for metric in model.metrics)}


def _borrowing(model: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], doing: str) -> dict[str, Any]:
    where = f"{doing}, model '{model.get('id')}'"
    if model.get("fp32") is False:
        _refuse_idle_keys(model, where)
        # Nothing is calibrated: the choice only stands where other models have theirs.
        idle = {"data": model.get("data", ""), "count": 1}
        return {"metrics": list(_METRICS), "agreement": 0.0, **model, "calibration": idle}
    if model.get("fp32") is True:
        raise InputError(
            where,
            found="fp32 = true",
            expected="the name of a float model, or false where there is none",
            remedy="Name it, or leave 'fp32' out of a float model.",
        )
    if not model.get("fp32"):
        return dict(model)
    partner = known.get(str(model["fp32"]))
    if partner is None:
        raise unknown_name(where, "model", str(model["fp32"]), known)
    if partner.get("fp32", "") != "":
        theirs = partner["fp32"]
        raise InputError(
            where,
            found=f"fp32 = '{model['fp32']}', which came quantized itself",
            expected="a float model",
            remedy=f"Name the float model of both: fp32 = '{theirs}'." if theirs else "Name a float model.",
        )
    _refuse_idle_keys(model, where)
    return {**{key: partner[key] for key in _BORROWED if key in partner}, **model}


def _refuse_idle_keys(model: Mapping[str, Any], where: str) -> None:
    if idle := [key for key in _OF_PLANNED if key in model]:
        raise InputError(
            where,
            found=f"the key '{idle[0]}' beside 'fp32'",
            expected="no settings of quantization: a model that came quantized is measured as it is",
            remedy=f"Remove '{idle[0]}'.",
        )
