"""The same quantized file on every engine that is installed: the table of docs/evidence/engines.md.

    python benchmarks/engines.py                      print the table
    python benchmarks/engines.py --write              write it into the page
    python benchmarks/engines.py --engines openvino,ort-cpu --models digits_cnn

Each model is quantized once for each schema, by the plan for ``ort-cpu``, and that QDQ file goes to every engine as it
is. A cell of the table is the share of samples whose best answer is that of exact arithmetic (``integer-ideal``), and
the share of multiply-accumulates that the engine ran in integers, where it says so.
"""

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from qbench import get_backend
from qbench.errors import QbenchError
from qbench.evaluation import SubjectArtifacts, build_subject, subject_artifacts
from qbench.evaluation.artifacts import Quantized, executed_macs, prepare_runners
from qbench.metrics import Answers
from qbench.quantization import get_schema

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "engines.md"
EXACT = "integer-ideal"
ENGINES = (
    *("ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "ort-cpu-qoperator"),
    *("openvino", "litert-reference", "litert-builtin", "litert-xnnpack"),
    *("torch-fbgemm", "torch-qnnpack", "torch-onednn", "tvm"),
)
SUBJECTS = {
    "digits_cnn": ("digits_test", "digits_train", 360),
    "mobilenet_v2": ("photo_crops_128", "calibration_crops", 100),
    "magika": ("magika_files", "magika_calibration", 234),
}
SCHEMAS = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_sym_pc")
BEGIN, END = "<!-- made by: python benchmarks/engines.py --write -->", "<!-- end -->"


def answers_on(shared: SubjectArtifacts, quantized: Quantized, name: str) -> tuple[Answers, float | None, float]:
    """The answers of backend ``name``, the share that it executed in integers if it says so, and seconds."""
    backend = get_backend(name)
    (data,) = shared.subject.data.values()
    started = time.perf_counter()
    answers = shared.answer(backend, quantized.models, data, threads=2)
    seconds = time.perf_counter() - started
    with ExitStack() as stack:
        share, _ = executed_macs(prepare_runners(backend, quantized.models, stack, threads=2), quantized)
    return answers, share, seconds


def rows(models: list[str], engines: list[str]) -> list[str]:
    """The table, one row for each model and schema."""
    table = [f"| model | schema | samples | {' | '.join(f'`{one}`' for one in engines)} |"]
    table.append("|---" * (3 + len(engines)) + "|")
    for model in models:
        data, calibration, count = SUBJECTS[model]
        subject = build_subject(model, data, calibration, [], 64)
        (scored,) = subject.data.values()
        subject = replace(subject, data={scored.id: scored.pick(range(min(count, len(scored))))})
        shared = subject_artifacts(subject, get_backend("ort-cpu"))
        for schema in SCHEMAS:
            graphs = shared.quantized(get_schema(schema), get_backend("ort-cpu").capabilities)
            exact, _, _ = answers_on(shared, graphs, EXACT)
            cells = []
            for name in engines:
                try:
                    found, share, seconds = answers_on(shared, graphs, name)
                except QbenchError as error:
                    print(f"{model} {schema} {name}: {error}", file=sys.stderr)
                    cells.append("–")
                    continue
                same = sum(found.best(i) == exact.best(i) for i in range(len(exact))) / len(exact)
                ran = "" if share is None else f", {100 * share:.0f} % int"
                print(f"{model} {schema} {name}: {same:.4f}{ran} {seconds:.1f} s", file=sys.stderr)
                cells.append(f"{100 * same:.1f} %{ran}")
            table.append(f"| {model} | `{schema}` | {len(exact)} | {' | '.join(cells)} |")
    return table


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(SUBJECTS))
    given = parser.parse_args()
    text = "\n".join(rows(given.models, given.engines))
    print(text)
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
