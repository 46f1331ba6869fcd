"""How a machine counts, as one value: multiplier, rounding, accumulator, and the schemes of its operators.

    acc = Σ (x − z_x)(w − z_w) + bias                          the accumulator
    M   = s_x · s_w / s_y                                      a real number, which no two machines hold alike
    y   = clamp(round(acc · M) + z_y)                          where, how often and before what it rounds: here

A value of this type stands for an engine wherever one is taken. It is data: printable, readable from TOML, and part of
every measurement by its digest.
"""

from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase

from qbench.numerics.accumulation import Accumulator
from qbench.numerics.qparams import QParams
from qbench.numerics.scaling import WIDEST_PRODUCT, Scaling
from qbench.numerics.schemes import Adding, AddScheme, Averaging, Dequantizing, Functions, Quantizing, Softmax
from qbench.storage import digest_plain, table_from_value, toml_text

_MEANING = 2
"""Of the words here, as part of every digest: raised when one of them comes to mean something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Some nodes of a machine that count otherwise: what is given here stands there instead of the machine's own.

    Args:
        operators: operators it applies to, as a float graph calls them (``Conv``); empty: any.
        names: patterns (``*``, ``?``) of node names; empty: any.
        scaling, accumulator, adding, averaging, mean, softmax, functions, multiplying, rescaling, quantizing,
            dequantizing: as in ``Arithmetic``; None: the machine's own.

    Raises:
        ValueError: it applies to every node, or changes nothing.
    """

    operators: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    scaling: Scaling | None = None
    accumulator: Accumulator | None = None
    adding: Adding | None = None
    averaging: Averaging | None = None
    mean: Averaging | None = None
    softmax: Softmax | None = None
    functions: Functions | None = None
    multiplying: Scaling | None = None
    rescaling: Scaling | None = None
    quantizing: Quantizing | None = None
    dequantizing: Dequantizing | None = None

    def __post_init__(self) -> None:
        if not self.operators and not self.names:
            raise ValueError("an override names operators or nodes; what holds everywhere is the machine's own")
        if not self.changes:
            raise ValueError("an override that changes nothing")

    @property
    def changes(self) -> dict[str, object]:
        """What it puts in the place of the machine's own, by field."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("operators", "names")}
        return {name: value for name, value in given.items() if value is not None}

    def applies(self, operator: str, name: str) -> bool:
        """Whether the node called ``name`` is meant, which was ``operator`` in the float graph."""
        fits = not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)
        return fits and (not self.operators or operator in self.operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """One machine.

    Args:
        name: how backends and suites call it.
        source: what it follows, for people.
        scaling: of accumulators.
        accumulator: where they come from.
        adding: of two quantized operands.
        averaging: of the levels of a window.
        mean: of all levels along some axes.
        softmax: of levels.
        functions: of one value.
        multiplying: of the product of two quantized operands; None: as accumulators are.
        rescaling: of levels from one grid to another; None: dequantized and quantized where multipliers are floats, as
            accumulators are where they are integers (``numerics.rescaling``).
        quantizing: of floats, and of the results of operators that are computed in float.
        dequantizing: of levels, for operators that are computed in float.
        narrow: levels never reach the lowest one of a signed grid.
        overrides: nodes that count otherwise; the first that applies holds.

    Raises:
        ValueError: settings, an override's included, that no machine has together.
    """

    name: str
    source: str
    scaling: Scaling
    accumulator: Accumulator = field(default_factory=Accumulator)
    adding: Adding = field(default_factory=lambda: Adding(scheme=AddScheme.EXACT))
    averaging: Averaging = Averaging.SCALED
    mean: Averaging = Averaging.SCALED
    softmax: Softmax = Softmax.REAL
    functions: Functions = Functions.REAL
    multiplying: Scaling | None = None
    rescaling: Scaling | None = None
    quantizing: Quantizing = field(default_factory=Quantizing)
    dequantizing: Dequantizing = Dequantizing.CENTRED
    narrow: bool = False
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        sums, factor = self.accumulator.bits, self.scaling.factor_bits
        if factor and sums + factor >= WIDEST_PRODUCT:
            raise ValueError(
                f"sums of {sums} bits times a multiplier of {factor} do not fit a product of {WIDEST_PRODUCT}"
            )
        for one in self.overrides:
            replace(self, overrides=(), **one.changes)  # type: ignore[arg-type]

    @property
    def digest(self) -> str:
        """Of all that changes numbers: two machines that count alike have one digest, whatever they are called."""
        words = table_from_value(self)
        return digest_plain([_MEANING, {key: word for key, word in words.items() if key not in ("name", "source")}])

    def __str__(self) -> str:
        """The TOML file that spells it, whatever that is called; a line a field that is not as by default."""
        own = toml_text(replace(self, overrides=())).partition("\n")[2]
        overrides = "".join(f"\n[[overrides]]\n{toml_text(one)}" for one in self.overrides)
        return f"# {self.name}\n{own}{overrides}".rstrip()

    def limits(self, output: QParams) -> tuple[int, int]:
        """The levels between which this machine clamps results on ``output``."""
        return max(output.qmin, output.qtype.qmin + int(self.narrow and output.qtype.signed)), output.qmax

    def at(self, operator: str, name: str) -> "Arithmetic":
        """How the node called ``name``, ``operator`` in the float graph, is counted; no overrides are left."""
        override = next((one for one in self.overrides if one.applies(operator, name)), None)
        changes = {} if override is None else override.changes
        return replace(self, overrides=(), **changes) if self.overrides else self  # type: ignore[arg-type]
