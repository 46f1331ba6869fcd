"""What a night measures with ``--qbench-carry``: unchanged, and after a change of one model, of one
package, of one source file.

The project has M models × 20 backends × 8 schemas. The engine is a stub whose answers are a fixed
function of its feeds, so that the cost is qbench's. Each backend names a package of its own, which
is installed as a folder of metadata; a new version is another number there. Each night is a process
of its own over one history:

    accept      all results are accepted
    keys        everything is measured, keys are noted
    unchanged   a random twentieth is measured, the rest carried; bar: 6 % measured
    model       the weights of one model changed: its cells are measured, and no other
    package     one package has another version: the cells of its backend are measured, and no other
    source      the file of one backend was edited: the cells of that backend, and no other

The cells of the changed model are red from then on, as nothing was accepted for it, so that each
later night measures them too. Then the history is read as one of 50 jobs reads it. The exit code is
0 where every night measured exactly the expected cells.

    python benchmarks/carry.py [--models 32]
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from qbench.tracking import EarlierResults

BACKENDS, BAR = 20, 0.06
SCHEMAS = (
    *("w8a8_asym_pc", "w8a8_asym_pt", "w8a8_sym_pc", "w8a8_sym_pt"),
    *("w8a8_symu8_pc", "w8a8_symu8_pt", "w8a8_asym_pc_pow2", "w8a8_asym_pc_percentile"),
)

CONFTEST = """
import importlib, sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper
from qbench.extension import Extension
from qbench.subjects import Dataset, ReadyArray, ZooModel
from qbench.subjects.tasks import Classification

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "engines"), str(HERE / "site")]


def network(name):
    rng = np.random.default_rng(int((HERE / "weights" / name).read_text()))
    constants = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), one)
                 for one, shape in (("w", (8, 12)), ("v", (12, 5)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
             helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "v"], ["y"], name="second")]
    ends = [helper.make_tensor_value_info(one, TensorProto.FLOAT, ["n", size])
            for one, size in (("x", 8), ("y", 5))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 21)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def model(name):
    return ZooModel(id=name, graphs={"model": partial(network, name)},
                    preprocess=ReadyArray(input="x"), task=Classification(k=2), origin="made up")


def data(name, seed, count):
    x = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    ids = tuple(f"{name}-{i}" for i in range(count))
    labels = tuple((int(np.argmax(one[:5])),) for one in x)
    return Dataset(id=name, kind="array", sample_ids=ids, sources=ids, labels=labels,
                   content=f"{name}-{seed}-{count}", load=x.__getitem__)


def engine(name):
    return importlib.import_module(name).Engine()


def pytest_qbench_extension(config):
    names = sorted(path.stem for path in (HERE / "engines").glob("*.py"))
    return Extension(
        name="carry",
        models={path.name: partial(model, path.name) for path in (HERE / "weights").iterdir()},
        datasets={"points": partial(data, "points", 5, 40),
                  "spare": partial(data, "spare", 7, 16)},
        backends={name: partial(engine, name) for name in names})
"""

ENGINE = """
import numpy as np
from qbench.backends import get_backend


class Run:
    def run(self, feeds):
        return {{"y": np.round(feeds["x"][:, :5] * 64) / 64}}

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Engine:
    name, packages = "{name}", ("{name}-kernels",)
    capabilities = property(lambda self: get_backend("ort-cpu").capabilities)

    def prepare(self, model, *, taps=(), threads=1):
        return Run()
