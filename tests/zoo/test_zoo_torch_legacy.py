"""The reader of legacy checkpoints: the numbers of a good one, and a refusal before anything
runs of all others.
"""

import collections
import io
import os
import pickle
import struct
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench_zoo.readers.torch_files import load_torch_legacy, read_torch_legacy

STORAGES = {
    "FloatStorage": "<f4",
    "LongStorage": "<i8",
    "HalfStorage": "<f2",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}


class View:
    """A tensor as the writer below saves it: a view into a shared storage."""

    def __init__(
        self, key: str, kind: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.arguments = (
            Storage(key, kind),
            offset,
            shape,
            strides,
            False,
            collections.OrderedDict(),
        )

    def __reduce__(self) -> Any:
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


class Storage:
    def __init__(self, key: str, kind: str) -> None:
        self.key, self.kind = key, kind


class Writer(pickle.Pickler):
    sizes: dict[str, int]

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Storage):
            return (
                "storage",
                getattr(sys.modules["torch"], value.kind),
                value.key,
                "cpu",
                self.sizes[value.key],
                None,
            )
        return None


@pytest.fixture(scope="module", autouse=True)
def torch_names() -> Any:
    """Just enough of torch's names for Python's pickler to write them down."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in (*STORAGES, "ComplexFloatStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2() -> None: ...

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch)
        patch.setitem(sys.modules, "torch._utils", utils)
        yield


def checkpoint(
    state: Any, storages: dict[str, np.ndarray[Any, Any]], *, protocol: int = 2, **facts: Any
) -> bytes:
    stream = io.BytesIO()
    header = {
        "protocol_version": 1001,
        "little_endian": True,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
        **facts,
    }
    for value in (0x1950A86A20F9469CFC6C, 1001, header):
        pickle.dump(value, stream, protocol=2)
    writer = Writer(stream, protocol=protocol)
    writer.sizes = {key: len(array) for key, array in storages.items()}
    writer.dump(state)
    pickle.dump(sorted(storages), stream, protocol=2)
    for key in sorted(storages):
        stream.write(struct.pack("<q", len(storages[key])) + storages[key].tobytes())
    return stream.getvalue()


def small() -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    flat = np.arange(24, dtype="<f4") / 7
    state = collections.OrderedDict(
        weight=View("1", "FloatStorage", 0, (2, 3, 4), (12, 4, 1)),
        transposed=View("1", "FloatStorage", 2, (4, 3), (1, 4)),
        count=View("2", "LongStorage", 0, (), ()),
        half=View("3", "HalfStorage", 0, (2,), (1,)),
        flags=View("4", "BoolStorage", 0, (3,), (1,)),
        octets=View("5", "ByteStorage", 0, (2,), (1,)),
    )
    state._metadata = collections.OrderedDict(version=1)  # type: ignore[attr-defined]  # as torch leaves it there
    numbers: dict[str, np.ndarray[Any, Any]] = {
        "1": flat,
        "2": np.array([-5], "<i8"),
        "3": np.array([0.5, -2], "<f2"),
        "4": np.array([True, False, True]),
        "5": np.array([0, 255], "|u1"),
    }
    expected = {
        "weight": flat.reshape(2, 3, 4),
        "transposed": flat[2:14].reshape(3, 4).T,
        "count": np.array(-5),
        "half": numbers["3"],
        "flags": numbers["4"],
        "octets": numbers["5"],
    }
    return checkpoint(state, numbers), expected


def test_a_good_checkpoint_gives_its_arrays_in_order(tmp_path: Path) -> None:
    data, expected = small()
    path = tmp_path / "weights.pth"
    path.write_bytes(data)
    found = load_torch_legacy(path)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, strict=name != "count")
        assert found[name].flags.c_contiguous


class Calls:
    """Pickles as a call of ``function``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (os.mkdir, "mkdir"),
        (eval, "eval"),
        (getattr, "getattr"),
        (__import__, "__import__"),
        (Path, "Path"),
        (dict, "dict"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_call_of_anything_else_is_refused_and_never_made(
    function: Any, named: str, protocol: int, tmp_path: Path
) -> None:
    target = tmp_path / "made"
    state = {
        "weight": Calls(
            function,
            f"__import__('os').mkdir({str(target)!r})" if function is eval else str(target),
        )
    }
    with pytest.raises(InputError) as caught:
        read_torch_legacy(checkpoint(state, {}, protocol=protocol), "evil.pth")
    if protocol in (1, 2):
        assert named in caught.value.found
    assert "evil.pth" in caught.value.doing
    assert not target.exists()


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_each_of_the_pickles_is_guarded(at: int, tmp_path: Path) -> None:
    evil = pickle.dumps(Calls(os.mkdir, str(tmp_path / "made")), protocol=2)
    parts = [
        pickle.dumps(value, protocol=2)
        for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {})
    ]
    with pytest.raises(InputError, match="mkdir"):
        read_torch_legacy(b"".join([*parts[:at], evil, *parts[at:]]), "evil.pth")
    assert not (tmp_path / "made").exists()


