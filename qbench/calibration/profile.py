"""The record of a calibration: statistics of every watched value, keyed by what they are statistics of.

As text (``dump``) it is JSON, one value a line, so that two profiles can be read side by side:

    {"format": "qbench-profile", "version": 1,
     "graph": digest of the canonical graph, "rows": samples seen, repeated ones counted,
     "samples": {sample key: digest of its content},
     "values": {name: {"low", "high", "count", "zeros", "sample_lows", "sample_highs"}}}

A sample's key is its id, or the digest of its content where ids were not given; samples are in the order of their keys,
and so are ``sample_lows`` and ``sample_highs`` (null for a value without a sample axis). ``low`` and ``high`` are null
while ``count`` is 0. Numbers are written so that they read back to the same bits.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qbench.calibration.statistics import Floats, Statistics
from qbench.errors import InputError
from qbench.storage import digest_plain, write_text

FORMAT, PROFILE_VERSION = "qbench-profile", 1


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Statistics only: the range to represent is a schema's choice, made later.

    Args:
        graph: digest of the canonical graph.
        samples: sample key → digest of its content, in the order of keys.
        rows: samples seen, those seen twice counted twice.
        values: value name → statistics.
    """

    graph: str
    samples: Mapping[str, str]
    rows: int
    values: Mapping[str, Statistics]

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", MappingProxyType(dict(sorted(self.samples.items()))))
        object.__setattr__(self, "values", MappingProxyType(dict(sorted(self.values.items()))))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Profile):
            return NotImplemented
        return (self.graph, self.samples, self.rows, self.values) == (
            other.graph,
            other.samples,
            other.rows,
            other.values,
        )

    def __hash__(self) -> int:
        return hash((self.graph, self.data))

    @property
    def data(self) -> str:
        """The digest of the calibration data: the contents of its samples, whatever their ids and order."""
        return digest_plain([sorted(self.samples.values()), self.rows])

    @property
    def digest(self) -> str:
        """The digest of everything in it."""
        return digest_plain(_table(self))

    def require_graph(self, digest: str, model: str) -> None:
        """Refuse this profile for any graph but its own.

        Raises:
            InputError: ``digest`` is that of another graph.
        """
        if digest != self.graph:
            raise InputError(
                f"Using a profile for the model '{model}'",
                found=f"a profile of another graph ({self.graph[:12]}…)",
                expected=f"one of this graph ({digest[:12]}…)",
                remedy="Calibrate this model, with the canonical passes its schema names.",
            )

    def merge(self, other: "Profile") -> "Profile":
        """The profile of the samples of both; equal to profiling them together.

        Raises:
            InputError: the two are of different graphs or values, or one id means two samples.
        """
        other.require_graph(self.graph, "that the first profile is of")
        if self.values.keys() != other.values.keys():
            raise InputError(
                "Merging two profiles",
                found="different watched values",
                expected="the same values in both",
                remedy="Calibrate both with the same values.",
            )
        samples = dict(self.samples)
        for key, content in other.samples.items():
            note_sample(samples, key, content)
        samples = dict(sorted(samples.items()))
        values = {name: _merged(name, self, other, tuple(samples)) for name in self.values}
        return Profile(self.graph, samples, self.rows + other.rows, values)

    def dump(self, path: Path | str) -> None:
        """Write it to ``path`` as described above.

        Raises:
            StoreError: the file cannot be written.
        """
        table = _table(self)
        head = {key: value for key, value in table.items() if key != "values"}
        lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table["values"].items()]
        text = json.dumps(head)[:-1] + ',\n "values": {\n' + ",\n".join(lines) + "\n}}\n"
        write_text(Path(path), text)

    @classmethod
    def load(cls, path: Path | str) -> "Profile":
        """The profile in the file at ``path``.

        Raises:
            InputError: the file is not there, or is no profile of this version.
        """
        doing = f"Loading the profile '{path}'"
        try:
            table = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(
                doing, found=error.strerror or str(error), expected="a profile", remedy="Check the path."
            ) from error
        except ValueError as error:
            raise _damaged(doing, str(error)) from error
        if not isinstance(table, dict) or (table.get("format"), table.get("version")) != (FORMAT, PROFILE_VERSION):
            raise _damaged(doing, "no profile, or one of another version")
        try:
            values = {str(name): _statistics(row) for name, row in table["values"].items()}
            return cls(table["graph"], table["samples"], table["rows"], values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(doing, f"a field missing or wrong ({error})") from error


def note_sample(samples: dict[str, str], key: str, content: str) -> None:
    """Add a sample to a table of them.

    Raises:
        InputError: the key stands for another content.
    """
    if samples.setdefault(key, content) != content:
        raise InputError(
            f"Calibrating on sample '{key}'",
            found="two samples of this id with different content",
            expected="one sample an id",
            remedy="Give every sample its own id.",
        )


def _merged(name: str, first: Profile, second: Profile, samples: tuple[str, ...]) -> Statistics:
    a, b = first.values[name], second.values[name]
    sums = (min(a.low, b.low), max(a.high, b.high), a.count + b.count, a.zeros + b.zeros)
    if a.sample_lows is None or b.sample_lows is None or a.sample_highs is None or b.sample_highs is None:
        return Statistics(*sums)
    lows = np.minimum(
        _aligned(a.sample_lows, first.samples, samples, np.inf),
        _aligned(b.sample_lows, second.samples, samples, np.inf),
    )
    highs = np.maximum(
        _aligned(a.sample_highs, first.samples, samples, -np.inf),
        _aligned(b.sample_highs, second.samples, samples, -np.inf),
    )
    return Statistics(*sums, lows, highs)


def _aligned(ends: Floats, own: Mapping[str, str], samples: tuple[str, ...], fill: float) -> Floats:
    """``ends`` of a profile's own samples spread over all ``samples``."""
    known = dict(zip(own, ends.tolist(), strict=True))
    return np.array([known.get(sample, fill) for sample in samples], np.float64)


def _table(profile: Profile) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": PROFILE_VERSION,
        "graph": profile.graph,
        "rows": profile.rows,
        "samples": dict(profile.samples),
        "values": {name: _row(statistics) for name, statistics in profile.values.items()},
    }


def _row(statistics: Statistics) -> dict[str, Any]:
    seen = statistics.count > 0
    return {
        "low": statistics.low if seen else None,
        "high": statistics.high if seen else None,
        "count": statistics.count,
        "zeros": statistics.zeros,
        "sample_lows": None if statistics.sample_lows is None else statistics.sample_lows.tolist(),
        "sample_highs": None if statistics.sample_highs is None else statistics.sample_highs.tolist(),
    }


def _statistics(row: Mapping[str, Any]) -> Statistics:
    def ends(values: list[float] | None) -> Floats | None:
        return None if values is None else np.array(values, np.float64)

    return Statistics(
        low=np.inf if row["low"] is None else float(row["low"]),
        high=-np.inf if row["high"] is None else float(row["high"]),
        count=int(row["count"]),
        zeros=int(row["zeros"]),
        sample_lows=ends(row["sample_lows"]),
        sample_highs=ends(row["sample_highs"]),
    )


def _damaged(doing: str, found: str) -> InputError:
    return InputError(
        doing,
        found=found,
        expected=f"a {FORMAT} of version {PROFILE_VERSION}",
        remedy="Calibrate again, and save the profile with Profile.dump.",
    )
