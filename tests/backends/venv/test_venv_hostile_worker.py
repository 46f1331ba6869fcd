"""What a program sends that is not ours: one sentence whatever it is, no memory taken for it,
and no process left.
"""

import io
import json
import struct
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from qbench.backends import python_backend
from qbench.backends.venv import client, worker
from qbench.errors import InputError, UnavailableError

NET = '<ir_version: 10, opset_import: ["" : 21]> net (float[N] x) => (float[N] y) { y = Neg (x) }'
GREETING = {"versions": {"onnxruntime": "1.0", "numpy": "1.0", "python": "3.8.0"}, "arrays": []}
FEEDS = {"x": np.ones(2, np.float32)}


def message(header: object, *bodies: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(bodies)


def listed(*arrays: object, body: bytes = b"") -> bytes:
    return message({"arrays": list(arrays)}, body)


PREPARED = listed()
ANSWERS = {
    "objects": (listed(["y", "|O", [1], 8], body=b"\x41" * 8), "dtype '|O'"),
    "a structure": (listed(["y", "|V8", [1], 8], body=b"\x41" * 8), "dtype '|V8'"),
    "a list for a dtype": (listed(["y", [["a", "|O"]], [1], 8], body=b"\x41" * 8), "dtype"),
    "another byte order": (listed(["y", ">f4", [1], 4], body=b"1234"), "dtype '>f4'"),
    "fewer bytes than its shape": (listed(["y", "<f4", [2**40], 4], body=b"1234"), "shape or size"),
    "more bytes than its shape": (
        listed(["y", "<f4", [1], 8], body=b"12345678"),
        "8 bytes for an array",
    ),
    "bytes that nothing holds": (listed(["y", "<f4", [2**60], 2**62]), "shape or size"),
    "many arrays of many bytes": (
        listed(*([f"y{i}", "<f4", [2**30], 2**32] for i in range(9))),
        "arrays of more than",
    ),
    "negative dimensions": (listed(["y", "<f4", [-2, -2], 16], body=b"1" * 16), "shape or size"),
    "dimensions that are no whole numbers": (
        listed(["y", "<f4", [True, 1.5], 4], body=b"1234"),
        "shape or size",
    ),
    "too many dimensions": (listed(["y", "<f4", [1] * 65, 4], body=b"1234"), "shape or size"),
    "endless columns of no rows": (listed(["y", "<f4", [0, 2**33, 2**33], 0]), "cannot be read"),
    "a name that is not text": (listed([["y"], "<f4", [1], 4], body=b"1234"), "name"),
    "two of a name": (listed(["y", "<f4", [0], 0], ["y", "<f4", [0], 0]), "one name"),
    "texts that are none": (listed(["y", "text", [2], 7], body=b"[[1],2]"), "texts"),
    "fewer texts than its shape": (listed(["y", "text", [2**30], 5], body=b'["a"]'), "texts"),
    "a text that is not a list": (listed(["y", "text", [2], 4], body=b"null"), "cannot be read"),
    "no JSON": (message(b"{'arrays': ..."), "a header that cannot be read"),
    "no text": (message(b"\xff\xfe"), "a header that cannot be read"),
    "a list": (message([1, 2]), "a header that cannot be read"),
    "no arrays": (message({}), "a header that cannot be read"),
    "arrays that are none": (message({"arrays": [[1]]}), "a header that cannot be read"),
    "a deep nest": (message(b"[" * 200_000), "a header that cannot be read"),
    "an endless header": (struct.pack("<Q", 2**63), "a header of"),
    "an error without words": (message({"arrays": [], "error": 5}), "an error without"),
    "arrays of other names": (listed(["z", "<f4", [0], 0]), "other names"),
    "no arrays at all": (PREPARED, "other names"),
    "half a message": (
        message({"arrays": [["y", "<f4", [2], 8]]}, b"1234"),
        "its worker ended with exit code 0",
    ),
}


@pytest.fixture
def program(tmp_path):
    """Makes a program that sends ``greeting``,
    and one of ``answers`` for each message that it gets.
    """

    def make(*answers: bytes, greeting: bytes | None = None, at_end: str = "") -> Path:
        first = message(GREETING) if greeting is None else greeting
        path = tmp_path / "python"
        path.write_text(
            f"#!{sys.executable}\nimport json, os, struct, sys, time\n"
            "reading, writing = open(int(sys.argv[3]), 'rb'), open(int(sys.argv[4]), 'wb')\n"
            f"def skip():\n    size = struct.unpack('<Q', reading.read(8))[0]\n"
            "    for one in json.loads(reading.read(size))['arrays']:\n"
            "        reading.read(one[3])\n"
            f"sys.stderr.write('out of cheese\\n')\nsys.stderr.flush()\n"
            f"writing.write({first!r}); writing.flush()\n"
            f"for answer in {list(answers)!r}:\n"
            f"    skip(); writing.write(answer); writing.flush()\n{at_end}"
        )
        path.chmod(0o755)
        return path

    return make


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_is_trusted(program, name):
    answer, found = ANSWERS[name]
    path = program(PREPARED, answer)
    with prepared(path) as far, pytest.raises(UnavailableError) as caught:
        far.run(FEEDS)
    assert found in caught.value.found
    assert "\n" not in str(caught.value)
    if "names" not in found:
        assert "out of cheese" in caught.value.found


def prepared(path: Path):
    from qbench.backends import AnotherPython, get_backend

    backend = AnotherPython(
        name="far",
        python=path,
        like=get_backend("ort-cpu"),
        versions=(("numpy", "1.0"), ("onnxruntime", "1.0")),
    )
    return backend.prepare(onnx.parser.parse_model(NET))


@pytest.mark.parametrize(
    "greeting",
    [
        b"",
        b"\x00" * 3,
        message({"arrays": []}),
        message({"arrays": [], "versions": []}),
        message({"arrays": [], "versions": {"numpy": "2"}}),
        message({"arrays": [], "error": {"kind": 1}}),
        message(b"nothing"),
        *(answer for answer, _ in list(ANSWERS.values())[:3]),
    ],
)
def test_no_greeting_is_trusted(program, greeting):
    with pytest.raises(UnavailableError) as caught:
        python_backend(program(greeting=greeting))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "answers", [(), (PREPARED,), (PREPARED, message({"arrays": [["y", "<f4", [2], 8]]}, b"1234"))]
)
def test_one_that_says_no_more_is_ended(program, monkeypatch, answers):
    monkeypatch.setattr(client, "_SILENCE_S", 0.5)
    path = program(*answers, at_end="time.sleep(600)\n")
    with pytest.raises(UnavailableError, match=r"does nothing for 0\.5 s"), prepared(path) as far:
        far.run(FEEDS)


