"""A model of a suite as the subject of its cells: network, scored data, metrics and calibration samples, by name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from qbench.errors import InputError
from qbench.evaluation import MetricUse, Subject
from qbench.extension import Catalogue
from qbench.graph import Operator, with_operators
from qbench.subjects import Dataset, ZooModel
from qbench.suite.catalogues import Catalogues
from qbench.suite.suite import CalibrationChoice, ModelTable


def make_subject(
    table: ModelTable,
    calibration: CalibrationChoice,
    catalogues: Catalogues,
    *,
    limit: int | None,
    partner: ModelTable | None = None,
) -> Subject:
    """What the cells of ``table`` under ``calibration`` measure.

    Args:
        limit: at most that many scored samples a set.
        partner: the float model that ``table``, which came quantized, is judged against.

    Raises:
        InputError: a data set holds fewer samples than the suite asks for.
    """
    uses = []
    for written in table.metrics:
        name, _, data_name = written.partition("@")
        uses.append(MetricUse(written, catalogues.metrics.get(name), data_name or table.data))
    names = dict.fromkeys([table.data, *(use.data for use in uses)])
    data = {name: catalogues.datasets.get(name) for name in names}
    if table.samples is not None:
        data[table.data] = _some(data[table.data], table.samples)
    if limit is not None:
        data = {name: dataset.take(min(limit, len(dataset))) for name, dataset in data.items()}
    if table.is_alone:
        model, learned = _model(table.id, catalogues), _none(data[table.data])
        return Subject(model=model, given=model, data=data, metrics=tuple(uses), calibration=learned)
    return Subject(
        model=_model((partner or table).id, catalogues),
        given=None if partner is None else _model(table.id, catalogues),
        data=data,
        metrics=tuple(uses),
        calibration=_some(catalogues.datasets.get(calibration.data), calibration.count),
    )


def _model(name: str, catalogues: Catalogues) -> ZooModel:
    """The model called ``name``, its graphs carrying the operators that extensions define."""
    model = catalogues.models.get(name)
    operators = catalogues.operators
    if not operators.names():
        return model
    graphs = {graph: partial(_carrying, load, operators) for graph, load in model.graphs.items()}
    return replace(model, graphs=graphs)


def _carrying(load: Callable[[], ir.Model], operators: Catalogue[Operator]) -> ir.Model:
    return with_operators(load(), operators)


def _none(like: Dataset) -> Dataset:
    """No samples at all."""
    return replace(like, id="none", sample_ids=(), sources=(), labels=None, content="")


def _some(dataset: Dataset, count: int) -> Dataset:
    """``count`` samples of ``dataset``.

    Raises:
        InputError: it holds fewer.
    """
    if count > len(dataset):
        raise InputError(
            f"Taking {count} samples of '{dataset.id}'",
            found=f"{len(dataset)}",
            expected="at least as many as the suite asks for",
            remedy="Lower the number in the suite.",
        )
    return dataset.take(count)
