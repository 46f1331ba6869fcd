"""Schemas: rules that match operators, with the specs of their slots."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qbench.errors import InputError, unknown_name
from qbench.passes import CACHE_CHANNELS_PIPELINE, CANONICAL
from qbench.quantization.by_hand import HandRanges
from qbench.quantization.quantizer_file import PREFIX, Quantizer, load_quantizer
from qbench.quantization.spec import FLOAT_BIAS, BiasSpec, Granularity, Role, Spec
from qbench.storage import FORMER_NAME, NOT_WRITTEN, read_toml, value_from_table


class Share(enum.Enum):
    """Which values of a unit share qparams: computed ``inputs``, or ``output`` and first input."""

    INPUTS = "inputs"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which units match, and what is requested for their slots.

    A unit matches when its head is of one of ``operators`` and its name fits one of ``names`` (none
    given: all do), and when it is among the ``first`` or the ``last`` so many of those. A rule
    decides about the slots that it has a spec for or keeps in float; a rule with neither keeps the
    whole unit in float.

    Args:
        operators: kinds, as in ``Conv``.
        names: patterns of node names with ``*``, ``?`` and ``[…]``.
        first, last: how many of the units that match otherwise, in graph order from the front or
            from the back.
        activation: for inputs and outputs.
        input, output: for one side only, before ``activation``.
        weight: for constants that are factors of products.
        correlation, sum: for the product before its bias, and for the result before its clip.
        bias: how it is added; without such a rule int32 at the product's scale.
        keep_float: slots that stay float.
        share: values of the unit that share qparams; the first rule with any decides.
        reason: why, for a rule that keeps something in float.

    Raises:
        ValueError: a count below one, a spec that no slot of the rule has, or one that its slot
            cannot have.
    """

    operators: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    first: int | None = None
    last: int | None = None
    activation: Spec | None = None
    input: Spec | None = None
    output: Spec | None = None
    weight: Spec | None = None
    correlation: Spec | None = None
    sum: Spec | None = None
    bias: BiasSpec | None = None
    keep_float: tuple[Role, ...] = ()
    share: tuple[Share, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        for count in (self.first, self.last):
            if count is not None and count < 1:
                raise ValueError(f"'first' and 'last' count from 1, not {count}")
        if Role.CACHE in self.keep_float:
            raise ValueError("'cache' in a rule: what a decoder keeps is asked of the whole schema")
        for role in self.keep_float:
            if getattr(self, role.value) is not None:
                raise ValueError(f"a spec for '{role.value}', which 'keep_float' keeps in float")
        sides = (Role.INPUT, Role.OUTPUT)
        if self.activation is not None and all(self._spec(r) is not self.activation for r in sides):
            raise ValueError("'activation' next to settings for both 'input' and 'output'")
        for role in Role:
            spec = self.spec_of(role)
            if (
                spec is not None
                and role is not Role.WEIGHT
                and spec.granularity is Granularity.BLOCK
            ):
                raise ValueError(f"blocks for '{role.value}': only weights have them")
            if spec is not None and spec.granularity is Granularity.HEAD:
                raise ValueError(f"heads for '{role.value}': only what a decoder keeps has them")
            inside = role in (Role.CORRELATION, Role.SUM)
            if spec is not None and inside and spec.kind.qtype.is_float:
                raise ValueError(f"the type {spec.qtype} for '{role.value}', which is of integers")
            if spec is not None and role not in sides and spec.dynamic:
                raise ValueError(
                    f"dynamic parameters for '{role.value}': only inputs and outputs have them"
                )

    def fits(self, operator: str, name: str) -> bool:
        """Whether a unit of kind ``operator`` called ``name`` matches, whatever its position."""
        if self.operators and operator not in self.operators:
            return False
        return not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)

    def decides_about(self, role: Role) -> bool:
        """Whether it decides about slots of ``role``."""
        if self._keeps_all:
            return True
        given = self.bias if role is Role.BIAS else self._spec(role)
        return given is not None or role in self.keep_float

    def spec_of(self, role: Role) -> Spec | None:
        """What it requests for a slot other than a bias; None is float, where the rule decides."""
        return None if role is Role.BIAS else self._spec(role)

    @property
    def _keeps_all(self) -> bool:
        specs = (
            self.activation,
            self.input,
            self.output,
            self.weight,
            self.correlation,
            self.sum,
            self.bias,
        )
        return not self.keep_float and not self.share and all(spec is None for spec in specs)

    def _spec(self, role: Role) -> Spec | None:
        if role in self.keep_float:
            return None
        match role:
            case Role.INPUT:
                return self.input or self.activation
            case Role.OUTPUT:
                return self.output or self.activation
            case Role.WEIGHT:
                return self.weight
            case Role.CORRELATION:
                return self.correlation
            case Role.SUM:
                return self.sum
            case Role.BIAS | Role.CACHE:
                return None

    def __str__(self) -> str:
        words = [f"operators {', '.join(self.operators)}"] * bool(self.operators)
        words += [f"names {', '.join(self.names)}"] * bool(self.names)
        words += [f"first {self.first}"] * (self.first is not None) + [f"last {self.last}"] * (
            self.last is not None
        )
        return "; ".join(words) or "every unit"


