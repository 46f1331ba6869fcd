"""The marker with lists and the fixture: cells in tests of one's own, recorded like any other."""

import pytest

SUITE = 'suite="suites/scratch.qbench.toml"'


def write_test(project, marker, body="assert qbench_cell.judge().outcome.value == 'missing'"):
    project.pytester.makepyfile(
        test_cells=f"""
        import pytest

        @pytest.mark.qbench({marker})
        def test_cell(qbench_cell):
            {body}
        """
    )


def run(project, *options):
    return project.run("test_cells.py", *options, suite=False)


def ids(result):
    return [
        line.partition("::")[2] for line in result.outlines if line.startswith("test_cells.py::")
    ]


def test_lists_are_crossed(project):
    write_test(
        project,
        'models=["tiny_b"], backends=["ort-cpu", "onnx-reference"], schemas=["fp32", '
        f'"w8a8_sym_pt"], {SUITE}',
    )
    assert ids(run(project, "--collect-only", "-q")) == [
        "test_cell[tiny_b-ort-cpu+fp32]",
        "test_cell[tiny_b-ort-cpu+w8a8_sym_pt]",
        "test_cell[tiny_b-onnx-reference+fp32]",
        "test_cell[tiny_b-onnx-reference+w8a8_sym_pt]",
    ]
    result = run(
        project, "--collect-only", "-q", "-m", 'qbench(backend="onnx-reference", schema="fp32")'
    )
    assert ids(result) == ["test_cell[tiny_b-onnx-reference+fp32]"]
    assert ids(
        run(project, "--collect-only", "-q", "--qbench-select", "schema=fp32 backend=ort-cpu")
    ) == ["test_cell[tiny_b-ort-cpu+fp32]"]


def test_the_suites_own_axes_where_none_are_named_and_the_suite_from_the_ini(project):
    with (project.path / "tox.ini").open("a") as ini:
        ini.write("\nqbench_suite = suites/scratch.qbench.toml\n")
    write_test(project, "")
    assert len(ids(run(project, "--collect-only", "-q"))) == 8


def test_measure_and_judge(project):
    project.accept()
    body = """
            measured = qbench_cell.measure()
            assert measured is qbench_cell.measure()
            assert measured.score("top1").n == 400
            assert qbench_cell.cell.model == "tiny_a"
            assert qbench_cell.judge().outcome.value == "passed"
    """
    write_test(project, f'models=["tiny_a"], {SUITE}', body.strip())
    assert run(project).parseoutcomes() == {"passed": 4}
    assert len(project.outcomes()) == 4
    assert project.lines(kind="run")[0]["complete_selection"] is False
    assert project.lines(kind="end")[0]["cells"] == 4


@pytest.mark.slow
def test_the_run_line_counts_the_suites_cells_whoever_reports_first(project):
    project.accept()
    write_test(project, f'models=["tiny_a"], {SUITE}', "qbench_cell.measure()")
    assert project.run(
        "test_cells.py", "suites/scratch.qbench.toml", suite=False
    ).parseoutcomes() == {"passed": 12}
    header = project.lines(kind="run")[0]
    assert (header["planned"], header["selected"], header["complete_selection"]) == (8, 8, True)
    assert project.lines(kind="end")[0]["cells"] == 12


@pytest.mark.slow
def test_measuring_alone_is_recorded_and_a_failed_assertion_is_pytests(project):
    project.accept()
    write_test(
        project,
        f'models=["tiny_a"], {SUITE}',
        "assert qbench_cell.measure().score('top1').losses == 0",
    )
    result = run(project)
    assert result.parseoutcomes() == {"passed": 2, "failed": 2}
    result.stdout.fnmatch_lines(["E *assert * == 0"])
    assert set(project.outcomes().values()) == {"passed"}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        (f'models=["tiny_c"], {SUITE}', "*found unknown model 'tiny_c';*Did you mean 'tiny_*"),
        (
            f'backends=["ort-cpo"], {SUITE}',
            "*found unknown backend 'ort-cpo';*Did you mean 'ort-cpu'?*",
        ),
        (f'schemas=["w8"], {SUITE}', "*found unknown schema 'w8';*"),
        (
            f'modles=["tiny_a"], {SUITE}',
            "*found an unknown argument 'modles';*Did you mean 'models'?*",
        ),
        (f'models="tiny_a", {SUITE}', "*found models='tiny_a'; expected a list of names.*"),
        ('models=["tiny_a"]', "*found no suite;*Add suite=*"),
        ('suite="suites/none.qbench.toml"', "Reading '*none.qbench.toml': found *"),
    ],
)
def test_a_marker_that_makes_no_sense_is_one_sentence(project, marker, sentence):
    write_test(project, marker)
    result = run(project)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([sentence])
    assert "Traceback" not in result.stdout.str()


def test_the_fixture_without_a_marker(project):
    project.pytester.makepyfile(test_cells="def test_cell(qbench_cell): pass")
    result = run(project)
    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines(["*found no marker; expected @pytest.mark.qbench(models=*"])


def test_strict_markers_know_ours(project):
    write_test(project, f'models=["tiny_a"], {SUITE}')
    assert run(project, "--strict-markers", "--collect-only").ret == 0
    run(project, "--markers").stdout.fnmatch_lines(
        ["@pytest.mark.qbench(models, backends, schemas, suite): *"]
    )
