"""Where others look first: the same faults at the same places, ranked by qbench, ONNX Runtime
and esp-ppq.

    python benchmarks/detection_rivals.py [--subjects S,…] [--faults F,…] [--seed 2] [--tools T,…]
    [--kept FILE]

Faults are those of a graph or of a range: nobody else can be asked about a kernel or an arithmetic.
A row says at which place each tool's list, worst first, has a site of the fault. ``--kept`` is a
file of answers: what stands there is not asked again, so that a run can be cut in two. esp-ppq is
installed into an environment of its own, in the cache (1 GB).
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from detection import OPERATORS, PUBLISHED, Column, ward_of
from rival_esp_ppq import ESP_PPQ, ask_esp_ppq
from rival_ort import ORT, Ranking, Sick, ask_ort, place_of

from qbench.evaluation import SubjectArtifacts, prepare_runners, recorded_feeds
from qbench.faults import CATALOGUE, FaultyWork, GraphEdit, Placed, ProfileFault, Stage, edited
from qbench.faults.trial import FaultHarness

COLUMNS = (
    Column("digits_cnn", "w8a8_asym_pc", 360, 64),
    Column(OPERATORS, "w8a8_asym_pc", 360, 64, tries_effects=False),
    Column("mobilenet_v2", "w8a8_asym_pc", 64, 8, tries_effects=False),
)
"""As in ``detection``, with fewer samples: others keep every value of all of them in memory."""
SMALL = {"mobilenet_v2": "photo_crops_128"}
"""Subject → the data set of small pictures that all tools look at; others: their main one."""
_FEW_LARGE = 8
FEWER = {"mobilenet_v2": 2}
"""Subject → samples that esp-ppq looks at, where it would take hours."""
OURS = "qbench"
TOOLS = (OURS, *ORT, *ESP_PPQ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one tool made of one fault at its sites.

    Args:
        place: of a site in its list, from 1; None: no site stands there.
        asked: False: it could not be asked.
        changes: whether the fault changes anything.
        seen: whether a gate of qbench sees it; both known of qbench only.
    """

    subject: str
    fault: str
    sites: tuple[str, ...]
    seed: int
    tool: str
    place: int | None
    asked: bool = True
    changes: bool = True
    seen: bool = True


class Book:
    """Answers, in a file where one is given."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.answers: dict[tuple[str, str, int, str], Answer] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._keep(Answer(**json.loads(line)))

    def _keep(self, answer: Answer) -> None:
        self.answers[answer.subject, answer.fault, answer.seed, answer.tool] = answer

    def add(self, answer: Answer) -> None:
        """Note ``answer``."""
        self._keep(answer)
        print(
            f"  {answer.subject} {answer.fault}@{','.join(answer.sites)}: "
            f"{answer.tool} {_cell(answer)}",
            flush=True,
        )
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(answer)) + "\n")

    def has(self, subject: str, placed: Placed, *tools: str) -> bool:
        """Whether all ``tools`` answered about the fault at these very sites."""
        told = (self.answers.get((subject, placed.fault.name, placed.seed, tool)) for tool in tools)
        return all(one is not None and tuple(one.sites) == placed.sites for one in told)


def small_ward(column: Column) -> FaultHarness:
    """The subject whose small pictures come first, where it has such."""
    ward = ward_of(column)
    if column.model not in SMALL:
        return ward
    subject, first = ward.shared.subject, SMALL[column.model]
    data = {first: subject.data[first]}
    data |= {
        name: dataset.take(_FEW_LARGE) for name, dataset in subject.data.items() if name != first
    }
    return replace(
        ward, shared=SubjectArtifacts(replace(subject, data=data), *ward.shared.made_with)
    )


def sick_of(ward: FaultHarness, placed: Placed) -> Sick:
    """The graph that is right and the one that runs, of a fault in a graph or a range."""
    healthy, capabilities = ward.shared, ward.machine.capabilities
    (right,) = healthy.quantized(ward.schema, capabilities).models.values()
    if isinstance(placed.fault.injection, ProfileFault):
        (wrong,) = (
            FaultyWork.of(healthy, placed).quantized(ward.schema, capabilities).models.values()
        )
    else:
        wrong = edited(right, placed)
    (original,) = healthy.planned(ward.schema.canonical).values()
    return Sick(original=original, right=right, wrong=wrong)


def feeds_of(ward: FaultHarness, samples: int) -> list[dict[str, object]]:
    """What the graph is fed with the first ``samples`` of the main data."""
    shared = ward.shared
    main = next(iter(shared.subject.data.values())).take(samples)
    with ExitStack() as stack:
        runners = prepare_runners(shared.made_with[1], shared.graphs, stack, threads=1)
        (batches,) = recorded_feeds(
            shared.subject.model.task, runners, shared.samples(main)
        ).values()
    return [dict(batch) for batch in batches]


def ask_all(
    column: Column, faults: Sequence[str], seed: int, tools: Sequence[str], book: Book
) -> None:
    """Ask every tool about every fault that has a place in the subject; answers go to ``book``."""
    ward = small_ward(column)
    places = [placed for name in faults for placed in ward.places(CATALOGUE[name], seed, 1)]
    feeds = feeds_of(ward, column.localized)
    for placed in places:
        if ORT[0] in tools and not book.has(column.model, placed, *ORT):
            _note(book, column, placed, ask_ort(sick_of(ward, placed), feeds))
    left = [one for one in places if not book.has(column.model, one, *ESP_PPQ)]
    if ESP_PPQ[0] in tools and left:
        fewer = feeds_of(ward, FEWER.get(column.model, column.localized))
        found = ask_esp_ppq([sick_of(ward, placed) for placed in left], fewer)
        for placed, rankings in zip(left, found, strict=True):
            _note(book, column, placed, rankings)
    for placed in places:
        if OURS in tools and not book.has(column.model, placed, OURS):
            trial = ward.try_fault(placed, samples=column.localized)
            book.add(
                _answer(column, placed, OURS, trial.hit, changes=trial.changes, seen=trial.found)
            )


def _note(
    book: Book, column: Column, placed: Placed, rankings: Mapping[str, Ranking | None]
) -> None:
    for tool, ranking in rankings.items():
        place = None if ranking is None else place_of(ranking, placed.sites)
        book.add(_answer(column, placed, tool, place, asked=ranking is not None))


def _answer(column: Column, placed: Placed, tool: str, place: int | None, **more: bool) -> Answer:
    return Answer(
        subject=column.model,
        fault=placed.fault.name,
        sites=placed.sites,
        seed=placed.seed,
        tool=tool,
        place=place,
        **more,
    )


def _cell(answer: Answer | None) -> str:
    if answer is None:
        return ""
    if not answer.changes:
        return "equivalent"
    return "not asked" if not answer.asked else "–" if answer.place is None else str(answer.place)


def rows(
    book: Book, subjects: Sequence[str], faults: Sequence[str], seed: int
) -> Iterator[tuple[str, ...]]:
    """One row a fault and subject: sites, then the place in each tool's list."""
    for subject in subjects:
        for fault in faults:
            told = [book.answers.get((subject, fault, seed, tool)) for tool in TOOLS]
            known = next((one for one in told if one is not None), None)
            if known is not None:
                yield (subject, fault, ", ".join(known.sites), *map(_cell, told))


