"""The record of a calibration: statistics of every watched value."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qbench.calibration.statistics import (
    Statistics,
    merged_statistics,
    packed_histogram,
    statistics_of,
    statistics_row,
)
from qbench.errors import InputError
from qbench.storage import digest_plain, read_json, refuse_newer, write_text

FORMAT, PROFILE_VERSION = "qbench-profile", 2


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Statistics only: the range to represent is a schema's choice, made later.

    Args:
        graph: digest of the canonical graph.
        samples: sample key → digest of its content, in the order of keys.
        rows: samples seen, those seen twice counted twice.
        values: value name → statistics.
        repeats: sample key → how often it was seen, of those seen more than once.

    Raises:
        ValueError: rows that are not those of the samples.
    """

    graph: str
    samples: Mapping[str, str]
    rows: int
    values: Mapping[str, Statistics]
    repeats: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("samples", "values", "repeats"):
            object.__setattr__(
                self, name, MappingProxyType(dict(sorted(getattr(self, name).items())))
            )
        if any(times < 2 or key not in self.samples for key, times in self.repeats.items()):
            raise ValueError("repeats of samples that were not seen, or seen once")
        if self.rows != len(self.samples) + sum(times - 1 for times in self.repeats.values()):
            raise ValueError(
                f"{self.rows} rows of {len(self.samples)} samples with {len(self.repeats)} repeated"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Profile):
            return NotImplemented
        mine = (self.graph, self.samples, self.repeats)
        theirs = (other.graph, other.samples, other.repeats)
        return mine == theirs and self.values == other.values

    def __hash__(self) -> int:
        return hash((self.graph, self.data))

    def __repr__(self) -> str:
        values = f"{len(self.values)} value{'s' * (len(self.values) != 1)}"
        return (
            f"<Profile of {values} of graph {self.graph[:12]}… over {self.rows} "
            f"sample{'s' * (self.rows != 1)}>"
        )

    @property
    def times(self) -> dict[str, int]:
        """Sample key → how often it was seen."""
        return {key: self.repeats.get(key, 1) for key in self.samples}

    @property
    def data(self) -> str:
        """The digest of the calibration data: the contents of its samples, whatever their ids
        and order.
        """
        return data_digest(
            self.samples[key] for key, times in self.times.items() for _ in range(times)
        )

    @property
    def repeated(self) -> int:
        """How many of the rows have the content of an earlier one, under its id or another."""
        return self.rows - len(set(self.samples.values()))

    @property
    def digest(self) -> str:
        """The digest of everything in it."""
        rows = {
            name: statistics_row(seen, histogram=seen.histogram.digest)
            for name, seen in self.values.items()
        }
        return digest_plain(_head(self) | {"values": rows})

    def require_graph(self, digest: str, model: str, lineage: tuple[str, ...] = ()) -> None:
        """Refuse this profile for any graph but its own, and those rewritten from it (``lineage``).

        Raises:
            InputError: ``digest`` is that of a stranger.
        """
        if digest != self.graph and self.graph not in lineage:
            raise InputError(
                f"Using a profile for the model '{model}'",
                found=f"a profile of another graph ({self.graph[:12]}…)",
                expected=f"one of this graph ({digest[:12]}…)",
                remedy="Calibrate this model, with the canonical passes its schema names.",
            )

    def require_data(self, digest: str, data: str) -> None:
        """Refuse this profile for any calibration data but its own.

        Args:
            digest: of the data, as ``data_digest`` makes it of what the graph is fed, after all
                preprocessing.
            data: what to call them.

        Raises:
            InputError: the data, or what preprocessing makes of them, are others.
        """
        if digest != self.data:
            raise InputError(
                f"Using a profile for the calibration data '{data}'",
                found=(
                    f"a profile of other samples, or of others preprocessed ({self.data[:12]}…, "
                    f"{self.rows} samples)"
                ),
                expected=f"one of these samples ({digest[:12]}…)",
                remedy="Calibrate on these data.",
            )

    def merge(self, other: "Profile") -> "Profile":
        """The profile of the samples of both; equal to profiling them together, one after the
        other.

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
        times = Counter(self.times) + Counter(other.times)
        values = {
            name: merged_statistics(
                self.values[name],
                other.values[name],
                tuple(self.samples),
                tuple(other.samples),
                tuple(samples),
            )
            for name in self.values
        }
        repeats = {key: count for key, count in times.items() if count > 1}
        return Profile(self.graph, samples, self.rows + other.rows, values, repeats)

    def dump(self, path: Path | str) -> None:
        """Write it to ``path`` as described above.

        Raises:
            StoreError: the file cannot be written.
        """
        lines = [
            f"{json.dumps(name)}: "
            f"{json.dumps(statistics_row(seen, histogram=packed_histogram(seen.histogram)))}"
            for name, seen in self.values.items()
        ]
        text = json.dumps(_head(self))[:-1] + ',\n "values": {\n' + ",\n".join(lines) + "\n}}\n"
        write_text(Path(path), text)

    @classmethod
    def load(cls, path: Path | str) -> "Profile":
        """The profile in the file at ``path``.

        Raises:
            InputError: the file is not there, or is no profile of this version.
        """
        doing = f"Loading the profile '{path}'"
        table = read_json(Path(path), doing)
        if table.get("format") != FORMAT:
            raise _damaged(doing, "no profile")
        refuse_newer(doing, f"{FORMAT}/{table.get('version')}", f"{FORMAT}/{PROFILE_VERSION}")
        if table.get("version") != PROFILE_VERSION:
            raise _damaged(doing, f"a profile of version {table.get('version')}")
        try:
            values = {str(name): statistics_of(row) for name, row in table["values"].items()}
            return cls(
                str(table["graph"]),
                _texts(table["samples"]),
                table["rows"],
                values,
                dict(table["repeats"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise _damaged(doing, f"a field missing or wrong ({error})") from error


def data_digest(contents: Iterable[str]) -> str:
    """The digest of calibration data, from the digests of what each of its samples feeds to the
    graph.
    """
    found = sorted(contents)
    return digest_plain([found, len(found)])


def note_sample(samples: dict[str, str], key: str, content: str) -> None:
    """Add a sample to a table of them.

    Raises:
        InputError: the key belongs to another content.
    """
    if samples.setdefault(key, content) != content:
        raise InputError(
            f"Calibrating on sample '{key}'",
            found="two samples of this id with different content",
            expected="one sample an id",
            remedy="Give every sample its own id.",
        )


def _head(profile: Profile) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": PROFILE_VERSION,
        "graph": profile.graph,
        "rows": profile.rows,
        "samples": dict(profile.samples),
        "repeats": dict(profile.repeats),
    }


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(text) for key, text in table.items()}


def _damaged(doing: str, found: str) -> InputError:
    return InputError(
        doing,
        found=found,
        expected=f"a {FORMAT} of version {PROFILE_VERSION}",
        remedy="Calibrate again, and save the profile with Profile.dump.",
    )
