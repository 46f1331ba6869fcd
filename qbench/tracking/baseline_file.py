"""Baselines on disk: ``<suite>/<model>.json``, reviewed by diff, and beside it the answers in ``<model>.fp32.npz``.

The JSON has sorted keys and one scalar a line; no clocks, hosts or paths, so that accepting the same numbers again
changes no byte. The ``.npz`` holds ``ids-<data set>`` in the smallest integer type; its arrays are hashed, not the
file, because two versions of zlib pack the same array differently. Accepted answers that are kept: see ``kept_file``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError, StoreError
from qbench.metrics import Answers
from qbench.storage import json_text, plain, value_from_table, write_bytes, write_text
from qbench.tracking.baseline import AcceptedCell, Baseline, StoredData
from qbench.tracking.calibrations import Calibrations, range_of_word, range_word
from qbench.tracking.kept_file import kept_path, load_kept, save_kept
from qbench.tracking.stored_arrays import damaged, packed_arrays, read_arrays

FORMAT = "qbench-baseline/1"
_PREFIX = "ids-"
_ANSWERS = "the fp32 answers of the baseline beside it"
_TYPES = (np.uint8, np.int8, np.uint16, np.int16, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    id: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fp32:
    backend: str
    environment_class: str
    metrics: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The JSON file, key by key."""

    format: str
    model: _Model
    preprocessing: str
    fp32: _Fp32
    data: Mapping[str, StoredData]
    cells: Mapping[str, AcceptedCell] = field(default_factory=dict)
    calibrations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def baseline_path(folder: Path, suite: str, model: str) -> Path:
    """Where the baseline of ``model`` in ``suite`` lies under ``folder``."""
    return folder / suite / f"{model}.json"


def load_baseline(path: Path) -> Baseline:
    """The baseline at ``path`` with the answers beside it.

    Raises:
        StoreError: there is none, it is not a baseline of a format known here, or its answers are missing or are not
            those its digests name.
    """
    file = _parsed(path)
    return Baseline(
        model=file.model.id,
        model_digest=file.model.digest,
        preprocessing=file.preprocessing,
        backend=file.fp32.backend,
        environment_class=file.fp32.environment_class,
        metrics=file.fp32.metrics,
        data=file.data,
        stored=_answers(path, file.data),
        cells=file.cells,
        calibrations=_calibrations(path, file.calibrations),
        kept=load_kept(path, file.cells, file.data),
    )


def load_held(path: Path) -> tuple[Mapping[str, AcceptedCell], tuple[str, ...]]:
    """What the baseline at ``path`` holds for its cells, and the keys of its calibrations; no answers are read.

    Raises:
        StoreError: as ``load_baseline``.
    """
    file = _parsed(path)
    return file.cells, tuple(file.calibrations)


def delete_baseline(path: Path) -> None:
    """Remove the baseline at ``path`` and the answers beside it.

    Raises:
        StoreError: the folder cannot be written.
    """
    try:
        for file in (path, _answers_path(path), kept_path(path)):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"Removing the baseline '{path}'",
            found=error.strerror or str(error),
            expected="a folder that can be written",
            remedy="Mend its permissions, and prune again.",
        ) from error


def save_baseline(path: Path, baseline: Baseline) -> bool:
    """Write ``baseline`` to ``path`` and its answers beside it; whether anything changed on disk.

    What would come out the same is not written, so that nothing accepted is nothing to commit.

    Raises:
        StoreError: the folder cannot be written.
    """
    changed = save_kept(path, baseline)
    if not _holds_answers(path, baseline):
        write_bytes(_answers_path(path), _packed(baseline.stored))
        changed = True
    text = json_text(_table(baseline))
    if not path.exists() or path.read_bytes() != text.encode("utf-8"):
        write_text(path, text)
        changed = True
    return changed


def _table(baseline: Baseline) -> dict[str, Any]:
    cells = {slug: _cell(cell) for slug, cell in baseline.cells.items()}
    words = {
        key: {value: range_word(ends) for value, ends in ranges.items()}
        for key, ranges in baseline.calibrations.items()
    }
    return {
        "format": FORMAT,
        "model": {"id": baseline.model, "digest": baseline.model_digest},
        "preprocessing": baseline.preprocessing,
        "fp32": {
            "backend": baseline.backend,
            "environment_class": baseline.environment_class,
            "metrics": plain(baseline.metrics),
        },
        "data": plain(baseline.data),
        "cells": cells,
    } | ({"calibrations": words} if words else {})


def _calibrations(path: Path, words: Mapping[str, Mapping[str, str]]) -> Calibrations:
    try:
        return {key: {value: range_of_word(word) for value, word in held.items()} for key, held in words.items()}
    except ValueError as error:
        raise damaged(path, f"a calibrated range that is none ({error})", "two numbers, the lower first") from error


def _cell(cell: AcceptedCell) -> dict[str, Any]:
    table = {"accepted": {name: _short(plain(a)) for name, a in cell.accepted.items()}, "floors": plain(cell.floors)}
    return table | ({"former": list(cell.former)} if cell.former else {})


def _short(accepted: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in accepted.items() if key not in ("reason", "arithmetic", "kept") or value}


def _parsed(path: Path) -> _File:
    try:
        table = json.loads(path.read_bytes())
    except OSError as error:
        raise damaged(path, error.strerror or str(error), "a baseline file") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"text that is not JSON ({error})", "a baseline file") from error
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        found = table.get("format") if isinstance(table, dict) else type(table).__name__
        raise damaged(path, f"the format {found!r}", f"'{FORMAT}'")
    try:
        return value_from_table(_File, table, f"baseline '{path.name}'")
    except InputError as error:
        raise damaged(path, f"{error.found} ({error.doing})", error.expected) from error


def _answers(path: Path, data: Mapping[str, StoredData]) -> dict[str, Answers]:
    arrays = read_arrays(_answers_path(path), _ANSWERS)
    answers = {}
    for name, stored in data.items():
        ids = arrays.get(_PREFIX + name)
        if ids is None:
            raise damaged(_answers_path(path), f"no answers to '{name}'", "those that the .json names")
        if ids.ndim != 2 or ids.dtype.kind not in "iu" or len(ids) != stored.samples:
            raise damaged(
                _answers_path(path), f"{ids.dtype} {ids.shape} for '{name}'", f"integers for {stored.samples} samples"
            )
        try:
            answers[name] = Answers(ids.astype(np.int32), kind=stored.kind)
        except ValueError as error:
            raise damaged(_answers_path(path), str(error), "answers") from error
        if answers[name].digest != stored.reference:
            raise damaged(_answers_path(path), f"other answers to '{name}'", "those whose digest the .json names")
    return answers


def _holds_answers(path: Path, baseline: Baseline) -> bool:
    try:
        _answers(path, baseline.data)
        return set(read_arrays(_answers_path(path), _ANSWERS)) == {_PREFIX + name for name in baseline.data}
    except StoreError:
        return False


def _packed(stored: Mapping[str, Answers]) -> bytes:
    return packed_arrays({_PREFIX + name: _smallest(stored[name].ids) for name in sorted(stored)})


def _smallest(ids: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    low, high = int(ids.min(initial=0)), int(ids.max(initial=0))
    fitting = (t for t in _TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return ids.astype(next(fitting))


def _answers_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".json") + ".fp32.npz")
