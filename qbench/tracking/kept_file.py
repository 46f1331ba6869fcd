"""The accepted answers themselves, where a suite allows flips or holds probabilities: ``<model>.accepted.npz``.

For each cell, environment class and data set that the ``.json`` names a digest of: ``ids`` in the smallest integer
type, and where the answers have probabilities ``scores`` (float32). Without such a cell there is no such file.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from qbench.errors import StoreError
from qbench.metrics import Answers, kept_arrays, kept_digest, restored_answers
from qbench.storage import write_bytes
from qbench.tracking.baseline import AcceptedCell, Baseline, KeptAnswers, StoredData
from qbench.tracking.stored_arrays import damaged, packed_arrays, read_arrays

_WHAT = "the accepted answers that the .json names"


def kept_path(path: Path) -> Path:
    """Where the accepted answers of the baseline at ``path`` lie."""
    return path.with_name(path.name.removesuffix(".json") + ".accepted.npz")


def load_kept(path: Path, cells: Mapping[str, AcceptedCell], data: Mapping[str, StoredData]) -> KeptAnswers:
    """The answers of all ``cells`` that name any.

    Raises:
        StoreError: the file is missing or damaged, or its answers are not those whose digests the cells name.
    """
    named = list(_named(cells))
    if not named:
        return {}
    arrays = read_arrays(kept_path(path), _WHAT)
    kept: dict[str, dict[str, dict[str, Answers]]] = {}
    for slug, environment, name, digest in named:
        where = _key(slug, environment, name)
        if f"{where} ids" not in arrays or name not in data:
            raise damaged(kept_path(path), f"no answers of '{slug}' to '{name}'", _WHAT)
        try:
            answers = restored_answers(arrays[f"{where} ids"], arrays.get(f"{where} scores"), data[name].kind)
        except ValueError as error:
            raise damaged(kept_path(path), str(error), "answers") from error
        if kept_digest(answers) != digest:
            raise damaged(kept_path(path), f"other answers of '{slug}' to '{name}'", _WHAT)
        kept.setdefault(slug, {}).setdefault(environment, {})[name] = answers
    return kept


def save_kept(path: Path, baseline: Baseline) -> bool:
    """Write the answers that the cells of ``baseline`` name beside ``path``; whether anything changed on disk.

    Raises:
        StoreError: the folder cannot be written.
    """
    named, file = list(_named(baseline.cells)), kept_path(path)
    if not named:
        there = file.exists()
        file.unlink(missing_ok=True)
        return there
    if _holds(path, baseline, len(named)):
        return False
    arrays: dict[str, npt.NDArray[Any]] = {}
    for slug, environment, name, _ in sorted(named):
        answers = baseline.kept[slug][environment][name]
        arrays |= {f"{_key(slug, environment, name)} {kind}": a for kind, a in kept_arrays(answers).items()}
    write_bytes(file, packed_arrays(arrays))
    return True


def _named(cells: Mapping[str, AcceptedCell]) -> Iterator[tuple[str, str, str, str]]:
    """(slug, environment class, data set, digest) of all kept answers."""
    for slug, cell in cells.items():
        for environment, accepted in cell.accepted.items():
            for data, digest in accepted.kept.items():
                yield slug, environment, data, digest


def _key(slug: str, environment: str, data: str) -> str:
    return f"{slug} {environment} {data}"  # no name has a blank


def _holds(path: Path, baseline: Baseline, count: int) -> bool:
    try:
        load_kept(path, baseline.cells, baseline.data)
        return sum(name.endswith(" ids") for name in read_arrays(kept_path(path), _WHAT)) == count
    except StoreError:
        return False
