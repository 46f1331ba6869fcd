"""Schemas by name: the grammar of names, the listed ones, and those of extensions."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from qbench.errors import InputError, nearest, unknown_name
from qbench.extension import Catalogue, Extension, known_extensions
from qbench.quantization.cache_names import CACHE_FORM, CacheName
from qbench.quantization.float_names import (
    FLOAT_FORM,
    ImpossibleNameError,
    float_name,
    looks_like_floats,
    nearest_float_name,
)
from qbench.quantization.quantizer_file import (
    PREFIX,
    quantizer_catalogue,
    quantizer_of,
    variant_error,
)

if TYPE_CHECKING:
    from pathlib import Path

    from qbench.quantization.schema import Schema
    from qbench.quantization.spec import BiasSpec


# The names that are schemas by how they are built, and what each word of them means.
#
# w<bits>[a<bits>]_<asym|sym|symu8>_<pt|pc|b<N>>[_pow2][_dyn][_bias<bits>][_fit][_<method>]
#
# w, a      bits of weights and of activations; without ``a`` activations stay float, and family and
#           method are of weights
# asym      an unsigned type with any zero point
# sym       a signed type with zero point 0
# symu8     uint8, zero point 0 where nothing is negative, else 128
# pt pc b   weights per tensor, per output channel, per block of N elements of what is summed over
# pow2      every scale rounded up to a power of two
# dyn       activations get their parameters from every batch at run time
# bias      biases at a scale of their own, signed, of that many bits
# fit       the codes of weights fitted on samples, layer by layer, and biases corrected
# method    the rule that takes a range from statistics, as in ``entropy``; the extremes when left
#           out
#
# Names of floats and of weights alone in the usual words: ``float_names``; of what a decoder keeps:
# ``cache_names``.

FORM = "w<bits>[a<bits>]_<asym|sym|symu8>_<pt|pc|b<N>>[_pow2][_dyn][_bias<bits>][_fit][_<method>]"

_NUMBER = r"(0|[1-9]\d*)"
_PATTERN = re.compile(
    rf"w{_NUMBER}(?:a{_NUMBER})?_(asym|sym|symu8)_(?:(pt|pc)|b{_NUMBER})"
    rf"(_pow2)?(_dyn)?(?:_bias{_NUMBER})?(_fit)?(?:_([a-z0-9][a-z0-9_.-]*))?"
)
_FAMILIES = {
    "asym": ("uint", "asymmetric"),
    "sym": ("int", "symmetric"),
    "symu8": ("uint", "symmetric_unsigned"),
}
_BITS = range(2, 17)
_USUAL_BLOCK = 32
_BIAS_BITS = (*_BITS, 32)
_FULL_RANGE_BELOW = 8
_WIDEST_PRODUCT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaName:
    """The words of a name; ``block_size`` is None for ``pt`` and ``pc``, ``method`` empty for
    the extremes.

    Raises:
        ImpossibleNameError: words that exclude each other, or a width that no type has.
    """

    weight_bits: int
    activation_bits: int | None
    family: str
    granularity: str
    block_size: int | None = None
    pow2: bool = False
    dynamic: bool = False
    bias_bits: int | None = None
    fits_weights: bool = False
    method: str = ""

    def __post_init__(self) -> None:
        _refuse_widths(self)
        if self.block_size == 0:
            raise ImpossibleNameError("blocks of 0", "at least one element a block")
        if self.family == "symu8" and (self.activation_bits or self.weight_bits) != 8:
            raise ImpossibleNameError(
                f"'symu8' of {self.activation_bits or self.weight_bits} bits", "8 bits"
            )
        if self.dynamic:
            _refuse_dynamic(self)
        if self.bias_bits is not None and self.activation_bits is None:
            raise ImpossibleNameError(
                "a bias in integers with activations in float", "activations in integers too"
            )
        if self.method:
            _refuse_method(self.method)

    @classmethod
    def parse(cls, text: str) -> "SchemaName | None":
        """The words of ``text``; None when it is built otherwise.

        Raises:
            ImpossibleNameError: it is built like a name, but no schema can have it.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            return None
        weight, activation, family, tensor, block, pow2, dynamic, bias, fit, method = match.groups()
        return cls(
            weight_bits=int(weight),
            activation_bits=None if activation is None else int(activation),
            family=family,
            granularity=tensor or "b",
            block_size=None if block is None else int(block),
            pow2=pow2 is not None,
            dynamic=dynamic is not None,
            bias_bits=None if bias is None else int(bias),
            fits_weights=fit is not None,
            method=method or "",
        )

    def __str__(self) -> str:
        head = f"w{self.weight_bits}" + (
            f"a{self.activation_bits}" if self.activation_bits is not None else ""
        )
        words = [
            head,
            self.family,
            self.granularity + ("" if self.block_size is None else str(self.block_size)),
        ]
        words += ["pow2"] * self.pow2 + ["dyn"] * self.dynamic
        words += [f"bias{self.bias_bits}"] * (self.bias_bits is not None)
        words += ["fit"] * self.fits_weights + [self.method] * bool(self.method)
        return "_".join(words)

    def schema(self) -> "Schema":
        """The schema of this name: one rule for every operator."""
        from qbench.quantization.schema import Rule, Schema, WeightCodes
        from qbench.quantization.spec import Granularity, Spec

        scale_kind, method = "pow2" if self.pow2 else "real", self.method or "minmax"
        sign, symmetry = _FAMILIES[self.family]
        activation = None
        if self.activation_bits is not None:
            activation = Spec(
                qtype=f"{sign}{self.activation_bits}",
                symmetry=symmetry,
                scale_kind=scale_kind,
                range_method=method,
                dynamic=self.dynamic,
            )
            sign, symmetry, method = "int", "symmetric", "minmax"
        weight = Spec(
            qtype=f"{sign}{self.weight_bits}",
            symmetry=symmetry,
            granularity={
                "pt": Granularity.TENSOR,
                "pc": Granularity.CHANNEL,
                "b": Granularity.BLOCK,
            }[self.granularity],
            block_size=self.block_size,
            # One code of few is worth more than as many codes on both sides of zero.
            narrow_range=sign == "int" and self.weight_bits >= _FULL_RANGE_BELOW,
            scale_kind=scale_kind,
            range_method=method,
        )
        return Schema(
            name=str(self),
            rules=(Rule(activation=activation, weight=weight, bias=self._bias()),),
            bias_correction=self.fits_weights,
            weight_codes=WeightCodes.FITTED if self.fits_weights else WeightCodes.NEAREST,
        )

    def _bias(self) -> "BiasSpec | None":
        """Its own scale where named; float where the product has no scale, or one too fine for
        int32; else derived.
        """
        from qbench.quantization.spec import FLOAT_BIAS, BiasKind, BiasSpec

        if self.bias_bits is not None:
            scale_kind = "pow2" if self.pow2 else "real"
            return BiasSpec(kind=BiasKind.OWN, qtype=f"int{self.bias_bits}", scale_kind=scale_kind)
        if self.activation_bits is None or self.dynamic:
            return FLOAT_BIAS
        return FLOAT_BIAS if self.weight_bits + self.activation_bits > _WIDEST_PRODUCT else None