HEAD = b"".join(
    pickle.dumps(v, protocol=2) for v in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"(S'x'\ncposix\nsystem\nR.", ""),
        (b"(iposix\nsystem\n.", "INST"),
        (b"(cposix\nsystem\no.", "posix.system"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "SHORT_BINUNICODE"),
        (b"\x80\x02ctorch._utils\n_rebuild_parameter\n.", "torch._utils._rebuild_parameter"),
        (b"\x80\x02ctorch\nnn.Module\n.", "torch.nn.Module"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "memo index"),
        (b"\x80\x02ctorch\nFloatStorage\n)R.", "not callable"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.", ""),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "argument"),
        (b"\x80\x02ctorch\\o\nFloatStorage\n.", "torch"),
        (b"\x80\x02X\x05\x00\x00\x00helloQ.", "persistent id"),
        (b"\x80\x02].", "list where the state dict"),
        (b"\x80\x02}X\x01\x00\x00\x00aK\x01s.", "'a'"),
    ],
)
def test_programs_written_by_hand(program: bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_torch_legacy(HEAD + program, "evil.pth")
    assert words in caught.value.found


def test_a_file_cut_short_anywhere_is_refused() -> None:
    data, _ = small()
    for length in range(len(data)):
        with pytest.raises(InputError):
            read_torch_legacy(data[:length], "short.pth")


@given(st.data())
def test_a_damaged_file_gives_arrays_or_a_sentence(draws: st.DataObject) -> None:
    data = bytearray(small()[0])
    for _ in range(draws.draw(st.integers(1, 4))):
        data[draws.draw(st.integers(0, len(data) - 1))] = draws.draw(st.integers(0, 255))
    try:
        found = read_torch_legacy(bytes(data), "damaged.pth")
    except InputError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (25,), (1,)),
        (20, (5,), (1,)),
        (0, (5, 5), (5, 1)),
        (-1, (2,), (1,)),
        (2, (2,), (-1,)),
        (0, (30,), (0,)),
        (0, (2, 2), (1,)),
    ],
)
def test_a_view_outside_its_storage_is_refused(
    offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    state = {"weight": View("1", "FloatStorage", offset, shape, strides)}
    with pytest.raises(InputError):
        read_torch_legacy(checkpoint(state, {"1": np.zeros(24, "<f4")}), "view.pth")


def test_other_machines_and_other_files_are_refused() -> None:
    with pytest.raises(InputError, match="big-endian"):
        read_torch_legacy(checkpoint({}, {}, little_endian=False), "big.pth")
    with pytest.raises(InputError):
        read_torch_legacy(b"PK\x03\x04 a zip", "new.pth")
    with pytest.raises(InputError, match="ends after 0 bytes"):
        read_torch_legacy(b"", "empty.pth")
    with pytest.raises(InputError, match="No such file"):
        load_torch_legacy(Path("nowhere.pth"))


def training_run() -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    """What a training run leaves: the network's state, a step,
    and an optimizer with storages of its own.
    """
    numbers: dict[str, np.ndarray[Any, Any]] = {
        "1": np.arange(3, dtype="<f4"),
        "2": np.arange(5, dtype="<f4") + 7,
    }
    optimizer = {
        "state": {140178894849152: {"step": 9, "mean": View("1", "FloatStorage", 0, (3,), (1,))}},
        "lr": 1e-4,
    }
    weight = View("2", "FloatStorage", 1, (2, 2), (2, 1))
    return checkpoint(
        {"step": 9, "optimizer": optimizer, "network": {"weight": weight}}, numbers
    ), numbers


def test_one_entry_of_a_training_run_is_read() -> None:
    data, numbers = training_run()
    found = read_torch_legacy(data, "run.pt", entry="network")
    assert list(found) == ["weight"]
    np.testing.assert_array_equal(found["weight"], numbers["2"][1:].reshape(2, 2))


@pytest.mark.parametrize(
    ("entry", "words"), [("step", "int"), ("optimizer", "'state'"), ("model", "no entry 'model'")]
)
def test_an_entry_that_is_no_state_is_refused(entry: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_torch_legacy(training_run()[0], "run.pt", entry=entry)
    assert words in caught.value.found


def test_what_stands_beside_an_entry_is_held_to_the_same_list(tmp_path: Path) -> None:
    evil = {"network": {}, "step": Calls(os.mkdir, str(tmp_path / "made"))}
    with pytest.raises(InputError, match="mkdir"):
        read_torch_legacy(checkpoint(evil, {}), "evil.pt", entry="network")
    assert not (tmp_path / "made").exists()


def test_a_training_run_cut_short_anywhere_is_refused() -> None:
    data, _ = training_run()
    for length in range(len(data)):
        with pytest.raises(InputError):
            read_torch_legacy(data[:length], "short.pt", entry="network")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"\x80\x02})" + b"\x85" * 1000 + b"Ns.", "a tuple where a parameter's name should be"),
        (b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.", "more than 30000 tuples"),
        (b"\x80\x02}.", "a state dict without a tensor"),
    ],
    ids=["deep", "deeper", "empty"],
)
def test_names_nested_too_deeply_and_no_names_at_all_are_refused(
    program: bytes, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read_torch_legacy(HEAD + program, "deep.pt")


def test_a_storage_key_nested_too_deeply_is_refused() -> None:
    keys = pickle.dumps(list("12345"), protocol=2)
    deep = b"\x80\x02])" + b"\x85" * 20_000 + b"a."
    assert keys in small()[0]
    with pytest.raises(InputError, match="recursion"):
        read_torch_legacy(small()[0].replace(keys, deep), "deep.pt")
