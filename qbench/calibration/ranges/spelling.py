"""How a range method spells itself: its name and its settings, as ``get_range_method`` reads them.

percentile(99.99)    entropy(2048)    fixed(-1.0, 6.0)
"""

from dataclasses import fields


def spelled(name: str, method: object) -> str:
    """``name`` with the fields of the dataclass ``method`` in brackets, in their order; numbers as by ``repr``."""
    values = [repr(getattr(method, field.name)) for field in fields(method)]  # type: ignore[arg-type]
    return f"{name}({', '.join(values)})"


def demand(holds: bool, setting: str, value: object, expected: str) -> None:
    """Refuses a setting out of its range.

    Raises:
        ValueError: ``holds`` is false (also what a comparison with NaN gives).
    """
    if not holds:
        raise ValueError(f"{setting} = {value!r}, which is not {expected}")


def demand_whole(setting: str, value: object, least: int) -> None:
    """Refuses a number that is no integer of at least ``least``.

    Raises:
        ValueError: it is not.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    demand(whole and value >= least, setting, value, f"a whole number of at least {least}")  # type: ignore[operator]
