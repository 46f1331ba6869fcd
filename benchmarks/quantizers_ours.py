"""Our schemas next to files of other quantizers on one arithmetic: accuracy, noise, executed share.

    python benchmarks/quantizers_ours.py MODEL DATA CALIBRATION [--count N] [--limit N]
        [--schema S …] [--by NAME=PYTHON …] [--backend B …] [--folded]

``--by`` runs a shipped script of ``engines/qbench_engines/quantizers`` in the Python of its tool:
``--by ort=.venv/bin/python --by nncf=ENV/bin/python``; ``NAME:OPTIONS`` hands options to it. All
get the same calibration samples. The table counts right classes (agreement with the float model
where there are no labels), signal over noise of the first output, and the change of each against
the first schema on the same samples, with its 95 % interval. Prints Markdown.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Backend, executed_by, get_backend
from qbench.calibration import calibrate
from qbench.evaluation import build_subject
from qbench.graph import load_model
from qbench.judging import paired_interval
from qbench.passes import canonicalize
from qbench.quantization import Plan, make_plan, quantize_model, read_plan
from qbench.storage import Cache
from qbench.subjects import prepare_samples

SCRIPTS = Path(__file__).parent.parent / "engines" / "qbench_engines" / "quantizers"
Array = np.ndarray[Any, Any]
Feeds = list[dict[str, Array]]


def outputs(model: ir.Model, backend: Backend, feeds: Feeds) -> tuple[Array, Any]:
    """The first output for all ``feeds``, and how the engine ran each node."""
    name = model.graph.outputs[0].name
    with backend.prepare(model) as executor:
        found = np.concatenate([executor.run(batch)[name] for batch in feeds])
        return found, executed_by(executor)


def executed(plan: Plan, ran: Any) -> float:  # noqa: ANN401 - node → how it ran
    """The share of the multiply-accumulates of ``plan`` that ran in integers."""
    done = sum(m for n, m in plan.node_macs.items() if n in ran and ran[n].in_integers)
    return done / plan.macs


def quantized_by(text: str, float_file: Path, calibration: Path, folder: Path) -> Path | str:
    """The file that the tool ``NAME[:OPTIONS]=PYTHON`` writes; its last line where it fails."""
    name, _, python = text.partition("=")
    tool, _, options = name.partition(":")
    out = folder / f"{name.replace(':', '_').replace(' ', '_')}.onnx"
    script = SCRIPTS / f"{tool.replace('-', '_')}_quantize.py"
    words = [python, str(script), str(float_file), str(calibration), str(out), *options.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return out if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def candidates(
    arguments: argparse.Namespace, model: ir.Model, batches: Feeds, backend: Backend, folder: Path
) -> Iterator[tuple[str, ir.Model, Plan]]:
    """Name, quantized graph and its plan: of each schema, then of each tool."""
    profile = calibrate(model, batches)
    for schema in arguments.schema:
        plan = make_plan(model, profile, schema, capabilities=backend.capabilities)
        yield schema, quantize_model(model, plan), plan
    float_file, calibration = folder / "float.onnx", folder / "calibration.npz"
    ir.save(canonicalize(model) if arguments.folded else model, float_file)
    name = model.graph.inputs[0].name
    np.savez(calibration, **{name: np.concatenate([batch[name] for batch in batches])})
    for text in arguments.by:
        found = quantized_by(text, float_file, calibration, folder)
        if isinstance(found, str):
            print(f"{text}: {found}", file=sys.stderr)
            continue
        given = load_model(found)
        yield text.partition("=")[0], given, read_plan(given)


def main() -> None:
    """Print the table of each backend."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("calibration")
    parser.add_argument("--count", type=int, default=128)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--schema", nargs="+", default=["w8a8_asym_pc", "w8a8_asym_pt"])
    parser.add_argument("--by", nargs="*", default=[])
    parser.add_argument("--folded", action="store_true", help="hand tools the canonical graph")
    parser.add_argument("--backend", nargs="+", default=["integer-ort-x64"])
    arguments = parser.parse_args()
    subject = build_subject(
        arguments.model, arguments.data, arguments.calibration, (), arguments.count
    )
    model = next(iter(subject.model.graphs.values()))()
    whole, cache = next(iter(subject.data.values())), Cache.default()
    scored = whole.take(min(arguments.limit, len(whole)))
    preprocess = subject.model.preprocess
    samples = prepare_samples(scored, preprocess, cache)
    feeds = list(samples.batches())
    batches = list(prepare_samples(subject.calibration, preprocess, cache).batches())
    exact, _ = outputs(model, get_backend("ort-cpu"), feeds)
    right = exact.argmax(-1)
    labels = right if scored.labels is None else np.asarray(samples.labels).reshape(-1)
    with TemporaryDirectory() as folder:
        for name in arguments.backend:
            print(f"\n{arguments.model} on {name}, {len(labels)} samples, float "
                  f"{100 * np.mean(right == labels):.1f} %\n")  # fmt: skip
            backend = get_backend(name)
            print_rows(
                candidates(arguments, model, batches, backend, Path(folder)),
                (backend, feeds),
                (exact, labels),
            )


def print_rows(
    made: Iterator[tuple[str, ir.Model, Plan]],
    running: tuple[Backend, Feeds],
    judged: tuple[Array, Array],
) -> None:
    """Print the rows of one backend: what is ``made``, run on its feeds, against the outputs of
    the float model and the labels.
    """
    (backend, feeds), (exact, labels) = running, judged
    print("| by | top1 | agreement | SQNR | planned | executed | losses / gains | change, 95 % |")
    print("|---|---|---|---|---|---|---|---|")
    first: Array | None = None
    for name, graph, plan in made:
        found, ran = outputs(graph, backend, feeds)
        hits = found.argmax(-1) == labels
        first = hits if first is None else first
        noise = np.sum((found - exact) ** 2, dtype=np.float64)
        sqnr = 10 * np.log10(np.sum(exact**2, dtype=np.float64) / noise)
        losses, gains = int(np.sum(first & ~hits)), int(np.sum(~first & hits))
        low, high = paired_interval(losses, gains, len(hits))
        print(
            f"| {name} | {100 * hits.mean():.1f} % | "
            f"{100 * np.mean(found.argmax(-1) == exact.argmax(-1)):.1f} % | {sqnr:.1f} dB | "
            f"{100 * plan.integer_macs:.1f} % | {100 * executed(plan, ran):.1f} % | "
            f"{losses} / {gains} | {100 * (gains - losses) / len(hits):+.1f} "
            f"[{100 * low:+.1f}, {100 * high:+.1f}] |",
            flush=True,
        )


if __name__ == "__main__":
    main()
