"""``qbench compare a.jsonl b.jsonl``: a paired test of two files of answers, without a suite."""

import argparse
import hashlib
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from qbench.cli.command import ExitCode
from qbench.cli.options import names_of
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.cli.token_lines import plain_table, print_token_table
from qbench.errors import IncomparableError, InputError, unknown_name
from qbench.judging import (
    TOO_FEW,
    Evidence,
    LossEvidence,
    no_drop_text,
    sample_text,
    shown_by,
    too_few_text,
)
from qbench.metrics import (
    TOKEN_KL,
    TOKEN_KL_MOST,
    TOKEN_PERPLEXITY,
    TOKEN_TOP1,
    Against,
    AnswerFile,
    Answers,
    Counts,
    Direction,
    Metric,
    Score,
    TokenRecord,
    TokenStreams,
    TokenTable,
    catalogue,
    listed_ids,
    open_answers,
    score,
    streams_of,
    token_table,
)
from qbench.number_text import change_text, counted, distance_text, value_text

if TYPE_CHECKING:
    from qbench.metrics import AnswerRecord

Array = npt.NDArray[Any]
Rows = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""The places of the common samples in the earlier and in the later file."""

_EXACT = 2.0**53
"""The greatest sum of counts: up to it floats add whole numbers exactly."""
_WHOLE = 2.0**62
"""The greatest sum of what is counted out of."""
_FINE = 2.0**23
"""Parts that the largest value has at least: none is rounded by a larger share of it than in
float32.
"""

CORRECT = "correct"
"""The metric of records with an answer and a label: whether the two are equal."""


@dataclass(slots=True)
class Log:
    """What a comparison keeps of a file: of every record some numbers, and its id.

    Args:
        places: id → row.
        values: metric → (n,). answers, labels, contents: (n,) hashes, 0 where a record has none.
        sources, tokens: of each sample; empty where records have none.
        names: the different sources.
    """

    file: AnswerFile
    places: dict[str, int] = field(default_factory=dict)
    values: "dict[str, array[float]]" = field(default_factory=dict)
    answers: "array[int]" = field(default_factory=lambda: array("q"))
    labels: "array[int]" = field(default_factory=lambda: array("q"))
    contents: "array[int]" = field(default_factory=lambda: array("q"))
    sources: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    tokens: list[TokenRecord] = field(default_factory=list)
    is_comparable: bool = False
    """Whether a record has an answer and a label that can be equal: both texts, or both numbers."""

    @classmethod
    def read(cls, path: Path) -> "Log":
        """The file at ``path``.

        Raises:
            InputError: it cannot be read, holds raw outputs, has a sample twice, or no answer that
                its label can equal.
        """
        log = cls(open_answers(path))
        if log.file.has_outputs:
            raise InputError(
                log.file.doing,
                found="raw outputs",
                expected=(
                    "answers or counts of each sample, when two files are compared without a model"
                ),
                remedy=(
                    "Measure it with its model: qbench eval MODEL --data D --backend answers:PATH."
                ),
            )
        for record in log.file.records():
            log._add(record)
        if CORRECT in log.values and not log.is_comparable:
            raise InputError(
                log.file.doing,
                found=(
                    "texts as answers and numbers as labels, or the other way round: none can be "
                    "right"
                ),
                expected="answers and labels of one kind",
                remedy="Write both as class numbers, or both as texts.",
            )
        return log

    def _add(self, record: "AnswerRecord") -> None:
        sample = str(record.id)
        if self.places.setdefault(sample, len(self.answers)) != len(self.answers):
            raise InputError(
                self.file.doing,
                found=f"the sample '{sample}' twice",
                expected="every sample once",
                remedy="Keep one answer of each sample; keep repeated runs in files of their own.",
            )
        for name, value in record.metrics.items():
            self.values.setdefault(name, array("d")).append(value)
        answer = tuple(record.answer) if isinstance(record.answer, list) else record.answer
        if answer is not None and record.label is not None and not record.metrics:
            self._require_label(sample, record.label)
            self.values.setdefault(CORRECT, array("d")).append(_is_right(answer, record.label))
            self.is_comparable |= isinstance(answer, str) == isinstance(record.label, str)
        self.answers.append(_digest(record.answer))
        self.labels.append(_digest(record.label))
        self.contents.append(_digest(record.content))
        if record.source is not None:
            name = str(record.source)
            self.sources.append(self.names.setdefault(name, name))  # one text for each source
        if record.tokens is not None:
            self.tokens.append(record.tokens)

    def _require_label(self, sample: str, label: object) -> None:
        """Refuse a label that says nothing: an answer that is missing would be right by it."""
        is_blank = not label.strip() if isinstance(label, str) else label == []
        if is_blank:
            raise InputError(
                f"{self.file.doing}, sample '{sample}'",
                found="an empty label",
                expected="what is right, as an answer without content is right by nothing",
                remedy="Write the word that means no answer into 'answer' and 'label', or leave "
                "the sample out of both files.",
            )

    def streams(self, rows: "npt.NDArray[np.intp]") -> TokenStreams:
        """The tokens of the samples at ``rows``.

        Raises:
            InputError: lists of different length, or probabilities that are none.
        """
        try:
            return streams_of([self.tokens[row] for row in rows.tolist()])
        except ValueError as error:
            raise InputError(
                self.file.doing,
                found=str(error),
                expected="for each token its log-probability, and the k best tokens with theirs",
                remedy="Write the keys of 'tokens' as docs/answers.md shows.",
            ) from error


def _digest(value: object) -> int:
    """64 bits that tell values apart, 0 for None. Python's ``hash`` does not: that of -1 is
    that of -2.
    """
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 3.0 equals 3
    return int.from_bytes(
        hashlib.blake2b(msgspec.json.encode(value), digest_size=8).digest(), signed=True
    )


def _is_right(answer: object, label: object) -> bool:
    """Whether the answer, or the best one of a list, is the label or one of several."""
    if isinstance(answer, tuple) and not isinstance(label, list):
        return bool(answer) and answer[0] == label
    if isinstance(label, list) and not isinstance(answer, tuple):
        return answer in label
    return answer == (tuple(label) if isinstance(label, list) else label)


@dataclass(frozen=True, slots=True, eq=False)
class _Counted(Answers):
    """Counts that a harness made: (n,) each."""

    hits: "npt.NDArray[np.int64]"
    out_of: "npt.NDArray[np.int64]"

    @property
    def form(self) -> str:
        """Counts."""
        return "counts"

    def arrays(self) -> Mapping[str, Array]:
        """Both."""
        return {"hits": self.hits, "out_of": self.out_of}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two files, sample by sample.

    Args:
        scores: of the later file, each counted against the earlier one.
        evidence: of each about the margin; None: the score has no paired test. only_old, only_new:
            samples that the other file lacks.
        changed: samples whose answers differ; None: records have none.
        sources: how many the samples come from; None: each has its own.
        tokens: the table of token streams; None: records have none, or none of their metrics was
            named. has_other_tokens: a number of a stream differs, however little.
    """

    samples: int
    scores: tuple[Score, ...]
    evidence: tuple[LossEvidence | None, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    changed: int | None
    sources: int | None
    tokens: TokenTable | None = None
    has_other_tokens: bool = False

    @property
    def differs(self) -> bool:
        """Whether a sample has another answer, another value or other tokens."""
        is_another_value = any(
            one.losses or one.gains or one.hits != one.reference_hits for one in self.scores
        )
        return bool(self.changed) or is_another_value or self.has_other_tokens


def compare_logs(
    old: Log, new: Log, *, names: Sequence[str] = (), margin: float | None = None
) -> Compared:
    """The samples that both have, paired.

    Args:
        names: of the metrics; none: all that both have.
        margin: the largest loss that passes; None: 0.

    Raises:
        InputError: other data, or a metric that one of the two lacks.
        IncomparableError: no sample is in both.
    """
    _require_same_data(old, new)
    common = [one for one in old.places if one in new.places]
    if not common:
        raise IncomparableError(
            f"Comparing '{old.file.path}' with '{new.file.path}'",
            found=(
                f"no common sample: {listed_ids(list(old.places))}, and "
                f"{listed_ids(list(new.places))}"
            ),
            expected="answers to the same samples",
            remedy="Name two files about the same data.",
        )
    rows, others = (
        np.fromiter((log.places[one] for one in common), dtype=np.intp, count=len(common))
        for log in (old, new)
    )
    _require_same_contents(old, new, common, (rows, others))
    _require_same_labels(old, new, common, (rows, others))
    _require_same_sources(old, new, common, (rows, others))
    sources = _common_sources(old, new, (rows, others))
    scores = tuple(_scores(old, new, (rows, others), sources, names))
    most_lost = 0.0 if margin is None else margin
    count = 0 if sources is None else len(set(sources))
    tokens = _table_of_tokens(old, new, (rows, others), sources, names)
    return Compared(
        samples=len(common),
        scores=scores,
        evidence=tuple(shown_by(one, most_lost) for one in scores),
        only_old=tuple(one for one in old.places if one not in new.places),
        only_new=tuple(one for one in new.places if one not in old.places),
        changed=_changed_answers(old, new, (rows, others)),
        sources=count if 0 < count < len(common) else None,
        tokens=tokens,
        has_other_tokens=tokens is not None and _other_tokens(old, new, (rows, others)),
    )


def _other_tokens(old: Log, new: Log, places: Rows) -> bool:
    """Whether the tokens of a sample differ, compared as they were written."""
    pairs = zip(places[0].tolist(), places[1].tolist(), strict=True)
    return any(old.tokens[before] != new.tokens[after] for before, after in pairs)


def _table_of_tokens(
    old: Log, new: Log, rows: Rows, sources: list[str] | None, names: Sequence[str]
) -> TokenTable | None:
    if not (old.tokens and new.tokens) or (names and not {*names} & {*_TOKENS}):
        return None
    before, after = old.streams(rows[0]), new.streams(rows[1])
    try:
        return token_table(before, after, sources)
    except ValueError as error:
        doing = f"Comparing '{old.file.path}' with '{new.file.path}'"
        raise _tokens_apart(doing, error) from error


def _tokens_apart(doing: str, error: ValueError) -> InputError:
    return InputError(
        doing,
        found=str(error),
        expected="the same tokens in both",
        remedy="Score the same tokens with both models.",
    )


def _common_sources(old: Log, new: Log, places: Rows) -> list[str] | None:
    """The source of each common sample, of the earlier file that names them; None: neither does."""
    for log, rows in zip((old, new), places, strict=True):
        if log.sources:
            return [log.sources[row] for row in rows.tolist()]
    return None


def _changed_answers(old: Log, new: Log, places: Rows) -> int | None:
    """In how many common samples the answers differ; None where a file has none."""
    before, after = (
        np.frombuffer(log.answers, np.int64)[rows]
        for log, rows in zip((old, new), places, strict=True)
    )
    if not before.any() or not after.any():
        return None
    return int((before != after).sum())


def _scores(
    old: Log,
    new: Log,
    rows: Rows,
    sources: list[str] | None,
    names: Sequence[str],
) -> Iterator[Score]:
    doing = f"Comparing '{old.file.path}' with '{new.file.path}'"
    known = [name for name in old.values if name in new.values]
    tokens = _TOKENS if old.tokens and new.tokens else ()
    if not known and not tokens:
        raise IncomparableError(
            doing,
            found=f"the metrics {_listed(old.values)}, and {_listed(new.values)}",
            expected="a metric that both have, or an answer and a label in each record",
            remedy="Write what is right as 'label', or count the same in both.",
        )
    for name in names:
        if name not in known and name not in tokens:
            raise unknown_name(doing, "metric", name, [*known, *tokens])
    for name in names or [*known, *tokens]:
        if name in known:
            values = [
                np.frombuffer(log.values[name])[at]
                for log, at in zip((old, new), rows, strict=True)
            ]
            parts = _parts(doing, name, values)
            direction = _direction(doing, name, old, new)
            _require_one_scale(doing, name, values, direction)
            yield _scored(name, values, sources, direction=direction, parts=parts)
    asked = [name for name in names or tokens if name in tokens]
    if asked:
        yield from _token_scores(doing, old.streams(rows[0]), new.streams(rows[1]), sources, asked)


def _direction(doing: str, name: str, old: Log, new: Log) -> Direction:
    """Which values of the metric are better: as qbench defines a metric of that name, else as
    both headers say.

    Raises:
        InputError: the headers say different things, or a header contradicts the definition.
    """
    stated = [
        Direction.LOWER if name in log.file.header.lower else Direction.HIGHER for log in (old, new)
    ]
    if stated[0] is not stated[1]:
        raise InputError(
            doing,
            found=f"that the metric '{name}' is better {stated[0].value} by the header of the "
            f"first file, and {stated[1].value} by that of the second",
            expected="one direction, as the file that is judged does not choose it",
            remedy="Write the same names as 'lower' into both headers.",
        )
    known = catalogue()
    if not known.knows(name):
        return stated[0]
    defined = known.get(name).direction
    if stated[0] is Direction.LOWER and defined is Direction.HIGHER:
        raise InputError(
            doing,
            found=f"the metric '{name}' as better when lower, in both headers",
            expected=f"'{name}' as qbench defines it, which is better when higher",
            remedy="Take it from 'lower', or give a metric of another meaning another name.",
        )
    return defined


def _require_one_scale(
    doing: str, name: str, values: Sequence[Array], direction: Direction
) -> None:
    """Refuse percent against shares: 45 would be more than 0.9."""
    before, after = (float(one.max()) for one in values)
    is_share = [float(one.min()) >= 0 and float(one.max()) <= 1 for one in values]
    if direction is Direction.HIGHER and is_share[0] and after > 1:
        raise InputError(
            doing,
            found=(
                f"values of '{name}' up to {before:g} in the first file and up to {after:g} in the "
                "second"
            ),
            expected="one unit in both: the first has shares from 0 to 1",
            remedy="Write both as shares, or both in the other unit.",
        )


# Values are counted in whole parts, so that sums are exact. How many parts make 1 follows from the
# largest value: a power of two, so that values of another unit give the same counts.


def _parts(doing: str, name: str, values: Sequence[Array]) -> int:
    """How many parts of 1 the values are counted in.

    Raises:
        InputError: the values are so large that 64 bits do not hold their sum, or so small that
            no part is fine enough.
    """
    greatest, count = max(float(np.abs(one).max()) for one in values), len(values[0])
    most = _EXACT / count
    if greatest > most:
        raise InputError(
            doing,
            found=f"{greatest:.4g} for the metric '{name}'",
            expected=f"values up to {most:.4g} of {counted(count, 'sample')}",
            remedy="Write the metric in a larger unit.",
        )
    finest = _WHOLE / count
    wanted = min(most / greatest, finest) if greatest else finest
    parts = 1 << (math.frexp(wanted)[1] - 1)
    fewest = min(_FINE, most / 2)
    if greatest and greatest * parts < fewest:
        raise InputError(
            doing,
            found=f"values up to {greatest:.4g} for the metric '{name}'",
            expected=f"one from {fewest / parts:.4g} on",
            remedy="Write the metric in a smaller unit.",
        )
    return parts


def _scored(
    name: str,
    values: Sequence[Array],
    sources: list[str] | None,
    *,
    direction: Direction,
    parts: int,
) -> Score:
    """The score of the values before and after; where all are 0 or 1 a share of right samples,
    else a mean, counted in ``parts`` of 1.

    Losses and gains are those of the values themselves, not of the parts they are counted in.
    """
    is_share = all(bool(np.isin(one, (0.0, 1.0)).all()) for one in values)
    whole = 1 if is_share else parts
    metric = Metric(
        name=name,
        title=name,
        direction=direction,
        against=Against.LABELS,
        count=lambda answers, _labels, _reference: Counts(answers.hits, answers.out_of),
        unit="%" if is_share else "",
        proportion=is_share,
    )
    out_of = np.full(len(values[0]), whole, np.int64)
    reference, now = (_Counted(np.rint(whole * one).astype(np.int64), out_of) for one in values)
    found = score(metric, now, labels=((),) * len(now), reference=reference, sources=sources)
    before, after = values
    fewer, more = int((after < before).sum()), int((after > before).sum())
    losses, gains = (fewer, more) if direction is Direction.HIGHER else (more, fewer)
    return replace(found, losses=losses, gains=gains)


_KL, _TOP1, _PERPLEXITY = _TOKENS = (TOKEN_KL.name, TOKEN_TOP1.name, TOKEN_PERPLEXITY.name)
"""Metrics of token streams."""


def _token_scores(
    doing: str,
    before: TokenStreams,
    after: TokenStreams,
    sources: list[str] | None,
    names: Sequence[str],
) -> Iterator[Score]:
    metrics = {
        _KL: (TOKEN_KL, TOKEN_KL_MOST),
        _TOP1: (TOKEN_TOP1,),
        _PERPLEXITY: (TOKEN_PERPLEXITY,),
    }
    for metric in (one for name in names for one in metrics[name]):
        try:
            yield score(metric, after, labels=((),) * len(after), reference=before, sources=sources)
        except ValueError as error:
            if metric is not TOKEN_KL_MOST:
                raise _tokens_apart(doing, error) from error


def _require_same_data(old: Log, new: Log) -> None:
    before, after = old.file.header.data.digest, new.file.header.data.digest
    if before and after and before != after:
        raise InputError(
            f"Comparing '{old.file.path}' with '{new.file.path}'",
            found=f"answers to the data {before[:12]}… and {after[:12]}…",
            expected="one revision of the data in both",
            remedy="Record the answers again with the same data.",
        )


def _require_same_contents(old: Log, new: Log, common: Sequence[str], rows: Rows) -> None:
    before, after = (
        np.frombuffer(log.contents, np.int64)[at] for log, at in zip((old, new), rows, strict=True)
    )
    other = np.flatnonzero((before != after) & (before != 0) & (after != 0))
    if len(other):
        raise InputError(
            f"Comparing '{old.file.path}' with '{new.file.path}'",
            found=(
                f"another question in {counted(len(other), 'sample')} "
                f"({listed_ids([common[i] for i in other[:9]])})"
            ),
            expected="the same questions under the same ids",
            remedy="Name two files about one revision of the data.",
        )


def _require_same_labels(old: Log, new: Log, common: Sequence[str], rows: Rows) -> None:
    """Refuse files that call other answers right: the file that is judged would be judged by
    its own labels.
    """
    before, after = (
        np.frombuffer(log.labels, np.int64)[at] for log, at in zip((old, new), rows, strict=True)
    )
    other = np.flatnonzero((before != after) & (before != 0) & (after != 0))
    if len(other):
        samples = listed_ids([common[place] for place in other[:9]])
        raise InputError(
            f"Comparing '{old.file.path}' with '{new.file.path}'",
            found=f"another label of {counted(len(other), 'sample')} ({samples})",
            expected="the same labels under the same ids",
            remedy="Record both with one revision of the labels.",
        )


def _require_same_sources(old: Log, new: Log, common: Sequence[str], rows: Rows) -> None:
    """Refuse files that tell samples apart in different ways: the result would depend on which
    is named first.
    """
    if not (old.sources and new.sources):
        return
    pairs = zip(common, rows[0].tolist(), rows[1].tolist(), strict=True)
    other = [sample for sample, before, after in pairs if old.sources[before] != new.sources[after]]
    if other:
        raise InputError(
            f"Comparing '{old.file.path}' with '{new.file.path}'",
            found=f"another source of {counted(len(other), 'sample')} ({listed_ids(other)})",
            expected="the same sources in both",
            remedy="Write the same sources into both files, or into one alone.",
        )


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "(none)"


# Printing.


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Compare two files of answers.

    GATE_FAILED without a margin: a sample differs; with one: a loss is proven to be beyond it.
    INCOMPLETE: a sample is in one file alone, or a margin is neither proven nor refuted.

    Raises:
        QbenchError: a file cannot be read, or the two cannot be compared.
    """
    if arguments.across or arguments.all or arguments.top is not None:
        raise InputError(
            f"Comparing '{arguments.old}' with '{arguments.new}'",
            found="--across, --all or --top with files of answers",
            expected="these options with runs alone",
            remedy="Leave them out.",
        )
    old, new = (Log.read(Path(text)) for text in (arguments.old, arguments.new))
    found = compare_logs(old, new, names=names_of(arguments.metric or ""), margin=arguments.margin)
    _require_one_unit(found, arguments)
    _require_possible_margin(found, arguments)
    code = _code(found, arguments.margin)
    if arguments.json:
        print_json(_table(found, arguments))
        return code
    words = f", from {counted(found.sources, 'source')}" if found.sources else ""
    put(f"{arguments.old} → {arguments.new}: {counted(found.samples, 'sample')} of both{words}")
    for path, only in ((arguments.old, found.only_old), (arguments.new, found.only_new)):
        if only:
            say(
                f"only in {path}: {counted(len(only), 'sample')} ({listed_ids(only)}), not compared"
            )
    if narrow := old.file.header.provenance.narrow_cache:
        put(
            f"{arguments.old} ran with its cache in {narrow}: the differences are those from a "
            "reference that is quantized itself"
        )
    if found.changed is not None:
        put(f"other answers in {counted(found.changed, 'sample')}")
    pairs = zip(found.scores, found.evidence, strict=True)
    header = ("metric", "A", "B", "change", "interval", "which", "losses", "gains", "p")
    print_columns([_row(one, shown) for one, shown in pairs], header)
    if found.tokens is not None:
        print_token_table(found.tokens)
    _print_notes(found, arguments.margin)
    return code


def _require_one_unit(found: Compared, arguments: argparse.Namespace) -> None:
    units = {one.metric: one.unit for one in found.scores}
    if arguments.margin is not None and len(set(units.values())) > 1:
        raise InputError(
            f"Comparing '{arguments.old}' with '{arguments.new}'",
            found=f"--margin for the metrics {', '.join(units)}, which have several units",
            expected="metrics of one unit",
            remedy="Name the metrics that the margin is for: --metric NAME.",
        )


def _require_possible_margin(found: Compared, arguments: argparse.Namespace) -> None:
    """Refuse a margin that no loss of a share exceeds: it is one in points, where fractions are
    expected.
    """
    margin, shares = arguments.margin, [one.metric for one in found.scores if one.unit == "%"]
    if margin is None or margin < 1 or not shares:
        return
    raise InputError(
        f"Comparing '{arguments.old}' with '{arguments.new}'",
        found=f"--margin {margin:g}, which is {100 * margin:g} pp of '{shares[0]}'",
        expected="less than 1 for a share: it cannot lose more than all",
        remedy=f"Write points as a share: {margin:g} points are {margin / 100:g}.",
    )


def _print_notes(found: Compared, margin: float | None) -> None:
    names = {one.metric for one in found.scores}
    if TOKEN_KL.name in names and TOKEN_KL_MOST.name not in names:
        put(
            "token_kl is a lower bound; without 'floor' nothing bounds what lies outside the "
            "stored tokens"
        )
    for one, shown in zip(found.scores, found.evidence, strict=True):
        if margin is not None:
            put(f"{one.metric}, margin {_margin_text(margin, one)}: {_proof_text(one, shown)}")
        elif nothing := too_few_text(one):
            put(f"{one.metric}: {nothing}")
        elif shown is not None and one.against is Against.LABELS:
            put(f"{one.metric}: {_detects_text(one, shown.detectable)}")
    _print_what_bounds_leave_open(found, margin)


def _detects_text(one: Score, detectable: float | None) -> str:
    if detectable is None:
        return no_drop_text(one)
    return f"these samples detect a change of {distance_text(detectable, one.unit)}"


def _margin_text(margin: float, one: Score) -> str:
    return f"{100 * margin:g} pp" if one.unit == "%" else f"{margin:g} {one.unit}".rstrip()


def _proof_text(one: Score, shown: LossEvidence | None) -> str:
    if shown is None:
        why = "all values are one and the same, or too few samples count anything"
        return f"INCONCLUSIVE: {sample_text(one)} have no interval: {why}"
    return shown.text(one)


def _print_what_bounds_leave_open(found: Compared, margin: float | None) -> None:
    """That lists of few tokens cannot prove a divergence to be within ``margin``."""
    values = {one.metric: one.value for one in found.scores}
    least, most = values.get(TOKEN_KL.name), values.get(TOKEN_KL_MOST.name)
    if margin is None or least is None or most is None or not least <= margin < most:
        return
    put(
        f"token_kl is between {least:.4g} and {most:.4g} nats by the stored tokens, which prove no "
        f"margin below {most:.4g}; lists of the whole vocabulary make it exact"
    )


def _code(found: Compared, margin: float | None) -> ExitCode:
    partial = ExitCode.INCOMPLETE if found.only_old or found.only_new else ExitCode.FINE
    if margin is None:
        return ExitCode.GATE_FAILED if found.differs else partial
    evidence = {
        one.metric: Evidence.INCONCLUSIVE if shown is None else shown.evidence
        for one, shown in zip(found.scores, found.evidence, strict=True)
    }
    most = evidence.pop(TOKEN_KL_MOST.name, Evidence.INCONCLUSIVE)
    if evidence.get(TOKEN_KL.name) is Evidence.PASS and most is not Evidence.PASS:
        # it is a lower bound: the divergence itself may be beyond
        evidence[TOKEN_KL.name] = Evidence.INCONCLUSIVE
    if Evidence.FAIL in evidence.values():
        return ExitCode.GATE_FAILED
    if Evidence.INCONCLUSIVE in evidence.values():
        return ExitCode.INCOMPLETE
    return partial


def _row(one: Score, shown: LossEvidence | None) -> tuple[str, ...]:
    """The fields of one metric; a distance from the earlier file, or a share of equal tokens,
    has no change.
    """
    now = value_text(one.value, one.unit)
    ends = _interval_ends(one, shown)
    which = "" if shown is None else shown.interval
    p = "" if shown is None or shown.midp is None else f"{shown.midp:.2g}"
    if one.against is not Against.LABELS:
        least, most = one.bounds
        texts = [
            value_text(min(max(one.reference_value + end, least), most), one.unit) for end in ends
        ]
        return (one.metric, "", now, "", _joined(texts), which, "", "", p)
    before = value_text(one.reference_value, one.unit)
    change = change_text(one.value - one.reference_value, one.unit)
    texts = [change_text(end, one.unit) for end in ends]
    counts = (str(one.losses), str(one.gains))
    return (one.metric, before, now, change, _joined(texts), which, *counts, p)


def _interval_ends(one: Score, shown: LossEvidence | None) -> list[float]:
    """The ends of the interval of the change, the lower first; none where there is none."""
    if shown is None or shown.interval == TOO_FEW:
        return []
    sign = 1 if one.direction is Direction.HIGHER else -1
    return sorted((sign * shown.low, sign * shown.high))


def _joined(texts: Sequence[str]) -> str:
    return " … ".join(text.removesuffix(" pp") for text in texts)


def _table(found: Compared, arguments: argparse.Namespace) -> dict[str, Any]:
    from qbench.storage import plain

    return {
        "old": arguments.old,
        "new": arguments.new,
        "samples": found.samples,
        "sources": found.sources,
        "only_old": list(found.only_old),
        "only_new": list(found.only_new),
        "changed": found.changed,
        "margin": arguments.margin,
        "tokens": None if found.tokens is None else plain_table(found.tokens),
        "scores": [
            plain(one)
            | {"value": one.value, "reference_value": one.reference_value, "shown": plain(shown)}
            for one, shown in zip(found.scores, found.evidence, strict=True)
        ],
    }
