"""Logs of other tools as records of answers: lm-eval's samples, Inspect's logs, tables.

lm-eval     ``samples_TASK_DATE.jsonl`` of ``--log_samples``: a document in each line, once for each
            filter
Inspect     ``.json``, or ``.eval``: a zip file with ``header.json`` and ``samples/ID_epoch_N.json``
a table     ``.csv`` with a line of names; columns of numbers are metrics
"""

import csv
import json
import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from qbench.errors import InputError, UnavailableError
from qbench.extension import install_command
from qbench.metrics.answer_files import (
    AnswerRecord,
    DataMark,
    Header,
    Provenance,
    decoded_line,
    json_lines,
)
from qbench.number_text import counted
from qbench.storage import current_factor, current_limits, digest_plain, too_large

_MEMBER_BYTES = 1 << 30
"""Of one sample of an .eval file, unpacked."""


@dataclass(slots=True, kw_only=True)
class LogChoices:
    """What is taken from a log.

    Args:
        filter: the filter of lm-eval whose answers are taken; empty: the only one.
        source: where a sample names its source: a column, or names between dots such as
            ``doc.article``.
        columns: of a table: ``id``, ``answer``, ``label`` or ``source`` → the name of its column.
    """

    filter: str = ""
    source: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ForeignLog:
    """A log that was opened.

    Args:
        header: the data, the tool and the metrics of which less is better.
        records: the answers, one for each sample; they are read from the file one by one, once.
        notes: sentences about what was left out; complete when all records have been read.
        by_id: whether sources are ids of questions. Logs of other tasks may have the same ids.
    """

    header: Header
    records: Iterator[AnswerRecord]
    notes: list[str] = field(default_factory=list)
    by_id: bool = False


def open_foreign_log(path: Path, choices: LogChoices | None = None) -> ForeignLog:
    """Open the log at ``path``; its suffix says which tool wrote it.

    ``answer_lines(log.header, log.records)`` are the lines of a file of answers. Reading
    ``log.records`` raises ``InputError`` where a line of the log cannot be read.

    Args:
        path: lm-eval's samples (``.jsonl``), a log of Inspect (``.eval``, ``.json``), or a table
            (``.csv``).
        choices: what is taken from the log; None: everything.

    Raises:
        InputError: the file does not exist, has another suffix, or is broken. UnavailableError: a
            log of Inspect needs the package ``zstandard``.
    """
    choices = choices or LogChoices()
    doing = f"Importing '{path}'"
    if not path.is_file():
        raise InputError(
            doing, found="no file there", expected="a log of another tool", remedy="Check the path."
        )
    readers: dict[str, Callable[[Path, LogChoices, str], ForeignLog]] = {
        ".csv": _table,
        ".eval": _inspect_archive,
        ".json": _inspect_json,
        ".jsonl": _lm_eval,
    }
    if path.suffix not in readers:
        raise InputError(
            doing,
            found=f"a file that ends in '{path.suffix}'",
            expected=(
                "lm-eval's samples (.jsonl), a log of Inspect (.eval, .json) or a table (.csv)"
            ),
            remedy="Write a file of answers yourself, as docs/answers.md shows.",
        )
    return readers[path.suffix](path, choices, doing)


