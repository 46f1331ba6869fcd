"""Copies of one content under several names, and calibration samples that are scored under
other names, are notes.
"""

import pytest

OWN_DATA = """
plain_data = data


def data(name, seed, count=SAMPLES):
    how = os.environ.get("COPIES", "")

    def make():
        made = plain_data(name, seed, count)()
        load = made.load
        if name == "points" and how.startswith("copies"):
            made = replace(made, load=lambda index: load(min(index, int(how.split(":")[1]) - 1)))
            if how.endswith("sources"):
                made = made.with_sources(["one"] * count)
        elif name == "spare" and how.startswith("scored"):
            scored, shared = plain_data("points", 10)(), int(how.split(":")[1])
            def mixed(index):
                return scored.load(index) if index < shared else load(index)
            made = replace(made, load=mixed)
        return replace(made, content=f"{made.content} {how}")
    return make


MORE = {}
"""


@pytest.fixture
def own(project):
    project.write_conftest(OWN_DATA, "from dataclasses import replace\n")
    return project


def notes(project):
    texts = [line["text"] for line in project.lines(kind="note")]
    return [
        text for text in texts if "distinct content" in text or "the content of calibration" in text
    ]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("", []),
        ("copies:1", ["'points': 400 samples, 1 distinct content "]),
        ("copies:399", ["'points': 400 samples, 399 distinct contents "]),
        ("copies:1:sources", []),  # they are counted as one
        (
            "scored:1",
            [
                "'points': 1 of 400 scored samples has the content "
                "of calibration samples of 'spare' "
            ],
        ),
        (
            "scored:64",
            [
                "'points': 64 of 400 scored samples have the content "
                "of calibration samples of 'spare' "
            ],
        ),
    ],
)
def test_what_is_the_same_under_another_name_is_a_note(own, monkeypatch, how, found):
    monkeypatch.setenv("COPIES", how)
    result = own.accept("-k", "tiny_a and not noopt")
    assert [text[: len(start)] for text, start in zip(notes(own), found, strict=True)] == found
    assert ("note: 'points'" in result.stdout.str()) == bool(found)
    own.run("-k", "tiny_a and not noopt")  # samples, profiles and the reference are in the cache
    assert [text[: len(start)] for text, start in zip(notes(own), found, strict=True)] == found


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_noted_once_for_all_models_and_workers_and_in_each_report(own, monkeypatch, workers):
    monkeypatch.setenv("COPIES", "copies:3")
    own.accept("-q", "--qbench-report=html", "--qbench-report=md", workers=workers)
    assert len(notes(own)) == 1
    reports = [
        path for path in (own.path / "reports").rglob("*") if path.suffix in (".html", ".md")
    ]
    noted = [path for path in reports if "400 samples, 3 distinct contents" in path.read_text()]
    assert {path.suffix for path in noted} == {".html", ".md"}
