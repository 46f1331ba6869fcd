"""Answers that were recorded elsewhere, in files: JSON lines, arrays by name, or a folder of
raw outputs.

A ``.jsonl`` file has a header and one record for each sample, in any order; keys that are not
listed are ignored:

    {"format": "qbench-answers/1", "data": {"id": "val.npz", "digest": "…"}, "provenance":
    {"device": "pixel-8"}} {"id": "x[0]", "answer": 3, "scores": [0.9]}

An ``.npz`` file has the array ``id`` (n,) of text and arrays of n rows: ``answer``, ``scores``,
``label``, ``source`` as in records; where it has no ``answer``, every other array is the raw output
of its name. A folder has the raw outputs of the sample ID in ``ID.npy`` (of a lone output) or
``ID.npz`` (output → array), without a batch axis. The header is the array ``header``, or the file
``header.json``: the same object as JSON text.
"""

import contextlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.storage import (
    ArchiveError,
    TooLargeError,
    array_names,
    current_factor,
    current_limits,
    json_line,
    read_archive,
    read_array,
    refuse_newer,
    too_large,
)

Array = npt.NDArray[Any]
T = TypeVar("T")

FORMAT = "qbench-answers/1"
HEADER_FILE = "header.json"
UNNAMED_OUTPUT = ""
"""The name of a lone output of a folder, whose files have none."""
_LINE_BYTES = 64 << 20
_WHOLE_CACHES = ("", "none", "f32", "f16", "bf16", "fp16", "fp32", "float32", "float16", "bfloat16")
"""What tools call a cache of floats of 16 or 32 bits."""
_SHOWN = 3
"""Samples that a message names; it counts the others."""


class DataMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data set that was answered: its name, and ``Dataset.digest`` of samples and labels."""

    id: str = ""
    digest: str = ""


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where answers come from: the device, its firmware, the tool that ran the model, versions
    of anything else, and the type of the keys and values that a decoder kept.
    """

    device: str = ""
    firmware: str = ""
    tool: str = ""
    versions: dict[str, str] = {}
    kv_cache: str = ""

    @property
    def narrow_cache(self) -> str:
        """The type of the cache where it holds fewer bits than floats of 16: ``q8_0``; else
        empty.
        """
        return "" if self.kv_cache.lower() in _WHOLE_CACHES else self.kv_cache

    @property
    def packages(self) -> dict[str, str]:
        """Name → version of all but the device. A tool may be written with its version: ``qnn
        2.31``.
        """
        named = {}
        if self.firmware:
            named["firmware"] = self.firmware
        tool, _, version = self.tool.rpartition(" ")
        if tool:
            named[tool] = version
        elif self.tool:
            named["tool"] = self.tool
        return {**named, **self.versions}


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a whole file.

    Args:
        model: the name of the model in suites.
        data: what was answered.
        provenance: by what.
        lower: metrics of its records that are better when lower.
    """

    format: str = FORMAT
    model: str = ""
    data: DataMark = DataMark()
    provenance: Provenance = Provenance()
    lower: list[str] = []


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one sample, T of them; log-probabilities are natural.

    Args:
        realised: (T,) of the token that came, given the tokens before it.
        top: (T, k) the most probable token ids;
        logprobs: (T, k) of these.
        floor: no token of the vocabulary has a lower one; None: not known.
        vocabulary: how many tokens the model chooses from; None: not known.
        window: whether the tokens are those behind the first of a window of running text, of which
            the second half is scored.
    """

    realised: list[float]
    top: list[list[int]]
    logprobs: list[list[float]]
    floor: float | None = None
    vocabulary: int | None = None
    window: bool = False


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The answer to one sample.

    Args:
        id: of the sample, as its data set has it.
        answer: a class or its name, classes best first, a sequence of tokens, a text, or the
            similarity of a pair.
        scores: of the classes in ``answer``; without ``answer``, of all classes.
        metrics: what another harness counted of this sample.
        label: what is right.
        source: what the sample was cut from; samples of one source are not independent.
        content: a digest of the question, by which two files about the same samples are told from
            others.
        tokens: of a language model.
    """

    id: str | int
    answer: int | float | str | list[int] | None = None
    scores: list[float] | None = None
    metrics: dict[str, float | bool] = {}
    label: int | float | str | list[int] | None = None
    source: str | int | None = None
    content: str | None = None
    tokens: TokenRecord | None = None


_RECORD = msgspec.json.Decoder(AnswerRecord)
_HEADER = msgspec.json.Decoder(Header)
_UNDECODED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_REMEDY = "Write one object per line, as docs/answers.md shows."


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """A file or folder of answers; ``open_answers`` makes it. Records are read anew each time."""

    path: Path
    header: Header
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def has_outputs(self) -> bool:
        """Whether it holds raw outputs, which the task of a model decodes."""
        return self.path.is_dir() or (self.path.suffix == ".npz" and "answer" not in self.arrays)

    @property
    def doing(self) -> str:
        """The first part of errors about it."""
        return f"Reading the answers '{self.path}'"

    def named_classes(self) -> int | None:
        """How many classes the first record names, the best first; None: it has no classes, or
        there are outputs.

        Raises:
            InputError: there is no record, or the first is none.
        """
        if self.has_outputs:
            return None
        first = next(self.records())
        if first.answer is None:
            return len(first.scores) if first.scores else None
        return len(first.answer) if isinstance(first.answer, list) else 1

    def records(self) -> Iterator[AnswerRecord]:
        """Every record, in the order of the file.

        Raises:
            InputError: a line is no record, has NaN, or has other fields than those before it; or
                there is no record.
        """
        first: AnswerRecord | None = None
        form: tuple[object, ...] = ()
        metrics: Collection[str] = ()
        for line, record in self._rows() if self.path.suffix == ".npz" else _lines(self.path):
            if first is None:
                first, form, metrics = record, _form(record), record.metrics.keys()
            elif _form(record) != form or record.metrics.keys() != metrics:
                raise InputError(
                    f"{self.doing}, {self._unit} {line}, sample '{record.id}'",
                    found=f"a record with {_fields(record)}",
                    expected=f"{_fields(first)}, as in the records before it",
                    remedy=(
                        "Write the same fields for every sample; keep several runs in several "
                        "files."
                    ),
                )
            if wrong := _not_finite(record):
                raise InputError(
                    f"{self.doing}, {self._unit} {line}, sample '{record.id}'",
                    found=f"NaN or Inf in '{wrong}'",
                    expected="finite numbers",
                    remedy=(
                        "Look for what failed on this sample; it is not counted as right or wrong."
                    ),
                )
            yield record
        if first is None:
            raise InputError(
                self.doing,
                found="no record",
                expected="one for each sample",
                remedy="Record the answers again.",
            )

    @property
    def _unit(self) -> str:
        return "row" if self.path.suffix == ".npz" else "line"

    def _rows(self) -> Iterator[tuple[int, AnswerRecord]]:
        columns = {
            name: array.tolist()
            for name, array in self.arrays.items()
            if name in AnswerRecord.__struct_fields__
        }
        for row, identity in enumerate(columns.pop("id")):
            values = {name: column[row] for name, column in columns.items()}
            try:
                record = msgspec.convert({"id": identity, **values}, AnswerRecord)
            except msgspec.ValidationError as error:
                raise InputError(
                    f"{self.doing}, row {row}",
                    found=_worded(error),
                    expected="arrays as of records",
                    remedy=_REMEDY,
                ) from error
            yield row, record

    @property
    def output_ids(self) -> tuple[str, ...]:
        """The samples that it has raw outputs of."""
        if self.path.is_dir():
            paths = (path for path in self.path.rglob("*.np[yz]") if path.is_file())
            return tuple(sorted(path.relative_to(self.path).as_posix()[:-4] for path in paths))
        return tuple(map(str, self.arrays["id"].tolist()))

    def outputs(self, ids: Sequence[str]) -> dict[str, Array]:
        """Output → (len(ids), …), the raw outputs of these samples; a lone one of a folder is
        ``UNNAMED_OUTPUT``.

        Raises:
            InputError: an array cannot be read, or two samples have different outputs or shapes.
        """
        if not self.path.is_dir():
            rows = _places(tuple(map(str, self.arrays["id"].tolist())), ids)
            return {name: array[rows] for name, array in self.arrays.items() if name != "id"}
        found = [self._sample(one) for one in ids]
        for one, arrays in zip(ids, found, strict=True):
            if _shapes(arrays) != _shapes(found[0]):
                raise InputError(
                    f"{self.doing}, sample '{one}'",
                    found=f"the outputs {_shapes(arrays)}",
                    expected=f"{_shapes(found[0])}, as of sample '{ids[0]}'",
                    remedy="Record every sample with the same model.",
                )
        return {name: np.stack([arrays[name] for arrays in found]) for name in found[0]}

    def _sample(self, identity: str) -> dict[str, Array]:
        most = current_limits().tensor_bytes
        lone, several = (self.path / f"{identity}{ending}" for ending in (".npy", ".npz"))
        path = lone if lone.is_file() else several
        try:
            return (
                {UNNAMED_OUTPUT: read_array(path, most=most)}
                if path == lone
                else read_archive(path, most=most)
            )
        except TooLargeError as error:
            raise too_large(
                f"{self.doing}, sample '{identity}'", "arrays", error.size, "tensor_bytes"
            ) from error
        except (ArchiveError, OSError) as error:
            found = f"that '{path.name}' cannot be read ({error})"
            raise InputError(
                f"{self.doing}, sample '{identity}'",
                found=found,
                expected="arrays",
                remedy="Record it again.",
            ) from error


def open_answers(path: Path) -> AnswerFile:
    """The answers at ``path``, with their header; records are read later.

    Raises:
        InputError: nothing there, another kind of file, a damaged header or one of another format,
            or arrays that do not fit together.
    """
    doing = f"Reading the answers '{path}'"
    if path.is_dir():
        header = path / HEADER_FILE
        found = AnswerFile(
            path, _header(header.read_bytes(), doing) if header.is_file() else Header()
        )
        if not found.output_ids:
            raise InputError(
                doing,
                found="a folder without .npy and .npz files",
                expected="the raw outputs of each sample",
                remedy="Name another folder.",
            )
        return found
    if not path.is_file():
        raise InputError(
            doing,
            found="nothing at that path",
            expected="a .jsonl or .npz file, or a folder",
            remedy="Check the path.",
        )
    if path.suffix == ".npz":
        return _open_arrays(path, doing)
    if path.suffix != ".jsonl" and not is_answer_file(path):
        raise InputError(
            doing,
            found=f"a file that ends in '{path.suffix}'",
            expected="a .jsonl or .npz file, or a folder of .npy files",
            remedy="Turn logs of other tools into one: qbench import FILE -o answers.jsonl.",
        )
    with path.open("rb") as file:
        start = file.readline(_LINE_BYTES)
    return AnswerFile(path, _header(start, doing) if _first_line(start).is_header else Header())


def is_answer_file(path: Path) -> bool:
    """Whether ``path`` is a file of answers and not one of a run: by its header, under whatever
    name, or in a ``.jsonl`` file without one by the id of its first record.
    """
    if path.suffix == ".npz" and path.is_file():
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = _first_line(file.readline(_LINE_BYTES))
    if first.is_header:
        return str(first.format).startswith("qbench-answers")
    return path.suffix == ".jsonl" and first.id is not None


def answer_lines(header: Header, records: Iterator[AnswerRecord]) -> Iterator[bytes]:
    """The lines of a ``.jsonl`` file that ``open_answers`` reads."""
    yield json_line(msgspec.to_builtins(header) | {"format": FORMAT}).encode(
        "utf-8", "backslashreplace"
    )
    encode = msgspec.json.Encoder().encode
    for record in records:
        yield encode(record) + b"\n"


def _lines(path: Path) -> Iterator[tuple[int, AnswerRecord]]:
    decode = _RECORD.decode
    for number, line in json_lines(path):
        if number == 1 and _first_line(line).is_header:
            continue
        try:
            record = decode(line)
        except _UNDECODED as error:
            raise _undecoded(line, f"Reading the answers '{path}', line {number}", error) from error
        yield number, record


def json_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number, from 1, and bytes of every line at ``path`` that is not blank, one at a time.

    Raises:
        InputError: a line of more than 64 MiB, times the factor of the size limits.
    """
    most = _LINE_BYTES * current_factor()
    with path.open("rb") as file:
        number = 0
        while line := file.readline(most):
            number += 1
            if len(line) == most and not line.endswith(b"\n"):
                raise InputError(
                    f"Reading '{path}', line {number}",
                    found=f"more than {most >> 20} MiB in one line",
                    expected="one sample in each line",
                    remedy="Check the file; if you trust it, raise the limits: --size-limits 2.",
                )
            if not line.isspace():
                yield number, line


