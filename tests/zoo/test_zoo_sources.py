"""Data that people bring: folders of pictures and arrays,
and a sentence for everything that is wrong with them.
"""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qbench.errors import InputError
from qbench.storage import Cache
from qbench.subjects import (
    ClassNames,
    Dataset,
    Picture,
    ReadyArray,
    dataset_from_text,
    prepare_samples,
    read_arrays,
)
from qbench.subjects.pictures import Interpolation, Layout


def picture(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (30, 20), (shade, 10, 20)).save(path)


def npz(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_class_folders_are_numbered_in_order(tmp_path: Path) -> None:
    for index, name in enumerate(
        (
            "dog/b.png",
            "dog/a.png",
            "cat/z.JPG",
            "owl/deep/er.webp",
            "cat/notes.txt",
            ".hidden/h.png",
        )
    ):
        path = tmp_path / name
        if path.suffix == ".txt":
            path.write_text("no picture")
        else:
            picture(path, index)
    data, preprocess = dataset_from_text(f"folder:{tmp_path}")
    assert data.sample_ids == ("cat/z.JPG", "dog/a.png", "dog/b.png", "owl/deep/er.webp")
    assert data.labels == ((0,), (1,), (1,), (2,))
    assert preprocess == Picture()
    assert data.load(1)[0, 0].tolist() == [1, 10, 20]


def test_folders_named_by_numbers_keep_them(tmp_path: Path) -> None:
    for name in ("0007/a.png", "12/a.png", "3/a.png"):
        picture(tmp_path / name)
    data, _ = dataset_from_text(f"folder:{tmp_path}")
    assert dict(zip(data.sample_ids, data.labels or (), strict=True)) == {
        "0007/a.png": (7,),
        "12/a.png": (12,),
        "3/a.png": (3,),
    }


def test_pictures_without_classes_are_unlabelled(tmp_path: Path) -> None:
    picture(tmp_path / "b.png")
    picture(tmp_path / "a.png", 1)
    data, _ = dataset_from_text(f"folder:{tmp_path}")
    assert (data.sample_ids, data.labels) == (("a.png", "b.png"), None)


def test_the_same_file_is_the_same_source_wherever_it_lies(tmp_path: Path) -> None:
    picture(tmp_path / "one/x/a.png", 5)
    picture(tmp_path / "two/y/b.png", 5)
    picture(tmp_path / "two/y/c.png", 6)
    one, two = (dataset_from_text(f"folder:{tmp_path / name}")[0] for name in ("one", "two"))
    assert set(one.sources) & set(two.sources) == {one.sources[0]}


def test_settings_reach_the_preprocessing_and_the_feed(tmp_path: Path) -> None:
    picture(tmp_path / "a/a.png", 100)
    text = (
        f"folder:{tmp_path}?resize=12&crop=8&mean=1,2,3&std=2&divisor=1&interpolation=bicubic"
        "&layout=nhwc&input=image"
    )
    data, preprocess = dataset_from_text(text)
    assert preprocess == Picture(
        resize=12, crop=8, mean=(1, 2, 3), std=(2, 2, 2), divisor=1,
        interpolation=Interpolation.BICUBIC, layout=Layout.NHWC, input="image",
    )  # fmt: skip
    (feeds,) = prepare_samples(data, preprocess, Cache(tmp_path / "cache")).batches()
    assert feeds["image"].shape == (1, 8, 8, 3)
    assert feeds["image"][0, 0, 0].tolist() == [49.5, 4.0, 8.5]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("size=3", "Did you mean 'resize'"),
        ("means=1,2,3", "Did you mean 'mean'"),
        ("resize=big", "a whole number of pixels"),
        ("mean=1,2", "three numbers"),
        ("std=0,1,1", "no divisor may be 0"),
        ("mean=nan", "finite"),
        ("interpolation=cubic", "bicubic"),
        ("layout=chw", "nchw, nhwc"),
        ("resize=100", "a crop of 224 pixels out of 100"),
        ("crop=8&crop=9", "twice"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, query: str, words: str) -> None:
    picture(tmp_path / "a/a.png")
    with pytest.raises(InputError) as caught:
        dataset_from_text(f"folder:{tmp_path}?{query}")
    assert words in str(caught.value)


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing at that path"):
        dataset_from_text(f"folder:{tmp_path / 'nowhere'}")
    (tmp_path / "empty" / "class").mkdir(parents=True)
    with pytest.raises(InputError, match="0 pictures"):
        dataset_from_text(f"folder:{tmp_path / 'empty'}")
    picture(tmp_path / "both" / "loose.png")
    picture(tmp_path / "both" / "class" / "a.png")
    with pytest.raises(InputError, match=r"1 pictures .* and 1 in its 1 folders"):
        dataset_from_text(f"folder:{tmp_path / 'both'}")


def test_an_unreadable_picture_is_named_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bad.png").write_bytes(b"no picture")
    data, _ = dataset_from_text(f"folder:{tmp_path}")
    with pytest.raises(InputError, match=r"bad\.png"):
        data.load(0)
    (tmp_path / "a" / "bad.png").unlink()
    with pytest.raises(InputError, match=r"bad\.png"):
        data.load(0)


def test_arrays_are_feeds_as_they_are(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    data, preprocess = dataset_from_text(
        npz(tmp_path / "d.npz", x=x, y=np.array([3, 0, 1, 3], np.uint8))
    )
    assert preprocess == ReadyArray()
    assert data.labels == ((3,), (0,), (1,), (3,))
    (feeds,) = prepare_samples(
        data, ReadyArray(input="pixels"), Cache(tmp_path / "cache")
    ).batches()
    np.testing.assert_array_equal(feeds["pixels"], x, strict=True)


def test_doubles_become_what_networks_take_and_integers_stay(tmp_path: Path) -> None:
    data, _ = dataset_from_text(npz(tmp_path / "f.npz", x=np.ones((2, 2))))
    assert data.load(0).dtype == np.float32
    assert data.labels is None
    data, _ = dataset_from_text(npz(tmp_path / "i.npz", x=np.ones((2, 2), np.int64)))
    assert data.load(0).dtype == np.int64


def test_rows_are_known_by_their_numbers_however_the_file_is_written(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.savez_compressed(tmp_path / "b.npz", x=x[[4, 2]])
    one = dataset_from_text(npz(tmp_path / "a.npz", x=x))[0]
    two = dataset_from_text(str(tmp_path / "b.npz"))[0]
    assert set(one.sources) & set(two.sources) == {one.sources[2], one.sources[4]}
    assert one.digest == dataset_from_text(npz(tmp_path / "c.npz", x=x))[0].digest
    assert (
        one.digest != dataset_from_text(npz(tmp_path / "c.npz", x=x, y=np.zeros(5, int)))[0].digest
    )


class Bomb:
    def __reduce__(self) -> Any:
        return Path.mkdir, (Path("made-by-a-pickle"),)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.zeros(3, int)}, "the array y"),
        ({"a": np.zeros((3, 2)), "b": np.zeros((2, 2))}, "3 rows in 'a', 2 rows in 'b'"),
        ({"a": np.zeros(3), "b": np.array([0.0, np.nan, 0.0])}, "a[1]"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2, int)}, "shape (2,)"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, "float64"),
        ({"x": np.zeros((3, 2)), "y": np.array([0, -1, 2])}, "a class -1"),
        ({"x": np.zeros((3, 2)), "y": np.zeros((3, 1), int)}, "shape (3, 1)"),
        ({"x": np.array([[0.0, 1.0], [np.nan, 0.0], [0.0, np.inf]])}, "x[1]"),
        ({"x": np.array([[0.0], [0.0], [1e300]])}, "x[2]"),
        ({"x": np.array(["a", "b"])}, "<U1"),
        ({"x": np.zeros((0, 3))}, "shape (0, 3)"),
        ({"x": np.float32(3)}, "shape ()"),
        ({"x": np.array([Bomb()], dtype=object)}, "never loaded"),
        ({"x": np.zeros(2), "y": np.array([Bomb()] * 2, dtype=object)}, "never loaded"),
    ],
)
def test_wrong_arrays_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        dataset_from_text(npz(tmp_path / "d.npz", **arrays))
    assert words in str(caught.value)
    assert not Path("made-by-a-pickle").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"no archive", pickle.dumps(Bomb()), b"\x93NUMPY\x01\x00", b"\x80\x05."],
)
def test_files_that_are_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"'d\.npz'"):
        dataset_from_text("d.npz")
    assert not Path("made-by-a-pickle").exists()


