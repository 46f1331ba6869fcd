"""Names of schemas of floats of few bits and of blocks, and the usual name of weights alone."""

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.errors import nearest

if TYPE_CHECKING:
    from qbench.quantization.schema import Schema
    from qbench.quantization.spec import Spec

# The names that are schemas of floats, and what each word of them means.
#
# w<type>[a<type>]_sym_<pt|pc|b<N>>[_pow2][_<method>]
#
# w         f8e4m3, f8e5m2, f8e4m3uz, f8e5m2uz, f6e2m3, f6e3m2, f4e2m1: floats with float32 scales;
#           mxfp8e4m3, mxfp8e5m2, mxfp6e2m3, mxfp6e3m2, mxfp4 (b32), nvfp4 (b16): block formats
# a         f8e4m3, f8e5m2, f8e4m3uz, f8e5m2uz; without ``a`` activations stay float32
# pow2      scales of floats rounded up to a power of two; block formats have their own
# method    as for integers, among those that look at values alone
#
# w<bits>a16[_b<N>] is what makers of language models call weights alone: as w<bits>_sym_b<N>,
# blocks of 32 where it names none. Activations stay as they are, in floats of 16 or 32 bits.

FLOAT_FORM = "w<type>[a<type>]_sym_<pt|pc|b<N>>[_pow2][_<method>]"
USUAL_FORM = "w<bits>a16[_b<N>]"

FLOAT_WORDS = {
    "f8e4m3": "float8e4m3fn",
    "f8e5m2": "float8e5m2",
    "f8e4m3uz": "float8e4m3fnuz",
    "f8e5m2uz": "float8e5m2fnuz",
    "f6e2m3": "float6e2m3",
    "f6e3m2": "float6e3m2",
    "f4e2m1": "float4e2m1",
}
BLOCK_WORDS = ("mxfp8e4m3", "mxfp8e5m2", "mxfp6e2m3", "mxfp6e3m2", "mxfp4", "nvfp4")
_PATTERN = re.compile(
    rf"w({'|'.join((*FLOAT_WORDS, *BLOCK_WORDS))})(?:a({'|'.join(FLOAT_WORDS)}))?"
    r"_(asym|symu8|sym)_(?:(pt|pc)|b(0|[1-9]\d*))(_pow2)?(?:_([a-z0-9][a-z0-9_.-]*))?"
)
_USUAL = re.compile(r"w(0|[1-9]\d*)a16(?:_b(0|[1-9]\d*))?")
_USUAL_BLOCK = 32


