"""The reader of zip checkpoints: refused before anything runs is whatever is more than tensors,
or no such archive.

That it reads what torch writes is judged by torch itself, in
``tests/oracles/test_oracles_torch_zip.py``.
"""

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench_zoo.readers.torch_files import read_torch_zip


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def tensor(
    key: str, count: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> bytes:
    """The instructions that torch writes for a view into a storage of float32."""
    storage = (
        b"("
        + text("storage")
        + b"ctorch\nFloatStorage\n"
        + text(key)
        + text("cpu")
        + number(count)
        + b"tQ"
    )
    sizes, steps = (b"(" + b"".join(map(number, each)) + b"t" for each in (shape, strides))
    hooks = b"ccollections\nOrderedDict\n)R"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + number(offset)
        + sizes
        + steps
        + b"\x89"
        + hooks
        + b"tR"
    )


def program(**entries: bytes) -> bytes:
    """A pickled dictionary of what the instructions in ``entries`` make."""
    return (
        b"\x80\x02}" + b"".join(text(name) + value + b"s" for name, value in entries.items()) + b"."
    )


def archive(members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return stream.getvalue()


NUMBERS = np.arange(6, dtype="<f4") / 7
GOOD = {
    "run/data.pkl": program(
        weight=tensor("0", 6, (2, 3), (3, 1)),
        turned=tensor("0", 6, (3, 2), (1, 3)),
        last=tensor("0", 6, (), (), 5),
    ),
    "run/byteorder": b"little",
    "run/data/0": NUMBERS.tobytes(),
    "run/version": b"3\n",
}


def refusal(data: bytes, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_torch_zip(data, "weights.pt", **options)
    assert "'weights.pt'" in caught.value.doing
    return caught.value.found


def test_a_good_checkpoint_gives_its_arrays_in_order() -> None:
    for members in (GOOD, {name: data for name, data in GOOD.items() if name != "run/byteorder"}):
        found = read_torch_zip(archive(members), "weights.pt")
        assert list(found) == ["weight", "turned", "last"]
        np.testing.assert_array_equal(found["weight"], NUMBERS.reshape(2, 3), strict=True)
        np.testing.assert_array_equal(found["turned"], NUMBERS.reshape(2, 3).T, strict=True)
        assert found["last"] == NUMBERS[5]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"run/byteorder": b"big"}, "big-endian"),
        ({"run/data/0": NUMBERS.tobytes()[:-1]}, "23 bytes in member 'run/data/0' of 24"),
        ({"run/data/0": None}, "no bytes in member 'run/data/0'"),
        ({"run/data.pkl": None}, "0 members called data.pkl"),
        ({"other/data.pkl": GOOD["run/data.pkl"]}, "2 members called data.pkl"),
        ({"run/data.pkl": b""}, "too soon"),
        (
            {"run/data.pkl": program(weight=tensor("0", 6, (2, 4), (3, 1)))},
            "'weight' of shape (2, 4)",
        ),
        ({"run/data.pkl": program(weight=tensor("../../0", 6, (6,), (1,)))}, "'run/data/../../0'"),
        ({"run/data.pkl": program(weight=number(5))}, "'weight' that is a int"),
        ({"run/data.pkl": b"\x80\x02]."}, "a list where the state dict"),
        ({"run/data.pkl": program()}, "a state dict without a tensor"),
        (
            {"run/data.pkl": b"\x80\x02})" + b"\x85" * 1000 + b"Ns."},
            "a tuple where a parameter's name",
        ),
        (
            {"run/data.pkl": b"\x80\x02ctorch._utils\n_rebuild_parameter\n."},
            "torch._utils._rebuild_parameter",
        ),
        (
            {"run/data.pkl": b"\x80\x02ctorch.storage\nUntypedStorage\n."},
            "torch.storage.UntypedStorage",
        ),
    ],
)
def test_what_is_no_such_checkpoint_is_refused(
    changed: dict[str, bytes | None], words: str
) -> None:
    members = {name: data for name, data in {**GOOD, **changed}.items() if data is not None}
    assert words in refusal(archive(members))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_call_of_anything_else_is_refused_and_never_made(protocol: int, tmp_path: Path) -> None:
    class Call:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    for state in ({"weight": Call()}, Call()):
        found = refusal(archive({**GOOD, "run/data.pkl": pickle.dumps(state, protocol=protocol)}))
        assert protocol not in (1, 2) or "mkdir" in found
    assert not (tmp_path / "made").exists()


def test_a_packed_member_is_refused_before_it_unfolds() -> None:
    bomb = archive({**GOOD, "run/data/0": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    assert "the packed member" in refusal(bomb)


def test_one_entry_of_a_training_run_is_read() -> None:
    inner = program(weight=tensor("0", 6, (6,), (1,)))[2:-1]
    run = archive({**GOOD, "run/data.pkl": program(network=inner, step=number(9))})
    np.testing.assert_array_equal(read_torch_zip(run, "run.pt", entry="network")["weight"], NUMBERS)
    assert "no entry 'model'" in refusal(run, entry="model")
    assert "a int where" in refusal(run, entry="step")


def test_an_older_checkpoint_is_refused_in_a_sentence() -> None:
    assert "not a zip file" in refusal(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2))
    assert "not a zip file" in refusal(b"")


def test_a_file_cut_short_anywhere_is_refused() -> None:
    data = archive(GOOD)
    for length in range(len(data)):
        refusal(data[:length])


@given(st.data())
def test_a_damaged_file_gives_arrays_or_a_sentence(draws: st.DataObject) -> None:
    data = bytearray(archive(GOOD))
    for _ in range(draws.draw(st.integers(1, 4))):
        data[draws.draw(st.integers(0, len(data) - 1))] = draws.draw(st.integers(0, 255))
    try:
        found = read_torch_zip(bytes(data), "damaged.pt")
    except InputError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())
