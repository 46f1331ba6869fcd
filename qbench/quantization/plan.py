"""A plan: what was decided about every slot, what stays float and why; it can be printed, compared and saved.

It knows nothing of a graph's insides but names, so it can lie beside a regression long after.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from qbench.numerics import QParams
from qbench.quantization.candidates import Float
from qbench.quantization.clips import ClipForm
from qbench.quantization.decision import BY_SCHEMA, Decision, Dynamic, Given, KeptFloat, qparams_of
from qbench.quantization.decision_words import describe
from qbench.quantization.plan_lines import Block, layout, letters
from qbench.quantization.slot import Role, Slot

_CORRECTION = "biases are corrected on samples once it is written"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Decisions about one canonical graph under one schema.

    Args:
        schema: its name.
        canonical: the canonical passes that made the graph.
        graph: digest of the canonical graph.
        profile: digest of the profile.
        decisions: slot → decision, in graph order.
        clips: Relu and Clip nodes whose result goes on a grid, and where they are done.
        floats: units that stay float, with the reason.
        macs: multiply-accumulates of one sample.
        integer_mac_count: how many of them multiply integers. weight_mac_count: how many have a weight on a grid,
            whatever it is multiplied with.
        saturated: slots of constants that hold entries beyond their grid, and how many.
        idle_rules: the rules of the schema that spoke about no unit of this graph, in words.
        requested: every unit with a float result, in graph order, and what the schema asks of it, in words.
        corrects_biases: the schema wants biases corrected on samples, once the plan is written (``correct_biases``).
    """

    schema: str
    canonical: str
    graph: str
    profile: str
    decisions: Mapping[Slot, Decision]
    clips: Mapping[str, ClipForm]
    floats: Mapping[str, Float]
    macs: int
    integer_mac_count: int
    weight_mac_count: int = 0
    saturated: Mapping[Slot, int] = field(default_factory=dict)
    idle_rules: tuple[str, ...] = ()
    requested: Mapping[str, str] = field(default_factory=dict)
    corrects_biases: bool = False

    def __post_init__(self) -> None:
        for name in ("decisions", "clips", "floats", "saturated", "requested"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.schema, self.graph, self.profile))

    def _key(self) -> tuple[object, ...]:
        tables = (self.decisions, self.clips, self.floats, self.saturated, self.requested)
        names = (self.schema, self.canonical, self.graph, self.profile, self.idle_rules, self.corrects_biases)
        return (*names, *(dict(table) for table in tables), self.macs, self.integer_mac_count, self.weight_mac_count)

    @property
    def integer_macs(self) -> float:
        """The share of multiply-accumulates planned in integers, 0 to 1; 0 for a graph without any."""
        return self.integer_mac_count / self.macs if self.macs else 0.0

    @property
    def quantized_units(self) -> tuple[str, ...]:
        """The units of which at least one slot is on a grid, known beforehand or made at run time; in graph order."""
        on_grids = {slot.node for slot, d in self.decisions.items() if not isinstance(d, KeptFloat)}
        return tuple(name for name in self.requested if name in on_grids and name not in self.floats)

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
            if slot.role in (Role.INPUT, Role.CORRELATION, Role.SUM, Role.OUTPUT) and qparams is not None:
                found[slot.value] = qparams
        return found

    @property
    def constants(self) -> dict[Slot, QParams]:
        """Slots of constants that become integers, with their grids."""
        pairs = ((slot, qparams_of(decision)) for slot, decision in self.decisions.items())
        return {s: q for s, q in pairs if q is not None and s.role in (Role.WEIGHT, Role.BIAS)}

    def lines(self, width: int | None = None) -> list[str]:
        """The plan for people: a headline, coverage, what was asked for, and every unit with what became of it.

        Args:
            width: columns of the terminal; None: lines are as long as they get.
        """
        asked = letters(self.requested)
        wishes = Block("asked for", tuple((letter, words) for words, letter in asked.items()))
        clips = Block("clips", tuple((name, form.value) for name, form in self.clips.items()))
        coverage = [Block(line) for line in self._coverage()]
        sections = (coverage, [wishes] if asked else [], list(self._units(asked)), [clips] if self.clips else [])
        return [self._headline(), *(line for section in sections for line in layout(section, width))]

    def diff(self, other: "Plan") -> list[str]:
        """What ``other`` decides otherwise, slot by slot: ``-`` is this plan's, ``+`` the other's; empty when equal."""
        mine, theirs = dict(_entries(self)), dict(_entries(other))
        lines = []
        for key in dict.fromkeys((*mine, *theirs)):
            if mine.get(key) != theirs.get(key):
                lines += [f"{sign} {key}: {table[key]}" for sign, table in (("-", mine), ("+", theirs)) if key in table]
        return lines

    def _headline(self) -> str:
        share = f"{self.integer_macs:.1%} of {self.macs:,} multiply-accumulates in integers"
        made = len({slot.value for slot, decision in self.decisions.items() if isinstance(decision, Dynamic)})
        values = f"{len(self.values)} values on a grid" + (f", {made} on one made at run time" if made else "")
        return f"{self.schema}: {values}, {len(self.floats)} units in float, {share}"

    def _coverage(self) -> Iterator[str]:
        if self.requested:
            refused = sum(f.refused for f in self.floats.values())
            yield f"{len(self.quantized_units)} of {len(self.requested)} units on grids, {refused} refused"
        if self.saturated:
            yield f"{sum(self.saturated.values()):,} entries of {len(self.saturated)} constants saturate"
        yield from (f"{rule} matches nothing" for rule in self.idle_rules)
        if self.corrects_biases:
            yield _CORRECTION

    def _units(self, asked: Mapping[str, str]) -> Iterator[Block]:
        """A block for every unit; slots of a node that is no unit's head stand with the unit before them."""
        slots: dict[str, list[Slot]] = {name: [] for name in (*self.requested, *self.floats)}
        unit = ""
        for slot in self.decisions:
            unit = slot.node if slot.node in slots or not unit or not self.requested else unit
            slots.setdefault(unit, []).append(slot)
        for name, found in slots.items():
            letter = asked.get(self.requested.get(name, ""))
            effective = self._effective(name, found)
            head = f"{name}: {letter} → {effective}" if letter else f"{name}: {effective}"
            yield Block(head, tuple((f"{s.role.value}[{s.index}]", s.value, self.said_of(s, name)) for s in found))

    def _effective(self, unit: str, slots: list[Slot]) -> str:
        """What became of what was asked."""
        if unit in self.floats:
            found = self.floats[unit]
            return f"float, {'refused: ' * found.refused}{found.reason}"
        if unit not in self.requested:
            return "as it came"
        asked = self.requested[unit].split("; ")
        kept = dict.fromkeys(s.role.value for s in slots if isinstance(self.decisions[s], KeptFloat))
        missing = [role for role in kept if f"{role} float" not in asked]
        came = dict.fromkeys(s.role.value for s in slots if _came(self.decisions[s]))
        words = [f"float {' and '.join(missing)}"] * bool(missing) + [f"{' and '.join(came)} as it came"] * bool(came)
        return f"in part, {'; '.join(words)}" if words else "as asked"

    def said_of(self, slot: Slot, within: str = "") -> str:
        """What was decided about ``slot``, in words; slots of the unit ``within`` without its name."""
        count = self.saturated.get(slot)
        return describe(self.decisions[slot], within) + (f", {count:,} entries saturate" if count else "")


def _entries(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every fact of a plan under a name of its own."""
    for name in ("schema", "canonical", "graph", "profile"):
        yield name, str(getattr(plan, name))
    yield "multiply-accumulates in integers", f"{plan.integer_mac_count:,} of {plan.macs:,}"
    yield from ((f"{unit} asked for", words) for unit, words in plan.requested.items())
    yield from ((f"{slot} '{slot.value}'", plan.said_of(slot)) for slot in plan.decisions)
    yield from ((f"{name} clip", form.value) for name, form in plan.clips.items())
    yield from ((name, f"float, {'refused: ' * f.refused}{f.reason}") for name, f in plan.floats.items())
    yield from ((rule, "matches nothing") for rule in plan.idle_rules)
    if plan.corrects_biases:
        yield "biases", _CORRECTION


def _came(decision: Decision) -> bool:
    """Whether the model brought these parameters, whatever the schema asked for."""
    return isinstance(decision, Given) and decision.source != BY_SCHEMA