class ImpossibleNameError(ValueError):
    """A name of the right form that no schema can have; ``found`` and ``expected`` are two
    parts of its sentence.
    """

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"{found}, expected {expected}")
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatName:
    """The words of a name of floats; ``block_size`` is None for ``pt`` and ``pc``.

    Raises:
        ImpossibleNameError: words that exclude each other.
    """

    weight: str
    activation: str | None
    granularity: str
    block_size: int | None = None
    pow2: bool = False
    method: str = ""

    def __post_init__(self) -> None:
        if self.activation is not None and not self.activation.startswith("f8"):
            raise ImpossibleNameError(
                f"activations of {self.activation}", "f8e4m3 or another of 8 bits"
            )
        if self.block_size == 0:
            raise ImpossibleNameError("blocks of 0", "at least one element a block")
        if self.weight in BLOCK_WORDS:
            self._refuse_for_blocks()
        if self.method:
            _refuse_method(self.method)

    @classmethod
    def parse(cls, text: str) -> "FloatName | None":
        """The words of ``text``; None when it is built otherwise.

        Raises:
            ImpossibleNameError: it is built like a name, but no schema can have it.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            return None
        weight, activation, family, tensor, block, pow2, method = match.groups()
        if family != "sym":
            raise ImpossibleNameError(f"'{family}' of floats", "'sym', as they have no zero point")
        return cls(
            weight=weight,
            activation=activation,
            granularity=tensor or "b",
            block_size=None if block is None else int(block),
            pow2=pow2 is not None,
            method=method or "",
        )

    def __str__(self) -> str:
        head = f"w{self.weight}" + ("" if self.activation is None else f"a{self.activation}")
        size = "" if self.block_size is None else str(self.block_size)
        words = [head, "sym", self.granularity + size, *["pow2"] * self.pow2]
        return "_".join(words + [self.method] * bool(self.method))

    def schema(self) -> "Schema":
        """The schema of this name: one rule for every operator."""
        from qbench.quantization.schema import Rule, Schema
        from qbench.quantization.spec import FLOAT_BIAS, Spec

        scale_kind, method = "pow2" if self.pow2 else "real", self.method or "minmax"
        activation = None
        if self.activation is not None:
            activation = Spec(
                qtype=FLOAT_WORDS[self.activation],
                symmetry="symmetric",
                scale_kind=scale_kind,
                range_method=method,
            )
            method = "minmax"
        rule = Rule(activation=activation, weight=self._weight(scale_kind, method), bias=FLOAT_BIAS)
        return Schema(name=str(self), rules=(rule,))

    def _weight(self, scale_kind: str, method: str) -> "Spec":
        from qbench.numerics import BLOCK_FORMATS
        from qbench.quantization.spec import Granularity, Spec

        kinds = {"pt": Granularity.TENSOR, "pc": Granularity.CHANNEL, "b": Granularity.BLOCK}
        blocks = BLOCK_FORMATS.get(self.weight)
        return Spec(
            qtype=FLOAT_WORDS[self.weight] if blocks is None else blocks.qtype,
            symmetry="symmetric",
            granularity=kinds[self.granularity],
            block_size=self.block_size,
            scale_kind=scale_kind if blocks is None else blocks.scale_kind,
            range_method=method,
        )

    def _refuse_for_blocks(self) -> None:
        size = _block_of(self.weight)
        if self.block_size != size:
            found = self.granularity if self.block_size is None else f"b{self.block_size}"
            raise ImpossibleNameError(f"'{found}' of {self.weight}", f"'b{size}', as it is defined")
        if self.pow2:
            raise ImpossibleNameError(f"'pow2' of {self.weight}", "no word: its scales are its own")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualName:
    """Weights of ``bits`` in blocks, activations in floats: ``w4a16``.

    Raises:
        ImpossibleNameError: a width or a block that no schema has.
    """

    bits: int
    block_size: int | None

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8:
            raise ImpossibleNameError(f"weights of {self.bits} bits with 'a16'", "2 to 8 bits")
        if self.block_size == 0:
            raise ImpossibleNameError("blocks of 0", "at least one element a block")

    @classmethod
    def parse(cls, text: str) -> "UsualName | None":
        """The words of ``text``; None when it is built otherwise.

        Raises:
            ImpossibleNameError: as above.
        """
        match = _USUAL.fullmatch(text)
        if match is None:
            return None
        return cls(bits=int(match[1]), block_size=None if match[2] is None else int(match[2]))

    def __str__(self) -> str:
        return f"w{self.bits}a16" + ("" if self.block_size is None else f"_b{self.block_size}")

    def schema(self) -> "Schema":
        """The schema of this name."""
        from qbench.quantization.schema import Rule, Schema
        from qbench.quantization.spec import FLOAT_BIAS, Granularity, Spec

        weight = Spec(
            qtype=f"int{self.bits}",
            symmetry="symmetric",
            granularity=Granularity.BLOCK,
            block_size=self.block_size or _USUAL_BLOCK,
            narrow_range=self.bits == 8,
        )
        return Schema(name=str(self), rules=(Rule(weight=weight, bias=FLOAT_BIAS),))


def float_name(text: str) -> FloatName | UsualName | None:
    """The words of a name of one of both forms; None when it has neither.

    Raises:
        ImpossibleNameError: it has one, but no schema can be called so.
    """
    return FloatName.parse(text) or UsualName.parse(text)


def looks_like_floats(text: str) -> bool:
    """Whether ``text`` begins as a name of floats does, well spelled or not."""
    return _BEGINS.match(text) is not None


_BEGINS = re.compile(r"w?(?:\d+(?=af))?(?:a?(?:f\d|fp\d|float|bf\d)|mx|nv)")
_HEAD = re.compile(r"w?((?:float)?[^a]*)(?:a(.*))?")
_WIDTH, _BLOCK = re.compile(r"\d"), re.compile(r"b(\d+)")
_TYPES = {
    **{word: word for word in (*FLOAT_WORDS, *BLOCK_WORDS)},
    **{qtype: word for word, qtype in FLOAT_WORDS.items()},
    **{f"fp{word.removeprefix('f')}": word for word in FLOAT_WORDS},
    **{f"{word}fn": word for word in FLOAT_WORDS},
    "mx4": "mxfp4",
    "nv4": "nvfp4",
}
"""What a type is called here and elsewhere → the word of names; the first of a width is the usual
one.
"""


def nearest_float_name(text: str) -> str | None:
    """The name of floats that ``text`` is probably a misspelling of; None where it begins
    otherwise, or that cannot be guessed.
    """
    if not looks_like_floats(text):
        return None
    head, *words = text.split("_")
    match = _HEAD.fullmatch(head)
    weight = match and _nearest_type(match[1], (*FLOAT_WORDS, *BLOCK_WORDS))
    if match is None or weight is None:
        return None
    rest = [word for word in words if nearest(word, ("asym", "sym", "symu8")) is None]
    kind, size = _nearest_granularity(weight, rest)
    activation = _nearest_type(match[2], tuple(FLOAT_WORDS)[:4]) if match[2] else None
    pow2 = weight not in BLOCK_WORDS and any(nearest(word, ("pow2",)) for word in rest)
    found = FloatName(
        weight=weight, activation=activation, granularity=kind, block_size=size, pow2=pow2
    )
    for word in rest:
        with suppress(ImpossibleNameError):  # a granularity is no method
            found = replace(found, method=word)
    return str(found)


def _nearest_type(text: str, among: Collection[str]) -> str | None:
    """The word of ``among`` that ``text`` begins or misspells, of the same width where there is
    one.
    """
    names = [name for name, word in _TYPES.items() if word in among]
    begun = [name for name in names if name.startswith((text, f"f{text}"))]
    width = _WIDTH.search(text)
    same = [name for name in names if width and _WIDTH.findall(name)[0] == width[0]]
    close = next(iter(begun), None) or nearest(text, same or names)
    return None if close is None else _TYPES[close]


def _nearest_granularity(weight: str, words: Iterable[str]) -> tuple[str, int | None]:
    if weight in BLOCK_WORDS:
        return "b", _block_of(weight)
    for word in words:
        if block := _BLOCK.fullmatch(word):
            return "b", max(1, int(block[1]))
        if place := nearest(word, ("pt", "pc")):
            return place, None
    return "pc", None


def _block_of(weight: str) -> int:
    return 16 if weight == "nvfp4" else 32


def _refuse_method(method: str) -> None:
    from qbench.calibration import counts_codes, get_range_method
    from qbench.errors import InputError

    try:
        found = get_range_method(method)
    except InputError:
        raise ImpossibleNameError(
            f"the unknown range method '{method}'", "minmax, percentile or sigma"
        ) from None
    if counts_codes(found):
        raise ImpossibleNameError(
            f"the method '{method}' of floats, whose codes it cannot weigh",
            "minmax, percentile or sigma",
        )