def decoded_line(decoder: "msgspec.json.Decoder[T]", line: bytes, doing: str) -> T:
    """The value of ``line``.

    Raises:
        InputError: it is no JSON, has NaN (Python writes it, JSON has no such number), or is
            another value.
    """
    try:
        return decoder.decode(line)
    except _UNDECODED as error:
        raise _undecoded(line, doing, error) from error


def _undecoded(line: bytes, doing: str, error: Exception) -> InputError:
    found = _worded(error)
    try:
        json.loads(line)
    except ValueError:
        found = "no whole JSON object" if "truncated" in str(error) else f"no JSON ({error})"
    except RecursionError:
        found = "JSON of too many levels"
    else:
        if any(word in line for word in (b"NaN", b"Infinity")):
            found = "NaN or Infinity"
    return InputError(doing, found=found, expected="a record of finite numbers", remedy=_REMEDY)


_KINDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "a truth value",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_WRONG = re.compile(r"got `(?P<kind>\w+)`(?: - at `\$\.?(?P<field>\w*))?|field `(?P<lacking>\w+)`")


def _worded(error: Exception) -> str:
    """What a value that does not fit its field is, in plain words: of the parser's, which has
    types and a path.
    """
    found = _WRONG.search(str(error))
    if found is None:
        return str(error).partition(" - at ")[0].replace("`", "'")
    if found["lacking"]:
        return f"no '{found['lacking']}'"
    kind = _KINDS.get(found["kind"], found["kind"])
    return f"{kind} in '{found['field']}'" if found["field"] else kind


