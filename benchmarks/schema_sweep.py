"""What trying twenty schemas costs over trying one: all are planned on one profile of 64
images, no image runs twice.

The bar is 1.5 × (profile + 20 × writing a model), all of one run: planning may take half of what
cannot be avoided. Seconds are of the processor, one thread, so that a busy machine says the same.
And planning and writing MobileNetV2 once may take 2 s.

    python benchmarks/schema_sweep.py [mobilenet_v2 | resnet50]…
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
from resnet50_shape import resnet50_shape

from qbench import load_model, make_plan, quantize_model, save_model
from qbench.backends import get_backend
from qbench.calibration import prepare_watch
from qbench.passes import plannable
from qbench.quantization import Ranges
from qbench.subjects import get_model

IMAGES, BATCH = 64, 8
FACTOR, ONCE_S = 1.5, 2.0
SCHEMAS = (
    "w8a8_asym_pc",
    "w8a8_asym_pt",
    "w8a8_sym_pc",
    "w8a8_sym_pt",
    "w8a8_symu8_pc",
    "w8a8_asym_pc_pow2",
    "w8a8_sym_pt_pow2",
    "w8a8_asym_pc_entropy",
    "w8a8_sym_pc_entropy",
    "w8a8_asym_pc_mse",
    "w8a8_sym_pc_mse",
    "w8a8_asym_pc_percentile",
    "w8a8_asym_pc_sigma",
    "w8a16_asym_pc",
    "w8a16_sym_pc",
    "w4a8_asym_pc",
    "w4a8_asym_pc_mse",
    "w8a8_sym_pt_pow2_bias16",
    "w8_sym_pc",
    "w4_sym_b32",
)


class Counting:
    """ONNX Runtime that counts the rows it computes."""

    def __init__(self) -> None:
        self.rows = 0

    def batches(self, model: ir.Model) -> Iterator[dict[str, np.ndarray]]:
        """Random images for the one input of ``model``."""
        rng = np.random.default_rng(0)
        name = model.graph.inputs[0].name or ""
        for _ in range(IMAGES // BATCH):
            self.rows += BATCH
            yield {name: rng.standard_normal((BATCH, 3, 224, 224), np.float32)}


def sweep(name: str, path: Path, folder: Path) -> bool:
    """Profile, plan and write the model at ``path``; print what it took;
    whether that is within the bars.
    """
    fed = Counting()
    started = time.process_time()
    model = plannable(load_model(path))  # once, for the profile and all plans
    with prepare_watch(model, get_backend("ort-cpu")) as watch:
        for feeds in fed.batches(model):
            watch.run(feeds)
        profile = watch.profile()
    profiling = time.process_time() - started
    planning, writing, ranges = [], [], Ranges(profile)
    print(
        f"{name}: profile of {fed.rows} images {profiling:.2f} s\n"
        f"{'schema':26}  {'plan s':>7}  {'write s':>7}"
    )
    for schema in SCHEMAS:
        started = time.process_time()
        plan = make_plan(model, profile, schema, ranges=ranges)
        planned = time.process_time()
        save_model(quantize_model(model, plan), folder / f"{schema}.onnx")
        planning.append(planned - started)
        writing.append(time.process_time() - planned)
        print(
            f"{schema:26}  {planning[-1]:7.3f}  {writing[-1]:7.3f}  "
            f"{plan.integer_macs:.0%} in integers"
        )
        (folder / f"{schema}.onnx").unlink()
    total, least = profiling + sum(planning) + sum(writing), profiling + sum(writing)
    fits = total <= FACTOR * least and fed.rows == IMAGES
    print(f"{'all':26}  {sum(planning):7.2f}  {sum(writing):7.2f}")
    print(
        f"{total:.1f} s = {total / least:.2f} × (profile + writing), bar {FACTOR}: "
        f"{'within' if fits else 'BEYOND'}"
    )
    once = max(p + w for p, w in zip(planning, writing, strict=True))
    if name == "mobilenet_v2":
        verdict = "within" if once <= ONCE_S else "BEYOND"
        print(f"planning and writing once: at most {once:.2f} s, bar {ONCE_S} s: {verdict}")
        fits = fits and once <= ONCE_S
    return fits


def main() -> int:
    """Both networks, or those that are named; 1 when beyond a bar."""
    names = sys.argv[1:] or ["mobilenet_v2", "resnet50"]
    fits = True
    with tempfile.TemporaryDirectory(prefix="qbench-sweep-") as folder:
        for name in names:
            path = Path(folder, f"{name}.onnx")
            save_model(
                resnet50_shape() if name == "resnet50" else get_model(name).graphs["model"](), path
            )
            fits = sweep(name, path, Path(folder)) and fits
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