def join_foreign_logs(logs: Sequence[tuple[str, ForeignLog]]) -> ForeignLog:
    """Join the logs of one run, such as all subjects of MMLU; a single log stays as it is.

    The id of each sample then begins with its task: ``sums/3``. A source that is an id begins with
    the task, too: question 3 of one task says nothing about question 3 of another.

    Args:
        logs: one or more; each with its name, for errors.

    Raises:
        InputError: the logs come from different tools, or two are of one task.
    """
    (path, first), *others = logs
    if not others:
        return first
    tasks = [log.header.data.id for _, log in logs]
    for name, log in others:
        if log.header.provenance != first.header.provenance or tasks.count(log.header.data.id) > 1:
            raise _refused(
                f"Importing '{name}' with '{path}'",
                f"the task '{log.header.data.id}' by '{log.header.provenance.tool}'",
                f"another task than the others, by '{first.header.provenance.tool}' too",
                "Import logs of one run together, and others alone.",
            )
    notes: list[str] = []

    def records() -> Iterator[AnswerRecord]:
        for task, (_, log) in zip(tasks, logs, strict=True):
            for record in log.records:
                source = f"{task}/{record.source}" if log.by_id else record.source
                yield msgspec.structs.replace(record, id=f"{task}/{record.id}", source=source)
            notes.extend(log.notes)

    lower = list(dict.fromkeys(name for _, log in logs for name in log.header.lower))
    header = msgspec.structs.replace(first.header, data=DataMark(id="+".join(tasks)), lower=lower)
    return ForeignLog(header, records(), notes)


def _refused(doing: str, found: str, expected: str, remedy: str) -> InputError:
    return InputError(doing, found=found, expected=expected, remedy=remedy)


# lm-eval. The keys of a line are ``doc_id``, ``doc``, ``target``, ``arguments``, ``resps``,
# ``filtered_resps``, ``filter``, ``metrics`` (names), ``doc_hash``, ``prompt_hash``,
# ``target_hash``, and the metrics with their values. ``resps`` and ``filtered_resps`` are lists of
# texts; of a multiple choice, pairs of a log-likelihood and whether it is greedy, one for each
# choice.

_OF_LINE = frozenset(
    (
        "doc_id",
        "doc",
        "target",
        "arguments",
        "resps",
        "filtered_resps",
        "filter",
        "metrics",
        "doc_hash",
        "prompt_hash",
    )
) | {"target_hash", "task_name"}
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()


def _lm_eval(path: Path, choices: LogChoices, doing: str) -> ForeignLog:
    task, date = _task_and_date(path)
    facts = _run_facts(path.parent / f"results_{date}.json")
    version = str(facts.get("lm_eval_version") or "")
    better = facts.get("higher_is_better")
    directions = better.get(task) if isinstance(better, dict) else None
    log = ForeignLog(
        Header(
            data=DataMark(id=task),
            provenance=Provenance(tool=f"lm-eval {version}".strip()),
            lower=[str(one) for one, up in directions.items() if up is False]
            if isinstance(directions, dict)
            else [],
        ),
        iter(()),
    )
    log.records = _lm_records(path, choices, doing, log.notes)
    return log


def _task_and_date(path: Path) -> tuple[str, str]:
    """``samples_TASK_DATE.jsonl``; another name is the task."""
    task, _, date = path.stem.removeprefix("samples_").rpartition("_")
    return (task, date) if path.stem.startswith("samples_") and task else (path.stem, "")


def _run_facts(path: Path) -> dict[str, Any]:
    """What lm-eval wrote next to the samples about the whole run; nothing where it is not there."""
    try:
        found = msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
    except (OSError, msgspec.MsgspecError):
        return {}
    return found if isinstance(found, dict) else {}


def _lm_records(
    path: Path, choices: LogChoices, doing: str, notes: list[str]
) -> Iterator[AnswerRecord]:
    filters: dict[str, int] = {}
    left_out: set[str] = set()
    for number, line in json_lines(path):
        where = f"{doing}, line {number}"
        fields = decoded_line(_RAW, line, where)
        if "doc_id" not in fields:
            raise _refused(
                where,
                "no 'doc_id'",
                "a line that lm-eval's --log_samples wrote",
                "Name another file; a file of answers needs no import.",
            )
        name = str(_value(fields, "filter", where)) if "filter" in fields else "none"
        filters[name] = filters.get(name, 0) + 1
        if choices.filter not in ("", name):
            continue
        if not choices.filter and len(filters) > 1:
            raise _refused(
                where,
                f"the filters {', '.join(filters)}",
                "one answer to each document",
                f"Choose one: --filter {next(iter(filters))}.",
            )
        yield _lm_record(fields, choices, where, left_out)
    if choices.filter and choices.filter not in filters:
        raise _refused(
            doing,
            f"the filters {', '.join(filters) or '(none)'}",
            f"'{choices.filter}'",
            "Choose one of these.",
        )
    if left_out:
        notes.append(
            f"metrics that are no number for a sample are left out: {', '.join(sorted(left_out))}"
        )


