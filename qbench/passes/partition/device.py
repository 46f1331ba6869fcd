"""A device as one value: which operators it counts on integers, within which limits, and by which arithmetic.

It is no code: what it computes is what the integer interpreter computes under its arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from qbench.errors import unknown_name
from qbench.graph import Capabilities, Form, ZeroPoints
from qbench.numerics import Arithmetic
from qbench.passes.lowering.target import Target
from qbench.passes.partition.operators import TABLES, operators_on_integers, target_of
from qbench.storage import digest_plain, plain

_ACTIVATIONS = ("int8", "uint8", "int16", "uint16")
_WEIGHTS = ("int4", "uint4", "int8", "uint8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a device's operators take.

    Args:
        activations, weights: the grids it has, by name.
        weight_per_channel: whether weights may carry one scale a channel.
        zero_points: the zero points of activations that it counts with.
        largest_kernel: the longest side of a window, in places before dilation; None: any.
        dilations: whether windows may have gaps.
        groups: whether convolutions may have groups (depthwise ones do).

    Raises:
        ValueError: no grid at all, one that no machine counts, or windows of no size.
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
                raise ValueError(f"no grid of {kind}, so that it takes nothing")
            if foreign := [name for name in given if name not in known]:
                raise ValueError(f"{kind} on '{foreign[0]}', where integer machines count {', '.join(known)}")
        if self.largest_kernel is not None and self.largest_kernel < 1:
            raise ValueError(f"a largest kernel of {self.largest_kernel}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device.

    Args:
        name: how backends call it, behind ``partitioned-``.
        source: what it follows, for people.
        arithmetic: how it counts; the conversions at its borders too.
        operators: those that it has on integers, as float graphs call them; ``Requantize`` is the change of a grid.
        limits: of all of them.

    Raises:
        InputError: an operator that nothing counts on integers.
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
                raise unknown_name(f"Describing the device '{self.name}'", "operator on integers", name, known)

    @property
    def target(self) -> Target:
        """The operators on integers that lowering may bring in."""
        return target_of(self.operators)

    @property
    def capabilities(self) -> Capabilities:
        """Its limits in the planner's words: what it cannot have on a grid stays real, and runs elsewhere."""
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
