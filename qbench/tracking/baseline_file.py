"""Baselines on disk: <suite>/<model>.json and the arrays next to it."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from qbench.errors import DamagedError, InputError, StoreError
from qbench.judging import Accepted, Repeats
from qbench.metrics import Answers
from qbench.storage import (
    conflict_error,
    has_conflict,
    json_text,
    plain,
    refuse_newer,
    sync_folder,
    table_from_value,
    value_of_plain,
    work_folder,
    write_bytes,
)
from qbench.tracking.answers_file import (
    ACCEPTED,
    FP32,
    AnswersFile,
    Named,
    damaged,
    packed_arrays,
    read_arrays,
    read_bytes,
    transit_name,
)
from qbench.tracking.baseline import (
    CALIBRATION,
    FLOORS,
    AcceptedCell,
    Baseline,
    KeptAnswers,
    StoredData,
)
from qbench.tracking.calibrations import Calibrations, parsed_range, range_text

# Baselines on disk: ``<suite>/<model>.json``, reviewed by diff, and next to it the answers that it
# names.
#
# The JSON has sorted keys and one scalar a line; no clocks, hosts or paths, so that accepting the
# same numbers again changes no byte. Answers are in ``<model>.fp32.npz`` and, where a suite keeps
# accepted ones, ``<model>.accepted.npz`` (``stored_arrays``); their arrays are hashed, not the
# files, because two versions of zlib pack the same array differently.
#
# The files are one transaction, whose commit is the rename of the ``.json``:
#
# 1. Take the lock of the folder (``work_folder``), remove what killed processes left, and read the
#    baseline again.
# 2. Add the answers that the new ``.json`` names to the ``.npz`` files, next to those that the old
#    one names. Each file appears by a rename, synced; then the folder is synced.
# 3. Rename the new ``.json`` into place, and sync the folder.
# 4. Remove from the ``.npz`` files what the new ``.json`` does not name.
#
# Before 3 the old ``.json`` is there and finds all its answers, after 3 the new one: nothing that
# either names is removed while it can be read. A process that is killed in between leaves only
# additional answers, which the next writer removes (4). A reader takes no lock. If it does not find
# the answers that the ``.json`` names, it reads the ``.json`` again; only where that is still the
# same is the baseline damaged. A file that cannot be read (no permission, a disk error) is never
# treated as damaged.

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
    test: str = ""


def baseline_path(folder: Path, suite: str, model: str) -> Path:
    """Where the baseline of ``model`` in ``suite`` lies under ``folder``."""
    return folder / suite / f"{model}.json"


def parts_of_baseline(path: Path) -> tuple[Path, ...]:
    """Where the arrays of the baseline at ``path`` are, there or not."""
    return FP32.path(path), ACCEPTED.path(path)


def load_baseline(path: Path) -> Baseline:
    """The baseline at ``path`` with its answers.

    Raises:
        DamagedError: there is none, it is not a baseline of a format known here, or its answers are
            missing or are not those its digests name. StoreError: one of its files cannot be read.
    """
    baseline = find_baseline(path)
    if baseline is None:
        raise damaged(path, os.strerror(2), "a baseline file")
    return baseline


def find_baseline(path: Path, *, keep_whole_parts: bool = False) -> Baseline | None:
    """The baseline at ``path`` with its answers; None: there is none.

    Args:
        keep_whole_parts: a damaged part is not an error: the whole parts are returned, and
            ``Baseline.lost`` and ``unread`` name the others. For a run that makes the reference
            anew. A ``.json`` that is no JSON has none.

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