# The first rule that matches a unit and decides about a slot decides about that slot. A slot
# without such a rule stays float; a bias without one is int32 at the product's scale, where
# products are integers.

SUFFIX = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOptions:
    """What a schema requests for the slots of one unit; None is float.

    ``reason`` is that of a rule that keeps a slot in float; ``rules`` are the indices of the rules
    that decided.
    """

    input: Spec | None = None
    weight: Spec | None = None
    correlation: Spec | None = None
    bias: BiasSpec = field(default_factory=BiasSpec)
    sum: Spec | None = None
    output: Spec | None = None
    share: frozenset[Share] = frozenset()
    reason: str = ""
    rules: tuple[int, ...] = ()

    @property
    def silent(self) -> bool:
        """Whether nothing is requested."""
        return all(
            spec is None
            for spec in (self.input, self.weight, self.correlation, self.sum, self.output)
        )

    def __str__(self) -> str:
        named = (("input", self.input), ("weight", self.weight), ("correlation", self.correlation))
        words = [f"{name} {spec}" for name, spec in named if spec is not None]
        words += [f"bias {self.bias}"] * (self.weight is not None)
        words += [
            f"{name} {spec}"
            for name, spec in (("sum", self.sum), ("output", self.output))
            if spec is not None
        ]
        words += [
            f"the same qparams for its {share.value}"
            for share in sorted(self.share, key=lambda s: s.value)
        ]
        return "; ".join(words) or "float"


class GraphOutputs(enum.Enum):
    """What happens to the results of a graph that its rules quantize."""

    FLOAT = "float"  # they leave the graph as they are computed
    QUANTIZED = "quantized"  # they are quantized, and dequantized again: the graph's type stays
    AUTO = "auto"  # quantized where the backend would run their operator in float otherwise


