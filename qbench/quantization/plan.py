"""A plan: what was decided about every slot, what stays float and why; it can be printed, compared and saved.

It knows nothing of a graph's insides but names, so it can lie beside a regression long after.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from qbench.numerics import QParams
from qbench.quantization.candidates import Float
from qbench.quantization.clips import ClipForm
from qbench.quantization.decision import Decision, Derived, Fixed, KeptFloat, Shared, Static, qparams_of
from qbench.quantization.slot import Role, Slot


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Decisions about one canonical graph under one schema.

    Args:
        schema: its name.
        graph: digest of the canonical graph.
        profile: digest of the profile.
        decisions: slot → decision, in graph order.
        clips: Relu and Clip nodes whose result goes on a grid, and where they are done.
        floats: units that stay float, with the reason.
        macs: multiply-accumulates of one sample.
        integer_mac_count: how many of them multiply integers.
    """

    schema: str
    graph: str
    profile: str
    decisions: Mapping[Slot, Decision]
    clips: Mapping[str, ClipForm]
    floats: Mapping[str, Float]
    macs: int
    integer_mac_count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "decisions", MappingProxyType(dict(self.decisions)))
        object.__setattr__(self, "clips", MappingProxyType(dict(self.clips)))
        object.__setattr__(self, "floats", MappingProxyType(dict(self.floats)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.schema, self.graph, self.profile))

    def _key(self) -> tuple[object, ...]:
        tables = (dict(self.decisions), dict(self.clips), dict(self.floats))
        return (self.schema, self.graph, self.profile, *tables, self.macs, self.integer_mac_count)

    @property
    def integer_macs(self) -> float:
        """The share of multiply-accumulates planned in integers, 0 to 1; 0 for a graph without any."""
        return self.integer_mac_count / self.macs if self.macs else 0.0

    @property
    def refusals(self) -> tuple[str, ...]:
        """A sentence for every unit that the schema wanted on a grid and that stays float."""
        return tuple(f"{name} stays float: {f.reason}" for name, f in self.floats.items() if f.refused)

    @property
    def values(self) -> dict[str, QParams]:
        """Computed or fed value → its grid."""
        found = {}
        for slot, decision in self.decisions.items():
            qparams = qparams_of(decision)
            if slot.role in (Role.INPUT, Role.OUTPUT) and qparams is not None:
                found[slot.value] = qparams
        return found

    @property
    def constants(self) -> dict[Slot, QParams]:
        """Slots of constants that become integers, with their grids."""
        pairs = ((slot, qparams_of(decision)) for slot, decision in self.decisions.items())
        return {s: q for s, q in pairs if q is not None and s.role in (Role.WEIGHT, Role.BIAS)}

    def lines(self) -> list[str]:
        """The plan for people: a headline, a line a slot, a line for every unit in float."""
        share = f"{self.integer_macs:.1%} of {self.macs:,} multiply-accumulates in integers"
        head = f"{self.schema}: {len(self.values)} values on a grid, {len(self.floats)} units in float, {share}"
        slots = [f"  {slot} '{slot.value}': {describe(decision)}" for slot, decision in self.decisions.items()]
        clips = [f"  {name}: clip {form.value}" for name, form in self.clips.items()]
        floats = [f"  {name}: float, {'refused: ' * f.refused}{f.reason}" for name, f in self.floats.items()]
        return [head, *slots, *clips, *floats]

    def diff(self, other: "Plan") -> list[str]:
        """What ``other`` decides otherwise: ``-`` lines of this plan, ``+`` lines of the other; empty when equal."""
        mine, theirs = self.lines(), other.lines()
        in_mine, in_theirs = set(mine), set(theirs)
        gone = [f"- {line.strip()}" for line in mine if line not in in_theirs]
        return gone + [f"+ {line.strip()}" for line in theirs if line not in in_mine]


def describe(decision: Decision) -> str:
    """One decision in words and numbers that tell any two apart."""
    match decision:
        case Static(qparams, note):
            return numbers(qparams) + (f" ({note})" if note else "")
        case Fixed(qparams):
            return f"{numbers(qparams)}, fixed by the operator"
        case Shared(qparams, source):
            return f"{numbers(qparams)}, shared with '{source}'"
        case Derived(qparams, sources):
            return f"{numbers(qparams)}, derived from {' and '.join(sources)}"
        case KeptFloat(reason):
            return f"float, {reason}"


def numbers(qparams: QParams) -> str:
    """A grid's parameters; of many channels the ends, and a checksum that tells two sets apart."""
    narrow = " narrow" if qparams.narrow_range else ""
    if qparams.axis is None:
        return f"{qparams.qtype}{narrow} scale {qparams.scale:.9g} zero point {qparams.zero_point}"
    points = sorted({int(p) for p in qparams.zero_point.reshape(-1)})
    point = points[0] if len(points) == 1 else f"{points[0]} … {points[-1]}"
    low, high = qparams.scale.min(), qparams.scale.max()
    count = f"{qparams.scale.size} scales {low:.9g} … {high:.9g} along axis {qparams.axis}"
    return f"{qparams.qtype}{narrow} {count} zero point {point} (#{_checksum(qparams)})"


def _checksum(qparams: QParams) -> str:
    return f"{zlib.crc32(qparams.scale.tobytes() + qparams.zero_point.tobytes()):08x}"
