"""A schema on the command line: a name, or a TOML file; and whether all of its rules found something to rule."""

from pathlib import Path
from typing import TYPE_CHECKING

from qbench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qbench.quantization import Schema


def choose_schema(text: str) -> "Schema":
    """The schema called ``text``, or the one in the file ``text`` when that ends in ``.toml``.

    Raises:
        InputError: no such name or file, or a file that is no schema.
    """
    from qbench.quantization import get_schema, load_schema

    return load_schema(Path(text)) if text.endswith(".toml") else get_schema(text)


def refuse_idle_rules(schema: str, model: str, idle: "Sequence[str]") -> None:
    """Check that every rule spoke about an operator of the one model at hand.

    Raises:
        InputError: some did not.
    """
    if idle:
        raise InputError(
            f"Planning '{model}' under '{schema}'",
            found=f"{' and '.join(idle)} matching no operator of it",
            expected="every rule to match something",
            remedy="Mend the rule, or remove it.",
        )
