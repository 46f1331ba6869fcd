"""Names of schemas that quantize what a decoder keeps: keys and values of earlier tokens."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.quantization.float_names import FLOAT_WORDS, ImpossibleNameError

if TYPE_CHECKING:
    from qbench.quantization.schema import Schema
    from qbench.quantization.spec import Spec

# [<name>_]kv<bits|type><t|h|c>
#
# name      of a schema whose activations stay float or have parameters of run time; without one all
#           else stays float
# kv        bits of keys and values, signed and symmetric, or f8e4m3, f8e5m2, …
# t h c     one pair of parameters for a layer's keys and one for its values, one a head, or one for
#           each number of each head

CACHE_FORM = "[<name>_]kv<bits|type><t|h|c>"
_PATTERN = re.compile(r"(?:(.+)_)?kv(0|[1-9]\d*|f8e4m3|f8e5m2|f8e4m3uz|f8e5m2uz)([a-z]*)")
_BITS = range(2, 17)
_PLACES = {"t": "tensor", "h": "head", "c": "channel"}
_FULL_RANGE_BELOW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheName:
    """The words of a name; ``base`` is that of the schema of all else, empty where there is none.

    Raises:
        ImpossibleNameError: a width that no type has, or another place than ``t``, ``h`` and ``c``.
    """

    base: str
    kind: str
    place: str

    def __post_init__(self) -> None:
        if self.kind not in FLOAT_WORDS and int(self.kind) not in _BITS:
            raise ImpossibleNameError(f"keys and values of {self.kind} bits", "2 to 16 bits")
        if self.place not in _PLACES:
            raise ImpossibleNameError(
                f"'kv{self.kind}{self.place}'",
                f"'kv{self.kind}t' for one scale of a layer's keys, 'kv{self.kind}h' for one a "
                f"head, or 'kv{self.kind}c' for one a number of each head",
            )

    @classmethod
    def parse(cls, text: str) -> "CacheName | None":
        """The words of ``text``; None when it is built otherwise.

        Raises:
            ImpossibleNameError: it is built like a name, but no schema can have it.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            return None
        return cls(base=match[1] or "", kind=match[2], place=match[3])

    def __str__(self) -> str:
        return f"{self.base}{'_' * bool(self.base)}kv{self.kind}{self.place}"

    def schema(self, base: "Callable[[], Schema] | None") -> "Schema":
        """The schema of this name; ``base`` makes that of all else, None: it stays float.

        Raises:
            ValueError: activations of ``base`` have known ranges.
        """
        from qbench.passes import CACHE_CHANNELS_PIPELINE
        from qbench.quantization.schema import Rule, Schema

        schema = Schema(name=str(self), rules=(Rule(),)) if base is None else base()
        by_channels = _PLACES[self.place] == "channel"
        canonical = CACHE_CHANNELS_PIPELINE if by_channels else schema.canonical
        return replace(schema, name=str(self), canonical=canonical, cache=self._spec())

    def _spec(self) -> "Spec":
        from qbench.quantization.spec import Granularity, Spec

        is_float = self.kind in FLOAT_WORDS
        return Spec(
            qtype=FLOAT_WORDS[self.kind] if is_float else f"int{self.kind}",
            symmetry="symmetric",
            granularity=Granularity(_PLACES[self.place]),
            narrow_range=not is_float and int(self.kind) >= _FULL_RANGE_BELOW,
        )


def remedy_without_cache(name: str) -> str:
    """What to do with the schema ``name`` where a model keeps no keys and values, a sentence."""
    match = _PATTERN.fullmatch(name)
    if match is None:
        return "Remove 'cache' from the schema."
    if match[1] is None:
        return f"Name another schema than '{name}', which quantizes nothing else."
    return f"Name '{match[1]}', the schema without keys and values."
