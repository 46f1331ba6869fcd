"""What pytest prints of red cells: as much as --tb, -v and -q request, equal messages once,
and nothing twice.
"""

import pytest


def failures(result):
    """The lines of the section FAILURES."""
    lines = result.outlines
    first = next((place for place, line in enumerate(lines) if "= FAILURES =" in line), None)
    if first is None:
        return []
    last = next(place for place, line in enumerate(lines) if "= qbench scratch =" in line)
    return lines[first + 1 : last]


def summary(result):
    """The lines of the section of qbench."""
    lines = result.outlines
    first = next(place for place, line in enumerate(lines) if "= qbench scratch =" in line)
    last = next(place for place, line in enumerate(lines) if "short test summary" in line)
    return lines[first + 1 : last]


@pytest.fixture
def red(project):
    """Two cells with equal numbers are red, and the others are green.

    The backends sum products exactly on every processor: outside of its precise mode ONNX Runtime
    saturates pairs of them without VNNI.
    """
    text = project.suite_path.read_text().replace(
        '["ort-cpu", "ort-cpu-noopt"]', '["ort-cpu-precise", "ort-cpu-noopt"]'
    )
    project.write_suite(text)
    project.accept()
    project.write_suite(
        text.replace("tolerance = 0.2", "tolerance = 0.003").replace("count = 64", "count = 8", 1)
    )
    return project


def marked(lines, mark):
    return [line.split(":")[0].split()[1] for line in lines if line.startswith(f"  {mark} ")]


@pytest.mark.slow
def test_each_gate_is_one_sentence_and_its_statistics_come_with_v(red):
    plain = failures(red.run())
    verbose = failures(red.run("-v"))
    assert marked(plain, "✗") == marked(verbose, "✗") != []
    assert marked(plain, "✓") == marked(verbose, "✓") != []
    assert not any("Bonett-Price" in line or "losses" in line for line in plain)
    assert any("Bonett-Price" in line and "losses" in line for line in verbose)
    assert sum(len(line) for line in plain) < sum(len(line) for line in verbose)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("option", ["--tb=short", "-q"])
def test_short_is_the_gates_that_are_not_met_and_the_next_step(red, option):
    lines = failures(red.run(option))
    assert marked(lines, "✗")
    assert marked(lines, "✓") == []
    assert any(line.startswith("  next: ") for line in lines)


@pytest.mark.slow
def test_line_is_one_line_for_each_cell(red):
    result = red.run("--tb=line")
    cells = [node for node, outcome in red.outcomes().items() if outcome == "failed"]
    lines = failures(result)
    assert len(lines) == len(cells) == 2
    assert all(
        line.startswith(f"suites/scratch.qbench.toml::{cell}: top1 ")
        for cell, line in zip(cells, lines, strict=True)
    )
    short = [line for line in result.outlines if line.startswith("FAILED ")]
    assert all(" - top1 " in line for line in short)


@pytest.mark.slow
def test_no_is_nothing(red):
    assert failures(red.run("--tb=no")) == []


@pytest.mark.slow
def test_quiet_has_no_matrix_and_keeps_what_is_red(red):
    quiet, plain = summary(red.run("-q")), summary(red.run())
    assert any(line.startswith("tiny_a ") for line in plain)
    assert not any(line.startswith(("tiny_a ", "note: ")) for line in quiet)
    assert (
        [line for line in quiet if line.startswith("✗ ")]
        == [line for line in plain if line.startswith("✗ ")]
        != []
    )
    assert next(line for line in quiet if line.startswith("scratch: ")) in plain


@pytest.mark.slow
def test_cells_with_equal_messages_are_one_with_the_names_of_the_others(red):
    result = red.run()
    heads = [line for line in failures(result) if line.startswith("____")]
    assert len(heads) == 1
    assert failures(result)[-1] == "tiny_a::ort-cpu-noopt+w8a8_asym_pc"
    assert result.parseoutcomes()["failed"] == 2
    assert len([line for line in result.outlines if line.startswith("FAILED ")]) == 2


