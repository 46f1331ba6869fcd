"""Searches over precisions on the same models, samples and arithmetic: the table of the page "Mixed
precision compared".

    python benchmarks/mixed.py [--models digits_cnn,…] [--drops 0.01,0.001] [--tools nncf,…]
        [--points 8] [--timeout 1800] [--again] [--write]

Each tool gets the canonical float graph, the calibration samples and the scored samples with their
labels, and looks for the cheapest model whose top1 falls by at most ``--drops``. What it writes is
judged on ``integer-ideal``, which counts exactly, on the scored samples. Ours measures at most
``--points`` mixtures there; of what it measured, the one of least bytes within the drop counts. A
result is in
``benchmarks/mixed.json`` as soon as it is measured; what is there is not measured again without
``--again``. ``--write`` writes the table into docs/evidence/mixed.md.
"""

import argparse
import json
import math
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx_ir as ir
from quantizers import SUBJECTS, artifacts, processor_seconds, read
from quantizers_ours import executed, outputs

from qbench.backends import Feeds, get_backend
from qbench.diagnosis import mixed_schemas
from qbench.errors import QbenchError
from qbench.evaluation import SubjectArtifacts, quantizer_python
from qbench.extension import known_extensions
from qbench.graph import load_model, save_model, values_by_name
from qbench.quantization import (
    Plan,
    Role,
    Schema,
    get_schema,
    load_quantizer,
    quantizer_catalogue,
    read_plan,
)
from qbench.storage import Cache, write_text

HERE = Path(__file__).parent
RECORD = HERE / "mixed.json"
PAGE = HERE.parent / "docs" / "evidence" / "mixed.md"
BEGIN, END = "<!-- made by: python benchmarks/mixed.py -->\n", "<!-- end -->"
JUDGE = "integer-ideal"
SCRIPTS = {"nncf": "rival_mixed.py", "aimet": "rival_aimet_amp.py"}
"""Quantizer whose environment it is → what searches."""
OURS = "ours"
WIDTHS = ("w4a8_asym_pc", "w8a8_asym_pc")
MODELS = ("digits_cnn", "fashion_mobile", "squeezenet", "mobilenet_v2")
FLOAT_BITS = 32

Result = dict[str, Any]


@dataclass(frozen=True)
class Ground:
    """What all tools get of one model, and what judges them.

    Args:
        model: its name.
        shared: what its cells share.
    """

    model: str
    shared: SubjectArtifacts

    @cached_property
    def graph(self) -> ir.Model:
        """The canonical float graph."""
        (graph,) = self.shared.planned().values()
        return graph

    @cached_property
    def feeds(self) -> list[Feeds]:
        """The scored samples."""
        return list(self._scored.batches())

    @cached_property
    def labels(self) -> Any:  # noqa: ANN401 - an array
        """(samples, most classes of one): the right classes, then -1."""
        labels = self._scored.labels
        assert labels is not None
        width = max(map(len, labels))
        return np.array([[*one, *[-1] * (width - len(one))] for one in labels])

    @property
    def _scored(self) -> Any:  # noqa: ANN401 - samples
        return self.shared.samples(self.shared.subject.data[SUBJECTS[self.model].data])

    def hits(self, found: Any) -> float:  # noqa: ANN401 - an array
        """The share of right answers of outputs (samples, classes)."""
        best = found.argmax(-1).reshape(-1, 1)
        return float((self.labels == best).any(axis=-1).mean())

    @cached_property
    def float_top1(self) -> float:
        """Of the float model."""
        return self.hits(outputs(self.graph, get_backend("ort-cpu"), self.feeds)[0])

    def write(self, folder: Path) -> list[Path]:
        """The files that a tool gets."""
        paths = [folder / name for name in ("float.onnx", "calibration.npz", "validation.npz")]
        (batches,) = self.shared.calibration_feeds.values()
        name = str(self.graph.graph.inputs[0].name)
        save_model(self.graph, paths[0])
        np.savez(paths[1], **{name: np.concatenate([one[name] for one in batches])})
        scored = np.concatenate([one[name] for one in self.feeds])
        np.savez(paths[2], **{name: scored, "labels": self.labels})
        return paths

    def judged(self, model: ir.Model, plan: Plan) -> Result:
        """What the quantized ``model`` with ``plan`` gives."""
        found, ran = outputs(model, get_backend(JUDGE), self.feeds)
        return {
            "top1": self.hits(found),
            "planned": plan.integer_macs,
            "executed": executed(plan, ran),
            "weight_bytes": weight_bytes(self.graph, plan),
        }


def weight_bytes(graph: ir.Model, plan: Plan) -> float:
    """Bytes of the weights of the float ``graph`` that are multiplied, by the bits that ``plan`` of
    it, or of a file that was made of it, has for them; 32 where it has none. Scales and biases
    are not counted.
    """
    bits = {
        slot.node: one.qtype.bits
        for slot, one in plan.constants.items()
        if slot.role is Role.WEIGHT
    }
    known = values_by_name(graph)
    total = 0
    for node in graph.graph:
        if node.name not in plan.node_macs:
            continue
        constants = [one for one in node.inputs if one is not None and one.const_value is not None]
        sizes = [math.prod(known[str(one.name)].shape.numpy()) for one in constants]
        total += max(sizes, default=0) * bits.get(str(node.name), FLOAT_BITS)
    return total / 8


