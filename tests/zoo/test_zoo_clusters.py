"""Which samples belong together: declared in data that people bring, and suggested by names."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qbench.errors import InputError
from qbench.extension import known_extensions
from qbench.subjects import Dataset, dataset_catalogue, dataset_from_text, get_dataset
from qbench.subjects.source_tables import pieces_note
from qbench.tracking import load_baseline

ROOT = Path(__file__).parents[2]


def picture(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (30, 20), (shade, 10, 20)).save(path)


def read(text: str) -> Dataset:
    return dataset_from_text(text)[0]


def lines(path: Path, *tables: dict[str, Any]) -> str:
    path.write_text("\n".join(json.dumps(table) for table in tables))
    return str(path)


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(text)
    return str(caught.value)


def test_sources_are_the_folders_below_the_classes_and_one_folder_of_two_classes_is_one_source(
    tmp_path: Path,
) -> None:
    for shade, name in enumerate(
        ("ill/p1/a.png", "ill/p1/b.png", "ill/p2/a.png", "well/p1/c.png", "well/x/p3/d.png")
    ):
        picture(tmp_path / name, shade)
    data = read(f"folder:{tmp_path}?sources=folder")
    assert data.drawn_from == ("p1", "p1", "p2", "p1", "x/p3")
    assert data.labels == ((0,), (0,), (0,), (1,), (1,))
    assert data.digest == read(f"folder:{tmp_path}").digest
    assert read(f"folder:{tmp_path}").drawn_from == data.sample_ids
    assert data.pick([4, 0]).drawn_from == ("x/p3", "p1")
    picture(tmp_path / "well/loose.png")
    assert "directly in the folder of its class" in refused(f"folder:{tmp_path}?sources=folder")
    assert "sources=folder, or a .csv file" in refused(f"folder:{tmp_path}?sources=person")


def test_two_equal_pictures_are_two_samples_and_overlap(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png"):
        picture(tmp_path / name, 7)
    data = read(f"folder:{tmp_path}")
    assert len(set(data.drawn_from)) == 2
    assert len(set(data.sources)) == 1


def test_sources_of_a_column_of_an_npz_file(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(
        path,
        x=np.ones((3, 2)),
        y=np.arange(3),
        speaker=np.array(["anna", "ben", "anna"]),
        wide=np.ones((3, 2)),
    )
    assert read(f"{path}?sources=speaker").drawn_from == ("anna", "ben", "anna")
    np.savez(path, x=np.ones((3, 2)), y=np.arange(3), speaker=np.array([7, 7, 8]))
    data = read(f"{path}?sources=speaker")
    assert data.drawn_from == ("7", "7", "8")
    assert data.load(0).shape == (2,)
    assert "no array 'voice'" in refused(f"{path}?sources=voice")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.ones((3, 2), int), "'s' of shape (3, 2)"),
        (np.array([0, 1]), "2 sources for 3 samples"),
        (np.array([0, 1, 2, 3]), "4 sources for 3 samples"),
        (np.array([0.5, 1, 2]), "the source 0.5 of sample 'x[0]'"),
        (np.array(["a", "", "b"]), "the source '' of sample 'x[1]'"),
    ],
)
def test_columns_that_do_not_fit_are_one_sentence(tmp_path: Path, column: Any, words: str) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2)), s=column)
    assert words in refused(f"{tmp_path / 'd.npz'}?sources=s")


def test_sources_of_a_field_of_a_jsonl_file(tmp_path: Path) -> None:
    for name in ("p1/a.png", "p1/b.png", "p2/a.png"):
        picture(tmp_path / name)
    rows = [
        {"path": name, "photo": photo}
        for name, photo in (("p1/a.png", 3), ("p1/b.png", 4), ("p2/a.png", 3))
    ]
    path = lines(tmp_path / "d.jsonl", *rows)
    assert read(f"{path}?sources=photo").drawn_from == ("3", "4", "3")
    bare = lines(tmp_path / "bare.jsonl", *({"path": row["path"]} for row in rows))
    assert read(f"{bare}?sources=folder").drawn_from == ("p1", "p1", "p2")
    assert "no 'photo'" in refused(f"{bare}?sources=photo")
    numbers = lines(tmp_path / "n.jsonl", {"x": [1.5, 2], "who": "a"}, {"x": [1, 2], "who": "b"})
    data = read(f"{numbers}?sources=who")
    assert (data.drawn_from, data.load(0).tolist()) == (("a", "b"), [1.5, 2.0])


@pytest.mark.parametrize(
    ("source", "words"),
    [("", 'the source ""'), (None, "no 'who'"), (True, "the source true"), ([1], "the source [1]")],
)
def test_fields_that_are_no_source_are_named_by_their_line(
    tmp_path: Path, source: object, words: str
) -> None:
    path = lines(tmp_path / "d.jsonl", {"x": [1], "who": "a"}, {"x": [2], "who": source})
    found = refused(f"{path}?sources=who")
    assert words in found
    assert "line 2" in found


def test_sources_of_a_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2)))
    table = tmp_path / "who.csv"
    text = f"{tmp_path / 'd.npz'}?sources={table}"
    table.write_text("sample,source\nx[1],b\nx[0],a\n\nx[2],a\n")
    assert read(text).drawn_from == ("a", "b", "a")
    for content, words in {
        "sample,source\nx[1],b\nx[0],a\n": "no line for 1 sample, such as 'x[2]'",
        "sample,source\nx[1],b\nx[3],a\n": "no sample 'x[3]'",
        "sample,source\nx[1],b\nx[1],a\n": "'x[1]' again",
        "sample,source\nx[1],\n": "an empty field",
        "sample,source\nx[1],a\nx[0],a,b\n": "3 fields",
        "sample\nx[1]\n": "1 field;",
        "sample,who,light\nx[1],b,d\nx[0],a,d\nx[2],a,n\n": (
            "two columns, or one of them called 'source'"
        ),
    }.items():
        table.write_text(content)
        assert words in refused(text)
    table.write_text("sample,light,source\nx[1],d,b\nx[0],d,a\nx[2],n,a\n")
    assert read(text).drawn_from == ("a", "b", "a")
    assert read(f"{text}&columns={table}").columns["light"] == ("d", "d", "n")
    table.unlink()
    assert "No such file" in refused(text)
    assert "expected folder, the name of a column, or a .csv file" in refused(
        f"{tmp_path / 'd.npz'}?sources="
    )


def test_headings_of_a_table_are_distinct_and_hide_no_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((2, 2)), y=np.array([0, 1]))
    table = tmp_path / "facts.csv"
    text = f"{tmp_path / 'd.npz'}?columns={table}"
    table.write_text("sample,light,light\nx[0],a,b\nx[1],a,b\n")
    assert "the heading 'light' 2 times" in refused(text)
    table.write_text("sample,class\nx[0],a\nx[1],b\n")
    assert "a column 'class' of labelled samples" in refused(text)
    np.savez(tmp_path / "d.npz", x=np.ones((2, 2)))
    assert read(text).slices("class") == ("a", "b")


def test_sources_in_python_are_names_or_a_function() -> None:
    data = Dataset.from_arrays("d", np.ones((4, 1)), sources=["a", "a", "b", "c"])
    assert data.drawn_from == ("a", "a", "b", "c")
    assert data.with_sources(lambda sample: int(sample[2]) // 2).drawn_from == ("0", "0", "1", "1")
    with pytest.raises(InputError, match="3 sources for 4 samples"):
        data.with_sources(["a"] * 3)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("name", "clusters"),
    [("photo_crops", 20), ("voices", 4), ("voice_pairs", 4), ("rendered_pages", 60)],
)
def test_the_zoo_says_what_its_samples_were_drawn_from(name: str, clusters: int) -> None:
    assert len(set(get_dataset(name).drawn_from)) == clusters


# Layouts of data sets that many people have. A folder is a class, as it is read.

QUIET = {
    "ImageNet, validation": [f"ILSVRC2012_val_{i:08}.JPEG" for i in range(1, 500)],
    "ImageNet, validation by class": [
        f"n{i % 10:08}/ILSVRC2012_val_{i:08}.JPEG" for i in range(1, 500)
    ],
    "ImageNet, training": [
        f"n{k:08}/n{k:08}_{i * 37 + k}.JPEG" for k in range(10) for i in range(50)
    ],
    "Tiny ImageNet": [f"n{k:08}/images/n{k:08}_{i}.JPEG" for k in range(10) for i in range(50)],
    "EuroSAT": [
        f"{name}/{name}_{i}.jpg" for name in ("AnnualCrop", "PermanentCrop") for i in range(1, 40)
    ],
    "Oxford pets": [f"{name}_{i}.jpg" for name in ("Abyssinian", "beagle") for i in range(1, 40)],
    "COCO": [f"{i * 31:012}.jpg" for i in range(300)],
    "CIFAR-10": [f"{name}/{i:04}.png" for name in "abc" for i in range(40)],
    "CIFAR-10, class last": [f"{i}_{name}.png" for name in ("cat", "dog") for i in range(40)],
    "a camera": [f"IMG_{i:04}.jpg" for i in range(100)],
    "CUB-200": [
        f"00{k}.Bird/Bird_{i:04}_{796000 + i * k}.jpg" for k in range(1, 5) for i in range(30)
    ],
    "Pascal VOC": [f"{year}_{i * 3:06}.jpg" for year in (2007, 2008) for i in range(50)],
    "LFW": [f"{name}/{name}_{i:04}.jpg" for name in ("A_B", "C_D") for i in range(1, 9)],
    "Cityscapes": [f"frankfurt_000000_{i * 19:06}_leftImg8bit.png" for i in range(60)],
    "CelebA": [f"{i:06}.jpg" for i in range(1, 90)],
    "MNIST": [f"{label}/{i}.png" for label in range(10) for i in range(40)],
    "numbered classes": [f"class{k}/class{k}_{i}.png" for k in range(5) for i in range(20)],
    "pieces of nothing that is named": [f"crop_{i}.png" for i in range(60)],
    "a numbered set": [f"x_{i:04}.png" for i in range(90)],
}
LOUD = {
    "crops": ([f"photo{k}_crop{i:02}.png" for k in range(20) for i in range(25)], 20),
    "crops by class": (
        [f"{k % 2}/photo{k}_crop{i:02}.png" for k in range(20) for i in range(5)],
        20,
    ),
    "tiles": (
        [
            f"P{k:04}_tile_{row}_{column}.png"
            for k in range(9)
            for row in range(3)
            for column in range(3)
        ],
        9,
    ),
    "grid": (
        [
            f"a{k}.tile_r{row}c{column}.png"
            for k in range(9)
            for row in range(3)
            for column in range(3)
        ],
        9,
    ),
    "clips, unlabelled": (
        [f"v_g01_c{k:02}_frame{i:03}.jpg" for k in range(5) for i in range(10)],
        5,
    ),
    "GTSRB": (
        [f"{c:05}/{c}{t:04}_{i:05}.ppm" for c in range(4) for t in range(6) for i in range(30)],
        24,
    ),
    "LibriSpeech": ([f"84-{k}-{i:04}.npz" for k in (121123, 121550) for i in range(30)], 2),
    "copies": ([f"IMG_{k:04}_{i}.png" for k in range(12) for i in range(1, 5)], 12),
}


def named(ids: Sequence[str], *, clusters: Sequence[str] | None = None) -> Dataset:
    classes = sorted({one.partition("/")[0] for one in ids}) if "/" in ids[0] else None
    labels = (
        None if classes is None else tuple((classes.index(one.partition("/")[0]),) for one in ids)
    )
    every = tuple(ids)
    known = every if clusters is None else tuple(clusters)
    return Dataset(
        id="d",
        kind="picture",
        sample_ids=every,
        sources=every,
        clusters=known,
        labels=labels,
        content="",
        load=len,
    )


@pytest.mark.parametrize("layout", QUIET)
def test_common_layouts_do_not_suggest_pieces(layout: str) -> None:
    assert pieces_note(named(QUIET[layout])) == ""


@pytest.mark.parametrize("layout", LOUD)
def test_names_of_pieces_do_unless_sources_are_given(layout: str) -> None:
    ids, count = LOUD[layout]
    assert f"about {count} sources" in pieces_note(named(ids))
    assert pieces_note(named(ids, clusters=["one"] * len(ids))) == ""


BASELINES = sorted((ROOT / "baselines").glob("*/*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", BASELINES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_baseline_is_of_the_data_of_today_and_has_the_number_of_their_sources(path: Path) -> None:
    known = set(dataset_catalogue(known_extensions()).names())
    for name, stored in load_baseline(path).data.items():
        if name not in known:  # those of an extension that a test of its own makes
            continue
        data = get_dataset(name)
        data = data if len(data) == stored.samples else data.take(stored.samples)
        count = len(set(data.drawn_from))
        assert data.digest == stored.digest
        assert pieces_note(data) == ""
        assert stored.sources == (None if count == len(data) else count)


def test_columns_of_an_npz_file_of_lines_and_of_a_table(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    light = np.array(["dim", "dim", "day"])
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 1], light=light, room=[1, 2, 2])
    found, _ = dataset_from_text(f"{tmp_path / 'a.npz'}?columns=light,room&sources=room")
    assert found.columns == {"light": ("dim", "dim", "day"), "room": ("1", "2", "2")}
    assert found.clusters == ("1", "2", "2")
    assert found.slices("light") == ("dim", "dim", "day")
    assert found.slices("class") == ("class 0", "class 1", "class 1")
    assert found.pick([2, 0]).columns["light"] == ("day", "dim")

    lines = [
        {"x": row.tolist(), "label": 1, "light": one}
        for row, one in zip(x, light.tolist(), strict=True)
    ]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found, _ = dataset_from_text(f"{tmp_path / 'b.jsonl'}?columns=light")
    assert found.columns == {"light": ("dim", "dim", "day")}

    (tmp_path / "c.csv").write_text("sample,light,room\nx[0],dim,1\nx[2],day,2\nx[1],dim,2\n")
    np.savez(tmp_path / "c.npz", x=x)
    found, _ = dataset_from_text(f"{tmp_path / 'c.npz'}?columns={tmp_path / 'c.csv'}")
    assert found.columns == {"light": ("dim", "dim", "day"), "room": ("1", "2", "2")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.npz?columns=lite", "no array 'lite'"),
        ("b.jsonl?columns=lite", "no 'lite'"),
        ("a.npz?columns=short.csv", "no line for 2 samples, such as 'x[1]'"),
        ("a.npz?columns=ragged.csv", "1 field"),
        ("a.npz?columns=", "columns"),
        (".?columns=light", "columns=light for a folder"),
    ],
)
def test_columns_that_are_not_there_are_one_sentence(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", x=np.zeros((3, 2), np.float32))
    (tmp_path / "b.jsonl").write_text('{"x": [1.5, 2], "label": 1}')
    (tmp_path / "short.csv").write_text("sample,light\nx[0],dim\n")
    (tmp_path / "ragged.csv").write_text("sample,light\nx[0]\n")
    with pytest.raises(InputError) as refused:
        dataset_from_text(text)
    assert words in str(refused.value)


def test_slices_that_data_does_not_have_are_one_sentence():
    data = Dataset.from_arrays("rows", np.zeros((2, 2), np.float32)).with_columns(
        light=["dim", "day"]
    )
    with pytest.raises(InputError, match=r"unknown column 'lite'.*Did you mean 'light'"):
        data.slices("lite")
    with pytest.raises(InputError, match="samples without a label"):
        data.slices("class")
    with pytest.raises(InputError, match="1 values of the column 'light' for 2 samples"):
        data.with_columns(light=["dim"])