class _FirstLine(msgspec.Struct):
    """What tells a header from a record; a line that is neither has nothing of both."""

    format: Any = None
    id: Any = None

    @property
    def is_header(self) -> bool:
        return self.format is not None


def _first_line(line: bytes) -> _FirstLine:
    with contextlib.suppress(*_UNDECODED):
        return msgspec.json.decode(line, type=_FirstLine)
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)  # with NaN, which Python writes: the reader of records names it
        if isinstance(found, dict):
            return _FirstLine(found.get("format"), found.get("id"))
    return _FirstLine()


def _header(text: bytes, doing: str) -> Header:
    try:
        found = _HEADER.decode(text)
    except _UNDECODED as error:
        raise InputError(
            f"{doing}, its header",
            found=_worded(error),
            expected="a header of answers",
            remedy=_REMEDY,
        ) from error
    refuse_newer(f"{doing}, its header", found.format, FORMAT)
    if found.format != FORMAT:
        raise InputError(
            f"{doing}, its header",
            found=f"the format '{found.format}'",
            expected=f"'{FORMAT}'",
            remedy="Install a version of qbench that reads it, or name a file of answers.",
        )
    return found


def _open_arrays(path: Path, doing: str) -> AnswerFile:
    remedy = (
        "Write it with numpy.savez(path, id=names, answer=…), or with an array for each output."
    )
    arrays: dict[str, Array] = {}
    try:
        listed = array_names(path)
        found = f"the arrays {', '.join(listed) or '(none)'}"
        if {"id", *listed} - {"header"} != {"id"} and "id" in listed:
            arrays = read_archive(path, most=current_limits().tensor_bytes)
    except TooLargeError as error:
        raise too_large(doing, "arrays", error.size, "tensor_bytes") from error
    except (ArchiveError, OSError) as error:
        found = str(error)
    if not arrays:
        raise InputError(
            doing,
            found=found,
            expected="the array 'id' and one of answers or outputs",
            remedy=remedy,
        )
    text = arrays.pop("header", None)
    header = Header() if text is None else _header(str(text).encode(), doing)
    count = arrays["id"].shape
    if len(count) != 1 or any(array.shape[:1] != count for array in arrays.values()):
        shapes = ", ".join(f"'{name}' {array.shape}" for name, array in arrays.items())
        raise InputError(
            doing, found=shapes, expected="one row for each id in every array", remedy=remedy
        )
    if not count[0]:
        raise InputError(
            doing, found="no sample", expected="at least one", remedy="Record the answers again."
        )
    return AnswerFile(path, header, arrays)


def _form(record: AnswerRecord) -> tuple[object, ...]:
    return (
        type(record.answer),
        record.scores is None,
        record.label is None,
        record.source is None,
        record.content is None,
        record.tokens is None,
    )


def _fields(record: AnswerRecord) -> str:
    kinds = {int: "a number", float: "a number with a fraction", str: "a text", list: "a list"}
    named = {
        f"'answer' ({kinds.get(type(record.answer), '')})": record.answer,
        "'scores'": record.scores,
        "'label'": record.label,
        "'source'": record.source,
        "'content'": record.content,
        "'tokens'": record.tokens,
    }
    metrics = [f"the metric '{name}'" for name in record.metrics]
    return (
        ", ".join([*(name for name, value in named.items() if value is not None), *metrics])
        or "'id' alone"
    )


def _not_finite(record: AnswerRecord) -> str:
    """The field with NaN, which arrays may hold, or with a number such as 1e999, which JSON
    may; else empty.
    """
    isfinite = math.isfinite
    for name, value in record.metrics.items():
        if not isfinite(value):
            return name
    if record.scores is not None and not all(map(isfinite, record.scores)):
        return "scores"
    if type(record.label) is float and not isfinite(record.label):
        return "label"
    return "answer" if type(record.answer) is float and not isfinite(record.answer) else ""


def listed_ids(ids: Sequence[str]) -> str:
    """``'a', 'b', 'c' and 4 more``."""
    shown = ", ".join(f"'{one}'" for one in ids[:_SHOWN])
    return shown + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")


def _places(have: Sequence[str], ids: Sequence[str]) -> list[int]:
    place = {identity: row for row, identity in enumerate(have)}
    return [place[one] for one in ids]


def _shapes(arrays: Mapping[str, Array]) -> str:
    return ", ".join(f"'{name}' {array.shape}" for name, array in sorted(arrays.items()))