"""

MODEL = """
[[model]]
id = "{name}"
data = "points"
calibration = {{ data = "spare", count = 16 }}
metrics = ["agreement"]
"""


def write_project(folder: Path, models: int) -> None:
    """Write the files of the project; nothing is run."""
    names = [f"m{number:03}" for number in range(models)]
    backends = [f"stub{number:02}" for number in range(BACKENDS)]
    for name in ("weights", "engines", "site", "suites"):
        (folder / name).mkdir()
    for number, name in enumerate(names):
        (folder / "weights" / name).write_text(str(number))
    for name in backends:
        (folder / "engines" / f"{name}.py").write_text(ENGINE.format(name=name))
        install(folder, name, "1.22.0")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nqbench_cache = cache\nqbench_localize = 0\n")
    head = (
        "[suite]\nfp32 = false\nagreement = 0.0\nexecuted_macs = 0.0\n"
        f"backends = {json.dumps(backends)}\nschemas = {json.dumps(SCHEMAS)}\n"
    )
    text = head + "".join(MODEL.format(name=name) for name in names)
    (folder / "suites" / "carry.qbench.toml").write_text(text)


def install(folder: Path, backend: str, version: str) -> None:
    """Let the package of ``backend`` have ``version``."""
    place = folder / "site" / f"{backend}_kernels-1.dist-info"
    place.mkdir(exist_ok=True)
    (place / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {backend}-kernels\nVersion: {version}\n"
    )


def night(folder: Path, *options: str) -> tuple[list[dict], float]:
    """The cell lines of one run, and its seconds."""
    command = [
        *(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
        ),
        *("suites/carry.qbench.toml", *options),
    ]
    environment = {name: one for name, one in os.environ.items() if name != "CI"}
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    spent = time.perf_counter() - started
    if done.returncode not in (0, 1):
        raise SystemExit(f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
    newest = max((folder / "reports" / "history").rglob("*.jsonl"), key=lambda one: one.name)
    lines = map(json.loads, newest.read_text().splitlines())
    return [line for line in lines if line["type"] == "cell"], spent


def measured(cells: list[dict]) -> set[str]:
    """Model and backend of each cell that was not carried."""
    return {
        f"{cell['model']}::{cell['backend']}+{cell['schema']}"
        for cell in cells
        if "carried" not in cell
    }


def row(name: str, cells: list[dict], spent: float, expected: str, *, holds: bool) -> bool:
    """Print one night; whether it measured what is expected."""
    count = len(measured(cells))
    print(
        f"{name:10} {len(cells):7,} {count:9,} {100 * count / len(cells):8.2f} % {expected:>12} "
        f"{spent:8.1f} {'' if holds else '  MISSED'}",
        flush=True,
    )
    return holds


def changed_nights(folder: Path) -> bool:
    """The nights after a change, each with the changes before it; whether all counts are right."""
    weights, source = folder / "weights" / "m001", folder / "engines" / "stub05.py"
    changes = (
        ("model", lambda: weights.write_text("999"), "m001::"),
        ("package", lambda: install(folder, "stub03", "1.23.0"), "::stub03+"),
        ("source", lambda: source.write_text(source.read_text() + "# edited\n"), "::stub05+"),
    )
    fine = True
    before = {"m001::"}
    for name, change, part in changes:
        change()
        cells, spent = night(folder, "--qbench-carry=7d:0%")
        found, every = (
            measured(cells),
            {f"{c['model']}::{c['backend']}+{c['schema']}" for c in cells},
        )
        # the changed model is red from then on, as its baseline is of the old one
        expected = {one for one in every if any(part in one for part in (*before, part))}
        fine &= row(name, cells, spent, f"{len(expected):,}", holds=found == expected)
        reason = next(c["key"]["why"] for c in cells if part in f"{c['model']}::{c['backend']}+")
        print(f"{'':10} {reason}", flush=True)
    return fine


def history_seconds(folder: Path, models: int) -> tuple[float, float]:
    """Seconds to read the history for one of 50 jobs, and for all models."""
    names = [f"m{number:03}" for number in range(models)]
    found = []
    for wanted in (names[: max(1, models // 50)], names):
        started = time.process_time()
        EarlierResults.read(
            folder / "reports" / "history",
            "carry",
            wanted,
            now=datetime.datetime.now(datetime.UTC),
            age=datetime.timedelta(days=7),
        )
        found.append(time.process_time() - started)
    return found[0], found[1]


def main() -> int:
    """Run the nights and print the table; 1 when a count is not the expected one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=32, metavar="M")
    models = parser.parse_args().models
    with tempfile.TemporaryDirectory(prefix="qbench-carry-") as name:
        folder = Path(name)
        write_project(folder, models)
        print("night        cells  measured     share     expected  seconds", flush=True)
        accept = ("--qbench-accept=new", "--qbench-accept-fp32", "--qbench-accept-in-ci")
        cells, spent = night(folder, *accept)
        fine = row("accept", cells, spent, "all", holds=len(measured(cells)) == len(cells))
        cells, spent = night(folder, "--qbench-carry=7d")
        fine &= row("keys", cells, spent, "all", holds=len(measured(cells)) == len(cells))
        cells, spent = night(folder, "--qbench-carry=7d")
        share = len(measured(cells)) / len(cells)
        fine &= row("unchanged", cells, spent, f"<= {BAR:.0%}", holds=0 < share <= BAR)
        fine &= changed_nights(folder)
        job, every = history_seconds(folder, models)
        print(f"the history of these nights: {job:.2f} s for one of 50 jobs, {every:.2f} s for all")
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
