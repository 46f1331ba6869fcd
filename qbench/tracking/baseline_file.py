"""Baselines on disk: ``<suite>/<model>.json``, reviewed by diff, and next to it the answers that it names.

The JSON has sorted keys and one scalar a line; no clocks, hosts or paths, so that accepting the same numbers again
changes no byte. Answers are in ``<model>.fp32.npz`` and, where a suite keeps accepted ones, ``<model>.accepted.npz``
(``stored_arrays``); their arrays are hashed, not the files, because two versions of zlib pack the same array
differently.

The files are one transaction, whose commit is the rename of the ``.json``:

1. Take the lock of the folder (``work_folder``), remove what killed processes left, and read the baseline again.
2. Add the answers that the new ``.json`` names to the ``.npz`` files, next to those that the old one names. Each file
   appears by a rename, synced; then the folder is synced.
3. Rename the new ``.json`` into place, and sync the folder.
4. Remove from the ``.npz`` files what the new ``.json`` does not name.

Before 3 the old ``.json`` is there and finds all its answers, after 3 the new one: nothing that either names is removed
while it can be read. A process that is killed in between leaves only answers too many, which the next writer removes
(4). A reader takes no lock: one that does not find what it was promised reads the ``.json`` again, and only where that
is still the same is the baseline damaged. What cannot be read (no permission, a disk error) is never taken for damaged.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from qbench.errors import DamagedError, StoreError
from qbench.metrics import Answers
from qbench.storage import json_text, plain, sync_folder, table_from_value, value_of_plain, work_folder, write_bytes
from qbench.tracking.baseline import AcceptedCell, Baseline, KeptAnswers, StoredData
from qbench.tracking.calibrations import Calibrations, range_of_word, range_word
from qbench.tracking.stored_arrays import (
    ACCEPTED,
    FP32,
    Named,
    Part,
    damaged,
    packed_arrays,
    read_arrays,
    read_bytes,
    transit_name,
)

FORMAT = "qbench-baseline/1"


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
    """The baseline at ``path`` with its answers.

    Raises:
        DamagedError: there is none, it is not a baseline of a format known here, or its answers are missing or are not
            those its digests name. StoreError: one of its files cannot be read.
    """
    baseline = find_baseline(path)
    if baseline is None:
        raise damaged(path, os.strerror(2), "a baseline file")
    return baseline


def find_baseline(path: Path, *, keep_whole_parts: bool = False) -> Baseline | None:
    """The baseline at ``path`` with its answers; None: there is none.

    Args:
        keep_whole_parts: a damaged ``.npz`` file is not an error: what is whole is given, and ``Baseline.lost`` names
            the rest. For a run that makes the reference anew.

    Raises:
        DamagedError, StoreError: as ``load_baseline``.
    """
    text = read_bytes(path)
    while text is not None:
        try:
            return _baseline(path, text, keep_whole_parts=False)
        except DamagedError:
            before, text = text, read_bytes(path)
            if before != text:  # it was replaced while it was read
                continue
            if not keep_whole_parts:
                raise
            return _baseline(path, before, keep_whole_parts=True)
    return None


def load_held(path: Path) -> tuple[Mapping[str, AcceptedCell], tuple[str, ...]]:
    """What the baseline at ``path`` holds for its cells, and the keys of its calibrations; no answers are read.

    Raises:
        DamagedError, StoreError: as ``load_baseline``.
    """
    text = read_bytes(path)
    if text is None:
        raise damaged(path, os.strerror(2), "a baseline file")
    file = _parsed(path, text)
    return file.cells, tuple(file.calibrations)


def save_baseline(path: Path, baseline: Baseline) -> bool:
    """Write ``baseline`` to ``path`` with its answers; whether anything changed on disk.

    For a baseline that does not depend on what is there: else read it again inside ``changing_baseline``.

    Raises:
        StoreError: the folder cannot be written, or what is there cannot be read.
    """
    with changing_baseline(path) as change:
        return change.save(baseline)


@contextlib.contextmanager
def changing_baseline(path: Path) -> "Iterator[BaselineChange]":
    """The baseline at ``path`` held by one process at a time, to be read, changed and written; the others wait.

    The whole folder of the file is held. Not reentrant.

    Raises:
        StoreError: the folder cannot be written, or its disk has no locks.
    """
    real = Path(os.path.realpath(path))  # a link stays one: the lock and the file are where it leads
    with work_folder(real.parent) as aside:
        yield BaselineChange(path, aside)


class BaselineChange:
    """The baseline at ``path`` while this process holds it; ``aside``: where temporary files go."""

    def __init__(self, path: Path, aside: Path) -> None:
        self.path = path
        self._aside = aside

    def save(self, baseline: Baseline) -> bool:
        """Write ``baseline``; whether anything changed on disk: what would come out the same is not written.

        Raises:
            StoreError: the folder cannot be written, or what is there cannot be read.
        """
        text, before = json_text(_table(baseline)).encode("utf-8"), read_bytes(self.path)
        parts = {FP32: _references(baseline), ACCEPTED: _kept(baseline)}
        changed = [self._add(part, answers, is_first=before is None) for part, answers in parts.items()]
        if text != before:
            self._put(self.path, text)
        removed = [self._tidy(part, answers) for part, answers in parts.items()]
        return text != before or any(changed) or any(removed)

    def delete(self) -> None:
        """Remove the baseline, its ``.json`` first.

        Raises:
            StoreError: the folder cannot be written.
        """
        for file in (self.path, FP32.path(self.path), ACCEPTED.path(self.path)):
            self._remove(file)

    def _add(self, part: Part, answers: Mapping[Named, Answers], *, is_first: bool) -> bool:
        """Put ``answers`` next to what the file of ``part`` holds; whether any were missing there."""
        file = part.path(self.path)
        arrays = {} if is_first else _at_hand(part, file)
        added = dict[str, Any]()
        for named, one in answers.items():
            try:
                part.find(arrays, named, file)
            except DamagedError:
                name = transit_name(named) if part.ids.format(named.key) in arrays else named.key
                added |= part.arrays(name, one)
        if added:
            self._put(file, packed_arrays(arrays | added))
        return bool(added)

    def _tidy(self, part: Part, answers: Mapping[Named, Answers]) -> bool:
        """Leave ``answers`` alone in the file of ``part``; whether there was anything else."""
        file = part.path(self.path)
        if not answers:
            return self._remove(file)
        if part.holds_exactly(_at_hand(part, file), answers, file):
            return False
        final = dict[str, Any]()
        for named, one in answers.items():
            final |= part.arrays(named.key, one)
        self._put(file, packed_arrays(final))
        return True

    def _put(self, file: Path, data: bytes) -> None:
        real = Path(os.path.realpath(file))
        write_bytes(real, data, aside=self._aside)
        sync_folder(real.parent)

    def _remove(self, file: Path) -> bool:
        try:
            file.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(
                f"Removing '{file}' of a baseline",
                found=error.strerror or str(error),
                expected="a folder that can be written",
                remedy="Make it writable, and do this again.",
            ) from error
        sync_folder(file.parent)
        return True


def _at_hand(part: Part, file: Path) -> dict[str, Any]:
    """The arrays of ``file``; none of a damaged one: what could be read of it is in the new baseline."""
    try:
        return read_arrays(file, part.what)
    except DamagedError:
        return {}


def _references(baseline: Baseline) -> dict[Named, Answers]:
    """What ``<model>.fp32.npz`` holds."""
    return {named: baseline.stored[named.key] for named in _named_references(baseline.data)}


def _named_references(data: Mapping[str, StoredData]) -> list[Named]:
    return [
        Named(key=name, digest=stored.reference, samples=stored.samples, kind=stored.kind)
        for name, stored in data.items()
    ]


def _kept(baseline: Baseline) -> dict[Named, Answers]:
    """What ``<model>.accepted.npz`` holds."""
    every = _named_kept(baseline.cells, baseline.data)
    return {named: baseline.kept[slug][environment][data] for (slug, environment, data), named in every}


def _named_kept(
    cells: Mapping[str, AcceptedCell], data: Mapping[str, StoredData]
) -> list[tuple[tuple[str, str, str], Named]]:
    """((slug, environment class, data set), name) of all kept answers; a former result may be of data that is gone."""
    return [
        (
            (slug, environment, name),
            Named(
                key=f"{slug} {environment} {name}",  # no name has a blank
                digest=digest,
                kind=data[name].kind if name in data and environment not in cell.former else None,
            ),
        )
        for slug, cell in cells.items()
        for environment, accepted in cell.accepted.items()
        for name, digest in accepted.kept.items()
    ]


def _table(baseline: Baseline) -> dict[str, Any]:
    cells = {
        slug: {
            "floors": cell.floors,
            **table_from_value(cell),
            "accepted": {name: table_from_value(one) for name, one in cell.accepted.items()},
        }
        for slug, cell in baseline.cells.items()
    }
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
        raise damaged(path, f"a calibrated range in another form ({error})", "two numbers, the lower first") from error


def _parsed(path: Path, text: bytes) -> _File:
    try:
        table = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise damaged(path, f"text that is not JSON ({error})", "a baseline file") from error
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        found = table.get("format") if isinstance(table, dict) else type(table).__name__
        raise damaged(path, f"the format {found!r}", f"'{FORMAT}'")
    try:
        return value_of_plain(_File, table)
    except ValueError as error:
        raise damaged(path, str(error), "what a baseline holds") from error


def _baseline(path: Path, text: bytes, *, keep_whole_parts: bool) -> Baseline:
    file = _parsed(path, text)
    lost: list[str] | None = [] if keep_whole_parts else None
    references = {named: named for named in _named_references(file.data)}
    stored = {named.key: answers for named, answers in _found(path, FP32, references, lost).items()}
    names = {named: where for where, named in _named_kept(file.cells, file.data)}
    kept: dict[str, dict[str, dict[str, Answers]]] = {}
    for named, answers in _found(path, ACCEPTED, names, lost).items():
        slug, environment, data = names[named]
        kept.setdefault(slug, {}).setdefault(environment, {})[data] = answers
    return Baseline(
        model=file.model.id,
        model_digest=file.model.digest,
        preprocessing=file.preprocessing,
        backend=file.fp32.backend,
        environment_class=file.fp32.environment_class,
        metrics=file.fp32.metrics,
        data=file.data,
        stored=stored,
        cells=_with_kept(file.cells, kept) if lost else file.cells,
        calibrations=_calibrations(path, file.calibrations),
        kept=kept,
        lost=tuple(lost or ()),
    )


def _found(path: Path, part: Part, names: Mapping[Named, Any], lost: list[str] | None) -> dict[Named, Answers]:
    """The answers of ``part`` that the ``.json`` at ``path`` names; of each that is not there a sentence to ``lost``.

    Raises:
        DamagedError: one is not there, and ``lost`` is None.
    """
    if not names:
        return {}
    file, found = part.path(path), dict[Named, Answers]()
    try:
        arrays = read_arrays(file, part.what)
    except DamagedError as error:
        if lost is None:
            raise
        lost.append(f"{error.doing}: found {error.found}")
        return {}
    for named in names:
        try:
            found[named] = part.find(arrays, named, file)
        except DamagedError as error:
            if lost is None:
                raise
            lost.append(f"{error.doing}: found {error.found}")
    return found


def _with_kept(cells: Mapping[str, AcceptedCell], kept: KeptAnswers) -> dict[str, AcceptedCell]:
    """``cells`` whose results name no answers but those in ``kept``."""
    changed = {}
    for slug, cell in cells.items():
        held = kept.get(slug, {})
        accepted = {
            name: replace(one, kept={data: digest for data, digest in one.kept.items() if data in held.get(name, {})})
            for name, one in cell.accepted.items()
        }
        changed[slug] = replace(cell, accepted=accepted)
    return changed
