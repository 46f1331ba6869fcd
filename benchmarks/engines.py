"""The same quantized file on every engine that is installed: the tables of
docs/evidence/engines.md.

    python benchmarks/engines.py                      print the table of each model
    python benchmarks/engines.py --write              write them into the page; an hour and a half
    python benchmarks/engines.py --engines openvino,ort-cpu --models digits_cnn

Each model is quantized once for each schema, by the plan for ``ort-cpu``, and that QDQ file goes to
every engine as it is. A row has the share of samples whose best answer is that of exact arithmetic
(``integer-ideal``), and the share of multiply-accumulates that the engine ran in integers, where it
reports that. Where answers differ on one of the engines of ``--causes``, it has the sentences of
``qbench localize`` on a few samples: how the engine compares with the arithmetic that it declares,
and the first suspect.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from qbench import get_backend
from qbench.backends import load_provider
from qbench.diagnosis import LocalizeOptions, localize
from qbench.errors import QbenchError
from qbench.evaluation import SubjectArtifacts, build_subject, subject_artifacts
from qbench.evaluation.artifacts import Quantized, prepare_runners
from qbench.evaluation.executed_share import executed_share
from qbench.metrics import Answers
from qbench.quantization import get_schema

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "engines.md"
PROVIDER = Path(__file__).parents[1] / "suites" / "engines" / "cpu.toml"
EXACT = "integer-ideal"
ENGINES = (
    *("ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "ort-cpu-qoperator", "ep-cpu"),
    *("openvino", "litert-reference", "litert-builtin", "litert-xnnpack"),
    *("torch-fbgemm", "torch-qnnpack", "torch-onednn", "tvm"),
)
CAUSES = ("ort-cpu", "openvino", "litert-builtin", "litert-xnnpack", "torch-fbgemm")
SUBJECTS = {
    "digits_cnn": ("digits_test", "digits_train", 360),
    "mobilenet_v2": ("labelled_photos", "calibration_crops", 64),
    "magika": ("magika_files", "magika_calibration", 234),
}
SCHEMAS = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_sym_pc")
EXAMINED = 8
"""Samples that a localization examines."""


def answers_on(
    shared: SubjectArtifacts, quantized: Quantized, name: str
) -> tuple[Answers, float | None]:
    """The answers of backend ``name``, and the share that it executed
    in integers if it reports it.
    """
    backend = load_provider(PROVIDER) if name == "ep-cpu" else get_backend(name)
    (data,) = shared.subject.data.values()
    with ExitStack() as stack:
        runners = prepare_runners(backend, quantized.models, stack, threads=1)
        answers = shared.subject.model.task.answer(runners, shared.samples(data))
        share = executed_share(runners, quantized).share
    return answers, share


def cause(shared: SubjectArtifacts, name: str, schema: str) -> str:
    """What localization says of the cell: the comparison with the declared arithmetic,
    and the first suspect.
    """
    finding = localize(
        shared, name, schema, options=LocalizeOptions(samples=EXAMINED, repairs=False)
    )
    return "; ".join(filter(None, (finding.matched, finding.headline))).replace("|", "/")


def rows(model: str, engines: list[str], causes: list[str]) -> Iterator[str]:
    """The table of ``model``, one row for each engine and schema."""
    data, calibration, count = SUBJECTS[model]
    subject = build_subject(model, data, calibration, [], 135 if model == "mobilenet_v2" else 64)
    (scored,) = subject.data.values()
    step = max(1, len(scored) // count)
    subject = replace(
        subject, data={scored.id: scored.pick(range(0, min(len(scored), step * count), step))}
    )
    shared = subject_artifacts(subject, get_backend("ort-cpu"))
    graphs = {
        name: shared.quantized(get_schema(name), get_backend("ort-cpu").capabilities)
        for name in SCHEMAS
    }
    exact = {name: answers_on(shared, graphs[name], EXACT)[0] for name in SCHEMAS}
    yield f"{len(exact[SCHEMAS[0]])} samples of `{data}`:\n"
    yield "| engine | schema | as exact arithmetic | in integers | what `qbench localize` reports |"
    yield "|---|---|--:|--:|---|"
    for name in engines:
        for schema in SCHEMAS:
            started, said = time.perf_counter(), ""
            try:
                found, share = answers_on(shared, graphs[schema], name)
            except QbenchError as error:
                print(f"{model} {schema} {name}: {error}", file=sys.stderr, flush=True)
                yield f"| `{name}` | `{schema}` | – | – | {error.found.replace('|', '/')} |"
                continue
            same = sum(found.best(i) == exact[schema].best(i) for i in range(len(found)))
            if same < len(found) and name in causes:
                said = cause(shared, name, schema)
            ran = "not reported" if share is None else f"{100 * share:.1f} %"
            row = f"| `{name}` | `{schema}` | {same} of {len(found)} | {ran} | {said} |"
            print(
                f"{model} {row} {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True
            )
            yield row


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(SUBJECTS))
    parser.add_argument("--causes", type=lambda text: text.split(","), default=list(CAUSES))
    given = parser.parse_args()
    for model in given.models:
        text = "\n".join(rows(model, given.engines, given.causes))
        print(text, flush=True)
        if given.write:
            begin = f"<!-- {model}: python benchmarks/engines.py --write -->"
            page = PAGE.read_text(encoding="utf-8")
            before, _, rest = page.partition(begin)
            after = rest.partition(END)[2]
            PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}", encoding="utf-8")


END = "<!-- end -->"

if __name__ == "__main__":
    main()
