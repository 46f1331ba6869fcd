"""The schemas that can be asked for by name: those of the grammar, some of them listed, and those of extensions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.quantization.builtin import builtin_schemas
from qbench.quantization.grammar import SchemaGrammar

if TYPE_CHECKING:
    from qbench.quantization.schema import Schema


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Schema]":
    """Our own schemas and those of ``extensions``."""
    own: Catalogue[Schema] = Catalogue("schema", builtin_schemas(), grammar=SchemaGrammar())
    return own.extended(extensions)


def get_schema(name: str) -> "Schema":
    """The schema called ``name``, installed extensions included.

    Raises:
        InputError: no such schema, or one that cannot be; the nearest name is suggested.
    """
    return catalogue(installed_extensions()).get(name)
