"""How the numbers of one value lie in its range, and how its codes are used, as plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRange:
    """Some consecutive channels, ``first`` to ``last``.

    Args:
        first, last: counted from 0.
        low, high: extremes of their numbers.
        range_low, range_high: the ends of the codes, the outermost of them.
        used: codes in use, of the channel that uses the fewest; None: not counted.
    """

    first: int
    last: int
    low: float
    high: float
    range_low: float
    range_high: float
    used: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDistribution:
    """The numbers of one value or weight, in float, and the codes that they become.

    Args:
        value: its name.
        place: the node and slot, as in ``conv1.weight[1]``; empty: not known.
        count: of its finite numbers.
        low, high: exact extremes.
        left, right: the ends of ``bins``.
        bins: numbers in bins of equal width.
        qtype: the type of its codes; empty: no qparams were chosen.
        qparams: these in words.
        range_low, range_high: what the lowest and the highest code stand for, the outermost of all
            channels.
        clipped_low, clipped_high: numbers more than half a step beyond an end, by the parameters of
            their own channel; None: not known.
        codes: numbers by code, from the lowest, of all channels; of more than 256 codes equal
            groups; empty: not counted.
        code_count: how many codes there are.
        used: how many of them occur; None: not counted.
        channels: the ranges along ``axis``; empty: one range for the tensor.
        choices: (range method, low, high) of ranges that were not chosen, for comparison.
    """

    value: str
    place: str = ""
    count: int
    low: float
    high: float
    left: float
    right: float
    bins: tuple[int, ...]
    qtype: str = ""
    qparams: str = ""
    range_low: float | None = None
    range_high: float | None = None
    clipped_low: int | None = None
    clipped_high: int | None = None
    codes: tuple[int, ...] = ()
    code_count: int = 0
    used: int | None = None
    channels: tuple[ChannelRange, ...] = ()
    choices: tuple[tuple[str, float, float], ...] = ()

    @property
    def clipped(self) -> float | None:
        """The share of its numbers that are clipped; None: not known."""
        if self.clipped_low is None or self.clipped_high is None:
            return None
        return (self.clipped_low + self.clipped_high) / max(self.count, 1)

    @property
    def unused(self) -> float:
        """The share of the codes that never occur; of channels, in the one that uses the fewest."""
        counts = [one.used for one in self.channels if one.used is not None]
        used = min(counts) if counts else self.used
        return 0.0 if used is None or not self.code_count else 1 - used / self.code_count
