"""Many cells at once: which losses of a matrix stand out from what chance alone would show (information, no gate).

q₍ᵢ₎ = min over j ≥ i of p₍ⱼ₎ m / j, for the m values in rising order: Benjamini and Hochberg, J R Stat Soc B 57:289
(1995). Of the tests with q ≤ 5 %, on average at most 5 % are false alarms; the tests of one run share samples and move
together, which the procedure stands. A rerun on the same samples is no new evidence: never gather values over runs.
"""

from collections.abc import Sequence


def benjamini_hochberg(values: Sequence[float]) -> tuple[float, ...]:
    """The adjusted p of each of ``values``, in their order.

    Raises:
        ValueError: one of them is no probability.
    """
    if not all(0 <= value <= 1 for value in values):
        raise ValueError("a p-value lies between 0 and 1")
    adjusted = [1.0] * len(values)
    least = 1.0
    for rank, place in sorted(enumerate(sorted(range(len(values)), key=values.__getitem__), start=1), reverse=True):
        least = min(least, values[place] * len(values) / rank)
        adjusted[place] = least
    return tuple(adjusted)