_LIKE_PREFIX = "by_"
"""What people write for ``PREFIX``."""


@dataclass(frozen=True, slots=True)
class SchemaGrammar:
    """The names of this grammar, and ``by-…`` of the known ``quantizers``, as a catalogue asks
    for them.
    """

    quantizers: "Catalogue[Path]" = field(default_factory=quantizer_catalogue)

    @property
    def form(self) -> str:
        """How a name is built."""
        return FORM

    def maker(self, name: str) -> "Callable[[], Schema] | None":
        """What makes the schema called ``name``; None when that is no name of the grammar."""
        if name.startswith(PREFIX):
            return _maker_by_quantizer(name, self.quantizers)
        try:
            cache = CacheName.parse(name)
            if cache is not None:
                return self._maker_with_cache(cache)
            parsed = SchemaName.parse(name) or float_name(name)
        except ImpossibleNameError:
            return None
        return None if parsed is None else parsed.schema

    def _maker_with_cache(self, cache: CacheName) -> "Callable[[], Schema] | None":
        """Of the schema before the words of the cache, and these."""
        if not cache.base:
            return partial(cache.schema, None)
        base = self.maker(cache.base)
        return partial(cache.schema, base) if base and _can_keep(cache.base) else None

    def unknown(self, doing: str, name: str, listed: "Iterable[str]") -> InputError:
        """Why ``name`` is no schema, and which of the grammar or of those ``listed`` is nearest."""
        if name.startswith((PREFIX, _LIKE_PREFIX)):
            return self._unknown_quantizer(doing, name)
        form = FLOAT_FORM if looks_like_floats(name) else FORM
        try:
            cache = CacheName.parse(name)
            if cache is not None and self.maker(cache.base) is None:
                return self.unknown(doing, cache.base, listed)
            _refuse_base(cache)
            _ = SchemaName.parse(name) or float_name(name)
        except ImpossibleNameError as problem:
            found = f"{problem.found} in the schema name '{name}'"
            expected = f"{problem.expected}, in a name of {form}"
            if _LIKE_CACHE.search(name):
                expected = f"{problem.expected}, in a name of {CACHE_FORM}"
        else:
            found, expected = f"unknown schema '{name}'", f"a listed schema, or a name of {form}"
        close = nearest_float_name(name) or _nearest_name(name) or nearest(name, listed)
        remedy = f"Did you mean '{close}'?" if close else "See 'qbench list schemas'."
        return InputError(doing, found=found, expected=expected, remedy=remedy)

    def _unknown_quantizer(self, doing: str, name: str) -> InputError:
        known = [f"{PREFIX}{one}" for one in self.quantizers.names()]
        if not known:  # what brings them is not installed
            return self.quantizers.unknown(name.removeprefix(PREFIX), doing)
        quantizer = name.partition(".")[0]
        if quantizer in known:
            return variant_error(doing, name, quantizer)
        return unknown_name(doing, "quantizer", quantizer, known)