def test_a_lone_array_a_cut_archive_and_nothing(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="no archive"):
        dataset_from_text(str(path))
    whole = Path(npz(path, x=np.zeros((100, 3)))).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError):
        dataset_from_text(str(path))
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(InputError, match="CRC"):
        dataset_from_text(str(path))
    with pytest.raises(InputError, match="No such file"):
        dataset_from_text(str(tmp_path / "nothing.npz"))


def test_a_folder_of_files_holds_one_sample_in_each(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    (tmp_path / "val").mkdir()
    for place, row in enumerate(rows):
        npz(
            tmp_path / "val" / f"{place}.npz",
            image=row.astype(np.float64),
            age=np.float32(place),
            y=np.int64(place % 2),
        )
    data, preprocess = dataset_from_text(str(tmp_path / "val"))
    assert (data.sample_ids, data.labels, data.kind) == (
        ("0.npz", "1.npz", "2.npz"),
        ((0,), (1,), (0,)),
        "array",
    )
    (feeds,) = prepare_samples(
        data, preprocess or ReadyArray(), Cache(tmp_path / "cache")
    ).batches()
    np.testing.assert_array_equal(feeds["image"], rows, strict=True)
    assert feeds["age"].tolist() == [0, 1, 2]
    whole = dataset_from_text(
        npz(tmp_path / "whole.npz", image=rows, age=np.arange(3, dtype=np.float32))
    )[0]
    assert whole.sources == data.sources  # one row is one source, however it is saved
    npz(tmp_path / "val" / "3.npz", image=rows[0], age=np.float32(0))
    with pytest.raises(InputError, match="3 of 4 files with a class y"):
        dataset_from_text(str(tmp_path / "val"))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            {"image": np.zeros((2, 3))},
            "found 'image' 2×3 of float32; expected 'image' 2×4 of float32",
        ),
        ({"images": np.zeros((2, 4))}, "found 'images' 2×4"),
        ({"image": np.full((2, 4), np.nan)}, "sample '1.npz': found NaN or Inf in 'image'"),
        ({"image": np.array(["a"])}, "'image' of <U1"),
        ({"image": np.array([{}])}, "never loaded"),
        ({"image": np.zeros((2, 4)), "y": np.zeros(2, int)}, "y of shape (2,)"),
        ({"image": np.zeros((2, 4)), "y": np.float32(1)}, "float32; expected one class"),
        ({}, "found no feed"),
    ],
)
def test_a_file_unlike_the_first_of_its_folder_is_named(
    tmp_path: Path, second: dict[str, Any], words: str
) -> None:
    npz(tmp_path / "0.npz", image=np.zeros((2, 4)), **({"y": np.int64(0)} if "y" in second else {}))
    npz(tmp_path / "1.npz", **second)
    with pytest.raises(InputError) as caught:
        dataset_from_text(f"folder:{tmp_path}")
    assert words in str(caught.value)
    assert "1.npz" in str(caught.value)


