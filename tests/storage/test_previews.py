"""Previews next to reports: kept, read, bounded; whatever a file holds is no error."""

import json
from pathlib import Path

import pytest

from qbench.storage import MOST_PREVIEWS, Preview, has_preview, keep_preview, read_preview
from qbench.storage.previews import preview_path

PNG = Preview(text="8 × 8 pixels", picture=b"\x89PNG\r\n rest", is_enlarged=True)
DIGEST = "25a3135b017eb2a4"


def test_what_is_kept_is_read(tmp_path):
    assert not has_preview(tmp_path, DIGEST, "a")
    keep_preview(tmp_path, DIGEST, "a", PNG)
    assert has_preview(tmp_path, DIGEST, "a")
    assert read_preview(tmp_path, DIGEST, "a") == PNG
    assert read_preview(tmp_path, DIGEST, "b") is None
    assert PNG.address.startswith("data:image/png;base64,")


def test_a_folder_that_cannot_be_read_has_none(tmp_path, monkeypatch):
    """A cell that was measured does not fail by it: that nothing can be written there is a note."""

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    assert not has_preview(tmp_path, DIGEST, "a")


@pytest.mark.parametrize("sample", ["../../../etc/passwd", "a/b\x00", "\udcff", "x" * 5000, ""])
@pytest.mark.parametrize("digest", [DIGEST, "../..", "/etc", ""])
def test_every_name_stays_in_the_folder(tmp_path, digest, sample):
    keep_preview(tmp_path, digest, sample, PNG)
    assert read_preview(tmp_path, digest, sample) == PNG
    (path,) = tmp_path.rglob("*.json")
    assert path.parent.parent == tmp_path / "previews"


def test_only_pictures_are_shown():
    assert Preview(text="", picture=b"<svg onload=alert(1)>").address == ""
    assert Preview(text="", picture=b"GIF89a").address == ""
    assert Preview(text="").address == ""


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        "{}",
        json.dumps({"format": "qbench-preview/9", "text": "", "picture": "", "is_enlarged": False}),
        json.dumps({"format": "qbench-preview/1", "text": "", "picture": "§", "is_enlarged": 1}),
        "[" * 100_000,
        "x" * 100_000,
    ],
)
def test_a_file_of_something_else_is_no_preview(tmp_path, content):
    path = preview_path(tmp_path, DIGEST, "a")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert read_preview(tmp_path, DIGEST, "a") is None


def test_no_more_are_kept_of_one_data_set_than_the_limit(tmp_path):
    folder = preview_path(tmp_path, DIGEST, "a").parent
    folder.mkdir(parents=True)
    for number in range(MOST_PREVIEWS):
        (folder / f"{number}.json").touch()
    assert has_preview(tmp_path, DIGEST, "one more")
