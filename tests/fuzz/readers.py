"""What reads each kind of file that people hand in, and sound files of each kind to damage."""

import contextlib
import functools
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from mutations import damaged_bytes, damaged_json, damaged_toml

import qbench.suite
from qbench.errors import QbenchError
from qbench.judging import Cell
from qbench.numerics import load_arithmetic
from qbench.passes import load_device
from qbench.quantization import load_plan, load_schema, quantize_model
from qbench.storage import digest_plain
from qbench.suite import Catalogues, expand, gather, load_job_plan, load_suite
from qbench.tracking import load_annotations

REPOSITORY = Path(qbench.suite.__file__).parents[2]
NET = """<ir_version: 10, opset_import: ["" : 21]> net (float[N,4] x) => (float[N,3] y)
<float[4,6] w, float[6,3] v, float[3] b>
{ [first] h = MatMul(x, w) [relu] r = Relu(h) [second] y = Gemm(r, v, b) }"""
_USAGE, _MISSING = 2, 4
NOTE = """[[annotation]]
commit = "1234567"
state = "expected"
author = "a"
reason = "r"
cell = "*::x"
"""
PLAN = {
    "format": "qbench-plan/1",
    "suites": [
        {"path": "suites/one.qbench.toml", "name": "one", "digest": "a" * 64, "cells": 12},
        {"path": "suites/two.qbench.toml", "name": "two", "digest": "b" * 64, "cells": 4},
    ],
    "code": {
        "commit": "c" * 40, "dirty": False, "changes": "", "qbench": "0.1.0",
        "versions": {"onnxruntime": "1.31"},
    },
    "environment_class": "x64-avx2",
    "jobs": [
        {"seconds": 3.5, "units": [
            {"suite": 0, "model": "m", "backends": None, "schemas": None, "cells": 8,
             "seconds": 2.0},
            {"suite": 1, "model": "m", "backends": ["ort-cpu"], "schemas": ["fp32"], "cells": 2,
             "seconds": 1.5},
        ]},
        {"seconds": 2.0, "units": [
            {"suite": 1, "model": "m", "backends": ["mine"], "schemas": ["fp32", "w8a8"],
             "cells": 2, "seconds": 2.0},
        ]},
    ],
}  # fmt: skip


def write_files(folder: Path) -> None:
    """``net.onnx``, ``p.json`` (its profile), ``plan.json``, ``jobs.json``, ``smoke.json`` and
    ``notes.toml``.
    """
    from qbench.cli import main

    net = onnx.parser.parse_model(NET)
    draw = np.random.default_rng(0)
    del net.graph.initializer[:]
    for name, shape in (("w", (4, 6)), ("v", (6, 3)), ("b", (3,))):
        array = draw.normal(size=shape).astype(np.float32)
        net.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(net, folder / "net.onnx")
    np.savez(folder / "x.npz", x=draw.normal(size=(8, 4)).astype(np.float32))
    files = [str(folder / name) for name in ("net.onnx", "x.npz", "p.json", "q.onnx", "plan.json")]
    cache = str(folder / "cache")
    assert main(["profile", files[0], "--data", files[1], "-o", files[2], "--cache", cache]) == 0
    words = ["--profile", files[2], "--schema", "w8a8_asym_pc", "-o", files[3]]
    assert main(["quantize", files[0], *words, "--save-plan", files[4]]) == 0
    (folder / "notes.toml").write_text(NOTE)
    (folder / "jobs.json").write_text(json.dumps(PLAN | {"digest": digest_plain(PLAN)}))
    (folder / "none").mkdir()
    with contextlib.chdir(REPOSITORY):
        words = ["--jobs", "3", "--history", str(folder / "none"), "-o", str(folder / "smoke.json")]
        assert main(["plan", "suites/smoke.qbench.toml", *words]) == 0


@functools.cache
def _catalogues() -> Catalogues:
    return gather(suites=REPOSITORY / "suites")  # whose engines/ a suite names


def _suite(path: Path) -> None:
    expand(load_suite(path), _catalogues())


def _quarantine(path: Path) -> None:
    suite = path.with_name("smoke.qbench.toml")
    suite.write_text((REPOSITORY / "suites" / suite.name).read_text())
    _suite(suite)


def _plan(path: Path) -> None:
    plan = load_plan(path)
    plan.lines()
    quantize_model(path.parents[1] / "net.onnx", plan)


def _profile(path: Path) -> int:
    from qbench.cli import main

    words = ["--profile", str(path), "--schema", "w8a8_asym_pc"]
    net = str(path.parents[1] / "net.onnx")
    code = main(["quantize", net, *words, "-o", str(path.with_name("q.onnx"))])
    assert code in (0, _USAGE)
    return code


