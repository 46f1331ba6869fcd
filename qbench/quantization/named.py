"""The schemas that can be asked for by name: ours and those of extensions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.quantization.builtin import builtin_schemas

if TYPE_CHECKING:
    from qbench.quantization.schema import Schema


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Schema]":
    """Our own schemas and those of ``extensions``."""
    own: Catalogue[Schema] = Catalogue("schema", builtin_schemas())
    return own.extended(extensions)


def get_schema(name: str) -> "Schema":
    """The schema called ``name``, installed extensions included.

    Raises:
        InputError: no such schema; the nearest name is suggested.
    """
    return catalogue(installed_extensions()).get(name)
