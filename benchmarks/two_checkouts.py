"""What planning, writing and executing integer schemas costs in two checkouts, by turns in one run.

    python benchmarks/two_checkouts.py BEFORE AFTER [--rounds 15] [--models digits_cnn]

BEFORE and AFTER are folders of two checkouts of this repository (``git worktree add BEFORE
COMMIT``). One process of each is kept, with its own code and the packages of this environment; in
each round both do the same, in turn first and second: each model is planned and written under each
schema, saved, prepared on an arithmetic and run on a batch. Seconds are of the processor. Printed
are, for each model, the median of the rounds' ratios AFTER / BEFORE with its 95 % interval by
order statistics, the least seconds of each and their ratio (other work on the computer only adds to
them), the sizes of the files, and how many instructions of Python's bytecode are executed in
planning, in writing and in preparing and running, which no other work changes. ``--rounds 0``
prints these alone.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

MODELS = {"digits_cnn": 64, "mobilenet_v2": 1}
"""Model → samples of a batch."""
SCHEMAS = ("w8a8_asym_pc", "w8a8_sym_pt_pow2", "w8_sym_pc", "w4_sym_b32")
BACKEND = "integer-ort-x64"


def main() -> None:
    """Run both by turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work()
        return
    workers = [started(Path(folder).resolve()) for folder in given.checkouts]
    for model in given.models.split(","):
        # makes profiles, compiled loops and caches, too
        sizes = [asked(worker, model)["bytes"] for worker in workers]
        counts = [asked(worker, f"{model} counts") for worker in workers]
        for part, count in counts[0].items():
            after = counts[1][part]
            print(f"{model} instructions, {part}: {count} and {after}, {after / count:.4f}")
        rounds: list[list[dict[str, Any]]] = []
        for number in range(given.rounds):
            order = [0, 1] if number % 2 else [1, 0]
            found = {place: asked(workers[place], model) for place in order}
            rounds.append([found[0], found[1]])
        for part in ("plan", "write", "execute", "whole")[: 4 * bool(rounds)]:
            ratios = sorted(after[part] / before[part] for before, after in rounds)
            low, high = ends(len(ratios))
            least = [min(one[place][part] for one in rounds) for place in (0, 1)]
            print(
                f"{model} {part}: {statistics.median(ratios):.4f} "
                f"({ratios[low]:.4f} … {ratios[high]:.4f}); least {least[0]:.3f} and "
                f"{least[1]:.3f} s, {least[1] / least[0]:.4f}"
            )
        print(f"{model} bytes: {sizes[0]} and {sizes[1]}", flush=True)
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()


def ends(count: int) -> tuple[int, int]:
    """The places of the order statistics between which the median is with 95 %."""
    below = 0.0
    for low in range(count):
        below += math.comb(count, low) / 2**count
        if below > 0.025:
            return max(low - 1, 0), min(count - low, count - 1)
    return 0, count - 1


def started(folder: Path) -> "subprocess.Popen[str]":
    """A process with the code of ``folder``."""
    paths = [str(folder), str(folder / "engines"), str(folder / "zoo")]
    return subprocess.Popen(
        [sys.executable, __file__, "--work"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def asked(worker: "subprocess.Popen[str]", model: str) -> dict[str, Any]:
    """What one turn of ``worker`` took."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{model}\n")
    worker.stdin.flush()
    found: dict[str, Any] = json.loads(worker.stdout.readline())
    return found


def work() -> None:
    """Answer each model on standard input with a line of seconds and bytes."""
    import tempfile

    import numpy as np

    import qbench
    from qbench import load_model, make_plan, quantize_model, save_model
    from qbench.backends import get_backend
    from qbench.calibration import calibrate
    from qbench.subjects import get_model

    print(qbench.__file__, file=sys.stderr)
    held: dict[str, Any] = {}
    for line in sys.stdin:
        name, counts = line.split()[0], "counts" in line
        if name not in held:
            model = next(iter(get_model(name).graphs.values()))()
            value = model.graph.inputs[0]
            shape = [d if isinstance(d, int) else 1 for d in value.shape or ()]
            shape[0] = MODELS[name]
            x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
            held[name] = model, {str(value.name): x}, calibrate(model, [{str(value.name): x}])
        model, feeds, profile = held[name]
        if counts:
            print(json.dumps(instructions_of(model, profile, feeds)), flush=True)
            continue
        took = dict.fromkeys(("plan", "write", "execute"), 0.0)
        size = 0
        with tempfile.TemporaryDirectory() as folder:
            for schema in SCHEMAS:
                start = time.process_time()
                plan = make_plan(model, profile, schema)
                took["plan"] += -start + (start := time.process_time())
                path = Path(folder) / "q.onnx"
                save_model(quantize_model(model, plan), path)
                took["write"] += -start + (start := time.process_time())
                with get_backend(BACKEND).prepare(load_model(path)) as executor:
                    executor.run(feeds)
                took["execute"] += time.process_time() - start
                size += path.stat().st_size
        print(json.dumps({**took, "whole": sum(took.values()), "bytes": size}), flush=True)


def instructions_of(model: Any, profile: Any, feeds: Any) -> dict[str, int]:  # noqa: ANN401 - of either checkout
    """The instructions of bytecode executed for ``model`` under all schemas, by part."""
    from qbench import make_plan, quantize_model
    from qbench.backends import get_backend

    counts = {"plan": 0, "write": 0, "execute": 0}
    part = "plan"

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - a trace function
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counts[part] += event == "opcode"
        return trace

    for schema in SCHEMAS:
        sys.settrace(trace)
        part = "plan"
        plan = make_plan(model, profile, schema)
        part = "write"
        quantized = quantize_model(model, plan)
        part = "execute"
        with get_backend(BACKEND).prepare(quantized) as executor:
            executor.run(feeds)
        sys.settrace(None)
    return counts


if __name__ == "__main__":
    main()