def lines(path: Path, *samples: object) -> str:
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in samples))
    return str(path)


def test_a_line_names_the_files_or_has_the_numbers_of_a_sample(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4, dtype=np.float32))
    np.save(tmp_path / "b.npy", np.ones(4, np.float32))
    text = lines(
        tmp_path / "val.jsonl",
        {"image": "a.npy", "meta": [1, 2], "ids": [[1, 2]], "label": 3},
        "",
        {"meta": [0.5, 1], "ids": [[3, 4]], "image": "b.npy", "label": 0},
    )
    data, preprocess = dataset_from_text(text)
    assert (data.id, data.sample_ids, data.labels) == (
        "val.jsonl",
        ("line 1", "line 3"),
        ((3,), (0,)),
    )
    (feeds,) = prepare_samples(
        data, preprocess or ReadyArray(), Cache(tmp_path / "cache")
    ).batches()
    assert {name: (one.shape, one.dtype.name) for name, one in feeds.items()} == {
        "image": ((2, 4), "float32"),
        "meta": ((2, 2), "float32"),  # whole numbers next to others
        "ids": ((2, 1, 2), "int64"),
    }


def test_a_line_with_a_path_is_a_picture_or_the_arrays_of_a_file(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        picture(tmp_path / "pics" / f"{name}.png", len(name))
    labelled = ({"path": f"pics/{name}.png", "label": name} for name in ("dog", "cat"))
    data, preprocess = dataset_from_text(
        lines(tmp_path / "p.jsonl", *labelled) + "?resize=12&crop=8"
    )
    assert (data.sample_ids, data.labels) == (("pics/dog.png", "pics/cat.png"), ((1,), (0,)))
    assert preprocess == Picture(resize=12, crop=8)
    assert data.load(0).shape == (20, 30, 3)
    npz(tmp_path / "a.npz", left=np.zeros(2), right=np.ones(3))
    data, _ = dataset_from_text(lines(tmp_path / "a.jsonl", {"path": "a.npz"}))
    assert {name: one.tolist() for name, one in data.load(0).items()} == {
        "left": [0, 0],
        "right": [1, 1, 1],
    }
    np.save(tmp_path / "x.npy", np.ones(3))
    data, _ = dataset_from_text(lines(tmp_path / "x.jsonl", {"path": "x.npy"}))
    assert (data.load(0).tolist(), data.labels) == ([1, 1, 1], None)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('{"x": [1, 2]', "broken JSON"),
        ("[" * 100_000, "too many brackets"),
        ([1, 2], "found a list; expected an object"),
        ({}, "found no sample"),
        ({"label": 3}, "found no sample"),
        ({"x": [1, 2]}, "expected x and a number as label, as in the first line"),
        ({"x": [1, 2], "label": "cat"}, "a name as label"),
        ({"x": [1, 2], "label": -1}, "the label -1"),
        ({"x": [1, 2], "label": True}, "the label true"),
        ({"x": [1, 2], "z": 1, "label": 1}, "found x, z and a number as label"),
        ({"x": [[1], [2, 3]], "label": 1}, "rows of different length"),
        ({"x": ["a"], "label": 1}, "without numbers"),
        ({"x": [1, 2, 3], "label": 1}, "found 'x' 3 of"),
        ({"x": "../x.npy", "label": 1}, "outside the folder"),
        ({"x": "/etc/x.npy", "label": 1}, "outside the folder"),
        ({"x": "x.npy", "label": 1}, "no file 'x.npy'"),
        ({"x": "x.csv", "label": 1}, "'x.csv' of input 'x'"),
        ({"x": "bad.npy", "label": 1}, "bad.npy"),
        ({"x": [1, 1e999], "label": 1}, "NaN or Inf in 'x'"),
        ({"path": "x.csv", "x": [1], "label": 1}, "'path' with x; expected 'path' alone"),
    ],
)
def test_a_line_that_is_no_sample_is_named_by_its_number(
    tmp_path: Path, second: object, words: str
) -> None:
    (tmp_path / "x.csv").write_text("1,2")
    np.save(tmp_path / "bad.npy", np.array([{}]))
    text = lines(tmp_path / "val.jsonl", {"x": [1, 2], "label": 0}, second)
    with pytest.raises(InputError) as caught:
        dataset_from_text(text)
    assert words in str(caught.value)
    assert "line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("val.jsonl?classes=none.txt", "No such file"),
        ("val.jsonl?classes=labels.txt", "no names of classes"),
        (
            "named.jsonl?classes=labels.txt",
            "2 classes that ?classes= does not list, such as 'cats'",
        ),
        ("named.jsonl?classes=twice.txt", "'dog' twice"),
        ("named.jsonl?resize=8", "'resize' with arrays"),
        ("val.npz?classes=labels.txt", "'classes' with arrays"),
        ("empty.jsonl", "found no line"),
        ("labels.txt", "a file that ends in '.txt'"),
        ("folder:val.npz", "found a file; expected a folder"),
        ("mixed", "1 pictures directly in it, 1 .npz files"),
        ("bare?classes=labels.txt", "no class folders"),
    ],
)
def test_classes_settings_and_files_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    lines(Path("val.jsonl"), {"x": [1, 2], "label": 0})
    lines(Path("named.jsonl"), {"x": [1, 2], "label": "cats"}, {"x": [1, 2], "label": "dogs"})
    Path("labels.txt").write_text("dog\ncat\n")
    Path("twice.txt").write_text("dog\ncat\ndog\n")
    Path("empty.jsonl").write_text("\n\n")
    npz(Path("val.npz"), x=np.zeros((2, 2)))
    picture(Path("mixed/a.png"))
    npz(Path("mixed/b.npz"), x=np.zeros(2))
    picture(Path("bare/a.png"))
    with pytest.raises(InputError) as caught:
        dataset_from_text(text)
    assert words in str(caught.value)


