"""A file of results that lets a command go on: a line for each, added and never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from qbench.errors import InputError, StoreError, refused_by_system
from qbench.storage import (
    append_line,
    json_line,
    object_of_line,
    refuse_newer,
    table_from_value,
    value_of_plain,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile(Generic[T]):
    """The results at ``path``, one JSON object in each line.

    Args:
        format: in every line, as ``qbench-sweep/1``.
        kinds: the key ``type`` of a line → what the line is read as; an empty key: lines without a
            type.
        maker: what writes such files, in words.
        remedy: what to do where the file is another one.
    """

    path: Path
    format: str
    kinds: Mapping[str, type[T]]
    maker: str
    remedy: str

    def read(self) -> tuple[T, ...]:
        """The results in the file, the oldest first; empty where there is none.

        A line that was cut off is left out: the process was ended while it was written. So is a
        line of a type that is not known.

        Raises:
            InputError: it is not such a file. StoreError: it cannot be read, or a newer qbench made
                it.
        """
        if not self.path.exists():
            return ()
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError as error:
            raise refused_by_system(f"Reading the results '{self.path}'", error) from error
        found = (self._result(number, line) for number, line in enumerate(lines, 1) if line.strip())
        return tuple(one for one in found if one is not None)

    def _result(self, number: int, line: bytes) -> T | None:
        doing = f"Reading the results '{self.path}', line {number}"
        table: dict[str, Any] | None = object_of_line(line)
        if table is None and line.startswith(b"{"):
            return None
        known = self.format.partition("/")[0]
        if table is None or not str(table.get("format", "")).startswith(f"{known}/"):
            raise InputError(
                doing,
                found=f"a line that no {self.maker} wrote",
                expected=f"a JSON object with format = '{self.format}'",
                remedy=self.remedy,
            )
        refuse_newer(doing, table["format"], self.format)
        kind = self.kinds.get(str(table.get("type", "")))
        if kind is None:
            return None
        try:
            return value_of_plain(kind, table)
        except ValueError as error:
            raise InputError(
                doing,
                found=str(error),
                expected=f"a result as a {self.maker} writes it",
                remedy=f"Remove the line, or {self.remedy[0].lower()}{self.remedy[1:]}",
            ) from error

    def add(self, result: T) -> None:
        """Add ``result``; on return other processes can read it.

        Raises:
            StoreError: the file cannot be written.
        """
        kind = next(name for name, one in self.kinds.items() if isinstance(result, one))
        head = {"format": self.format, **({"type": kind} if kind else {})}
        try:
            append_line(self.path, json_line({**head, **table_from_value(result)}))
        except OSError as error:
            raise StoreError(
                f"Writing the results '{self.path}'",
                found=error.strerror or str(error),
                expected="a file that can be written, and room on the disk",
                remedy=self.remedy,
            ) from error
