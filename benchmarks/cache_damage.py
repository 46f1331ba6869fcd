"""What a damaged cache does to results.

    python benchmarks/cache_damage.py [--to N] [--results F --resume] [--only N]

A tiny suite is run once into a cache of its own. Then, again and again, one bit of one of its files
is flipped (or the file is cut short, or emptied), the suite is run in a new process, and its
numbers are compared with the first run's:

    same     the same numbers; "noticed" where the run reports that an entry was made anew
    failed   an error in a sentence
    wrong    silent: other numbers, exit code and all; or a traceback

Trial by trial it is the turn of the next kind of file; the number of the trial draws the file and
the damage. The options of numbers and files are those of all trials (``benchmarks/trials.py``).
"""

import io
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model
from trials import Program, Result, parser, run

import qbench.evaluation
import qbench.plugin
import qbench.suite

ROOT = Path(__file__).parents[1]
SUITE = "suites/mine.qbench.toml"
HOW = ("bit", "bit", "bit", "bit", "cut", "emptied")


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: its exit code, what it measured, and what it wrote to the terminal."""

    code: int
    numbers: str
    text: str


def write_project(folder: Path) -> None:
    """examples/own-model with a small network and points that it was made for."""
    shutil.copytree(ROOT / "examples" / "own-model", folder)
    rng = np.random.default_rng(0)
    weights = [
        rng.normal(0, 1 / np.sqrt(a), (a, b)).astype(np.float32) for a, b in ((16, 24), (24, 7))
    ]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
            helper.make_node("Relu", ["h"], ["r"], name="relu"),
            helper.make_node("MatMul", ["r", "w1"], ["y"], name="last"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 7])],
        [numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    save_model(model, folder / "my_net.onnx")
    for name, count in (("val", 200), ("calibration", 64)):
        x = rng.normal(size=(count, 16)).astype(np.float32)
        labels = (np.maximum(x @ weights[0], 0) @ weights[1]).argmax(axis=1)
        np.savez(folder / f"{name}.npz", x=x, y=labels)


def ran(folder: Path, cache: Path, answer: "multiprocessing.Queue[Ran]") -> None:
    """Run the suite in ``folder`` with ``cache``; in a process of its own."""
    os.chdir(folder)
    history = Path(tempfile.mkdtemp(dir=folder.parent))
    told = io.StringIO()
    options = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:hypothesispytest",
        "--qbench-localize=0",
    ]
    options += [f"--qbench-cache={cache}", f"--qbench-history={history}"]
    with redirect_stdout(told), redirect_stderr(told):
        try:
            code = int(pytest.main([SUITE, *options]))
        except BaseException:
            told.write(traceback.format_exc())
            code = 1
    lines = [
        json.loads(line)
        for path in history.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    cells = [line for line in lines if line["type"] == "cell"]
    facts = ("model", "backend", "schema", "outcome", "metrics", "digests")
    numbers = [{key: line.get(key) for key in facts} for line in cells]
    told.writelines(notice for line in cells for notice in line["notices"])
    answer.put(Ran(code, json.dumps(numbers, sort_keys=True), told.getvalue()))


def in_process(folder: Path, cache: Path) -> Ran:
    """``ran`` in a forked process, which has everything imported already."""
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=ran, args=(folder, cache, answer))
    process.start()
    found: Ran = answer.get()
    process.join()
    return found


def damage(path: Path, how: str, draw: random.Random) -> None:
    """Flip a bit of ``path``, cut it anywhere, or empty it."""
    data = bytearray(path.read_bytes())
    if how == "bit" and data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif how == "cut":
        del data[draw.randrange(len(data) or 1) :]
    else:
        data.clear()
    path.write_bytes(data)


def kind_of(file: Path, cache: Path) -> str:
    """``samples/*.raw``, ``samples/layout.json``, ``fp32``, ``profiles``, or the seal of one."""
    kind = file.relative_to(cache).parts[0]
    if file.suffix == ".sha256":
        return f"{kind}, its seal"
    return (
        f"{kind}/{'*.raw' if file.suffix == '.raw' else file.name}" if kind == "samples" else kind
    )


def outcome_of(found: Ran, sound: Ran) -> str:
    """One word for ``found`` compared with the ``sound`` run."""
    if "Traceback (most recent call last)" in found.text:
        return "traceback"
    if found.numbers == sound.numbers and found.code == sound.code:
        return "noticed" if "damaged" in found.text else "same"
    return "failed" if found.code not in (0, sound.code) else "silent"


def work(numbers: Iterable[int]) -> Iterator[Result]:
    """The trials of these numbers."""
    assert qbench.evaluation  # loaded once, before processes are forked
    assert qbench.plugin
    assert qbench.suite.Bench
    with tempfile.TemporaryDirectory() as temporary:
        folder, cache = Path(temporary) / "project", Path(temporary) / "cache"
        write_project(folder)
        in_process(folder, cache)
        sound = in_process(
            folder, cache
        )  # without a baseline: the reference is the fp32 run of the cache
        kinds: dict[str, list[Path]] = {}
        for file in sorted(path for path in cache.rglob("*") if path.is_file()):
            kinds.setdefault(kind_of(file, cache), []).append(file.relative_to(cache))
        for number in numbers:
            kind, draw = sorted(kinds)[number % len(kinds)], random.Random(number)
            copy = Path(temporary) / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(cache, copy)
            which, how = draw.choice(range(len(kinds[kind]))), draw.choice(HOW)
            damage(copy / kinds[kind][which], how, draw)
            word = outcome_of(in_process(folder, copy), sound)
            is_wrong = word in ("silent", "traceback")
            yield Result(
                trial=number,
                group=kind,
                counts={} if is_wrong else {word: 1},
                wrong=(word,) if is_wrong else (),
                about=f"{how} of file {which}",
            )


def main() -> int:
    """Run the trials, print the table."""
    options = parser(__doc__, count=280).parse_args()
    return run(options, Program(work=work, kinds=("same", "noticed", "failed")))


if __name__ == "__main__":
    sys.exit(main())
