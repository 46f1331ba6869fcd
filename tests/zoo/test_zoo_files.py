"""Files out of wheels: kinds told by names, contents never twice,
ends as Magika takes them, its known score.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.storage import Cache
from qbench.subjects import Dataset, get_dataset, get_model, needed_packages, prepare_samples
from qbench_zoo.file_types import (
    ENDINGS,
    NAMES,
    FileEnds,
    Member,
    choose,
    content_types,
    magika_classes,
)
from qbench_zoo.packages import CALIBRATION, MORE, SCORED


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("a/b.py", ("python",)),
        ("a/b.min.js", ("javascript",)),
        ("a/b.tar.gz", ("gzip",)),
        ("a/b.h", ("c", "cpp")),
        ("a/page.html", ("html",)),
        ("a/themes/x/page.html", ("html", "jinja", "twig")),
        ("a/templates/b.py", ("python",)),
        ("a/page.html.j2", ("html", "jinja", "twig")),
        ("a/run.j2", ("jinja", "twig")),
        ("a/Makefile.j2", ("makefile", "jinja", "twig")),
        ("a/CMakeLists.txt", ("cmake",)),
        ("a/notes.txt", ()),
        ("a.py/README", ()),
        ("py", ()),
    ],
)
def test_a_name_tells_the_content_types(path: str, kinds: tuple[str, ...]) -> None:
    assert content_types(path) == kinds


def test_every_content_type_is_a_class_of_magika() -> None:
    assert len(magika_classes()) == 214
    named = {
        kind
        for kinds in (*ENDINGS.values(), *NAMES.values(), content_types("x.j2"))
        for kind in kinds
    }
    assert named <= {*magika_classes()}


def member(crc: int, kind: str, size: int = 200) -> Member:
    return Member("p", Path("p.whl"), f"{crc}.{kind}", crc, size, (kind,))


def test_of_every_kind_the_first_few_contents() -> None:
    candidates = [member(crc, "ab"[crc % 2]) for crc in (9, 4, 7, 1, 8, 2)] + [
        member(5, "c", size=5)
    ]
    chosen = [(m.crc, *m.kinds) for m in choose(candidates, 2)]
    assert chosen == [(1, "b"), (2, "a"), (4, "a"), (5, "c"), (7, "b")]
    assert [(m.crc, *m.kinds) for m in choose(candidates[::-1], 2)] == chosen


# -- the ends of a file


def ends(data: bytes) -> list[int]:
    """The oracle: byte by byte."""
    head, tail = list(data[:4096]), list(data[-4096:])
    while head and bytes(head[:1]).isspace():
        head.pop(0)
    while tail and bytes(tail[-1:]).isspace():
        tail.pop()
    head, tail = head[:1024], tail[-1024:]
    return head + [256] * (1024 - len(head)) + [256] * (1024 - len(tail)) + tail


@given(
    blanks=st.text(" \t\n\r\x0b\x0c", max_size=5).map(str.encode),
    body=st.binary(max_size=40),
    times=st.sampled_from([1, 30, 200]),
)
def test_both_ends_are_stripped_cut_and_padded(blanks: bytes, body: bytes, times: int) -> None:
    data = blanks + body * times + blanks
    tokens = FileEnds().prepare(data)["bytes"]
    assert tokens.tolist() == ends(data)
    assert FileEnds().finish({"bytes": tokens[None]})["bytes"].dtype == np.int32


# -- the data sets


def described(data: Dataset) -> tuple[int, int]:
    assert data.labels is not None
    return len(data), len({label[0] for label in data.labels})


@pytest.mark.slow
def test_the_smoke_files_are_as_many_and_as_mixed_as_said() -> None:
    data = get_dataset("magika_files")
    assert described(data) == (234, 40)
    assert len({*data.sources}) == len(data)
    assert data.labels is not None
    assert max(Counter(data.labels).values()) <= 6
    for index in (0, 100, 233):
        content = data.load(index)
        assert 128 <= len(content) <= 1 << 20
        assert data.sources[index].endswith(f":{len(content)}")


def test_calibration_files_come_from_other_wheels_and_are_other_contents() -> None:
    calibration = get_dataset("magika_calibration")
    assert described(calibration) == (136, 22)
    assert not {*calibration.sources} & {*get_dataset("magika_files").sources}
    assert not {p.name for p in CALIBRATION} & {p.name for p in (*SCORED, *MORE)}


def test_the_packages_of_a_data_set_are_told() -> None:
    needed = needed_packages(["magika", "magika_files", "magika_calibration"])
    assert len(needed) == 1 + len(SCORED) + len(CALIBRATION)
    assert sum(package.size for package in needed) < 40e6


class OneThread:
    """The real engine."""

    def __init__(self, model: ir.Model) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {"target_label": self.session.run(["target_label"], dict(feeds))[0]}


def right(name: str) -> tuple[int, int, int]:
    """Samples, right at first, right among the first five."""
    model, data = get_model("magika"), get_dataset(name)
    samples = prepare_samples(data, model.preprocess, Cache.default())
    answers = model.task.answer({"model": OneThread(model.graphs["model"]())}, samples)
    assert data.labels is not None
    rows = [({*label}, row) for label, row in zip(data.labels, answers.ids.tolist(), strict=True)]
    return (
        len(rows),
        sum(row[0] in label for label, row in rows),
        sum(bool(label & {*row}) for label, row in rows),
    )


@pytest.mark.slow
def test_magika_tells_the_smoke_files_as_measured() -> None:
    assert right("magika_files") == pytest.approx((234, 220, 232), abs=1)


@pytest.mark.slow
def test_magika_tells_the_nightly_files_as_measured() -> None:
    everything = get_dataset("magika_files_all")
    assert described(everything) == (1118, 43)
    assert not {*everything.sources} & {*get_dataset("magika_calibration").sources}
    assert right("magika_files_all") == pytest.approx((1118, 1095, 1114), abs=2)