def _refuse_base(cache: CacheName | None) -> None:
    """Say what is wrong with the base of ``cache``, a name that has one and is no schema."""
    if cache is not None:
        raise ImpossibleNameError(
            f"the words of a cache behind '{cache.base}'",
            "a schema whose activations are float or of run time ('dyn'), as known ranges hold "
            "keys and values too",
        )


_LIKE_CACHE = re.compile(r"(^|_)kv\w+$")


def _can_keep(base: str) -> bool:
    """Whether a schema of the name ``base`` leaves keys and values to the words of a cache: its
    activations stay float, or have parameters of run time.
    """
    if base.startswith(PREFIX) or CacheName.parse(base) is not None:
        return False
    name = SchemaName.parse(base)
    if name is not None:
        return name.activation_bits is None or name.dynamic
    return getattr(float_name(base), "activation", None) is None


def _maker_by_quantizer(name: str, known: "Catalogue[Path]") -> "Callable[[], Schema] | None":
    """What makes the schema ``name``, ``by-…``; None: no quantizer is called so."""
    called = name.removeprefix(PREFIX)
    base = called.rpartition(".")[0]
    if not known.knows(called) and not (base and known.knows(base)):
        return None
    return partial(_schema_by_quantizer, called, known)


def _schema_by_quantizer(name: str, known: "Catalogue[Path]") -> "Schema":
    from qbench.quantization.schema import quantizer_schema

    return quantizer_schema(quantizer_of(name, known))


def _refuse_widths(name: SchemaName) -> None:
    if name.weight_bits not in _BITS:
        raise ImpossibleNameError(f"weights of {_bits(name.weight_bits)}", "2 to 16 bits")
    if name.activation_bits is not None and name.activation_bits not in _BITS:
        raise ImpossibleNameError(f"activations of {_bits(name.activation_bits)}", "2 to 16 bits")
    if name.bias_bits is not None and name.bias_bits not in _BIAS_BITS:
        raise ImpossibleNameError(f"biases of {_bits(name.bias_bits)}", "2 to 16 or 32 bits")


def _refuse_dynamic(name: SchemaName) -> None:
    if name.activation_bits is None:
        raise ImpossibleNameError("'dyn' without activations in integers", "'a8'")
    if name.activation_bits != 8 or name.family != "asym":
        raise ImpossibleNameError(
            f"dynamic activations 'a{name.activation_bits}_{name.family}'",
            "'a8_asym', as ONNX has it",
        )
    if name.pow2:
        raise ImpossibleNameError("'pow2' with 'dyn'", "real scales, as run time computes them")
    if name.method:
        raise ImpossibleNameError(
            f"the method '{name.method}' with 'dyn'", "no method: each batch has its own extremes"
        )


def _refuse_method(method: str) -> None:
    from qbench.calibration import get_range_method

    if re.match(r"(pow2|dyn|bias\d+|fit)(_|$)", method):
        raise ImpossibleNameError(f"'{method}' at the end", "the words in their order")
    try:
        get_range_method(method)
    except InputError:
        if method in _methods():
            raise ImpossibleNameError(
                f"the method '{method}', which needs settings", "a schema file that gives them"
            ) from None
        meant = f"'{_MEANT[method]}' for that, or " if method in _MEANT else ""
        expected = f"{meant}one of {', '.join(_methods())}"
        raise ImpossibleNameError(f"the unknown range method '{method}'", expected) from None


_MEANT = {"l2": "mse", "kl": "tvm_kl", "kld": "tvm_kl", "absmax": "minmax", "max": "minmax"}
"""Usual names of methods → ours."""


def _methods() -> tuple[str, ...]:
    from qbench.calibration import range_method_catalogue

    return range_method_catalogue(known_extensions()).names()


