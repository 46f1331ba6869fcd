"""What importing costs: `import qbench`, first uses of public names, and short commands,
against a bare interpreter.

Each number is the least of several fresh processes, alternating, so that a busy machine disturbs
all alike.

    python benchmarks/import_cost.py [rounds]
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = {
    "python -c pass": "pass",
    "import numpy": "import numpy",
    "import qbench": "import qbench",
    "qbench.mcnemar_midp": "from qbench import mcnemar_midp",
    "qbench.quantize": "from qbench import quantize",
    "qbench.load_model": "from qbench import load_model",
    "qbench.make_plan": "from qbench import make_plan",
    "qbench.suite (all that a run needs)": "import qbench.suite",
}
HISTORY = Path(__file__).parents[1] / "reports" / "history"
COMMANDS = {
    "qbench --help": "--help",
    "qbench list schemas": "list schemas",
    "qbench eval (float, warm cache)": "eval net.onnx --data data.npz",
    "qbench lint": "lint int8.onnx",
    "qbench history show": f"history show digits_cnn::ort-cpu+w8a8_asym_pc --history {HISTORY}",
    "qbench compare": f"compare latest latest --history {HISTORY}",
}


def prepare(folder: Path) -> None:
    """A model of one product, float and quantized, and samples for it."""
    import numpy as np
    import onnx_ir as ir

    from qbench import calibrate, load_model, make_plan, quantize_model, save_model

    weight = ir.Value(name="w", const_value=ir.tensor(np.eye(4, 3, dtype=np.float32), name="w"))
    x = ir.Value(name="x", shape=ir.Shape(["N", 4]), type=ir.TensorType(ir.DataType.FLOAT))
    product = ir.node("MatMul", [x, weight], name="fc")
    (y,) = product.outputs
    y.name, y.shape, y.type = "y", ir.Shape(["N", 3]), ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [x], [y], nodes=[product], opset_imports={"": 21}, initializers=[weight], name="one"
    )
    save_model(ir.Model(graph, ir_version=10), folder / "net.onnx")
    model = load_model(folder / "net.onnx")
    samples = np.eye(4, dtype=np.float32)
    plan = make_plan(model, calibrate(model, [{"x": samples}]), "w8a8_asym_pc")
    save_model(quantize_model(model, plan), folder / "int8.onnx")
    np.savez(folder / "data.npz", x=samples, y=[0, 1, 2, 0])


def seconds(code: str, folder: Path) -> tuple[float, float]:
    """Wall and processor time of a fresh interpreter that runs ``code`` in ``folder``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    environment = {**os.environ, "QBENCH_CACHE": str(folder / "cache")}
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=600,
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure and print one line a case."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    run = "import sys; from qbench.cli import main; sys.exit(main({!r}))"
    cases = {**CASES, **{name: run.format(words.split()) for name, words in COMMANDS.items()}}
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as text:
        prepare(Path(text))
        for _ in range(rounds):
            for name, code in cases.items():
                took[name].append(seconds(code, Path(text)))
    walls, processor = (
        {name: min(one[i] for one in times) for name, times in took.items()} for i in (0, 1)
    )
    bare = walls["python -c pass"]
    print(f"{'case':36}  {'ms':>7}  {'over bare':>9}  {'processor':>9}")
    for name, wall in walls.items():
        print(
            f"{name:36}  {1e3 * wall:7.1f}  {1e3 * (wall - bare):9.1f}  "
            f"{1e3 * processor[name]:9.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
