"""What quantizing a model of 1 GB takes: peak memory of planning, writing and saving it, and
the time, a process each.

The model is a chain of matrix products. It lies in one file, or with its constants in a file
beside; and it has sixteen matrices, or a single one. The bar is 3 times the constants' size,
everything included: Python, the file as loaded, the model that is written. With a size of over 2 GB
the model that is written has its constants beside it, too.

    python benchmarks/large_model.py [gigabytes [schema]]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 3.0
"""Peak memory, in sizes of the model."""

BUILD = """
import sys
import numpy as np, onnx_ir as ir
from qbench.graph import save_model
path, total = sys.argv[1], float(sys.argv[2]) * 1e9
matrices, beside = int(sys.argv[3]), sys.argv[4] == "beside"
width = 4096
columns = int(total / matrices / 4 / width)
rng = np.random.default_rng(0)
x = ir.val("x", ir.DataType.FLOAT, ["N", width])
value, nodes, constants = x, [], []
for index in range(matrices):
    array = rng.standard_normal((width, columns), np.float32) / np.float32(64)
    weight = ir.val(f"w{index}", const_value=ir.tensor(array, name=f"w{index}"))
    constants.append(weight)
    product = ir.node("MatMul", [value if columns == width else x, weight], name=f"product{index}")
    product.outputs[0].name = f"p{index}"
    relu = ir.node("Relu", product.outputs, name=f"relu{index}")
    relu.outputs[0].name = f"r{index}"
    nodes += [product, relu]
    value = relu.outputs[0]
value.dtype, value.shape = ir.DataType.FLOAT, ir.Shape(["N", columns])
graph = ir.Graph([x], [value], nodes=nodes, initializers=constants, opset_imports={"": 21},
                 name="large")
model = ir.Model(graph, ir_version=10)
if beside:
    from pathlib import Path
    folder = Path(path).parent
    ir.external_data.unload_from_model(model, folder, "large.data")
    Path(path).write_bytes(ir.to_proto(model).SerializeToString())
else:
    save_model(model, path)
"""

PROFILE = """
import sys
import numpy as np
from qbench.calibration import calibrate
from qbench.graph import load_model
feeds = {"x": np.random.default_rng(1).standard_normal((4, 4096), np.float32)}
calibrate(load_model(sys.argv[1]), [feeds]).dump(sys.argv[2])
"""

QUANTIZE = """
import resource, sys, time
from qbench.calibration import Profile
from qbench.graph import load_model, save_model
from qbench.quantization import make_plan, quantize_model
begin = time.perf_counter()
model = load_model(sys.argv[1])
plan = make_plan(model, Profile.load(sys.argv[2]), sys.argv[3])
assert plan.integer_mac_count or plan.constants, plan.lines()
save_model(quantize_model(model, plan), sys.argv[4])
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(peak / 1e9, time.perf_counter() - begin)
"""


def child(code: str, *arguments: object) -> str:
    """What a process of its own prints that runs ``code``."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(gigabytes: float, schema: str, matrices: int, where: str) -> tuple[float, float]:
    """Peak resident memory in GB, and seconds, of loading, planning,
    writing and saving such a model.
    """
    with tempfile.TemporaryDirectory(prefix="qbench-large-") as name:
        folder = Path(name)
        net, profile = folder / "large.onnx", folder / "p.json"
        child(BUILD, net, gigabytes, matrices, where)
        child(PROFILE, net, profile)
        peak, seconds = child(QUANTIZE, net, profile, schema, folder / "q.onnx").split()
        return float(peak), float(seconds)


def main() -> int:
    """Measure and print; 1 when a peak is above the bar."""
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    schema = sys.argv[2] if len(sys.argv) > 2 else "w8a8_asym_pc"
    worst = 0.0
    print(
        f"{gigabytes} GB, {schema}\n{'matrices':>8}  {'constants':>10}  {'peak GB':>8}  "
        f"{'sizes':>6}  {'seconds':>8}"
    )
    for matrices in (16, 1):
        for where in ("beside", "inside"):
            if where == "inside" and gigabytes >= 2:
                continue
            peak, seconds = measure(gigabytes, schema, matrices, where)
            worst = max(worst, peak / gigabytes)
            print(
                f"{matrices:8}  {where:>10}  {peak:8.2f}  {peak / gigabytes:6.2f}  {seconds:8.1f}",
                flush=True,
            )
    print(f"at most {worst:.2f} sizes, bar {BAR}: {'within' if worst <= BAR else 'BEYOND'}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    begun = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - begun:.0f} s in all")
    sys.exit(code)