FAILING_LOADER = """
def model(name, seed):
    def load_weights():
        raise RuntimeError("no weights here")

    return lambda: ZooModel(
        id=name,
        graphs={"model": load_weights},
        preprocess=ReadyArray(input="x"),
        task=Classification(k=3),
        origin="random numbers",
    )


MORE = {}
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_loader_is_printed_once_without_the_frames_of_qbench(project, workers):
    project.write_conftest(FAILING_LOADER)
    result = project.run(workers=workers)
    assert result.parseoutcomes() == {"failed": 8}
    lines = failures(result)
    assert len([line for line in lines if "RuntimeError: no weights here" in line]) == 1
    assert [line for line in lines if "in load_weights" in line]
    assert not [line for line in lines if "qbench/suite/" in line]
    assert any("the same in 7 other cells" in line for line in lines)
    verbose = failures(project.run("-v", workers=workers))
    assert [line for line in verbose if "qbench/suite/" in line]
    *_, line = failures(
        project.run("--tb=line", workers=workers)
    )  # xdist writes the worker before it
    assert "RuntimeError: no weights here (the same in 7 other cells)" in line


def test_an_error_of_the_function_that_makes_data_is_one_sentence_with_its_line(project):
    path = project.path / "conftest.py"
    path.write_text(
        path.read_text().replace(
            "    rng = ", '    raise RuntimeError("no weights here")\n    rng = ', 1
        )
    )
    number = next(
        n for n, line in enumerate(path.read_text().splitlines(), 1) if "raise RuntimeError" in line
    )
    result = project.run()
    assert result.parseoutcomes() == {"failed": 8}
    lines = failures(result)
    (sentence,) = [line for line in lines if "RuntimeError: no weights here" in line]
    assert f"('conftest.py', line {number})" in sentence
    assert any("the same in 7 other cells" in line for line in lines)
    assert {cell["outcome"] for cell in project.lines(kind="cell")} == {"error"}


@pytest.mark.slow
def test_x_at_the_last_cell_interrupts_nothing(red):
    for how in ({}, {"workers": 1}):
        result = red.run("-x", "-k", "tiny_a and noopt and w8a8", **how)
        assert result.ret in (
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.INTERRUPTED,
        )  # the latter is xdist's own
        assert red.lines(kind="end")[0]["cells"] == 1
        assert not any(
            "interrupted" in line.lower() or "Incomplete" in line for line in summary(result)
        )


def test_x_before_the_last_cell_says_how_many_were_not_run_and_not_that_it_was_interrupted(red):
    result = red.run("-x", "-k", "tiny_a")
    assert red.lines(kind="end") == []
    notes = [line for line in summary(result) if line.startswith("note: ")]
    assert "note: ended early: 2 of 4 selected cells were not run" in notes
    assert not any("interrupted" in line for line in notes)


@pytest.mark.slow
def test_cells_of_python_tests_alone_are_not_counted_as_selected_ones(project):
    project.accept()
    project.pytester.makepyfile(
        test_cells="""
        import pytest

        @pytest.mark.qbench(models=["tiny_a"], suite="suites/scratch.qbench.toml")
        def test_cell(qbench_cell):
            assert qbench_cell.judge().outcome.value == "passed"
        """
    )
    result = project.run("test_cells.py", "-rA", suite=False)
    notes = [line for line in summary(result) if line.startswith("note: ")]
    assert "note: Only Python tests measured cells of the suite." in notes
    assert not any(line.startswith("note: 0 of ") for line in notes)
    assert "scratch: All 4 cells pass" in summary(result)


@pytest.mark.slow
def test_names_that_suggest_crops_are_noted_once_and_not_where_sources_are_declared(project):
    for declared in ("", ".with_sources(lambda sample: sample.partition('_')[0])"):
        conftest = project.path / "conftest.py"
        project.write_conftest()
        text = conftest.read_text().replace(
            'f"{name}-{i}" for', 'f"{name}{i // 8}_crop{i % 8}" for'
        )
        conftest.write_text(
            text.replace(
                "load=lambda index: x[index],\n        )",
                f"load=x.__getitem__,\n        ){declared}",
            )
        )
        project.accept("-q", "-k", "tiny_a and not noopt")
        notes = [
            line["text"]
            for line in project.lines(kind="note")
            if "come from about 50 sources" in line["text"]
        ]
        assert len(notes) == (0 if declared else 1)
        (tiny, *_) = project.lines(kind="cell")
        known = tiny["metrics"]["agreement"].get("clusters")
        assert known is None if not declared else known["sources"] == 50
