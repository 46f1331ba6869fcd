"""The catalogues of everything that a suite can name."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.backends import catalogue as backend_catalogue
from qbench.backends import integer_backends
from qbench.errors import InputError, QbenchError
from qbench.extension import Catalogue, Extension, with_known
from qbench.metrics import catalogue as metric_catalogue
from qbench.passes import catalogue as pass_catalogue
from qbench.quantization import catalogue as schema_catalogue
from qbench.quantization import quantizer_catalogue
from qbench.storage import read_toml
from qbench.subjects import dataset_catalogue, model_catalogue

if TYPE_CHECKING:
    from qbench.backends import Backend
    from qbench.graph import Operator
    from qbench.metrics import Metric
    from qbench.numerics import Arithmetic
    from qbench.passes import Pass
    from qbench.quantization import Schema
    from qbench.subjects import Dataset, ZooModel

SCHEMA_FOLDER = "schemas"
ARITHMETIC_FOLDER = "arithmetics"
DEVICE_FOLDER = "devices"
PYTHON_FOLDER = "pythons"
ENGINE_FOLDER = "engines"
QUANTIZER_FOLDER = "quantizers"
ANSWERS_FOLDER = "answers"
WRITTEN_ARITHMETICS = f"{ARITHMETIC_FOLDER}/*.toml"
"""The owner of arithmetics that files next to a suite define."""


@dataclass(frozen=True, slots=True)
class Catalogues:
    """One catalogue per kind; ``integer_backends``: names of backends that run no float graph.

    ``installed``: the backends of this Python, where ``backends`` run under another one.
    """

    models: "Catalogue[ZooModel]"
    datasets: "Catalogue[Dataset]"
    backends: "Catalogue[Backend]"
    schemas: "Catalogue[Schema]"
    metrics: "Catalogue[Metric]"
    passes: "Catalogue[Pass]" = field(default_factory=pass_catalogue)
    operators: "Catalogue[Operator]" = field(default_factory=lambda: Catalogue("operator", {}))
    quantizers: "Catalogue[Path]" = field(default_factory=quantizer_catalogue)
    integer_backends: frozenset[str] = frozenset()
    installed: "Catalogue[Backend] | None" = None

    def reference(self, name: str) -> "Backend":
        """The backend of fp32 references: always of this Python, so that releases are compared
        with one reference.
        """
        return (self.installed or self.backends).get(name)


def gather(extensions: Iterable[Extension] = (), *, suites: Path | None = None) -> Catalogues:
    """The catalogues of qbench, of extensions, and of TOML files below ``suites``.

    ``schemas/mine.toml`` is the schema ``mine``, ``arithmetics/mine.toml`` the backend
    ``integer-mine``, ``devices/mine.toml`` the backend ``partitioned-mine``, ``pythons/mine.toml``
    the backend ``mine``, ``engines/mine.toml`` the backend ``ep-mine``; ``answers/mine.jsonl``,
    ``.npz`` or a folder the backend ``answers-mine``, ``quantizers/mine.toml`` the schema
    ``by-mine``.

    Raises:
        InputError: two owners define one name.
    """
    added = with_known(extensions)
    if suites is not None:
        added = (*added, *written_extensions(suites))
    operators: Catalogue[Operator] = Catalogue("operator", {})  # only those of extensions
    return Catalogues(
        models=model_catalogue(added),
        datasets=dataset_catalogue(added),
        backends=backend_catalogue(added),
        schemas=schema_catalogue(added),
        metrics=metric_catalogue(added),
        passes=pass_catalogue(added),
        operators=operators.extended(added),
        quantizers=quantizer_catalogue(added),
        integer_backends=integer_backends(added),
    )


def with_python(known: Catalogues, python: Path, package: str) -> Catalogues:
    """``known`` with every backend of ONNX Runtime under ``python``, a program or the folder of
    an environment.

    Raises:
        InputError: there is no Python, or no ``package``.
    """
    from qbench.backends import Recorded, under_python

    versions_under(python, package)  # a wrong one is an error before anything is measured

    # reading the versions there starts a process, and the environment of every cell has them
    @cache
    def moved(name: str) -> "Backend":
        backend = known.backends.get(name)
        # recorded answers stay
        return backend if isinstance(backend, Recorded) else under_python(backend, python)

    def table(names: Iterable[str]) -> "dict[str, Callable[[], Backend]]":
        return {name: partial(moved, name) for name in names}

    added = tuple((owner, table(names)) for owner, names in known.backends.added)
    backends = replace(known.backends, own=table(known.backends.own), added=added)
    return replace(known, backends=backends, installed=known.backends)


def versions_under(python: Path, package: str) -> dict[str, str]:
    """The versions of ``package`` under ``python``, and of what runs a model there.

    Raises:
        InputError: there is no Python, or no ``package``.
    """
    from qbench.backends import installed_version

    found = {package: installed_version(python, package)}
    for name in ("numpy", "onnxruntime"):
        with suppress(InputError):
            found.setdefault(name, installed_version(python, name))
    return found


def meanings(known: Catalogues, schemas: Iterable[str], metrics: Iterable[str]) -> dict[str, str]:
    """One line for each of the ``schemas`` and ``metrics`` (as suites write them) that is known."""
    found = {"fp32": "the float model as it is"}
    for name in schemas:
        with suppress(QbenchError):
            found.setdefault(name, known.schemas.get(name).summary)
    for name in metrics:
        base = name.partition("@")[0]
        with suppress(QbenchError):
            found.setdefault(base, known.metrics.get(base).summary)
    return found


def written_extensions(suites: Path) -> tuple[Extension, ...]:
    """Extensions with the names that TOML files below ``suites`` define."""
    schemas = {path.stem: partial(_read_schema, path) for path in _files(suites / SCHEMA_FOLDER)}
    arithmetics = {
        path.stem: partial(_read_arithmetic, path) for path in _files(suites / ARITHMETIC_FOLDER)
    }
    devices = {
        f"partitioned-{path.stem}": partial(_read_device, path, arithmetics)
        for path in _files(suites / DEVICE_FOLDER)
    }
    pythons = {path.stem: partial(_read_python, path) for path in _files(suites / PYTHON_FOLDER)}
    engines = {f"ep-{path.stem}": _EngineFile(path) for path in _files(suites / ENGINE_FOLDER)}
    answers = {
        f"answers-{_answers_name(path)}": partial(_read_answers, path)
        for path in _answer_files(suites / ANSWERS_FOLDER)
    }
    quantizers = {path.stem: partial(Path, path) for path in _files(suites / QUANTIZER_FOLDER)}
    found = (
        Extension(name=f"{SCHEMA_FOLDER}/*.toml", schemas=schemas),
        Extension(name=WRITTEN_ARITHMETICS, arithmetics=arithmetics),
        Extension(name=f"{DEVICE_FOLDER}/*.toml", backends=devices),
        Extension(name=f"{PYTHON_FOLDER}/*.toml", backends=pythons),
        Extension(name=f"{ENGINE_FOLDER}/*.toml", backends=engines),
        Extension(name=f"{ANSWERS_FOLDER}/*", backends=answers),
        Extension(name=f"{QUANTIZER_FOLDER}/*.toml", quantizers=quantizers),
    )
    files = (schemas, arithmetics, devices, pythons, engines, answers, quantizers)
    return tuple(one for one, defined in zip(found, files, strict=True) if defined)


def _answer_files(folder: Path) -> list[Path]:
    """The files and folders of answers; of two with one stem, which would have one name, the
    second is an error.
    """
    found = [] if not folder.is_dir() else sorted(folder.iterdir())
    answers = [
        path
        for path in found
        if path.suffix in (".jsonl", ".npz") or (path.is_dir() and path.name[0] != ".")
    ]
    names = [_answers_name(path) for path in answers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"Reading the answers next to a suite, in '{folder}'",
            found=f"two of the name '{twice}'",
            expected="one file or folder for each backend 'answers-NAME'",
            remedy="Rename one of them.",
        )
    return answers


def _answers_name(path: Path) -> str:
    return path.name if path.is_dir() else path.stem


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))


def _read_arithmetic(path: Path) -> "Arithmetic":
    from qbench.interpreter import require_known_operators
    from qbench.numerics import load_arithmetic

    arithmetic = load_arithmetic(path)
    require_known_operators(arithmetic)
    return arithmetic


def _read_device(path: Path, arithmetics: "Mapping[str, Callable[[], Arithmetic]]") -> "Backend":
    """The backend of a device, which may use the arithmetic of ``arithmetics`` or an installed
    one.
    """
    from qbench.backends import device_backend
    from qbench.numerics import get_arithmetic

    return device_backend(
        path, lambda name: arithmetics[name]() if name in arithmetics else get_arithmetic(name)
    )


def _read_python(path: Path) -> "Backend":
    from qbench.backends import load_python

    return load_python(path)


@dataclass(frozen=True, slots=True)
class _EngineFile:
    """The factory of an execution provider that the file at ``path`` describes."""

    path: Path

    def __call__(self) -> "Backend":
        from qbench.backends import load_provider

        return load_provider(self.path)

    @property
    def resources(self) -> tuple[str, ...]:
        """Its kind of device, where that is not the processor."""
        device = read_toml(self.path).get("device", "")
        return (device,) if device in ("gpu", "npu") else ()


def _read_answers(path: Path) -> "Backend":
    from qbench.backends import answers_backend

    return answers_backend(path)


def _read_schema(path: Path) -> "Schema":
    from qbench.quantization import load_schema

    return load_schema(path)
