"""Histograms as other tools know them: counts in bins of equal width between the least and the greatest value.

    bin i holds the values in [low + i·w, low + (i+1)·w)        w = (high − low) / bins

A cell of a histogram can be wider than a bin: its values count as spread evenly about their mean (``Distribution``).
"""

import json
from collections.abc import Mapping
from pathlib import Path

from qbench.calibration.statistics import Statistics
from qbench.errors import InputError
from qbench.storage import csv_text

BINS = 2000


def equal_width_text(values: Mapping[str, Statistics], path: Path, bins: int = BINS) -> str:
    """The histograms of ``values`` in the format that the suffix of ``path`` names.

    ``.csv``: a line a value: its name, low, high, and the counts. ``.json``: name → {"low", "high", "counts"}. Values
    that hold no finite number are left out.

    Raises:
        InputError: another suffix.
    """
    seen = {name: statistics for name, statistics in values.items() if statistics.count}
    if path.suffix == ".json":
        rows = {
            name: {"low": found.low, "high": found.high, "counts": found.equal_width(bins).tolist()}
            for name, found in seen.items()
        }
        return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "\n}\n"
    if path.suffix == ".csv":
        header = ["value", "low", "high", *(f"bin{index}" for index in range(bins))]
        lines = [
            [name, float(found.low), float(found.high), *found.equal_width(bins).tolist()]
            for name, found in seen.items()
        ]
        return csv_text([header, *lines], end="\n")
    raise InputError(
        f"Writing histograms to '{path}'",
        found=f"the suffix '{path.suffix}'",
        expected="'.csv' or '.json'",
        remedy="Name the file after one of them.",
    )
