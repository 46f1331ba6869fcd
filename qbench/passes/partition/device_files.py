"""Devices in TOML: a file is called as its device is, and names the arithmetic; those of the package by name.

arithmetic = "gemmlowp"
source = "…"
operators = ["Conv", "Add", …]

[limits]
activations = ["int8"]
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from qbench.errors import InputError, unknown_name
from qbench.numerics import Arithmetic, get_arithmetic
from qbench.passes.partition.device import Device, Limits
from qbench.storage import read_toml, value_from_table

SUFFIX = ".toml"
_FOLDER = Path(__file__).parent / "devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The keys of a file."""

    source: str
    arithmetic: str
    operators: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)


def load_device(path: Path | str, arithmetics: Callable[[str], Arithmetic] = get_arithmetic) -> Device:
    """The device that the TOML file at ``path`` spells, which is called as the file is.

    Args:
        path: of the file.
        arithmetics: what knows the arithmetics by name; those of a suite are not installed.

    Raises:
        InputError: no such file, an unknown key, an operator that nothing counts on integers, an unknown arithmetic, or
            limits that no device has.
    """
    file = Path(path)
    where, name = f"device '{file.name}'", file.name.removesuffix(SUFFIX)
    written = value_from_table(_Written, read_toml(file), where)
    try:
        return Device(
            name=name,
            source=written.source,
            arithmetic=arithmetics(written.arithmetic),
            operators=written.operators,
            limits=written.limits,
        )
    except InputError as error:  # about a word in the file: say which file
        raise InputError(f"Reading {where}", found=error.found, expected=error.expected, remedy=error.remedy) from error
    except ValueError as error:
        raise InputError(
            f"Reading {where}", found=str(error), expected="something that it can count", remedy="Mend the file."
        ) from error


def list_devices() -> tuple[str, ...]:
    """The names of the devices that come with the package, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob(f"*{SUFFIX}")))


def get_device(name: str) -> Device:
    """The device called ``name``, of those that come with the package.

    Raises:
        InputError: no such device; the nearest name is suggested.
    """
    if name not in list_devices():
        raise unknown_name("Looking up a device", "device", name, list_devices())
    return load_device(_FOLDER / f"{name}{SUFFIX}")