def _lm_record(
    fields: Mapping[str, msgspec.Raw], choices: LogChoices, where: str, left_out: set[str]
) -> AnswerRecord:
    named = (
        _value(fields, "metrics", where)
        if "metrics" in fields
        else [one for one in fields if one not in _OF_LINE]
    )
    metrics = {}
    for name in map(str, named if isinstance(named, list) else []):
        value = _value(fields, name, where)
        if not isinstance(value, bool | int | float):
            left_out.add(name)
            continue
        try:
            metrics[name] = float(value)
        except OverflowError as error:
            raise _refused(
                where, f"'{name}' beyond 1e308", "a finite number", "Correct the log."
            ) from error
    hashes = [
        str(_value(fields, key, where))[:16] for key in ("doc_hash", "target_hash") if key in fields
    ]
    return AnswerRecord(
        id=str(_value(fields, "doc_id", where)),
        answer=_response(_value(fields, "filtered_resps", where)),
        metrics=metrics,
        content="".join(hashes) or None,
        source=_source(fields, choices.source, where),
    )


def _value(fields: Mapping[str, msgspec.Raw], name: str, where: str) -> Any:  # noqa: ANN401 - of JSON
    """The value of a field, None where the line lacks it; the line was looked through, but its
    values were not read.
    """
    return decoded_line(_ANY, bytes(fields[name]), where) if name in fields else None


def _response(found: Any) -> int | str | None:  # noqa: ANN401 - of JSON
    """The chosen class or the text; None where the answer is something else."""
    if not isinstance(found, list) or not found:
        return None
    if all(isinstance(one, list) and len(one) == 2 for one in found) and len(found) > 1:
        try:
            values = [float(one[0]) for one in found]
        except (TypeError, ValueError):
            return None
        return max(range(len(values)), key=values.__getitem__)  # the first of equal ones
    return found[0] if len(found) == 1 and isinstance(found[0], str) else None


def _source(fields: Mapping[str, msgspec.Raw], path: str, where: str) -> str | None:
    if not path:
        return None
    first, *names = path.split(".")
    return _walked(_value(fields, first, where), names, path, where)


def _walked(found: Any, names: Sequence[str], path: str, where: str) -> str:  # noqa: ANN401 - of JSON
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None or isinstance(found, dict | list):
        raise _refused(
            where, f"no value of '{path}'", "the source of the sample", "Correct --source."
        )
    return str(found)


# Inspect. An answer is the text that a scorer took from the output. A value of a scorer is "C"
# (correct), "I", "P" (partial), "N" (no answer), a number, a truth value, or several by name. A
# question that was answered in several epochs is one source: its answers are not independent.

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class _InspectScore(msgspec.Struct, frozen=True):
    value: Any = None
    answer: str | None = None


class _InspectOutput(msgspec.Struct, frozen=True):
    completion: str = ""


class _InspectSample(msgspec.Struct, frozen=True):
    id: str | int
    epoch: int = 1
    input: Any = None
    target: Any = None
    choices: Any = None
    metadata: dict[str, Any] = {}
    output: _InspectOutput = _InspectOutput()
    scores: dict[str, _InspectScore] | None = None
    error: Any = None


class _InspectData(msgspec.Struct, frozen=True):
    name: str | None = None
    samples: int | None = None


class _InspectConfig(msgspec.Struct, frozen=True):
    epochs: int | None = None


