"""Damaged files of every kind that people hand in end in a sentence or are read; what else is
raised is a fault.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from mutations import damaged_bytes, damaged_json, damaged_toml

import qbench.suite
from qbench.errors import QbenchError
from qbench.numerics import load_arithmetic
from qbench.passes import load_device
from qbench.quantization import load_plan, load_schema, quantize_model
from qbench.suite import expand, gather, load_suite
from qbench.tracking import load_annotations

ROOT = Path(qbench.suite.__file__).parents[1]
REPOSITORY = ROOT.parent
NET = """<ir_version: 10, opset_import: ["" : 21]> net (float[N,4] x) => (float[N,3] y)
<float[4,6] w, float[6,3] v, float[3] b>
{ [first] h = MatMul(x, w) [relu] r = Relu(h) [second] y = Gemm(r, v, b) }"""


@pytest.fixture(scope="module")
def model_files(tmp_path_factory) -> Path:
    """``net.onnx``, ``p.json`` (its profile) and ``plan.json``."""
    from qbench.cli import main

    folder = tmp_path_factory.mktemp("files")
    net = onnx.parser.parse_model(NET)
    draw = np.random.default_rng(0)
    del net.graph.initializer[:]
    for name, shape in (("w", (4, 6)), ("v", (6, 3)), ("b", (3,))):
        array = draw.normal(size=shape).astype(np.float32)
        net.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(net, folder / "net.onnx")
    np.savez(folder / "x.npz", x=draw.normal(size=(8, 4)).astype(np.float32))
    files = [str(folder / name) for name in ("net.onnx", "x.npz", "p.json", "q.onnx", "plan.json")]
    assert (
        main(
            [
                "profile",
                files[0],
                "--data",
                files[1],
                "-o",
                files[2],
                "--cache",
                str(folder / "cache"),
            ]
        )
        == 0
    )
    words = [
        "--profile",
        files[2],
        "--schema",
        "w8a8_asym_pc",
        "-o",
        files[3],
        "--save-plan",
        files[4],
    ]
    assert main(["quantize", files[0], *words]) == 0
    (folder / "notes.toml").write_text(
        '[[annotation]]\ncommit = "1234567"\nstate = "expected"\nauthor = "a"\nreason = "r"\n'
        'cell = "*::x"\n'
    )
    return folder


def _suite(path: Path) -> None:
    expand(load_suite(path), gather(suites=REPOSITORY / "suites"))  # whose engines/ a suite names


def _quarantine(path: Path) -> None:
    suite = path.with_name("smoke.qbench.toml")
    suite.write_text((REPOSITORY / "suites" / suite.name).read_text())
    _suite(suite)


def _plan(path: Path) -> None:
    plan = load_plan(path)
    plan.lines()
    quantize_model(path.parents[1] / "net.onnx", plan)


def _profile(path: Path) -> None:
    from qbench.cli import main

    folder = path.parents[1]
    words = [
        "--profile",
        str(path),
        "--schema",
        "w8a8_asym_pc",
        "-o",
        str(path.with_name("q.onnx")),
    ]
    assert main(["quantize", str(folder / "net.onnx"), *words]) in (0, 2)


Use = tuple[str, Callable[[str, int], bytes], Callable[[Path], object], str]
KINDS: dict[str, Use] = {
    "suite": ("suites/*.qbench.toml", damaged_toml, _suite, "{}.qbench.toml"),
    "quarantine": (
        "suites/smoke.quarantine.toml",
        damaged_toml,
        _quarantine,
        "smoke.quarantine.toml",
    ),
    "schema": ("suites/schemas/*.toml", damaged_toml, load_schema, "{}.toml"),
    "arithmetic": ("qbench/numerics/presets/*.toml", damaged_toml, load_arithmetic, "{}.toml"),
    "device": ("qbench/passes/partition/devices/*.toml", damaged_toml, load_device, "{}.toml"),
    "annotations": ("notes.toml", damaged_toml, load_annotations, "{}.toml"),
    "plan": ("plan.json", damaged_json, _plan, "{}.json"),
    "profile": ("p.json", damaged_json, _profile, "{}.json"),
}


def _seeds(folder: Path, pattern: str) -> list[tuple[str, str]]:
    found = sorted((*folder.glob(pattern), *REPOSITORY.glob(pattern)))
    assert found
    return [(path.name.partition(".")[0], path.read_text()) for path in found]


def _try(folder: Path, kind: str, seeds: range) -> None:
    pattern, structural, use, name = KINDS[kind]
    sources = _seeds(folder, pattern)
    work = folder / kind
    work.mkdir(exist_ok=True)
    for seed in seeds:
        stem, text = sources[seed % len(sources)]
        path = work / name.format(stem)
        path.write_bytes((structural if seed % 3 else damaged_bytes)(text, seed))
        try:
            use(path)
        except QbenchError:
            continue
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}: {path.read_bytes()[:300]!r}") from error
    sound = work / name.format(sources[0][0])
    sound.write_text(sources[0][1])
    use(sound)  # else all of it would be refused for what was not damaged


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(model_files, kind):
    _try(model_files, kind, range(40))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files_are_read_or_refused_in_a_sentence(model_files, kind):
    _try(model_files, kind, range(40, 3000))


def test_the_damage_is_the_same_for_the_same_seed():
    text = json.dumps({"a": [1, {"b": 2}], "c": "x"})
    assert damaged_json(text, 5) == damaged_json(text, 5)
    assert len({damaged_json(text, seed) for seed in range(20)}) > 10
