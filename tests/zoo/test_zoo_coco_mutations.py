"""COCO files, tables of labels and arrays with a value exchanged: read,
or refused by an InputError.
"""

import contextlib
import copy
import io
import json
import random

import numpy as np
import pytest
from PIL import Image

from qbench.errors import InputError
from qbench.storage import limits_times
from qbench.subjects import Dataset, dataset_from_text
from qbench.subjects.detection import read_coco
from qbench.subjects.pictures import Picture, decode_picture

WRONG = (
    None,
    True,
    "",
    "a",
    "\0",
    "\ud800",
    "../x",
    -1,
    0,
    10**30,
    10**400,
    1e308,
    -1e308,
    float("nan"),
)
WRONG += (float("inf"), [], [1], [[1]], {}, {"a": 1}, "1", 2**63, 0.5)
COCO = {
    "images": [
        {"id": 1, "file_name": "a.png", "width": 8, "height": 6},
        {"id": 2, "file_name": "b.png"},
    ],
    "categories": [{"id": 1, "name": "cat"}, {"id": 7, "name": "dog"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 7, "bbox": [1, 1, 4, 3], "area": 12, "iscrowd": 0},
        {"id": 2, "image_id": 2, "category_id": 1, "bbox": [0, 0, 2, 2.5]},
    ],
}


def places(value, path=()):
    """The path of every value below ``value``."""
    below = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in below:
        yield (*path, key)
        yield from places(one, (*path, key))


def exchanged(path, new):
    found = copy.deepcopy(COCO)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return found


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 6)).save(tmp_path / name)
    return tmp_path


@pytest.mark.slow_but(16)
@pytest.mark.parametrize("path", list(places(COCO)), ids=lambda path: ".".join(map(str, path)))
def test_each_value_of_a_coco_file_may_be_wrong(folder, path):
    for new in WRONG:
        (folder / "labels.json").write_text(json.dumps(exchanged(path, new)))
        with contextlib.suppress(InputError):
            found = read_coco(folder / "labels.json", folder)
            assert len(found.names) == len(found.labels)


LINES = ('{"path": "a.png", "label": 1}', '{"path": "b.png", "label": 0}')
TABLE = "sample,source\na.png,x\nb.png,y\n"


def test_lines_tables_and_arrays_may_be_wrong(folder):
    """Bytes of each outside form exchanged, removed and added; 60 of each, by a fixed seed."""
    noise = random.Random(23)
    held = io.BytesIO()
    np.savez(held, x=np.zeros((4, 3), np.float32), y=np.arange(4))
    (folder / "labels.json").write_text(json.dumps(COCO))
    (folder / "s.csv").write_text(TABLE)
    (folder / "good.jsonl").write_text("\n".join(LINES))
    forms = {
        "wrong.jsonl": ("\n".join(LINES).encode(), "wrong.jsonl"),
        "wrong.npz": (held.getvalue(), "wrong.npz"),
        "wrong.csv": (TABLE.encode(), "good.jsonl?sources=wrong.csv"),
        "values.csv": (b"sample,a\na.png,1\nb.png,2.5\n", "good.jsonl?labels=values.csv"),
        "wrong.json": (json.dumps(COCO).encode(), ".?labels=wrong.json&resize=8"),
    }
    for name, (content, text) in forms.items():
        for _ in range(60):
            data = bytearray(content)
            for _ in range(noise.randint(1, 4)):
                place = noise.randrange(len(data))
                data[place : place + noise.randint(0, 2)] = bytes(
                    noise.choices(b'\0\xff"{}[],:.0e-9\n', k=noise.randint(0, 3))
                )
            (folder / name).write_bytes(data)
            with contextlib.suppress(InputError):
                assert isinstance(dataset_from_text(str(folder / text))[0], Dataset)


def bomb(side):
    """A PNG of ``side`` × ``side`` white points: a few kilobytes."""
    held = io.BytesIO()
    Image.new("1", (side, side), 1).save(held, "png")
    return held.getvalue()


def test_a_picture_of_too_many_pixels_is_refused_by_its_header():
    data = bomb(8_001)
    assert len(data) < 100_000
    with pytest.raises(InputError, match="64,016,001 pixels") as caught:
        decode_picture(data, "bomb.png")
    assert "--size-limits 2" in caught.value.remedy
    with limits_times(2), pytest.raises(InputError, match="an unknown format"):
        decode_picture(b"no picture", "bomb.png")


def test_a_picture_is_not_made_larger_than_that():
    prepared = Picture(resize=20_000, crop=20_000)
    with pytest.raises(InputError, match="400,000,000 pixels"):
        prepared.prepare(np.zeros((6, 6, 3), np.uint8))
    assert Picture(resize=32, crop=32).prepare(np.zeros((6, 6, 3), np.uint8))["x"].shape == (
        32,
        32,
        3,
    )
