"""The subject of the cells of a model under a calibration: network, data, metrics."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from qbench.errors import InputError
from qbench.evaluation import (
    MetricUse,
    Subject,
)
from qbench.extension import Catalogue
from qbench.graph import Operator, with_operators
from qbench.subjects import Dataset, ZooModel, read_network
from qbench.suite.catalogues import Catalogues
from qbench.suite.suite_file import CalibrationChoice, ModelTable


def make_subject(
    table: ModelTable,
    calibration: CalibrationChoice,
    catalogues: Catalogues,
    *,
    limit: int | None,
    partner: ModelTable | None = None,
) -> Subject:
    """The subject of the cells of ``table`` under ``calibration``: network, scored data,
    metrics, calibration samples.

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
        data[table.data] = _taken(data[table.data], table.samples)
    if limit is not None:
        data = {name: dataset.take(min(limit, len(dataset))) for name, dataset in data.items()}
    if table.is_alone:
        model, learned = _model(table, catalogues), data[table.data].without_samples()
        return Subject(
            model=model, given=model, data=data, metrics=tuple(uses), calibration=learned
        )
    return Subject(
        model=_model(partner or table, catalogues),
        given=None if partner is None else _model(table, catalogues),
        data=data,
        metrics=tuple(uses),
        calibration=_taken(catalogues.datasets.get(calibration.data), calibration.count),
    )


def _model(table: ModelTable, catalogues: Catalogues) -> ZooModel:
    """The model of ``table``, its graphs carrying the operators that extensions define."""
    if table.subject:  # its task and preprocessing are the usual ones of the data, as for a file
        made = read_network(table.subject, catalogues.datasets.get(table.data), None)
        model = replace(made, id=table.id)
    else:
        model = catalogues.models.get(table.id)
    operators = catalogues.operators
    if not operators.names():
        return model
    graphs = {graph: partial(_carrying, load, operators) for graph, load in model.graphs.items()}
    return replace(model, graphs=graphs)


def _carrying(load: Callable[[], ir.Model], operators: Catalogue[Operator]) -> ir.Model:
    return with_operators(load(), operators)


def _taken(dataset: Dataset, count: int) -> Dataset:
    """``count`` samples of ``dataset``.

    Raises:
        InputError: it holds fewer.
    """
    if count > len(dataset):
        raise InputError(
            f"Taking {count} samples of '{dataset.id}'",
            found=f"{len(dataset)} in it",
            expected="at least as many as the suite asks for",
            remedy=(
                f"Write {len(dataset)} or less in the suite: 'count' of 'calibration', or "
                "'samples'."
            ),
        )
    return dataset.take(count)
