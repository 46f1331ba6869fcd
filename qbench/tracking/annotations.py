"""What people decided about alerts, in a committed file."""

import enum
import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.storage import ObjectFile, read_toml, require_format, text_toml, value_from_table

# What people decided about alerts, in a committed file: only this silences an alert, and it is
# reviewed by diff.
#
# [[annotation]]
# commit = "3f2a91c"              # the commit an alert is about, its first seven digits at least
# cell = "mobilenet_v2::ort-*"    # which cells, with * and ?; left out: all
# metric = "top1"                 # left out: all
# suite = "nightly"               # left out: all
# state = "expected"              # acknowledged, expected, invalid or fixed
# author = "ann"
# reason = "rounds half away from zero since the new kernel"

ANNOTATIONS_FILE = "annotations.toml"
_COMMIT = re.compile(r"[0-9a-f]{7,64}|\d+(\.\d+)+\w*")
"""A commit, or where the runs are of releases the version of one."""


class Ruling(enum.Enum):
    """What a person decided about an alert."""

    ACKNOWLEDGED = "acknowledged"  # known, being worked on
    EXPECTED = "expected"  # intended: the new level is right
    INVALID = "invalid"  # not of the code: a broken disk, a wrong file
    FIXED = "fixed"  # repaired since; an alarm again while the level does not return


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One ruling on the alerts of ``commit`` in the cells that the globs name.

    Raises:
        ValueError: no commit, author or reason.
    """

    commit: str
    state: Ruling
    author: str
    reason: str
    cell: str = "*"
    metric: str = "*"
    suite: str = "*"

    def __post_init__(self) -> None:
        if not _COMMIT.fullmatch(self.commit):
            raise ValueError(
                f"the commit '{self.commit}' is not written in 7 to 64 hexadecimal digits, and is "
                "no version"
            )
        for name in ("author", "reason"):
            if not getattr(self, name).strip():
                raise ValueError(f"the {name} is empty")

    def covers(self, cell: Cell, metric: str) -> bool:
        """Whether its globs name this metric of this cell; a metric's data set need not be
        given.
        """
        named = fnmatch.fnmatchcase(metric, self.metric) or fnmatch.fnmatchcase(
            metric.partition("@")[0], self.metric
        )
        return (
            named
            and fnmatch.fnmatchcase(str(cell), self.cell)
            and fnmatch.fnmatchcase(cell.suite, self.suite)
        )


ANNOTATIONS_FORMAT = "qbench-annotations/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    format: str = ANNOTATIONS_FORMAT
    annotation: tuple[Annotation, ...] = ()


def load_annotations(path: Path | ObjectFile) -> tuple[Annotation, ...]:
    """The annotations in the file or the object at ``path``; none where there is none.

    Raises:
        InputError: it is not a plain file or not TOML, or holds an unknown key, a missing one or a
            value without sense.
        StoreError: the store of the object does not answer, or refuses.
    """
    if isinstance(path, ObjectFile):
        content = path.read()
        return () if content is None else _annotations(text_toml(_text(content, path), path), path)
    if not path.exists():
        return ()
    if not path.is_file():  # reading a pipe would wait
        raise InputError(
            f"Reading the annotations in '{path}'",
            found="not a plain file",
            expected="a TOML file",
            remedy="Name a plain file with --annotations.",
        )
    return _annotations(read_toml(path), path)


def _text(content: bytes, path: ObjectFile) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"Reading the annotations in '{path}'",
            found=str(error),
            expected="a TOML file",
            remedy="Correct the file.",
        ) from error


def _annotations(table: dict[str, Any], path: Path | ObjectFile) -> tuple[Annotation, ...]:
    require_format(table, ANNOTATIONS_FORMAT, f"Reading the annotations in '{path}'")
    return value_from_table(_File, table, f"'{path}'").annotation