def test_a_file_lists_the_classes_in_the_order_of_the_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("dog", "cat"):
        picture(Path(f"val/{name}/a.png"))
    Path("labels.txt").write_text("dog\nowl\ncat\n")
    data, _ = dataset_from_text("val?classes=labels.txt")
    assert (data.sample_ids, data.labels) == (("cat/a.png", "dog/a.png"), ((2,), (0,)))
    assert data.classes == ClassNames({"dog": 0, "cat": 2}, 3)
    with pytest.raises(InputError, match="found 3 classes in the file"):
        data.classes.require(4, "Classifying")
    Path("labels.txt").write_text("dog\nowl\n")
    with pytest.raises(InputError, match="such as 'cat'"):
        dataset_from_text("val?classes=labels.txt")


def test_counted_classes_are_doubtful_where_the_model_has_more_and_wrong_where_it_has_fewer() -> (
    None
):
    counted = ClassNames.of(["class10", "class2", "class1"])
    assert counted.numbers == {"class1": 0, "class10": 1, "class2": 2}
    assert "counted in the order of their names" in counted.warning(4)
    assert counted.warning(3) == ""
    with pytest.raises(InputError, match="found 3 classes; expected classes from 0 to 1"):
        counted.require(2, "Classifying")
    numbers = ClassNames.of(["7", "0003"])
    assert (numbers.numbers, numbers.warning(10)) == ({"0003": 3, "7": 7}, "")
    with pytest.raises(InputError, match="found class '7'; expected classes from 0 to 6"):
        numbers.require(7, "Classifying")
    assert (
        str(ClassNames.of([f"c{n:02}" for n in range(100)]))
        == "100 classes: c00=0, c01=1, c02=2, c03=3, … (96 more)"
    )


