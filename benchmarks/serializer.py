"""What it costs to read the cell lines of a history, by the decoders that were compared:
processor time of each.

Lines are those of history_cost.py, as long as real ones (3 kB). Every reader checks the axes of
each line. ``json`` is how lines were read before they had a type: the decoder of the standard
library with checks of every number, into dictionaries. cattrs is not a dependency: without it its
row is left out.

Run: python benchmarks/serializer.py [--lines 1000000]
"""

import argparse
import dataclasses
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

import msgspec
from history_cost import cell

from qbench.tracking.record import (
    CellRecord,
    GateRecord,
    MetricRecord,
    known_record,
    record_of_line,
)
from qbench.tracking.run_lines import decoded_line

CELLS = 60


def by_json(text: bytes) -> object:
    """The line as a dictionary, its axes checked."""
    line = decoded_line(text)
    return record_axes(
        line["suite"], line["model"], line["backend"], line["schema"], line["variant"]
    ), line


def record_axes(*axes: str) -> object:
    """The cell of these axes."""
    return CellRecord(
        **dict(zip(("suite", "model", "backend", "schema", "variant"), axes, strict=True))
    ).cell


def by_msgspec(text: bytes) -> object:
    """The record, decoded in one step."""
    record = known_record(text)
    assert record is not None
    return record.cell, record


def by_fields(text: bytes) -> object:
    """The record of a line with an unknown key: decoded by json, then read field by field."""
    record = record_of_line({**decoded_line(text), "unknown": 1})
    return record.cell, record


def by_cattrs() -> Callable[[bytes], object]:
    """A reader that structures frozen dataclasses with the fields of the records,
    behind msgspec's JSON.
    """
    from cattrs import Converter

    def dataclass_of(struct: type[msgspec.Struct], **hints: Any) -> type:  # noqa: ANN401 - types of fields
        plain_hints = {**get_type_hints(struct), **hints}
        names = [
            name
            for name in struct.__struct_fields__
            if name not in ("left_out", "shown", "decided")
        ]
        fields = [(name, plain_hints[name], dataclasses.field(default=None)) for name in names]
        return dataclasses.make_dataclass(struct.__name__, fields, frozen=True, slots=True)

    metric, gate = dataclass_of(MetricRecord), dataclass_of(GateRecord, limit=float | None)
    record = dataclass_of(CellRecord, metrics=dict[str, metric], gates=tuple[gate, ...])  # type: ignore[valid-type]
    converter = Converter(detailed_validation=False)

    def read(text: bytes) -> object:
        line = msgspec.json.decode(text)
        found = converter.structure(line, record)
        return record_axes(
            *(line[axis] for axis in ("suite", "model", "backend", "schema", "variant"))
        ), found

    return read


def seconds(read: Callable[[bytes], object], lines: Iterable[bytes]) -> float:
    """Processor time of reading ``lines`` one by one, nothing kept."""
    start = time.process_time()
    for line in lines:
        read(line)
    return time.process_time() - start


def main() -> None:
    """Print the table; the exit code is 1 where the reader in use is slower than json was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    arguments = parser.parse_args()
    noise = random.Random(7)
    texts = [
        json.dumps(cell(number, noise), separators=(",", ":")).encode() for number in range(CELLS)
    ]
    readers: dict[str, Callable[[bytes], object]] = {
        "json": by_json,
        "msgspec": by_msgspec,
        "by fields": by_fields,
    }
    try:
        readers["cattrs"] = by_cattrs()
    except ModuleNotFoundError:
        print("cattrs is not installed")
    print(f"{arguments.lines} lines of {sum(map(len, texts)) / len(texts):.0f} bytes", flush=True)
    found = {}
    for name, read in readers.items():
        found[name] = seconds(read, itertools.islice(itertools.cycle(texts), arguments.lines))
        print(
            f"  {name:10} {found[name]:7.1f} s  {1e6 * found[name] / arguments.lines:6.1f} "
            "µs a line",
            flush=True,
        )
    sys.exit(found["msgspec"] > found["json"])


if __name__ == "__main__":
    main()
