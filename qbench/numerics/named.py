"""The arithmetics that can be asked for by name: one TOML file each in ``presets``, and those of extensions."""

import functools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from qbench.errors import InputError
from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.numerics.arithmetic import Arithmetic
from qbench.storage import read_toml, value_from_table

SUFFIX = ".toml"
_FOLDER = Path(__file__).parent / "presets"


def catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[Arithmetic]:
    """Our own machines and those of ``extensions``."""
    own: Catalogue[Arithmetic] = Catalogue("arithmetic", _presets())
    return own.extended(extensions)


def get_arithmetic(name: str) -> Arithmetic:
    """The machine called ``name``, installed extensions included.

    Raises:
        InputError: no such machine; the nearest name is suggested.
    """
    return catalogue(installed_extensions()).get(name)


def machine_for(arithmetic: Arithmetic | str, operator: str) -> Arithmetic:
    """The machine, or the one of that name, as it counts ``operator`` (``Conv``) in a node without a name.

    Raises:
        InputError: no such machine.
    """
    machine = get_arithmetic(arithmetic) if isinstance(arithmetic, str) else arithmetic
    return machine.at(operator, "")


def list_arithmetics() -> tuple[str, ...]:
    """The names of all machines, sorted, installed extensions included."""
    return catalogue(installed_extensions()).names()


def load_arithmetic(path: Path | str) -> Arithmetic:
    """The machine that the TOML file at ``path`` spells, which is called as the file is.

    Raises:
        InputError: no such file, another name in it, an unknown key, or settings that no machine has together.
    """
    file = Path(path)
    where, table, name = f"arithmetic '{file.name}'", read_toml(file), file.name.removesuffix(SUFFIX)
    if table.get("name", name) != name:
        raise InputError(
            f"Reading {where}",
            found=f"the name {table['name']!r} in it",
            expected=f"'{name}', as the file is called",
            remedy="Remove the name from the file, or rename the file.",
        )
    return value_from_table(Arithmetic, {**table, "name": name}, where)


@functools.cache
def _presets() -> Mapping[str, Callable[[], Arithmetic]]:
    return MappingProxyType({path.stem: partial(load_arithmetic, path) for path in sorted(_FOLDER.glob("*.toml"))})
