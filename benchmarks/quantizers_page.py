"""The page "Quantizers compared", from the results that ``benchmarks/quantizers.py`` kept."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from quantizers import (
    COST,
    ONNX_BACKENDS,
    OURS,
    RECORD,
    RIVAL,
    SUBJECTS,
    TFLITE_BACKENDS,
    USUAL,
    Result,
    artifacts,
    backends_of,
    interval,
    known_result,
    record,
    recorded_results,
    tools,
    worst_cell,
)

from qbench.evaluation import Subject
from qbench.judging import mcnemar_midp
from qbench.metrics import Direction, Score, score, unpacked_answers
from qbench.number_text import percent, points
from qbench.reporting.markdown import markdown_table
from qbench.storage import Cache, write_text
from qbench.subjects import task_answers

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "quantizers.md"
STEPS = {"Making the env": "installing", "Quantizing": "quantizing", "Writing": "writing TFLite"}
"""How the first part of an error begins → what was being done; else the file was being run."""
SAME_SHARE = 0.01
OLDER = " †"
SHOWN = 90
"""Characters of an error in a table."""
_FOLDERS = re.compile(r"(?<!\w)(?:/[\w.@+-]+)+/")
_INTRODUCTION = """# Quantizers compared

Each [quantizer](../quantizers.md) got the same float model and calibration samples, and its file
was measured on the same samples. `integer-ideal` counts exactly: differences there are the
quantizer's. Changes are in percentage points, with 95 % intervals (by sources where samples share
some; per, the phoneme error rate, of which less is better, has the 90 % interval of a paired
bootstrap). Seconds in the tables of models are wall clock of one run on a shared and busy computer
with two cores; [what quantizing takes](#what-quantizing-takes) has processor time. `w8a8_asym_pc`
and `w7a8_asym_pc` are qbench's own; the second has weights of 7 bits, with which `ort-cpu`
saturates no sum on a processor without VNNI. With VNNI (`x64-avx512-vnni`) 8 bits saturate none
either, so that ours has a bit less than the tools in the comparisons on `ort-cpu` there. Written by
`benchmarks/quantizers.py --write`, which has the settings; models of more samples than it scores
are cut to those named here. Rows with † were measured by other code of qbench, of the tool's script
or lock, or under an environment that is not that of the line above the table or was not kept; the
next run measures them again.
[Our schemas next to other quantizers](quantizers-ours.md#what-these-show) says what explains the
losses on `magika`, and has the comparison on `g2p_en` once more, on words that are not scored here.
"""


@dataclass(frozen=True, slots=True)
class Duel:
    """A quantizer and the schema of qbench that was chosen beforehand, on the same samples.

    Args:
        change, low, high: from ours to the quantizer's, with its interval.
        losses, gains: samples that ours alone does better on, and the quantizer alone; of ``n``.
        upward: more is better.
        p: two-sided, of "no change": by the samples that one of both does better on, by sources
            where some share one; None: it was not recorded.
        chance: that a tool which equals ours is better beyond the interval.
        shares: of multiplications executed in integers, the quantizer's and ours.
        is_older: one of both was measured under other conditions.
    """

    model: str
    schema: str
    backend: str
    rival: str
    change: float
    low: float
    high: float
    losses: int
    gains: int
    n: int
    upward: bool
    p: float | None
    chance: float
    shares: tuple[float | None, float | None]
    is_older: bool

    @classmethod
    def of(
        cls,
        cell: tuple[str, str, str, str],
        score: Score,
        ends: tuple[float, float],
        shares: tuple[float | None, float | None],
        *,
        is_older: bool,
    ) -> "Duel":
        """By the ``score`` of the quantizer's answers with ours as reference; ``cell``: model,
        schema, backend, rival.
        """
        by_words = score.clusters is None and score.interval is not None
        by_samples = mcnemar_midp(score.losses, score.gains)
        return cls(
            *cell,
            score.value - score.reference_value,
            *ends,
            score.losses,
            score.gains,
            score.n,
            score.direction is Direction.HIGHER,
            by_samples if score.clusters is None else score.clusters.p,
            0.05 if by_words else 0.025,
            shares,
            is_older,
        )

    @property
    def key(self) -> str:
        """Its name in the record."""
        return duel_key(self.model, self.schema, self.backend)

    @property
    def sign(self) -> int:
        """1: more right than ours, -1: less, 0: neither."""
        return (int(self.change > 0) - int(self.change < 0)) * self._better

    @property
    def verdict(self) -> int:
        """1: the quantizer is better beyond the interval, -1: worse, 0: neither."""
        return self._better * (int(self.low > 0) - int(self.high < 0))

    @property
    def _better(self) -> int:
        return 1 if self.upward else -1

    @property
    def is_level(self) -> bool:
        """Whether both execute the same share in integers, within a point."""
        theirs, ours = self.shares
        return theirs is not None and ours is not None and abs(theirs - ours) <= SAME_SHARE

    @property
    def words(self) -> str:
        """The change and its interval."""
        return change_words(self.change, self.low, self.high)


def duel_key(model: str, schema: str, backend: str) -> str:
    """The name of a comparison in the record."""
    return f"{model}+{backend}+{schema}"


class Pairs:
    """Compares answers that were kept to the samples of one model."""

    def __init__(self, model: str, cache: Cache, rival: Mapping[str, str] = RIVAL) -> None:
        self._model, self._cache, self._rival = model, cache, rival
        self._subject = artifacts(model, cache).subject

    def duel(self, schema: str, backend: str) -> Duel | None:
        """``schema`` against ours on ``backend``; None: one of them was not measured there."""
        rival = self._rival[backend]
        ours, theirs = self._both(schema, backend)
        if rival == schema:
            return None
        if "answers" not in ours or "answers" not in theirs:
            return self._recorded(schema, backend)
        found, *ends = compared(self._subject, theirs, ours)
        return Duel.of(
            (self._model, schema, backend, rival),
            found,
            (ends[0], ends[1]),
            (theirs["executed"], ours["executed"]),
            is_older="older" in theirs or "older" in ours,
        )

    def _recorded(self, schema: str, backend: str) -> Duel | None:
        """The comparison with the same rival that the page had."""
        known = record()["duels"].get(duel_key(self._model, schema, backend))
        if known is None or known["rival"] != self._rival[backend]:
            return None
        return Duel(**known | {"shares": tuple(known["shares"]), "is_older": True})

    def lacks_answers(self, schema: str, backend: str) -> bool:
        """Whether both were measured there and the answers of one were not kept."""
        both = self._both(schema, backend)
        return all("value" in one for one in both) and self.duel(schema, backend) is None

    def _both(self, schema: str, backend: str) -> tuple[Result, Result]:
        """Of ours and of ``schema``."""
        ours, theirs = (
            known_result(self._cache, self._model, one, backend)
            for one in (self._rival[backend], schema)
        )
        return ours, theirs


def compared(subject: Subject, theirs: Result, ours: Result) -> tuple[Score, float, float]:
    """The score of ``theirs`` against ``ours`` by the answers that both kept, and the interval."""
    use = subject.metrics[0]
    data = subject.data[use.data]
    theirs_kept, ours_kept = (
        task_answers(subject.model.task, unpacked_answers(one["answers"])) for one in (theirs, ours)
    )
    found = score(
        use.metric,
        theirs_kept,
        labels=data.labels,
        reference=ours_kept,
        name=use.name,
        sources=data.drawn_from,
    )
    return (found, *interval(found))


def shown(share: float | None, unknown: str = "") -> str:
    """``98.9 %``."""
    return unknown if share is None else percent(share, 1)


def change_words(change: float, low: float, high: float) -> str:
    """A change in percentage points with its interval."""
    middle, *ends = (points(one, unit=False) for one in (change, low, high))
    return f"{middle} ({' … '.join(ends)})"


def plain(text: str) -> str:
    """``text`` in one line of a table, without folders of this computer."""
    return " ".join(_FOLDERS.sub("…/", text).replace("|", "/").split())


def failure(result: Result) -> str:
    """The step and the last line, short."""
    doing = result["doing"]
    step = next((word for begin, word in STEPS.items() if doing.startswith(begin)), "running")
    last = plain(result["error"].rpartition(" / ")[2])
    return f"failed in {step}: {last if len(last) <= SHOWN else last[:SHOWN] + '…'}"


def lines_of(head: list[str], rows: Iterable[list[str]], words: int = 1) -> list[str]:
    """A table with so many columns of words and an empty line before it."""
    return ["", *markdown_table(head, words, rows).splitlines()]


Tables = dict[tuple[str, ...], dict[str, dict[str, Result]]]
"""Backends → schema → backend → result."""


def row(schema: str, results: Mapping[str, Result]) -> list[str]:
    """One quantizer in the table of a model, ``results`` by backend."""
    older = any("older" in one for one in results.values())
    cells, note = [f"`{schema}`{OLDER if older else ''}"], None
    for result in results.values():
        if "value" not in result:
            cells += [failure(result) if "error" in result else "not measured", "", ""]
            continue
        change = change_words(result["value"] - result["fp32"], *result["interval"])
        shares = f"{shown(result['planned'])} / {shown(result['executed'], 'not reported')}"
        cells += [change, shown(result["agreement"]), shares]
        note = result["quantizer"] or note
    if note is None:
        return [*cells, "", "", "", ""]
    same = {True: "yes", False: "no", None: ""}[note["same_bytes"]]
    return [*cells, f"{note['seconds']:g}", f"{note['peak_mb']:g}", f"{note['size']:,}", same]


def results_of(
    model: str, names: Iterable[str], backends: tuple[str, ...], cache: Cache
) -> dict[str, dict[str, Result]]:
    """Schema → backend → result, of those of which something is known."""
    found = {
        schema: {b: known_result(cache, model, schema, b) for b in backends}
        for schema in names
        if set(backends_of(schema)) & set(backends)
    }
    return {schema: one for schema, one in found.items() if any(one.values())}


def errors_of(known: Mapping[str, Mapping[str, Result]]) -> list[str]:
    """Every error in full, once for each quantizer."""
    lines = dict[str, None]()
    for schema, results in known.items():
        for result in results.values():
            if "error" in result:
                text = f"{plain(result['doing'])}: {plain(result['error'])}"
                lines[f"- `{schema}`: {text}"] = None
    return ["", "Errors in full:", "", *lines] if lines else []


@dataclass(frozen=True, slots=True)
class Section:
    """What the page has of one model: its lines, its comparisons, and how many more there would
    be with kept answers.
    """

    lines: list[str]
    duels: list[Duel]
    lacking: int


def model_section(model: str, names: list[str], cache: Cache) -> Section:
    """The tables of ``model``; empty: no tool was measured on it."""
    pairs = Pairs(model, cache)
    every = {b: results_of(model, names, b, cache) for b in (ONNX_BACKENDS, TFLITE_BACKENDS)}
    tables: Tables = {b: known for b, known in every.items() if set(known) - set(OURS)}
    if not tables:
        return Section([], [], 0)
    lines, duels, lacking = ["", f"## {model}", "", facts(model, tables)], list[Duel](), 0
    for backends, known in tables.items():
        fought = {s: [pairs.duel(s, b) for b in backends] for s in known}
        lines += [*result_table(model, backends, known), *errors_of(known)]
        lines += duel_table(backends, fought)
        duels += [one for each in fought.values() for one in each if one is not None]
        lacking += sum(pairs.lacks_answers(s, b) for s in set(known) - set(OURS) for b in backends)
    missing = [f"`{one}`" for one in names if not any(one in known for known in tables.values())]
    if missing:
        lines += ["", f"Not run, for time: {', '.join(missing)}."]
    return Section(lines, duels, lacking)


def result_table(
    model: str, backends: tuple[str, ...], known: Mapping[str, Mapping[str, Result]]
) -> list[str]:
    """Each quantizer against fp32."""
    facts_of = (f"{SUBJECTS[model].metric}, pp", "agreement", "planned / executed")
    heads = [f"{one}: {fact}" for one in backends for fact in facts_of]
    head = ["quantizer", *heads, "s", "MB", "bytes", "same bytes twice"]
    return lines_of(head, [row(schema, one) for schema, one in known.items()])


def facts(model: str, tables: Tables) -> str:
    """What it was measured on, and where."""
    ground = SUBJECTS[model]
    cells = [
        (backend, result)
        for known in tables.values()
        for results in known.values()
        for backend, result in results.items()
        if "value" in result
    ]
    here = {(b, r["environment"]): None for b, r in cells if "older" not in r}
    before = {(b, r["environment"]): None for b, r in cells if "older" in r and "environment" in r}
    places, earlier = (places_words(one) for one in (here, before))
    text = (
        f"{ground.count} of `{ground.calibration}` for calibration, samples of `{ground.data}` are "
        "scored."
    )
    if cells:
        n, fp32 = cells[0][1]["n"], cells[0][1]["fp32"]
        text = (
            f"{n} samples of `{ground.data}`, {ground.count} of `{ground.calibration}` for "
            f"calibration. fp32 has {ground.metric} {shown(fp32)}."
        )
    text += f" Measured: {places}." if places else ""
    return text + (f" Rows with {OLDER.strip()}: {earlier}." if earlier else "")


def places_words(places: Iterable[tuple[str, str]]) -> str:
    """Backends and the environments that they were measured in."""
    return "; ".join(f"`{backend}` on `{place}`" for backend, place in places)


def duel_table(backends: tuple[str, ...], fought: Mapping[str, list[Duel | None]]) -> list[str]:
    """Each quantizer against ours on the same samples."""
    heads = [f"{b}, against `{RIVAL[b]}`: pp" for b in backends]
    head = ["quantizer", *(word for one in heads for word in (one, "losses / gains", "executed"))]
    rows = []
    for schema, duels in fought.items():
        if any(duels):
            older = any(one.is_older for one in duels if one is not None)
            cells = [word for one in duels for word in duel_cells(one)]
            rows.append([f"`{schema}`{OLDER if older else ''}", *cells])
    return lines_of(head, rows) if rows else []


def duel_cells(duel: Duel | None) -> list[str]:
    """Change, losses and gains, executed shares of both."""
    if duel is None:
        return ["", "", ""]
    counts = f"{duel.losses} / {duel.gains}" if duel.n else ""
    shares = " of ".join(shown(one, "not reported") for one in duel.shares)
    mark = {1: "**better** ", -1: "worse ", 0: ""}[duel.verdict]
    return [f"{mark}{duel.words}", counts, shares]


def print_duels(model: str, rival: str, names: list[str], cache: Cache) -> None:
    """Each of ``names`` against the schema ``rival`` on the same samples of ``model``."""
    backends = ONNX_BACKENDS + TFLITE_BACKENDS
    pairs = Pairs(model, cache, dict.fromkeys(backends, rival))
    for schema in names:
        for backend in backends:
            duel = pairs.duel(schema, backend)
            if duel is not None:
                words = ", ".join(filter(None, duel_cells(duel)))
                print(f"{model} {backend}: {schema} against {rival}: {words}, p {p_words(duel.p)}")


def summary(every: list[Duel], lacking: int) -> list[str]:
    """How many duels were won, which ours lost, and what of that is chance."""
    duels = [one for one in every if one.schema not in OURS]
    lost = [one for one in duels if one.verdict > 0]
    level = [one for one in duels if one.is_level]
    counts = [sum(one.verdict == sign for one in level) for sign in (-1, 0, 1)]
    chance = sum(one.chance for one in level)
    lines = [
        "",
        "## Against ours",
        "",
        f"{len(duels)} comparisons on the same samples, of each tool with the schema of qbench",
        "that was chosen beforehand for the backend; each model has a table of them.",
        f"{lacking} more pairs have numbers, and no answers that were kept to compare them by.",
        f"In {len(level)} both execute the same share in integers, within a point. Of these,",
        f"ours is better beyond the interval in {counts[0]}, neither in {counts[1]}, the tool in",
        f"{counts[2]}. If each tool equalled ours, {chance:.1f} of these {len(level)} intervals",
        f"would show the tool as better by chance. At any share it is in {len(lost)}.",
    ]
    return lines + sides(level) + lost_table(lost, level)


def sides(level: list[Duel]) -> list[str]:
    """By model and backend: who has the better value at the same share, whatever the interval."""
    places = dict.fromkeys((one.model, one.backend) for one in level)
    rows = []
    for model, backend in places:
        signs = [one.sign for one in level if (one.model, one.backend) == (model, backend)]
        rows.append([model, backend, *(str(signs.count(sign)) for sign in (-1, 0, 1))])
    head = ["model", "backend", "ours has the better value", "equal", "the tool has it"]
    words = "By the value alone, whatever its interval, at the same share:"
    return ["", words, *lines_of(head, rows, 2)] if rows else []


def lost_table(lost: list[Duel], level: list[Duel]) -> list[str]:
    """What tools win beyond the interval, with the p of each among those of the same share."""
    rows = [
        [
            f"`{one.schema}`{OLDER if one.is_older else ''}",
            one.model,
            one.backend,
            *duel_cells(one),
            p_words(one.p),
            among_words(one, len(level)),
        ]
        for one in lost
    ]
    head = ["quantizer", "model", "backend", "pp", "losses / gains", "executed, of ours", "p"]
    words = [
        "",
        "What tools win beyond the interval; p is two-sided, by the samples that changed (by",
        "sources where some share one), and times the number of those of the same share, which",
        f"are {len(level)}:",
    ]
    return [*words, *lines_of([*head, "p, times that"], rows, 3)] if rows else []


def p_words(p: float | None) -> str:
    """``0.031``."""
    return "not recorded" if p is None else f"{p:.3f}"


def among_words(duel: Duel, count: int) -> str:
    """Its p as one of ``count``."""
    if not duel.is_level:
        return "another share"
    return "not recorded" if duel.p is None else f"{min(duel.p * count, 1.0):.2f}"


def causes(names: list[str], cache: Cache) -> list[str]:
    """The worst cell of each quantizer, and every other one that was localized."""
    rows = []
    for schema in names:
        worst = worst_cell(schema, SUBJECTS, cache)
        places = [(m, b) for m in SUBJECTS for b in backends_of(schema)]
        cells = [(m, b, known_result(cache, m, schema, b)) for m, b in places]
        shown = [cell for cell in cells if "cause" in cell[2] or cell == worst]
        for model, backend, result in shown:
            change = points(result["value"] - result["fp32"], unit=False)
            words = plain(result.get("cause", "not localized, for time"))
            rows.append([f"`{schema}`", model, backend, change, words])
    head = ["quantizer", "model", "backend", "pp", "node and cause that `localize` names"]
    title = ["", "## The worst cell of each, and others that were localized"]
    return [*title, *lines_of(head, rows, len(head))] if rows else []


def costs(names: list[str], cache: Cache) -> list[str]:
    """What quantizing takes, of each model that was measured so."""
    lines: list[str] = []
    for model in SUBJECTS:
        known = {s: known_result(cache, model, s, COST) for s in names}
        rows = [cost_row(schema, one) for schema, one in known.items() if one]
        if rows:
            head = ["quantizer", "processor, s", "MB", "bytes"]
            lines += ["", f"`{model}`, by `benchmarks/quantizers.py --models none --cost {model}`:"]
            lines += lines_of(head, rows)
    if not lines:
        return []
    introduction = [
        "",
        "## What quantizing takes",
        "",
        "Each quantizes once in a process of its own and a cache without profiles and quantized",
        "files: processor time of that and of all processes that it starts, imports included, and",
        "the memory of the largest of them. A tool that is not here was not measured, for time.",
    ]
    return introduction + lines


def cost_row(schema: str, known: Result) -> list[str]:
    """One quantizer."""
    name = f"`{schema}`{OLDER if 'older' in known else ''}"
    if "error" in known:
        return [name, f"failed: {plain(known['error'].rpartition(' / ')[2])}", "", ""]
    return [name, f"{known['processor_s']:g}", f"{known['peak_mb']}", f"{known['size']:,}"]


def spent(cache: Cache) -> dict[str, float]:
    """What the models and tools of a run without options take, here or as it was recorded: the one
    that knows of more cells.
    """
    pairs = [(model, schema) for model in USUAL for schema in tools(variants=False)]
    known = {(m, s): known_of(m, s, cache) for m, s in pairs}
    cells = [one for each in known.values() for one in each]
    timed = [one["processor_s"] for one in cells if "processor_s" in one]
    notes = [[r["quantizer"] for r in each if r.get("quantizer")] for each in known.values()]
    seconds = [each[0]["seconds"] for each in notes if each]
    found = {
        "minutes": round(sum(timed) / 60),
        "timed": len(timed),
        "cells": len(cells),
        "tool_minutes": round(sum(seconds) / 60),
        "runs": len(seconds),
    }
    return max(found, record()["spent"], key=lambda one: one.get("timed", 0))


def spent_words(found: Mapping[str, float]) -> str:
    """``spent`` in sentences."""
    return (
        f"`make quantizers` measures {', '.join(f'`{one}`' for one in USUAL)} by each tool as it "
        f"comes. What was timed of these in one place took {found['minutes']} minutes of processor "
        f"time in qbench ({found['timed']} of {found['cells']} cells) and at most "
        f"{found['tool_minutes']} minutes in {found['runs']} runs of tools (wall clock, with "
        "several times as much work as cores), without installing them. `--models all --tools all` "
        "adds the other models and every variant."
    )


def known_of(model: str, schema: str, cache: Cache) -> list[Result]:
    """The results of ``schema`` on ``model``, empty ones among them."""
    return [known_result(cache, model, schema, one) for one in backends_of(schema)]


def write_page(names: list[str], cache: Cache) -> None:
    """Write the page of everything that is known, and its record."""
    sections = [model_section(model, names, cache) for model in SUBJECTS]
    duels = [duel for one in sections for duel in one.duels]
    first = summary(duels, sum(one.lacking for one in sections))
    pieces = [first, *(one.lines for one in sections), causes(names, cache), costs(names, cache)]
    body = "\n".join(line for piece in pieces for line in piece)
    took = spent(cache)
    write_text(PAGE, f"{_INTRODUCTION}\n{spent_words(took)}\n{body}\n")
    kept = {
        "results": {stem: told(one) for stem, one in recorded_results(names, cache).items()},
        "duels": {one.key: asdict(one) for one in duels},
        "spent": took,
    }
    parts = (f"{json.dumps(part)}: {one_a_line(one)}" for part, one in kept.items())
    write_text(RECORD, "{\n" + ",\n".join(parts) + "\n}\n")


def told(result: Result) -> Result:
    """``result`` with its error as the page tells it, without folders of this computer."""
    if "error" not in result:
        return result
    return result | {key: plain(result[key]) for key in ("doing", "error")}


def one_a_line(entries: Mapping[str, object]) -> str:
    """``entries`` as JSON, sorted, so that a comparison of versions shows which changed."""
    lines = (f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries))
    return "{\n" + ",\n".join(lines) + "\n}"