def test_names_of_the_zoo_bring_no_preprocessing() -> None:
    data, preprocess = dataset_from_text("imagenet_photos")
    assert isinstance(data, Dataset)
    assert (data.id, preprocess) == ("imagenet_photos", None)
    with pytest.raises(InputError, match="Did you mean 'photo_crops'"):
        dataset_from_text("photo_crop")


def test_arrays_are_read_by_their_names(tmp_path: Path) -> None:
    path = Path(
        npz(
            tmp_path / "own.npz",
            pictures=np.arange(6).reshape(3, 2),
            labels=np.arange(3),
            notes=np.array([{}]),
        )
    )
    read = read_arrays(path, ["pictures", "labels"], optional=["weights"])
    assert {name: array.tolist() for name, array in read.items()} == {
        "pictures": [[0, 1], [2, 3], [4, 5]],
        "labels": [0, 1, 2],
    }


@pytest.mark.parametrize(
    ("name", "found"),
    [("there.npz", "the arrays pictures"), ("absent.npz", "No such file or directory")],
)
def test_an_array_or_a_file_that_is_not_there_is_a_sentence(
    name: str, found: str, tmp_path: Path
) -> None:
    npz(tmp_path / "there.npz", pictures=np.arange(3))
    with pytest.raises(InputError, match=name) as caught:
        read_arrays(tmp_path / name, ["pictures", "labels"])
    assert caught.value.found == found
    assert caught.value.expected == "an .npz file of numbers with 'pictures' and 'labels'"
    assert "labels=…" in caught.value.remedy


def test_arrays_beyond_the_limit_are_refused_with_the_factor_that_admits_them(
    tmp_path: Path, monkeypatch
) -> None:
    from qbench.storage import limits_times, size_limits

    path = Path(npz(tmp_path / "big.npz", x=np.zeros((4, 2)), y=np.zeros(4, np.int64)))
    small = size_limits.SizeLimits(tensor_bytes=50)
    monkeypatch.setattr(size_limits, "_DEFAULTS", small)
    with pytest.raises(InputError, match="--size-limits 2") as caught:
        read_arrays(path, ["x"], optional=["y"])
    assert "96 bytes" in caught.value.found
    with limits_times(2):
        assert sorted(read_arrays(path, ["x"], optional=["y"])) == ["x", "y"]