def _bits(count: int) -> str:
    return f"{count} bit{'' if count == 1 else 's'}"


def _nearest_name(text: str) -> str | None:
    """The name of the grammar that ``text`` is probably a misspelling of; None when that cannot
    be guessed.
    """
    head, *words = text.split("_")
    bits = re.fullmatch(r"w(\d+)(?:a(\d+))?", head)
    if bits is None or not words:
        return None
    family = nearest(words[0], _FAMILIES)
    place = words[1] if len(words) > 1 else ""
    block = re.fullmatch(r"b(\d+)", place)
    granularity = "b" if block else nearest(place, ("pt", "pc"))
    if family is None or granularity is None:
        return None
    biases = [
        int(word.removeprefix("bias")) for word in words[2:] if re.fullmatch(r"bias\d+", word)
    ]
    bias_bits = None
    if biases and bits[2] is not None:
        bias_bits = _closest(biases[0], _BIAS_BITS)
    flags = [nearest(word, ("pow2", "dyn", "fit")) for word in words[2:]]
    others = [
        w
        for w, flag in zip(words[2:], flags, strict=True)
        if flag is None and not re.fullmatch(r"bias\d+", w)
    ]
    try:
        corrected = SchemaName(
            weight_bits=_closest(int(bits[1]), _BITS),
            activation_bits=None if bits[2] is None else _closest(int(bits[2]), _BITS),
            family=family,
            granularity=granularity,
            block_size=(int(block[1]) or _USUAL_BLOCK) if block else None,
            pow2="pow2" in flags,
            dynamic="dyn" in flags,
            bias_bits=bias_bits,
            fits_weights="fit" in flags,
            method=_MEANT.get("_".join(others)) or nearest("_".join(others), _methods()) or "",
        )
    except ImpossibleNameError:
        return None
    return str(corrected)


def _closest(width: int, widths: "Iterable[int]") -> int:
    return min(widths, key=lambda known: (abs(known - width), known))


# The names of the grammar that are listed: one or two for every idea, so that people see what can
# be asked for.

_NAMES = (
    "w8a8_asym_pc",
    "w8a8_asym_pc_pow2",
    "w8a8_asym_pt",
    "w8a8_asym_pt_pow2",
    "w8a8_sym_pc",
    "w8a8_sym_pc_pow2",
    "w8a8_sym_pt",
    "w8a8_sym_pt_pow2",
    "w8a8_symu8_pc",
    "w8a8_symu8_pc_pow2",
    "w8a8_symu8_pt",
    "w8a8_symu8_pt_pow2",
    "w8a8_asym_pc_dyn",
    "w8a8_asym_pc_entropy",
    "w8a8_asym_pc_mse",
    "w8a8_asym_pc_percentile",
    "w8a8_sym_pc_entropy",
    "w8a8_sym_pt_pow2_bias8",
    "w8a8_sym_pt_pow2_bias16",
    "w8a16_asym_pc",
    "w8a16_sym_pc",
    "w4a8_asym_pc",
    "w4a8_asym_pc_fit",
    "w4a8_asym_pc_mse",
    "w8_sym_pc",
    "w4_sym_b32",
    "w4_sym_b32_fit",
    "w4_asym_b32",
    "w4_sym_b32_mse",
    "wf8e4m3_sym_pc",
    "wf8e4m3af8e4m3_sym_pc",
    "wmxfp8e4m3_sym_b32",
    "wmxfp4_sym_b32",
    "wnvfp4_sym_b16",
    "kv8h",
    "kv4h",
    "kv4c",
    "kvf8e4m3h",
    "w4_sym_b32_kv8h",
)


def builtin_schemas() -> Mapping[str, Callable[[], "Schema"]]:
    """Name → maker of the schema; listing the names loads no numerics."""
    return {name: partial(_schema, name) for name in _NAMES}


def _schema(name: str) -> "Schema":

    grammar = SchemaGrammar()
    make = grammar.maker(name)
    if make is None:
        raise grammar.unknown("Looking up a schema", name, _NAMES)
    return make()


# The schemas that can be asked for by name: those of the grammar, some of them listed, and those of
# extensions.


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Schema]":
    """Our own schemas and those of ``extensions``."""
    added = tuple(extensions)
    grammar = SchemaGrammar(quantizer_catalogue(added))
    own: Catalogue[Schema] = Catalogue("schema", builtin_schemas(), grammar=grammar)
    return own.extended(added)


def get_schema(name: str) -> "Schema":
    """The schema called ``name``, installed extensions included.

    Raises:
        InputError: no such schema, or one that cannot be; the nearest name is suggested.
    """
    return catalogue(known_extensions()).get(name)
