"""A replay file: every set of nodes that was tried, with what came of it, so that a search goes on where it stopped.

    {"type": "replay", "format": "qbench-replay/1", "identity": {"model": …, "schema": …, "data": …, …}}
    {"type": "probe", "nodes": […], "restored": true, "macs_share": 0.031, "said": "top1 351/360"}      one a set

A line is appended when its set is answered. The file of an interrupted search may end within a line: that set is tried
again.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbench.errors import InputError, StoreError
from qbench.storage import json_line

FORMAT = "qbench-replay/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What came of a set of nodes in float.

    Args:
        restored: the verdict. macs_share: of all multiply-accumulates, those that left integers. said: in words.
    """

    restored: bool
    macs_share: float = 0.0
    said: str = ""


Probe = Callable[[frozenset[str]], Probed]


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedProbe:
    """``probe``, asked only about sets that are not ``known``; each answer is added to ``path`` (None: kept nowhere).

    Raises:
        StoreError: the file cannot be written.
    """

    probe: Probe
    path: Path | None = None
    known: dict[frozenset[str], Probed] = field(default_factory=dict)

    def __call__(self, nodes: frozenset[str]) -> Probed:
        """What came of ``nodes``, or comes of them now."""
        if nodes not in self.known:
            self.known[nodes] = probed = self.probe(nodes)
            if self.path is not None:
                _append(self.path, {"type": "probe", "nodes": sorted(nodes), **_table(probed)})
        return self.known[nodes]


def replayed(probe: Probe, path: Path | None, identity: Mapping[str, str]) -> ReplayedProbe:
    """``probe`` with what the file at ``path`` knows already; a file that is not there is begun.

    Args:
        probe: answers what the file does not.
        path: None: nothing is kept.
        identity: what an answer depends on, name → digest or name.

    Raises:
        InputError: the file is none of ours, or of another model, schema, data, backend or rules.
        StoreError: it cannot be read or written.
    """
    if path is None:
        return ReplayedProbe(probe)
    lines = _lines(path)
    if not lines:
        _append(path, {"type": "replay", "format": FORMAT, "identity": dict(identity)})
        return ReplayedProbe(probe, path)
    _refuse_other(path, lines[0], identity)
    return ReplayedProbe(probe, path, dict(_probed(path, line) for line in lines[1:] if line.get("type") == "probe"))


def check_replay(path: Path, identity: Mapping[str, str]) -> None:
    """Refuse the file of another search before anything is run; one that is not there is fine.

    Raises:
        InputError: the file is none of ours, or of another model, schema, data, backend or rules.
    """
    lines = _lines(path)
    if lines:
        _refuse_other(path, lines[0], identity)


def _table(probed: Probed) -> dict[str, Any]:
    return {"restored": probed.restored, "macs_share": probed.macs_share, "said": probed.said}


def _probed(path: Path, line: Mapping[str, Any]) -> tuple[frozenset[str], Probed]:
    nodes, restored, share = line.get("nodes"), line.get("restored"), line.get("macs_share", 0.0)
    if not (isinstance(nodes, list) and isinstance(restored, bool) and isinstance(share, int | float)):
        raise _damaged(path, f"a set without sense ({json.dumps(line)[:80]})")
    return frozenset(map(str, nodes)), Probed(restored=restored, macs_share=share, said=str(line.get("said", "")))


def _refuse_other(path: Path, first: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    written = first.get("identity")
    if first.get("format") != FORMAT or not isinstance(written, Mapping):
        raise _damaged(path, f"a first line of another kind ({first.get('format', 'no format')})")
    other = sorted(name for name in {*written, *identity} if written.get(name) != identity.get(name))
    if other:
        raise InputError(
            f"Going on with the search in '{path}'",
            found=f"answers for another {' and another '.join(other)}",
            expected="those of this very search: an answer holds for nothing else",
            remedy="Name another file; this one is left as it is.",
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of the file; what follows the last line end was cut short."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    whole, _, _ = text.rpartition("\n")
    try:
        lines = [json.loads(line) for line in whole.split("\n") if line.strip()]
    except ValueError as error:
        raise _damaged(path, f"a line that is no JSON ({error})") from error
    if not all(isinstance(line, dict) for line in lines):
        raise _damaged(path, "a line that is not a table")
    if text and not lines:
        raise _damaged(path, "no first line")
    if text and not text.endswith("\n"):
        _write(path, "".join(json_line(line) for line in lines), mode="w")
    return lines


def _append(path: Path, line: Mapping[str, Any]) -> None:
    _write(path, json_line(line), mode="a")


def _write(path: Path, text: str, *, mode: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StoreError(
            f"Writing the replay file '{path}'",
            found=error.strerror or str(error),
            expected="a writable folder with free space",
            remedy="Make the folder writable, or name another file.",
        ) from error


def _damaged(path: Path, found: str) -> InputError:
    return InputError(
        f"Reading the replay file '{path}'",
        found=found,
        expected=f"lines of JSON that begin with a 'replay' line ({FORMAT})",
        remedy="Name another file, or remove this one to begin anew.",
    )