def totals(answers: Sequence[Sequence[Answer]], words: str) -> Iterator[str]:
    """hit@1 and hit@3 of every tool over faults that all in ``answers`` were asked about; and
    of others' best list.
    """
    lists = [{one.tool: one.place for one in told} for told in answers]
    yield f"{words}: {len(lists)} faults"
    for tool in TOOLS:
        places = [told[tool] for told in lists if tool in told]
        if places:
            yield f"- {tool}: {_hits(places)}"
    for family in (ORT, ESP_PPQ):
        if lists and all(tool in lists[0] for tool in family):
            best = [
                min((told[one] or sys.maxsize for one in family), default=sys.maxsize)
                for told in lists
            ]
            yield f"- the best of {', '.join(family)}, if one knew which: {_hits(best)}"


def _hits(places: Sequence[int | None]) -> str:
    shares = (sum(place is not None and place <= last for place in places) for last in (1, 3))
    return ", ".join(
        f"hit@{k} {n}/{len(places)} = {n / len(places):.2f}"
        for k, n in zip((1, 3), shares, strict=True)
    )


def summaries(
    book: Book, subjects: Sequence[str], faults: Sequence[str], seed: int
) -> Iterator[str]:
    """Totals over faults that change something and that qbench and ORT, or all three,
    were asked about.
    """
    for family, words in ((ORT, "qbench and ONNX Runtime"), ((*ORT, *ESP_PPQ), "all three")):
        found = []
        for key in ((subject, fault, seed) for subject in subjects for fault in faults):
            told = [book.answers.get((*key, tool)) for tool in (OURS, *family)]
            kept = [one for one in told if one is not None and one.asked and one.changes]
            if len(kept) == len(told):
                found.append(kept)
        if found:
            yield from totals(found, f"asked of {words}")
            yield from totals(
                [kept for kept in found if kept[0].seen], f"of these, seen by a gate ({words})"
            )
            shown = [kept for kept in found if CATALOGUE[kept[0].fault].stage is not Stage.ENGINE]
            yield from totals(shown, f"of these, in the graph that a user has ({words})")


def main() -> int:
    """Ask, and print the table and the totals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subjects", default="digits_cnn")
    faults = [
        name
        for name, one in CATALOGUE.items()
        if isinstance(one.injection, GraphEdit | ProfileFault)
    ]
    parser.add_argument("--faults", default=",".join(faults))
    parser.add_argument("--seed", type=int, default=PUBLISHED)
    parser.add_argument("--tools", default=f"{OURS},ort", help="of qbench, ort, esp-ppq")
    parser.add_argument("--kept", type=Path, help="a file of answers, read and added to")
    arguments = parser.parse_args()
    subjects, asked = arguments.subjects.split(","), arguments.faults.split(",")
    families = {OURS: (OURS,), "ort": ORT, "esp-ppq": ESP_PPQ}
    tools = [tool for name in arguments.tools.split(",") for tool in families[name]]
    book = Book(arguments.kept)
    for column in COLUMNS:
        if column.model in subjects:
            ask_all(column, asked, arguments.seed, tools, book)
    print(f"| subject | fault | site | {' | '.join(TOOLS)} |")
    print(f"|{'---|' * (3 + len(TOOLS))}")
    for row in rows(book, subjects, asked, arguments.seed):
        print(f"| {' | '.join(row)} |")
    print("\n".join(summaries(book, subjects, asked, arguments.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
