"""A device as one value, and its TOML file."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import MappingProxyType

import onnx_ir as ir

from qbench.errors import InputError, unknown_name
from qbench.graph import (
    INTEGER_DOMAIN,
    INTEGER_FORMS,
    OPERATORS,
    Capabilities,
    Form,
    Kind,
    ZeroPoints,
)
from qbench.graph import float_name as float_name_of
from qbench.numerics import Arithmetic, get_arithmetic
from qbench.passes.lowering.site import ENGINE_DOMAIN, INTEGER_INTERPRETER, Target
from qbench.storage import digest_plain, plain, read_toml, value_from_table

# The operators that can be computed on integers, by their names in float graphs, and what they are
# lowered to.
#
#     Conv → QLinearConv
#     Add → com.microsoft::QLinearAdd, qbench.integer::QLinearAdd
#     MaxPool → MaxPool

_WITH_REALS = frozenset(form.name for form in INTEGER_FORMS.values() if form.is_scaled_behind)
_BORDERS = frozenset(row.name for row in OPERATORS.values() if row.kind is Kind.BORDER)

TABLES = frozenset(row.name for row in OPERATORS.values() if row.table)
"""Functions of one code that are computed by a table."""


def float_name(node: ir.Node) -> str:
    """What a node of a lowered or a float graph is called in a device's list of operators."""
    if node.domain in ("", INTEGER_DOMAIN, ENGINE_DOMAIN):
        return _float_name(node.op_type)
    return f"{node.domain}.{node.op_type}"


def operators_on_integers() -> frozenset[str]:
    """Every name that a device may list."""
    return frozenset(_spellings())


def target_of(operators: Iterable[str]) -> Target:
    """What lowering may bring in where there are ``operators`` alone."""
    known = _spellings()
    return Target(
        frozenset(spelled for name in operators for spelled in known[name]), any_qparams=True
    )


@functools.cache
def _spellings() -> Mapping[str, frozenset[tuple[str, str]]]:
    """Float name → (domain, operator) of all that computes it; movers are lowered to themselves."""
    found: dict[str, set[tuple[str, str]]] = {
        row.name: {("", row.name)} for row in OPERATORS.values() if row.is_mover
    }
    for domain, operator in INTEGER_INTERPRETER.operators:
        if operator not in _BORDERS | _WITH_REALS:
            found.setdefault(_float_name(operator), set()).add((domain, operator))
    return MappingProxyType({name: frozenset(found[name]) for name in sorted(found)})


def _float_name(operator: str) -> str:
    return operator if operator in _WITH_REALS else float_name_of(operator)


# A device as one value: which operators it computes on integers, within which limits, and by which
# arithmetic.
#
# It is data: what it computes is what the integer interpreter computes under its arithmetic.

_ACTIVATIONS = ("int8", "uint8", "int16", "uint16")
_WEIGHTS = ("int4", "uint4", "int8", "uint8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a device's operators take.

    Args:
        activations, weights: the integer types it has, by name.
        weight_per_channel: whether weights may carry one scale per channel.
        zero_points: the zero points of activations that it computes with.
        largest_kernel: the longest side of a window, in places before dilation; None: any.
        dilations: whether windows may have gaps.
        groups: whether convolutions may have groups (depthwise ones do).

    Raises:
        ValueError: no type at all, one that the interpreter does not have, or windows of no size.
    """

    activations: tuple[str, ...] = ("int8", "uint8")
    weights: tuple[str, ...] = ("int8", "uint8")
    weight_per_channel: bool = True
    zero_points: ZeroPoints = ZeroPoints.ANY
    largest_kernel: int | None = None
    dilations: bool = True
    groups: bool = True

    def __post_init__(self) -> None:
        for kind, given, known in (
            ("activations", self.activations, _ACTIVATIONS),
            ("weights", self.weights, _WEIGHTS),
        ):
            if not given:
                raise ValueError(f"no types of {kind}, so that it takes nothing")
            if foreign := [name for name in given if name not in known]:
                raise ValueError(
                    f"{kind} of type '{foreign[0]}', where the integer interpreter has "
                    f"{', '.join(known)}"
                )
        if self.largest_kernel is not None and self.largest_kernel < 1:
            raise ValueError(f"a largest kernel of {self.largest_kernel}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device.

    Args:
        name: how backends call it, behind ``partitioned-``.
        source: what it follows, for people.
        arithmetic: how it computes; the conversions at its borders too.
        operators: those that it has on integers, as float graphs call them; ``Requantize`` is a
            change of qparams.
        limits: of all of them.

    Raises:
        InputError: an operator that nothing computes on integers.
        ValueError: no operator at all.
    """

    name: str
    source: str
    arithmetic: Arithmetic
    operators: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.operators:
            raise ValueError("no operators, so that it takes nothing")
        known = operators_on_integers()
        for name in self.operators:
            if name not in known:
                raise unknown_name(
                    f"Describing the device '{self.name}'", "operator on integers", name, known
                )

    @property
    def target(self) -> Target:
        """The operators on integers that lowering may bring in."""
        return target_of(self.operators)

    @property
    def capabilities(self) -> Capabilities:
        """Its limits as the planner takes them: what it cannot have quantized stays float, and
        runs elsewhere.
        """
        return Capabilities(
            forms=frozenset({Form.QDQ}),
            activation_qtypes=frozenset(self.limits.activations),
            weight_qtypes=frozenset(self.limits.weights),
            weight_per_channel=self.limits.weight_per_channel,
            integer_products=frozenset(product(self.limits.activations, self.limits.weights)),
            zero_points=self.limits.zero_points,
            tables=not TABLES.isdisjoint(self.operators),
        )

    @property
    def digests(self) -> Mapping[str, str]:
        """Of its arithmetic, and of what it takes."""
        taken = digest_plain([sorted(self.operators), plain(self.limits)])
        return {"arithmetic": self.arithmetic.digest, "device": taken}


# Devices in TOML: a file is called as its device is, and names the arithmetic; those of the package
# by name.
#
# arithmetic = "gemmlowp"
# source = "…"
# operators = ["Conv", "Add", …]
#
# [limits]
# activations = ["int8"]

SUFFIX = ".toml"
_FOLDER = Path(__file__).parent / "devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The keys of a file."""

    source: str
    arithmetic: str
    operators: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)


def load_device(
    path: Path | str, arithmetics: Callable[[str], Arithmetic] = get_arithmetic
) -> Device:
    """The device that the TOML file at ``path`` spells, which is called as the file is.

    Args:
        path: of the file.
        arithmetics: finds an arithmetic by name; those of a suite are not installed.

    Raises:
        InputError: no such file, an unknown key, an operator that nothing computes on integers, an
            unknown arithmetic, or limits that no device has.
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
    except InputError as error:  # about a word in the file: name the file
        raise InputError(
            f"Reading {where}", found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    except ValueError as error:
        raise InputError(
            f"Reading {where}",
            found=str(error),
            expected="something that it can compute",
            remedy="Correct the file.",
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