def test_one_that_begins_a_greeting_and_goes_on_is_ended(program, monkeypatch):
    monkeypatch.setattr(client, "FIRST_MESSAGE_S", 0.5)
    with pytest.raises(UnavailableError, match=r"found no message in 0\.5 s"):
        python_backend(program(greeting=b"\x08\x00", at_end="time.sleep(600)\n"))


def test_one_that_reads_nothing_is_ended(program, monkeypatch):
    monkeypatch.setattr(client, "_SILENCE_S", 0.5)
    path = program(at_end="time.sleep(600)\n")
    with (
        client.Worker(path) as far,
        pytest.raises(UnavailableError, match=r"does nothing for 0\.5 s"),
    ):
        far.ask({"do": "run"}, {"x": np.zeros(1 << 22, np.float32)}, doing="Running")


def test_what_is_declared_takes_no_memory(monkeypatch):
    taken = []
    monkeypatch.setattr(
        worker, "bytearray", lambda size: taken.append(size) or bytearray(size), raising=False
    )
    for answer, _ in ANSWERS.values():
        with suppress(worker.GarbledError, EOFError):
            worker.read_message(io.BytesIO(answer))
    assert max(taken) < 1 << 20


def test_a_requirement_is_a_name_with_versions():
    from qbench.backends.venv.creator import plain_requirement

    for text in ("onnxruntime==1.17.3", "numpy<2", "onnxruntime", "onnxruntime[x]>=1,<2"):
        assert plain_requirement(text, "Reading") == text.replace(">=1,<2", "<2,>=1")
    for text in (
        "--pre",
        "--log=FILE",
        "-r",
        "-e .",
        "./there",
        "/tmp/there",
        "there/",
        "x @ file:///tmp/x.whl",
        "x @ https://localhost/x.whl",
        "https://localhost/x.whl",
        "git+https://localhost/x",
        "there.whl",
        "There.ZIP",
        "x==1.0+local.tar.gz",
        "x===1.whl",
        "x; python_version > '3'",
        "x\n--log=FILE",
        "",
    ):
        with pytest.raises(InputError, match="name of a package"):
            plain_requirement(text, "Reading")
