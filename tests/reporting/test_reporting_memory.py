"""What a report knows beside the runs: accepted levels drawn,
alerts the same as those of every series.
"""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from reporting_histories import NEW, edge_histories, make_cell, make_run, nightly_history

from qbench.judging import Accepted, Cell
from qbench.metrics import Answers
from qbench.reporting import build_report, html_pages, read_memory, remember
from qbench.reporting.histories import read_cells
from qbench.reporting.png import MAX_MODELS, charted_models
from qbench.tracking import (
    AcceptedCell,
    AcceptedLevel,
    Annotation,
    Baseline,
    Ruling,
    StoredData,
    baseline_path,
    find_alerts,
    main_line,
    save_baseline,
    trend_series,
)

SAMPLES = "f" * 64
CELL = Cell("nightly", "mobilenet_v2", "ort-cpu", "w8a8_sym_pc")


def accepted(hits: int):
    return {(CELL, "top1", str(NEW)): AcceptedLevel(hits=hits, data=frozenset({SAMPLES}))}


def sliding(losses):
    runs = []
    for index, loss in enumerate(losses):
        line = make_cell("mobilenet_v2", "ort-cpu", "w8a8_sym_pc", loss)
        runs.append(make_run([line | {"digests": {"data:photos": SAMPLES}}], index))
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("hits", [None, 741, 735])
def test_alerts_are_those_of_every_series(hits):
    runs = nightly_history()
    levels = {} if hits is None else accepted(hits)
    line = main_line(runs, ())
    every = find_alerts(trend_series(runs, commits=line), commits=line, accepted=levels)
    found = [
        alert
        for one in remember(runs, accepted=levels).regressions["nightly"]
        for alert in one.alerts
    ]
    assert len(found) == len(every) > 4
    assert set(found) == set(every)


def test_a_series_that_is_unchanged_below_what_was_accepted_is_a_slide():
    runs = sliding([0.004] * 6)
    assert remember(runs, accepted={}).regressions == {}
    (found,) = remember(runs, accepted=accepted(741)).regressions["nightly"]
    assert found.kind.value == "slide"


@pytest.mark.slow
def test_the_page_says_what_got_worse_and_what_people_said():
    runs = nightly_history()
    step = runs[27].commit
    said = Annotation(
        commit=step[:9],
        state=Ruling.EXPECTED,
        author="ann",
        reason="rounds away from zero <b>now</b>",
    )
    quiet, loud = (remember(runs, accepted={}, annotations=notes) for notes in ((said,), ()))
    pages = {
        memory is loud: html_pages([build_report(runs, memory=memory)])["index.html"]
        for memory in (quiet, loud)
    }
    assert "rounds away from zero &lt;b&gt;now&lt;/b&gt; (ann)" in pages[False]
    assert "rounds away" not in pages[True]
    assert f"<td>{step[:9]}</td>" in pages[True]
    assert "</span> detected</span>" in pages[True]


def test_the_accepted_level_is_drawn_on_the_same_samples_only():
    runs = sliding([0.001, 0.001, 0.002])
    key = Cell("nightly", "mobilenet_v2", "ort-cpu", "w8a8_sym_pc")
    report = build_report(runs, memory=remember(runs, accepted=accepted(740)))
    assert report.trends[key][0].accepted == 0.74
    assert report.trends[key][1].accepted is None
    page = html_pages([report])["models/mobilenet_v2.html"]
    assert '<path class="approved" d="M34 ' in page
    assert ", accepted 74.00 %" in page
    others = [
        replace(
            run,
            cells=tuple(
                msgspec.structs.replace(c, digests={"data:photos": "0" * 64}) for c in run.cells
            ),
        )
        for run in runs
    ]
    assert (
        build_report(others, memory=remember(others, accepted=accepted(740)))
        .trends[key][0]
        .accepted
        is None
    )


@pytest.mark.parametrize(
    ("held_in", "groups", "is_seen"),
    [
        ("avx2", (), False),
        ("avx2", (("x64-avx2", "x64-avx512-vnni"),), True),
        ("any", (), True),
    ],
)
def test_what_was_accepted_for_an_equivalent_class_is_seen(tmp_path, held_in, groups, is_seen):
    runs = sliding([0.004] * 6)
    name = held_in if held_in == "any" else str(NEW).replace("avx512-vnni", "avx2")
    answers = Answers(np.zeros((1000, 1), dtype=np.int32))
    stored = Baseline(
        model=CELL.model,
        model_digest="m",
        preprocessing="p",
        backend="ort-cpu",
        environment_class=name,
        metrics={"top1": 741},
        data={"photos": StoredData(samples=1000, digest=SAMPLES, reference=answers.digest)},
        stored={"photos": answers},
        cells={
            CELL.slug: AcceptedCell(
                accepted={name: Accepted(metrics={"top1": 741}, predictions={})}
            )
        },
    )
    save_baseline(baseline_path(tmp_path, "nightly", CELL.model), stored)
    memory = read_memory(runs, tmp_path, tmp_path / "none.toml", equivalents={"nightly": groups})
    report = build_report(runs, memory=memory)
    trend = report.trends[Cell("nightly", "mobilenet_v2", "ort-cpu", "w8a8_sym_pc")][0]
    assert trend.accepted == (0.741 if is_seen else None)
    kinds = {alert.kind.value for one in report.regressions for alert in one.alerts}
    assert kinds == ({"slide"} if is_seen else set())


def test_a_series_that_stands_where_it_was_accepted_is_not_followed(monkeypatch):
    from qbench.reporting import assembly as memory

    runs, followed = sliding([0.004] * 6), []
    real = memory.trend_series
    monkeypatch.setattr(
        memory,
        "trend_series",
        lambda runs, **more: followed.extend(found := real(runs, **more)) or found,
    )
    hits = runs[0].cells[0].metrics["top1"].hits
    assert remember(runs, accepted=accepted(hits)).regressions == {}
    assert followed == []
    assert remember(runs, accepted=accepted(hits + 4)).regressions != {}
    assert [one.metric for one in followed] == ["top1"]


def test_equal_lines_are_read_once_and_other_ones_again():
    runs = sliding([0.001, 0.001, 0.002, 0.002, 0.002])
    views = [next(iter(cells.values())) for cells in read_cells(runs).cells]
    assert views[0] is views[1]
    assert views[1] is not views[2] is views[3]
    assert views[4] is not views[3]  # its seconds are shown
    alone = [next(iter(read_cells([run]).cells[0].values())) for run in runs]
    assert [msgspec.structs.replace(v.record, seconds={}) for v in views] == [
        msgspec.structs.replace(v.record, seconds={}) for v in alone
    ]
    for history in edge_histories().values():
        together = [set(cells) for cells in read_cells(history).cells]
        assert together == [set(read_cells([run]).cells[0]) for run in history]


def test_of_many_models_pictures_are_made_where_something_happened():
    calm = [make_cell(f"m{n:02}", "ort-cpu", "w8a8_sym_pc", 0.001) for n in range(MAX_MODELS + 4)]
    assert charted_models(build_report([make_run(calm)])) == []
    assert len(charted_models(build_report([make_run(calm[:MAX_MODELS])]))) == MAX_MODELS
    bad = [make_cell(f"m{n:02}", "ort-cpu", "w8a8_asym_pc", 0.05) for n in (3, 7)]
    assert charted_models(build_report([make_run([*calm, *bad])])) == ["m03", "m07"]