class _InspectSpec(msgspec.Struct, frozen=True):
    task: str = ""
    dataset: _InspectData = _InspectData()
    config: _InspectConfig = _InspectConfig()
    packages: dict[str, str] = {}


class _InspectHeader(msgspec.Struct, frozen=True):
    eval: _InspectSpec
    status: str = ""


class _InspectLog(_InspectHeader, frozen=True):
    samples: list[_InspectSample] | None = None


_SAMPLE = msgspec.json.Decoder(_InspectSample)


def _inspect_json(path: Path, choices: LogChoices, doing: str) -> ForeignLog:
    size, most = path.stat().st_size, current_limits().file_bytes
    if size > most:
        raise too_large(doing, "a log", size, "file_bytes")
    log = decoded_line(msgspec.json.Decoder(_InspectLog), path.read_bytes(), doing)
    return _inspect(log, iter(log.samples or ()), choices, doing)


def _inspect_archive(path: Path, choices: LogChoices, doing: str) -> ForeignLog:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise _refused(
            doing, f"no zip file ({error})", "a log of Inspect", "Copy the file again."
        ) from error
    names = {one.filename: one for one in archive.infolist()}
    if "header.json" not in names:
        archive.close()
        raise _refused(
            doing,
            "no 'header.json'",
            "a log of an evaluation that has ended",
            "Run 'inspect log recover', or name another log.",
        )
    header = decoded_line(
        msgspec.json.Decoder(_InspectHeader),
        _member(path, archive, names["header.json"], doing),
        doing,
    )

    def samples() -> Iterator[_InspectSample]:
        with archive:
            for name, one in names.items():
                if name.startswith("samples/") and name.endswith(".json"):
                    yield decoded_line(
                        _SAMPLE, _member(path, archive, one, doing), f"{doing}, '{name}'"
                    )

    return _inspect(header, samples(), choices, doing)


_ZSTANDARD = 93


def _member(path: Path, archive: zipfile.ZipFile, one: zipfile.ZipInfo, doing: str) -> bytes:
    """The bytes of one file of ``archive``; Inspect packs with Zstandard, which Python itself
    reads from 3.14 on.
    """
    most = _MEMBER_BYTES * current_factor()
    if one.file_size > most:
        raise _refused(
            f"{doing}, '{one.filename}'",
            f"{one.file_size:,} bytes",
            f"at most {most:,}",
            "If you trust the file, raise the limits: --size-limits 4.",
        )
    try:
        if one.compress_type != _ZSTANDARD:
            return archive.read(one)
        return _zstandard(path, one, doing)
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
    ) as error:
        raise _refused(  # RuntimeError: encrypted, or packed by a method that Python does not have
            f"{doing}, '{one.filename}'",
            f"data that cannot be unpacked ({error})",
            "a whole file",
            "Copy the log again.",
        ) from error


