"""The shares that a suite sets for all its models and a model for itself, each with the place that set it."""

from typing import Protocol

SHARES = ("integer_macs", "agreement", "ranges")


class _Table(Protocol):
    """What may set them; None: it does not."""

    @property
    def integer_macs(self) -> float | None: ...
    @property
    def agreement(self) -> float | None: ...
    @property
    def ranges(self) -> float | None: ...


def refuse_no_shares(table: _Table) -> None:
    """Check what ``table`` sets.

    Raises:
        ValueError: one is not between 0 and 1.
    """
    for name in SHARES:
        value = getattr(table, name)
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} = {value}, which is no share between 0 and 1")


def layered_share(name: str, *layers: tuple[str, _Table | None]) -> tuple[float, str]:
    """The share ``name`` and who set it, of ``layers`` (place, table) the last that does; the first sets all."""
    found = [(getattr(table, name), place) for place, table in layers if table is not None]
    return [(value, place) for value, place in found if value is not None][-1]