class WeightCodes(enum.Enum):
    """How the codes of weights are chosen once their qparams are known."""

    NEAREST = "nearest"
    FITTED = "fitted"  # to the results of the float layers on calibration samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A named list of rules.

    Args:
        name: in suites.
        rules: tried in order.
        canonical: name of the canonical passes before profiling; schemas with the same share
            profiles.
        bias_correction: move every bias by the mean error that quantization leaves on calibration
            samples.
        weight_codes: how the codes of weights are chosen; ``fitted`` codes leave the mean of their
            error to ``bias_correction``.
        outputs: what happens to values that leave the graph.
        cache: how the keys and values that a decoder keeps are quantized; None: they stay float.
        by_hand: ranges of single values of one model, of a file of their own (``with_ranges``); a
            schema's file has no such key.
        made_by: the quantizer of other people that decides in the place of the rules; None: they
            decide.

    Raises:
        ValueError, InputError: no rules, or no such canonical passes.
    """

    name: str
    rules: tuple[Rule, ...]
    canonical: str = "default"
    bias_correction: bool = False
    weight_codes: WeightCodes = WeightCodes.NEAREST
    outputs: GraphOutputs = GraphOutputs.AUTO
    cache: Spec | None = field(default=None, metadata={FORMER_NAME: "kept"})
    # Part of the schema, so that all that plans a cell again (localizing, a search for a repair,
    # faults) takes these ranges without being told of them.
    by_hand: HandRanges | None = field(default=None, metadata={NOT_WRITTEN: True})
    made_by: Quantizer | None = field(default=None, metadata={NOT_WRITTEN: True})

    def __post_init__(self) -> None:
        if not self.rules:
            raise ValueError("a schema without rules")
        if self.cache is not None:
            self._refuse_cache(self.cache)
        if self.fits_weights and self.has_floats:
            raise ValueError("fitted codes of floats: those of integers can be fitted")
        if self.canonical not in CANONICAL:
            raise unknown_name(
                f"Reading the schema '{self.name}'", "canonical pipeline", self.canonical, CANONICAL
            )

    def _refuse_cache(self, cache: Spec) -> None:
        """What a cache cannot have."""
        if cache.granularity is Granularity.BLOCK:
            raise ValueError("what a decoder keeps per block, which is per tensor, head or channel")
        if cache.granularity is Granularity.CHANNEL and self.canonical != CACHE_CHANNELS_PIPELINE:
            raise ValueError(
                "what a decoder keeps per channel, whose channels only canonical = "
                f"'{CACHE_CHANNELS_PIPELINE}' has"
            )
        if cache.dynamic or cache.fixed is not None:
            raise ValueError("dynamic or fixed parameters of what a decoder keeps")
        if not all(
            spec is None or spec.dynamic
            for rule in self.rules
            for spec in (rule.activation, rule.input, rule.output)
        ):
            raise ValueError(
                "a cache next to activations with known ranges, which hold keys and values too"
            )

    @property
    def summary(self) -> str:
        """Its first rule that quantizes something, in one line, and the number of other rules."""
        if self.made_by is not None:
            return self.made_by.summary
        for rule in self.rules:
            cache = [f"keys and values {self.cache}"] if self.cache is not None else []
            specs = (("activations", rule.activation or rule.input), ("weights", rule.weight))
            parts = [f"{what} {spec}" for what, spec in specs if spec is not None]
            parts += [f"biases {rule.bias}"] * (
                rule.bias is not None and rule.bias.kind.value != "float"
            )
            parts += cache
            if parts:
                more = len(self.rules) - 1
                return ", ".join(parts) + (f"; {more} more rule{'s' * (more > 1)}" if more else "")
        return "keeps everything in float"

    @property
    def wants_channels(self) -> bool:
        """Whether it requests qparams per channel for calibrated values; profiles keep channels
        only then.
        """
        specs = (
            rule.spec_of(role) for rule in self.rules for role in Role if role is not Role.WEIGHT
        )
        in_parts = self.cache is not None and self.cache.granularity is not Granularity.TENSOR
        return in_parts or any(
            spec is not None and spec.granularity is Granularity.CHANNEL for spec in specs
        )

    @property
    def weights_only(self) -> bool:
        """Whether it quantizes weights and no computed value but what a decoder keeps; of another
        quantizer that is not known.
        """
        if self.made_by is not None:
            return False
        specs = (
            rule.spec_of(role)
            for rule in self.rules
            for role in Role
            if role not in (Role.WEIGHT, Role.BIAS)
        )
        return all(spec is None for spec in specs)

    @property
    def asks_nothing(self) -> bool:
        """Whether its rules quantize nothing."""
        return all(rule.spec_of(role) is None for rule in self.rules for role in Role)

    @property
    def has_floats(self) -> bool:
        """Whether it asks for floats of few bits, whose products no engine counts in integers."""
        specs = (rule.spec_of(role) for rule in self.rules for role in Role)
        return any(spec is not None and spec.kind.qtype.is_float for spec in specs)

    @property
    def needs_profile(self) -> bool:
        """Whether any range is to be taken from statistics; weights and parameters of run time
        need none.
        """
        specs = (
            rule.spec_of(role) for rule in self.rules for role in Role if role is not Role.WEIGHT
        )
        return self.cache is not None or any(
            spec is not None and not spec.dynamic and spec.fixed is None for spec in specs
        )

    @property
    def fits_weights(self) -> bool:
        """Whether codes of weights are fitted on samples."""
        return self.weight_codes is WeightCodes.FITTED

    @property
    def needs_samples(self) -> bool:
        """Whether quantizing by it takes calibration samples: ranges, means, inputs of layers."""
        if self.made_by is not None:
            return self.made_by.takes_samples
        return self.needs_profile or self.bias_correction or self.fits_weights

    def options_of(self, units: Sequence[tuple[str, str]]) -> tuple[SlotOptions, ...]:
        """What is requested for each of ``units``, (operator, name) in graph order; positions
        count over all.
        """
        matching = [_matching(rule, units) for rule in self.rules]
        return tuple(
            self._options(tuple(i for i, found in enumerate(matching) if at in found))
            for at in range(len(units))
        )

    def idle_rules(self, options: Sequence[SlotOptions]) -> tuple[str, ...]:
        """The rules that decided nothing in ``options``, counted from 1 and in words."""
        deciding = {index for one in options for index in one.rules}
        return tuple(
            f"rule {i + 1} ({rule})" for i, rule in enumerate(self.rules) if i not in deciding
        )

    def preceded_by(self, rules: tuple[Rule, ...]) -> "Schema":
        """This schema with further ``rules`` tried first: an override."""
        return replace(self, rules=rules + self.rules)

    def with_ranges(self, by_hand: HandRanges | None) -> "Schema":
        """This schema, where values of ``by_hand`` take their ranges from there."""
        return replace(self, by_hand=by_hand)

    def _options(self, matching: Sequence[int]) -> SlotOptions:
        deciding = {
            role: next((i for i in matching if self.rules[i].decides_about(role)), None)
            for role in Role
        }
        sharing = next((i for i in matching if self.rules[i].share), None)
        rules = tuple(
            sorted({index for index in (*deciding.values(), sharing) if index is not None})
        )
        specs = {r: None if i is None else self.rules[i].spec_of(r) for r, i in deciding.items()}
        return SlotOptions(
            input=specs[Role.INPUT],
            weight=specs[Role.WEIGHT],
            correlation=specs[Role.CORRELATION],
            bias=self._bias(deciding[Role.BIAS]),
            sum=specs[Role.SUM],
            output=specs[Role.OUTPUT],
            share=frozenset() if sharing is None else frozenset(self.rules[sharing].share),
            reason=next(
                (self.rules[index].reason for index in rules if self.rules[index].reason), ""
            ),
            rules=rules,
        )

    def _bias(self, rule: int | None) -> BiasSpec:
        """By the rule that decides about it, whose None is float; without such a rule it is
        derived.
        """
        return BiasSpec() if rule is None else self.rules[rule].bias or FLOAT_BIAS


def load_schema(path: Path) -> Schema:
    """The schema in the TOML file at ``path``; its name is that of the file.

    Raises:
        InputError: the file does not exist, is not TOML, has another name inside, or an impossible
            schema.
    """
    where, name = f"schema '{path.name}'", path.name.removesuffix(SUFFIX)
    table = read_toml(path)
    if table.get("name", name) != name:
        raise InputError(
            f"Reading {where}",
            found=f"the name {table['name']!r} in it",
            expected=f"'{name}', as the file is called",
            remedy="Remove the name from the file, or rename the file.",
        )
    return schema_from_table({**table, "name": name}, where)


def quantizer_schema(quantizer: Quantizer) -> Schema:
    """The schema of ``quantizer``: it decides nothing by itself, as the quantizer does."""
    return Schema(name=f"{PREFIX}{quantizer.name}", rules=(Rule(),), made_by=quantizer)


def schema_in_file(path: Path) -> Schema:
    """The schema in the TOML file at ``path``: of its rules, or of the quantizer that it
    describes.

    Raises:
        InputError: the file cannot be read, or holds neither.
    """
    if "quantizer" in read_toml(path):
        return quantizer_schema(load_quantizer(path))
    return load_schema(path)


def schema_from_table(table: Mapping[str, Any], where: str) -> Schema:
    """The schema in a TOML table; ``where`` names the table in errors.

    Raises:
        InputError: an unknown key, a wrong type, or an impossible spec.
    """
    return value_from_table(Schema, table, where)


def _matching(rule: Rule, units: Sequence[tuple[str, str]]) -> frozenset[int]:
    found = [index for index, (operator, name) in enumerate(units) if rule.fits(operator, name)]
    if rule.first is None and rule.last is None:
        return frozenset(found)
    return frozenset(found[: rule.first or 0]) | frozenset(
        found[len(found) - min(rule.last or 0, len(found)) :]
    )