def load_cells(path: Path) -> tuple[Mapping[str, AcceptedCell], tuple[str, ...]]:
    """What the baseline at ``path`` holds for its cells, and the keys of its calibrations; no
    answers are read.

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

    For a baseline that does not depend on what is there: else read it again inside
        ``changing_baseline``.

    Raises:
        StoreError: the folder cannot be written, or what is there cannot be read.
    """
    with changing_baseline(path) as change:
        return change.save(baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOfTest:
    """A baseline that belongs to a test: what it is of, without its answers.

    Args:
        path: of its file. test: node id. model_digest, preprocessing: as of ``Baseline``.
        data: data set → digest of data and labels. slugs: its cells.
    """

    path: Path
    test: str
    model_digest: str
    preprocessing: str
    data: Mapping[str, str]
    slugs: tuple[str, ...]

    def is_of(self, digests: Mapping[str, str]) -> bool:
        """Whether its reference is of the model and the data with these ``digests``, as of
        ``Baseline.stale``.
        """
        own = {
            "model": self.model_digest,
            "preprocessing": self.preprocessing,
            **{f"data:{name}": digest for name, digest in self.data.items()},
        }
        return all(own.get(key) == digest for key, digest in digests.items())


def baselines_of_tests(folder: Path) -> tuple[BaselineOfTest, ...]:
    """The baselines in ``folder`` (of one suite) that belong to tests; damaged files are skipped
    here.

    Raises:
        StoreError: a file cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        text = read_bytes(path)
        if text is None:
            continue
        with contextlib.suppress(DamagedError):
            file = _parsed(path, text)
            if file.test:
                known = BaselineOfTest(
                    path=path,
                    test=file.test,
                    model_digest=file.model.digest,
                    preprocessing=file.preprocessing,
                    data={name: one.digest for name, one in file.data.items()},
                    slugs=tuple(file.cells),
                )
                found.append(known)
    return tuple(found)


def move_baseline(path: Path, target: Path, *, model: str, test: str) -> None:
    """Move the baseline at ``path`` to ``target`` in the same folder, as that of ``test``.

    The new file is whole before the old one is removed.

    Raises:
        InputError: ``target`` exists. StoreError: as ``load_baseline``, or the folder cannot be
            written.
    """
    with changing_baseline(path) as held:
        if target.exists():
            raise InputError(
                f"Moving the baseline '{path}'",
                found=f"'{target}' there already",
                expected="a test without an accepted result",
                remedy="Name a test that has none, or keep both files.",
            )
        held.sibling(target).save(replace(load_baseline(path), model=model, test=test))
        held.delete()


@contextlib.contextmanager
def changing_baseline(path: Path) -> "Iterator[BaselineChange]":
    """The baseline at ``path`` held by one process at a time, to be read, changed and written;
    the others wait.

    The whole folder of the file is held. Not reentrant.

    Raises:
        StoreError: the folder cannot be written, or its disk has no locks.
    """
    # a link stays one: the lock and the file are where it leads
    real = Path(os.path.realpath(path))
    with work_folder(real.parent) as aside:
        yield BaselineChange(path, aside)


class BaselineChange:
    """The baseline at ``path`` while this process holds it; ``aside``: where temporary files go."""

    def __init__(self, path: Path, aside: Path) -> None:
        self.path = path
        self._aside = aside

    def sibling(self, path: Path) -> "BaselineChange":
        """The same for ``path`` in the same folder, which this process holds as a whole."""
        return BaselineChange(path, self._aside)

    def save(self, baseline: Baseline) -> bool:
        """Write ``baseline``; whether anything changed on disk: equal content is not written.

        Raises:
            StoreError: the folder cannot be written, or what is there cannot be read.
        """
        text, before = json_text(_table(baseline)).encode("utf-8"), read_bytes(self.path)
        references = {
            named: baseline.stored[named.key] for named in _named_references(baseline.data)
        }
        kept = {
            named: baseline.kept[slug][environment][data]
            for (slug, environment, data), named in _named_kept(baseline.cells, baseline.data)
        }
        parts = {FP32: references, ACCEPTED: kept}
        changed = [
            self._add(part, answers, is_first=before is None) for part, answers in parts.items()
        ]
        if text != before:
            self._write(self.path, text)
        removed = [self._remove_others(part, answers) for part, answers in parts.items()]
        return text != before or any(changed) or any(removed)

    def delete(self) -> None:
        """Remove the baseline, its ``.json`` first.

        Raises:
            StoreError: the folder cannot be written.
        """
        for file in (self.path, FP32.path(self.path), ACCEPTED.path(self.path)):
            self._remove(file)

    def _add(self, part: AnswersFile, answers: Mapping[Named, Answers], *, is_first: bool) -> bool:
        """Put ``answers`` next to what the file of ``part`` holds; whether any were missing
        there.
        """
        file = part.path(self.path)
        arrays = {} if is_first else _readable_arrays(part, file)
        added = dict[str, Any]()
        for named, one in answers.items():
            try:
                part.find(arrays, named, file)
            except DamagedError:
                name = transit_name(named) if part.stored(arrays, named.key) else named.key
                added |= part.arrays(name, one)
        if added:
            self._write(file, packed_arrays(arrays | added))
        return bool(added)

    def _remove_others(self, part: AnswersFile, answers: Mapping[Named, Answers]) -> bool:
        """Remove all but ``answers`` from the file of ``part``; whether there was anything else."""
        file = part.path(self.path)
        if not answers:
            return self._remove(file)
        if part.holds_exactly(_readable_arrays(part, file), answers, file):
            return False
        final = dict[str, Any]()
        for named, one in answers.items():
            final |= part.arrays(named.key, one)
        self._write(file, packed_arrays(final))
        return True

    def _write(self, file: Path, data: bytes) -> None:
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


def _readable_arrays(part: AnswersFile, file: Path) -> dict[str, Any]:
    """The arrays of ``file``; none of a damaged one: the new baseline has those that could be
    read.
    """
    try:
        return read_arrays(file, part.what)
    except DamagedError:
        return {}


def _named_references(data: Mapping[str, StoredData]) -> list[Named]:
    """The names of the answers in ``<model>.fp32.npz``."""
    return [
        Named(key=name, digest=stored.reference, samples=stored.samples, kind=stored.kind)
        for name, stored in data.items()
    ]


def _named_kept(
    cells: Mapping[str, AcceptedCell], data: Mapping[str, StoredData]
) -> list[tuple[tuple[str, str, str], Named]]:
    """The names of the answers in ``<model>.accepted.npz``, each with (slug, environment class,
    data set).

    A former result may be of a data set that the baseline does not have any more.
    """
    found = []
    for slug, cell in cells.items():
        for environment, accepted in cell.accepted.items():
            known = {} if environment in cell.former else data
            for name, digest in accepted.kept.items():
                key = f"{slug} {environment} {name}"  # no name has a blank
                kind = known[name].kind if name in known else None
                found.append(((slug, environment, name), Named(key=key, digest=digest, kind=kind)))
    return found


def _table(baseline: Baseline) -> dict[str, Any]:
    cells = {
        slug: {
            "floors": cell.floors,
            **table_from_value(cell),
            "accepted": {name: table_from_value(one) for name, one in cell.accepted.items()},
            **(
                {"noise": {name: table_from_value(one) for name, one in cell.noise.items()}}
                if cell.noise
                else {}
            ),
        }
        for slug, cell in baseline.cells.items()
    }
    words = {
        key: {value: range_text(ends) for value, ends in ranges.items()}
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
        "data": {
            name: {key: one for key, one in plain(data).items() if one is not None}
            for name, data in baseline.data.items()
        },
        "cells": cells,
        **({"calibrations": words} if words else {}),
        **({"test": baseline.test} if baseline.test else {}),
    }


def _calibrations(path: Path, words: Mapping[str, Mapping[str, str]]) -> Calibrations:
    try:
        return {
            key: {value: parsed_range(word) for value, word in held.items()}
            for key, held in words.items()
        }
    except ValueError as error:
        raise damaged(
            path, f"a calibrated range in another form ({error})", "two numbers, the lower first"
        ) from error


def _parsed(path: Path, text: bytes, unread: dict[tuple[str, str], str] | None = None) -> _File:
    """The ``.json``; what of its cells and calibrations cannot be read goes to ``unread``, with
    the reason.

    Raises:
        DamagedError: it is not a baseline; or, without ``unread``, a part of it cannot be read.
    """
    if has_conflict(text):
        raise conflict_error(DamagedError, path)
    try:
        table = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise damaged(path, f"text that is not JSON ({error})", "a baseline file") from error
    if not isinstance(table, dict):
        raise damaged(path, f"the format '{type(table).__name__}'", f"'{FORMAT}'")
    refuse_newer(f"Reading the baseline '{path}'", table.get("format"), FORMAT)
    if table.get("format") != FORMAT:
        raise damaged(path, f"the format {table.get('format')!r}", f"'{FORMAT}'")
    try:
        return value_of_plain(_File, table)
    except ValueError as error:
        if unread is None:
            raise damaged(
                path, f"{_unread_names(table)}{error}", "what a baseline holds"
            ) from error
    try:
        return value_of_plain(_File, _readable(table, unread))
    except ValueError as error:
        raise damaged(path, str(error), "what a baseline holds") from error


def _unread_names(table: Mapping[str, Any]) -> str:
    """``the floors of 'ort-cpu+fp32': ``: what of the cells and calibrations cannot be read;
    empty: something else.
    """
    unread: dict[tuple[str, str], str] = {}
    _readable(table, unread)
    return "".join(f"{what} of '{name}': " for name, what in unread)


def _readable(table: Mapping[str, Any], unread: dict[tuple[str, str], str]) -> dict[str, Any]:
    """``table`` without what of its cells and calibrations cannot be read, which goes to
    ``unread``.
    """

    def whole(name: str, what: str, kind: Any, value: object) -> bool:  # noqa: ANN401 - a type as msgspec reads it
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            unread[name, what] = str(error)
            return False
        return True

    def parts(slug: str, cell: Mapping[str, Any], key: str, kind: Any) -> dict[str, Any]:  # noqa: ANN401
        held = cell.get(key, {})
        if not whole(slug, key, dict[str, Any], held):
            return {}
        before = "" if key == "accepted" else "the noise in "
        return {name: one for name, one in held.items() if whole(slug, before + name, kind, one)}

    cells, calibrations = table.get("cells", {}), table.get("calibrations", {})
    found = dict[str, Any]()
    for slug, cell in _entries(cells).items():
        if not whole(slug, "everything", dict[str, Any], cell):
            continue
        found[slug] = {
            "accepted": parts(slug, cell, "accepted", Accepted),
            "noise": parts(slug, cell, "noise", Repeats),
        }
        if "floors" in cell and whole(slug, FLOORS, dict[str, int], cell["floors"]):
            found[slug]["floors"] = cell["floors"]
        if "former" in cell and whole(slug, "the former classes", tuple[str, ...], cell["former"]):
            found[slug]["former"] = cell["former"]
    kept = {
        key: words
        for key, words in _entries(calibrations).items()
        if whole(key, CALIBRATION, dict[str, str], words)
    }
    whole_cells = found if isinstance(cells, dict) else cells
    return {
        **table,
        "cells": whole_cells,
        "calibrations": kept if isinstance(calibrations, dict) else calibrations,
    }


def _entries(value: object) -> Mapping[str, Any]:
    """``value`` where it is a table; else one without entries."""
    return value if isinstance(value, dict) else {}


def _baseline(path: Path, text: bytes, *, keep_whole_parts: bool) -> Baseline:
    unread: dict[tuple[str, str], str] | None = {} if keep_whole_parts else None
    file = _parsed(path, text, unread)
    lost: list[str] | None = None
    if unread is not None:
        lost = [
            f"Reading '{path}': found {what} of '{name}': {why}"
            for (name, what), why in unread.items()
        ]
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
        test=file.test,
        lost=tuple(lost or ()),
        unread=tuple(unread or ()),
    )


def _found(
    path: Path, part: AnswersFile, names: Mapping[Named, Any], lost: list[str] | None
) -> dict[Named, Answers]:
    """The answers of ``part`` that the ``.json`` at ``path`` names; of each that is not there a
    sentence to ``lost``.

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
            name: replace(
                one,
                kept={
                    data: digest for data, digest in one.kept.items() if data in held.get(name, {})
                },
            )
            for name, one in cell.accepted.items()
        }
        changed[slug] = replace(cell, accepted=accepted)
    return changed
