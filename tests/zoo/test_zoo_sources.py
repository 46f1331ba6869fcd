"""Data that people bring: folders of pictures and arrays, and a sentence for everything that is wrong with them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qbench.errors import InputError
from qbench.storage import Cache
from qbench.subjects import Dataset, Picture, ReadyArray, dataset_from_text, prepare_samples, read_arrays
from qbench.subjects.pictures import Interpolation, Layout


def picture(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (30, 20), (shade, 10, 20)).save(path)


def npz(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_class_folders_are_numbered_in_order(tmp_path: Path) -> None:
    for index, name in enumerate(
        ("dog/b.png", "dog/a.png", "cat/z.JPG", "owl/deep/er.webp", "cat/notes.txt", ".hidden/h.png")
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
        f"folder:{tmp_path}?resize=12&crop=8&mean=1,2,3&std=2&divisor=1&interpolation=bicubic&layout=nhwc&input=image"
    )
    data, preprocess = dataset_from_text(text)
    assert preprocess == Picture(
        resize=12, crop=8, mean=(1, 2, 3), std=(2, 2, 2), divisor=1, interpolation=Interpolation.BICUBIC,
        layout=Layout.NHWC, input="image",
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
    data, preprocess = dataset_from_text(npz(tmp_path / "d.npz", x=x, y=np.array([3, 0, 1, 3], np.uint8)))
    assert preprocess == ReadyArray()
    assert data.labels == ((3,), (0,), (1,), (3,))
    (feeds,) = prepare_samples(data, ReadyArray(input="pixels"), Cache(tmp_path / "cache")).batches()
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
    assert one.digest != dataset_from_text(npz(tmp_path / "c.npz", x=x, y=np.zeros(5, int)))[0].digest


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
    "content", [b"", b"PK\x03\x04", b"no archive", pickle.dumps(Bomb()), b"\x93NUMPY\x01\x00", b"\x80\x05."]
)
def test_files_that_are_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
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


def test_names_of_the_zoo_bring_no_preprocessing() -> None:
    data, preprocess = dataset_from_text("imagenet_photos")
    assert isinstance(data, Dataset)
    assert (data.id, preprocess) == ("imagenet_photos", None)
    with pytest.raises(InputError, match="Did you mean 'photo_crops'"):
        dataset_from_text("photo_crop")


def test_arrays_are_read_by_their_names(tmp_path: Path) -> None:
    path = Path(
        npz(tmp_path / "own.npz", pictures=np.arange(6).reshape(3, 2), labels=np.arange(3), notes=np.array([{}]))
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
def test_an_array_or_a_file_that_is_not_there_is_a_sentence(name: str, found: str, tmp_path: Path) -> None:
    npz(tmp_path / "there.npz", pictures=np.arange(3))
    with pytest.raises(InputError, match=name) as caught:
        read_arrays(tmp_path / name, ["pictures", "labels"])
    assert caught.value.found == found
    assert caught.value.expected == "an .npz file of numbers with 'pictures' and 'labels'"
    assert "labels=…" in caught.value.remedy


def test_arrays_beyond_the_limit_are_refused_with_the_factor_that_admits_them(tmp_path: Path, monkeypatch) -> None:
    from qbench.storage import limits_times, size_limits

    path = Path(npz(tmp_path / "big.npz", x=np.zeros((4, 2)), y=np.zeros(4, np.int64)))
    small = size_limits.SizeLimits(tensor_bytes=50)
    monkeypatch.setattr(size_limits, "_DEFAULTS", small)
    with pytest.raises(InputError, match="--size-limits 2") as caught:
        read_arrays(path, ["x"], optional=["y"])
    assert "96 bytes" in caught.value.found
    with limits_times(2):
        assert sorted(read_arrays(path, ["x"], optional=["y"])) == ["x", "y"]