def _job_plan(path: Path) -> None:
    plan = load_job_plan(path)
    cells = [
        Cell(suite=suite, model=model, backend=backend, schema=schema)
        for suite, model in itertools.product(("one", "two", "three"), ("m", "x"))
        for backend, schema in itertools.product(("ort-cpu", "mine"), ("fp32", "w8a8"))
    ]
    for cell in cells:
        holder = plan.holder(cell)
        assert (holder is None) == (not any(job.covers(cell) for job in plan.jobs))
    for job in plan.jobs:
        assert plan.job(job.index) is job
        for suite in plan.suites:
            job.models(suite.name)


def _expected_plan(path: Path) -> int:
    """A merge that expects the cells of a plan: all are missing, or the plan is refused."""
    from qbench.cli import main

    none = str(path.parents[1] / "none")
    with contextlib.chdir(REPOSITORY):
        code = main(["merge", none, "-o", str(path.with_name("merged")), "--expect", str(path)])
    assert code in (_USAGE, _MISSING)
    return code


def damaged_job_plan(text: str, seed: int) -> bytes:
    """As ``damaged_json``, mostly with the digest of what it says then, so that it is read on."""
    try:
        table = json.loads(damaged_json(text, seed))
        digest = digest_plain({key: value for key, value in table.items() if key != "digest"})
    except (ValueError, AttributeError):  # no table any more, or of numbers that JSON lacks
        return damaged_json(text, seed)
    return json.dumps(table | ({"digest": digest} if seed % 5 else {})).encode()


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        seeds: which sound files are damaged, below the folder or the repository.
        damaged: (text, seed) → the bytes of a damaged one, whose structure is one of its format.
        use: reads a file, and uses what it says; it gives 2 where a command refused it.
        name: of the damaged file.
    """

    seeds: str
    damaged: Callable[[str, int], bytes]
    use: Callable[[Path], object]
    name: str


KINDS = {
    "suite": Kind("suites/*.qbench.toml", damaged_toml, _suite, "{}.qbench.toml"),
    "quarantine": Kind(
        "suites/smoke.quarantine.toml", damaged_toml, _quarantine, "smoke.quarantine.toml"
    ),
    "schema": Kind("suites/schemas/*.toml", damaged_toml, load_schema, "{}.toml"),
    "arithmetic": Kind("qbench/numerics/presets/*.toml", damaged_toml, load_arithmetic, "{}.toml"),
    "device": Kind("qbench/passes/partition/devices/*.toml", damaged_toml, load_device, "{}.toml"),
    "annotations": Kind("notes.toml", damaged_toml, load_annotations, "{}.toml"),
    "plan": Kind("plan.json", damaged_json, _plan, "{}.json"),
    "profile": Kind("p.json", damaged_json, _profile, "{}.json"),
    "job plan": Kind("jobs.json", damaged_job_plan, _job_plan, "{}.json"),
    "expected job plan": Kind("smoke.json", damaged_job_plan, _expected_plan, "{}.json"),
}


def sound_files(folder: Path, kind: str) -> list[tuple[str, str]]:
    """(name, text) of the files of ``kind`` that are damaged; ``folder``: of ``write_files``."""
    pattern = KINDS[kind].seeds
    found = sorted((*folder.glob(pattern), *REPOSITORY.glob(pattern)))
    assert found
    return [(path.name.partition(".")[0], path.read_text()) for path in found]


def use_damaged(folder: Path, kind: str, seed: int) -> str:
    """``read``, or ``refused`` in a sentence; what else is raised is a fault and passes through."""
    path = _written(folder, kind, seed)
    try:
        return "refused" if KINDS[kind].use(path) == _USAGE else "read"
    except QbenchError as error:
        refused = error
    assert all((refused.doing, refused.found, refused.expected, refused.remedy))
    return "refused"


def use_sound(folder: Path, kind: str) -> None:
    """Read one as it is: else all would be refused for what was not damaged."""
    stem, text = sound_files(folder, kind)[0]
    path = folder / kind / KINDS[kind].name.format(stem)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    KINDS[kind].use(path)


def _written(folder: Path, kind: str, seed: int) -> Path:
    sources = sound_files(folder, kind)
    stem, text = sources[seed % len(sources)]
    path = folder / kind / KINDS[kind].name.format(stem)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((KINDS[kind].damaged if seed % 3 else damaged_bytes)(text, seed))
    return path
