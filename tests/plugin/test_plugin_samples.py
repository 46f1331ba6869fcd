"""A run lists the samples that its cells lost and gained, keeps what they look like, and draws
a page of them; private data stays private.
"""

import pytest

from qbench.judging import Cell
from qbench.tracking import read_samples

SUITE = """
[suite]
tolerance = 0.5
agreement = 0.1
backends = ["ort-cpu"]
schemas = ["w4a8_sym_pt"]
PRIVATE

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1"]
"""
CELL = Cell("scratch", "tiny_a", "ort-cpu", "w4a8_sym_pt")


def samples_of(project):
    lines = [text for path in project.run_files for text in path.read_bytes().splitlines()]
    found, unread = read_samples([text for text in lines if text.startswith(b'{"type":"samples",')])
    assert unread == 0
    return found


def counts_of(project):
    (cell,) = (one for one in project.lines(kind="cell") if one["schema"] == CELL.schema)
    return cell["metrics"]["top1"]


def written(project, private=""):
    project.write_suite(SUITE.replace("PRIVATE", private))
    return project


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_lost_and_gained_samples_are_listed_shown_and_drawn(project, workers):
    written(project).run("--qbench-report=html", workers=workers)
    ((cell, data),) = samples_of(project).items()
    assert (cell.model, cell.backend, cell.schema) == (CELL.model, CELL.backend, CELL.schema)
    changes, top1 = data["points"], counts_of(project)
    assert (changes.lost, changes.gained) == (top1["losses"], top1["gains"])
    assert changes.lost > 10 == len(changes.samples)
    assert changes.is_probability
    reports = project.path / "reports"
    page = (reports / "samples" / "tiny_a--w4a8_sym_pt.html").read_text()
    for sample in changes.samples:
        assert sample.id in page
    assert "16 numbers" not in page  # a row of values is told as it is
    assert "../samples/tiny_a--w4a8_sym_pt.html" in (reports / "models/tiny_a.html").read_text()
    assert len(list((reports / "previews").rglob("*.json"))) == 10


def test_none_are_listed_where_none_are_asked_for(project):
    written(project).run("--qbench-samples=0", "--qbench-report=html")
    assert samples_of(project) == {}
    assert not (project.path / "reports" / "samples").exists()
    assert not (project.path / "reports" / "previews").exists()


def test_a_number_that_is_too_large_is_refused(project):
    result = written(project).run("--qbench-samples=1000")
    text = str(result.stdout) + str(result.stderr)
    assert "found '1000'; expected a whole number from 0 to 200" in text


def test_private_data_has_ids_alone(project):
    written(project, "private = true").run("--qbench-report=html")
    ((_, data),) = samples_of(project).items()
    assert data["points"].private
    assert {(one.label, one.fp32, one.quantized) for one in data["points"].samples} == {
        ("", (), ())
    }
    assert not (project.path / "reports" / "previews").exists()
    page = (project.path / "reports" / "samples" / "tiny_a--w4a8_sym_pt.html").read_text()
    assert "This data is private" in page
    assert data["points"].samples[0].id in page
    assert "class " not in page.partition("<main")[2]


def test_a_sample_that_cannot_be_loaded_again_is_a_note(project):
    """It is tried once in a process, whatever number of cells list it."""
    suite = SUITE.replace("PRIVATE", "").replace('["ort-cpu"]', '["ort-cpu", "ort-cpu-noopt"]')
    project.write_suite(suite)
    conftest = project.path / "conftest.py"
    loader = conftest.read_text().replace("load=lambda index: x[index],", "load=loader(x, name),")
    tried = project.path / "tried.txt"
    loader += f"TRIED = {str(tried)!r}\n"
    loader += """

def loader(x, name):
    seen = set()

    def load(index):
        if index in seen and name == "points":
            with open(TRIED, "a") as file:
                print(index, file=file)
            raise FileNotFoundError(f"no file {index}.png")
        seen.add(index)
        return x[index]

    return load
"""
    conftest.write_text(loader)
    project.run("--qbench-report=html")
    notes = [one["text"] for one in project.lines(kind="note")]
    note, *_ = (text for text in notes if text.startswith("Showing"))
    assert "and 9 more of 'points': found FileNotFoundError: no file" in note
    indices = tried.read_text().split()
    assert len(indices) == len(set(indices))
    assert len(samples_of(project)) == 2
    page = (project.path / "reports" / "samples" / "tiny_a--w4a8_sym_pt.html").read_text()
    assert "no preview here" in page
