"""All that a suite can name: the rooms' own tables, installed extensions, the conftest's, and TOML schemas."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.backends import catalogue as backend_catalogue
from qbench.backends import integer_machines
from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.metrics import catalogue as metric_catalogue
from qbench.quantization import catalogue as schema_catalogue
from qbench.zoo import dataset_catalogue, model_catalogue

if TYPE_CHECKING:  # the values themselves are loaded by the cells that use them
    from qbench.backends import Backend
    from qbench.metrics import Metric
    from qbench.quantization import Schema
    from qbench.zoo import Dataset, ZooModel

SCHEMA_FOLDER = "schemas"


@dataclass(frozen=True, slots=True)
class Catalogues:
    """One catalogue a kind; ``integer_machines`` are the backends that run no float graph, by name alone."""

    models: "Catalogue[ZooModel]"
    datasets: "Catalogue[Dataset]"
    backends: "Catalogue[Backend]"
    schemas: "Catalogue[Schema]"
    metrics: "Catalogue[Metric]"


    integer_machines: frozenset[str] = frozenset()
def gather(extensions: Iterable[Extension] = (), *, suites: Path | None = None) -> Catalogues:
    """Everything known here: our own, what is installed, ``extensions``, and ``suites``/schemas/*.toml.

    Raises:
        InputError: two owners define one name.
    """
    added = (*installed_extensions(), *extensions)
    files = sorted((suites / SCHEMA_FOLDER).glob("*.toml")) if suites is not None else []
    written = {path.stem: partial(_read_schema, path) for path in files}
    if written:
        added = (*added, Extension(name=f"{SCHEMA_FOLDER}/*.toml", schemas=written))
    return Catalogues(
        models=model_catalogue(added),
        datasets=dataset_catalogue(added),
        backends=backend_catalogue(added),
        schemas=schema_catalogue(added),
        metrics=metric_catalogue(added),
    )

        integer_machines=integer_machines(added),

def _read_schema(path: Path) -> "Schema":
    from qbench.quantization import load_schema

    return load_schema(path)