def by_tool(ground: Ground, tool: str, drop: float, timeout: float) -> Result:
    """What the search of ``tool`` finds, or its error."""
    known = quantizer_catalogue(known_extensions())
    quantizer = load_quantizer(known.get(tool))
    python = quantizer_python(quantizer, Cache.default())
    with TemporaryDirectory() as name:
        folder = Path(name)
        out = folder / "out.onnx"
        command = [python, HERE / SCRIPTS[tool], *ground.write(folder), "--out", out]
        variables = {**os.environ, **quantizer.manifest.environment}
        try:
            done = subprocess.run(
                [*map(str, command), "--drop", str(drop)],
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
                env=variables,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not done in {timeout / 60:.0f} minutes"}
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["no words"])[-1]}
        facts = json.loads(done.stdout.splitlines()[-1])
        try:
            given = load_model(out)
            return facts | ground.judged(given, read_plan(given))
        except QbenchError as error:
            return facts | {"error": str(error.found)}


def by_us(ground: Ground, drop: float, points: int) -> Result:
    """What ``sweep --mixed POINTS --mixed-drop DROP`` finds: of the schemas and mixtures within the
    drop the one of least bytes.
    """
    before = processor_seconds()
    shared, backend = ground.shared, get_backend(JUDGE)
    widths = [get_schema(name) for name in WIDTHS]
    rows: list[Result] = []

    def judged(schema: Schema) -> Result:
        quantized = shared.quantized(schema, backend.capabilities)
        (model,), (plan,) = quantized.models.values(), quantized.plans.values()
        rows.append({"schema": schema.name} | ground.judged(model, plan))
        shared.forget(schema, backend.capabilities)
        print(ground.model, rows[-1], flush=True)
        return rows[-1]

    def is_within(row: Result) -> bool:
        return bool(row["top1"] >= ground.float_top1 - drop - 1e-9)

    found = mixed_schemas(
        shared, widths, backend, points=points, accepts=lambda one: is_within(judged(one))
    )
    if all(row["schema"] != widths[-1].name for row in rows):
        judged(widths[-1])  # as the sweep does
    best = min(filter(is_within, rows), key=lambda one: one["weight_bytes"], default=rows[-1])
    facts = {
        "tool": f"`--mixed {points} --mixed-drop {100 * drop:g}`",
        "evaluations": len(rows),
        "partial": found.runs,
        "rows": rows,
        "seconds": round(processor_seconds() - before, 1),
    }
    return best | facts


def measure(arguments: argparse.Namespace) -> None:
    """Measure what the record does not have."""
    known = read(RECORD)
    for model in arguments.models.split(","):
        ground = Ground(model, artifacts(model, Cache.default()))
        entry = known.setdefault(model, {"fp32": ground.float_top1, "n": len(ground.labels)})
        for tool in arguments.tools.split(","):
            for drop in arguments.drops.split(","):
                key = f"{tool}:{drop}"
                if key in entry and not arguments.again:
                    continue
                if tool == OURS:
                    entry[key] = by_us(ground, float(drop), arguments.points)
                else:
                    entry[key] = by_tool(ground, tool, float(drop), arguments.timeout)
                print(model, key, entry[key], flush=True)
                write_text(RECORD, json.dumps(known, indent=1, sort_keys=True) + "\n")


def table_lines(known: Mapping[str, Any]) -> list[str]:
    """The table in Markdown."""
    lines = [
        "| model | drop, pp | search | top1 | in integers | weights, kB | evaluations | samples "
        "run | processor, s |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for model in (one for one in MODELS if one in known):
        entry = known[model]
        found = {tuple(key.split(":")): one for key, one in entry.items() if ":" in key}
        order = (*SCRIPTS, OURS)
        for tool, drop in sorted(found, key=lambda key: (-float(key[1]), order.index(key[0]))):
            row = found[tool, drop]
            words = f"{model}, {100 * entry['fp32']:.2f} %"
            lines.append(_line(words, drop, row | {"by": row.get("tool", tool)}, entry["n"]))
    return lines


def _line(model: str, drop: str, row: Result, n: int) -> str:
    start = f"| {model} | {100 * float(drop):g} | {row['by']} |"
    spent = "| | |"
    if "evaluations" in row:
        runs = sum(row["samples"]) if "samples" in row else row["evaluations"] * n
        more = ""
        if "partial" in row:
            more = f" and {row['partial']} partial runs"
        spent = f" {row['evaluations']}{more} | {runs:,} | {row['seconds']:g} |"
    if "error" in row:
        return f"{start} {row['error'].replace('|', '/')} | | |{spent}"
    return (
        f"{start} {100 * row['top1']:.2f} % | {100 * row['executed']:.1f} % | "
        f"{row['weight_bytes'] / 1000:,.1f} |{spent}"
    )


def main() -> None:
    """Measure, and write or print the table."""
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    made.add_argument("--models", default=",".join(MODELS), help="by commas")
    made.add_argument("--drops", default="0.01,0.001", help="of top1, by commas")
    made.add_argument("--tools", default=",".join((OURS, *SCRIPTS)), help="by commas")
    made.add_argument("--points", type=int, default=8, help="mixtures of ours")
    made.add_argument("--timeout", type=float, default=1800, help="seconds for each tool")
    made.add_argument("--again", action="store_true", help="measure anew")
    made.add_argument("--write", action="store_true", help="write docs/evidence/mixed.md")
    arguments = made.parse_args()
    measure(arguments)
    table = "\n".join(table_lines(read(RECORD)))
    if not arguments.write:
        print(table)
        return
    place = re.compile(f"(?<={re.escape(BEGIN)}).*?(?={END})", re.DOTALL)
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, place.sub(lambda _: f"\n{table}\n\n", page, count=1))


if __name__ == "__main__":
    main()