def _zstandard(path: Path, one: zipfile.ZipInfo, doing: str) -> bytes:
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise UnavailableError(
            doing,
            found="data packed with Zstandard",
            expected="the package 'zstandard'",
            remedy=(
                f"Install it: {install_command('inspect')}; or write the log as JSON: "
                "inspect log convert."
            ),
        ) from error
    with path.open("rb") as file:
        file.seek(one.header_offset)
        local = file.read(30)
        file.seek(
            int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), 1
        )
        packed = file.read(one.compress_size)
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
            found: bytes = reader.read(one.file_size + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    if len(found) != one.file_size:
        raise ValueError(f"{len(found):,} bytes where {one.file_size:,} are declared")
    return found


def _inspect(
    header: _InspectHeader, samples: Iterator[_InspectSample], choices: LogChoices, doing: str
) -> ForeignLog:
    spec = header.eval
    log = ForeignLog(
        Header(
            data=DataMark(id=spec.dataset.name or spec.task),
            provenance=Provenance(
                tool=f"inspect_ai {spec.packages.get('inspect_ai', '')}".strip(),
                versions={
                    name: version for name, version in spec.packages.items() if name != "inspect_ai"
                },
            ),
        ),
        iter(()),
    )
    if header.status != "success":
        log.notes.append(
            f"the evaluation ended with the status '{header.status}': samples may be missing"
        )
    log.by_id = (spec.config.epochs or 1) > 1 and not choices.source
    log.records = _inspect_records(samples, choices, doing, log.notes, spec)
    return log


def _inspect_records(
    samples: Iterator[_InspectSample],
    choices: LogChoices,
    doing: str,
    notes: list[str],
    spec: _InspectSpec,
) -> Iterator[AnswerRecord]:
    repeated = (spec.config.epochs or 1) > 1
    logged, failed = set(), []
    for one in samples:
        logged.add(one.id)
        name = f"{one.id}#{one.epoch}" if repeated else str(one.id)
        where = f"{doing}, sample '{name}'"
        if not one.scores or one.error is not None:
            failed.append(name)
            continue
        metrics = {
            key: value
            for scorer, found in one.scores.items()
            for key, value in _graded(scorer, found, where)
        }
        first = next(iter(one.scores.values()))
        source: str | None = str(one.id) if repeated else None
        if choices.source:
            fields = {"id": one.id, "epoch": one.epoch, "metadata": one.metadata}
            source = _walked(fields, choices.source.split("."), choices.source, where)
        yield AnswerRecord(
            id=name,
            answer=one.output.completion if first.answer is None else first.answer,
            metrics=metrics,
            content=digest_plain([_text_of(one.input), one.target, one.choices])[:16],
            source=source,
        )
    if failed:
        shown = ", ".join(f"'{name}'" for name in failed[:3])
        notes.append(f"{counted(len(failed), 'sample')} without a score left out ({shown})")
    declared = spec.dataset.samples or 0
    if len(logged) < declared:
        notes.append(f"the log has {len(logged):,} of the {declared:,} samples of its data set")


def _text_of(question: Any) -> Any:  # noqa: ANN401 - of JSON
    """A question without the ids of its messages, which are drawn anew for every run."""
    if not isinstance(question, list):
        return question
    return [
        [one.get("role"), one.get("content")] if isinstance(one, dict) else one for one in question
    ]


def _graded(scorer: str, score: _InspectScore, where: str) -> Iterator[tuple[str, float]]:
    values = score.value if isinstance(score.value, dict) else {"": score.value}
    for key, value in values.items():
        name = f"{scorer}.{key}" if key else scorer
        try:
            found = _GRADES.get(value) if isinstance(value, str) else float(value)
            yield name, float(value) if found is None else found
        except (TypeError, ValueError, OverflowError) as error:
            raise _refused(
                where,
                f"the score {repr(value)[:40]} of '{name}'",
                "a number, or one of C, I, P and N",
                "Score it with numbers.",
            ) from error


# A table: one sample in each row.

_KEYS = ("id", "answer", "label", "source")
_DIGITS = 18
"""Of the greatest whole numbers that a record holds, which are of 64 bits."""


def _table(path: Path, choices: LogChoices, doing: str) -> ForeignLog:
    for key in choices.columns:
        if key not in _KEYS:
            raise _refused(
                doing, f"'{key}' in --columns", f"one of: {', '.join(_KEYS)}", "Correct the option."
            )
    columns = {key: choices.columns.get(key, key) for key in _KEYS}
    if choices.source:
        columns["source"] = choices.source
    log = ForeignLog(Header(data=DataMark(id=path.name)), iter(()))
    log.records = _rows(path, columns, frozenset(choices.columns), doing, log.notes)
    return log


def _rows(
    path: Path, columns: Mapping[str, str], asked: frozenset[str], doing: str, notes: list[str]
) -> Iterator[AnswerRecord]:
    found: dict[str, _Column] = {}
    for _, fields in _lines(path, columns, asked, doing):
        for name, text in fields.items():
            found.setdefault(name, _Column()).add(text)
    free = {name: one for name, one in found.items() if name not in columns.values()}
    numeric = [name for name, one in free.items() if one.has_numbers and not one.has_words]
    mixed = [name for name, one in free.items() if one.has_numbers and one.has_words]
    if mixed:
        notes.append(
            f"columns of numbers and texts are no metrics and are left out: {', '.join(mixed)}"
        )
    answer, label = (found.get(columns[key], _Column()) for key in ("answer", "label"))
    if numeric and columns["answer"] in found and columns["label"] in found:
        notes.append(
            f"only columns of numbers are metrics ({', '.join(numeric)}): whether answers equal "
            "labels is not counted; leave these columns out of the table to count it"
        )
    # Where one column holds classes and texts, its classes are texts, too, and those of the other,
    # to be equal to them.
    is_text = any(one.has_classes and one.has_texts for one in (answer, label))
    for where, fields in _lines(path, columns, asked, doing):
        yield _row(fields, columns, numeric, where, is_text=is_text)


@dataclass(slots=True)
class _Column:
    """What the fields of a column are, empty ones apart."""

    has_numbers: bool = False
    has_words: bool = False
    has_classes: bool = False
    has_texts: bool = False

    def add(self, text: str) -> None:
        if not text:
            return
        is_number, is_text = _number(text) is not None, isinstance(_class_or_text(text), str)
        self.has_numbers |= is_number
        self.has_words |= not is_number
        self.has_classes |= not is_text
        self.has_texts |= is_text


def _lines(
    path: Path, columns: Mapping[str, str], asked: frozenset[str], doing: str
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each line below the names: which it is, for errors, and name → field."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            names = next(rows, [])
            lacking = [columns[key] for key in ("id", *asked) if columns[key] not in names]
            if lacking or len(set(names)) != len(names):
                raise _refused(
                    doing,
                    f"the columns {', '.join(map(repr, names)) or '(none)'}",
                    f"a column '{lacking[0]}'" if lacking else "every name once",
                    "Name the columns: --columns id=NAME,answer=NAME,label=NAME.",
                )
            for row in rows:
                where = f"{doing}, line {rows.line_num}"
                if len(row) != len(names):
                    raise _refused(
                        where,
                        counted(len(row), "field"),
                        f"{len(names)}, as in the first line",
                        "Correct it.",
                    )
                yield where, dict(zip(names, row, strict=True))
    except UnicodeDecodeError as error:
        raise _refused(doing, "no UTF-8 text", "a table in UTF-8", "Save it again.") from error
    except csv.Error as error:
        raise _refused(doing, str(error), "a table with commas", "Save it again.") from error


def _row(
    fields: Mapping[str, str],
    columns: Mapping[str, str],
    numeric: Sequence[str],
    where: str,
    *,
    is_text: bool,
) -> AnswerRecord:
    metrics = {}
    for name in numeric:
        value = _number(fields[name])
        if value is None or not math.isfinite(value):
            raise _refused(
                where, f"'{fields[name]}' for '{name}'", "a finite number", "Correct the table."
            )
        metrics[name] = value
    found = {key: fields[name] for key, name in columns.items() if name in fields}
    read: Callable[[str], int | list[int] | str] = str if is_text else _class_or_text
    answer, label = (read(found[key]) if key in found else None for key in ("answer", "label"))
    return AnswerRecord(
        id=found["id"], answer=answer, label=label, metrics=metrics, source=found.get("source")
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _class_or_text(text: str) -> int | list[int] | str:
    """``3`` is a class, ``[3, 5, 1]`` classes best first, anything else a text, whole numbers
    of more digits too.
    """
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
        return int(text)
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if isinstance(found, list) and all(
            type(one) is int and abs(one) < 10**_DIGITS for one in found
        ):
            return found
    return text
