"""Which real engines answer otherwise in another run of the same code, and what makes them.

    python benchmarks/repeats.py [MODEL …] [--backend NAME …] [--repeats 6] [--parts]

Each cell of the models (default: digits_cnn, mobilenet_v2) runs up to so many times: another order
of the samples, other batches, and the engine with one or two threads in turn, each time loaded anew
(``repeats`` of a suite). ``--parts`` runs each noisy cell again with one of these changed at a
time. Engines that are missing are left out.
"""

import argparse
import datetime
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qbench.errors import QbenchError
from qbench.evaluation import measure_request, repeats
from qbench.judging import Repeats
from qbench.suite import Bench, PlannedCell, Settings, expand, gather, load_suite

DATA = {
    "digits_cnn": ("digits_test", "digits_train"),
    "mobilenet_v2": ("labelled_photos", "calibration_crops"),
    "efficientnet_lite0": ("labelled_photos", "calibration_crops"),
}
BACKENDS = (
    *(
        "ort-cpu",
        "ort-cpu-noopt",
        "ort-cpu-precise",
        "ort-cpu-qoperator",
        "onnx-reference",
        "integer-ort-x64",
    ),
    *("openvino", "litert-xnnpack", "litert-builtin", "torch-fbgemm", "tvm"),
)
SCHEMAS = ("w8a8_asym_pc", "w8a8_asym_pc_dyn", "w8_sym_pc")
SUITE = """
[suite]
backends = [{backends}]
schemas = [{schemas}]
repeats = {repeats}
repeat_threads = [2, 1]

[[model]]
id = "{model}"
data = "{data}"
calibration = {{ data = "{calibration}", count = 64 }}
metrics = ["top1", "agreement"]
"""


def measured(model: str, backends: Sequence[str], count: int, *, parts: bool) -> Iterator[str]:
    """One row for each cell of ``model``."""
    data, calibration = DATA[model]
    names = {"backends": backends, "schemas": SCHEMAS}
    lists = {key: ", ".join(f'"{name}"' for name in several) for key, several in names.items()}
    text = SUITE.format(model=model, data=data, calibration=calibration, repeats=count, **lists)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repeats.qbench.toml"
        path.write_text(text)
        suite = load_suite(path)
        settings = Settings(baselines=Path(folder), suite_path="repeats", today=datetime.date.min)
        known = gather()
        bench = Bench(suite, known, settings)
        for planned in expand(suite, known):
            try:
                measurement = bench.measure(planned)
            except QbenchError as error:
                print(f"left out: {planned.cell}: {error.found}")
                continue
            found = measurement.repeats
            assert found is not None
            yield _row(planned, found, len(next(iter(bench.shared(planned).subject.data.values()))))
            if parts and found.is_noisy:
                yield from _each_part(bench, planned, count)


def _row(planned: PlannedCell, found: Repeats, samples: int, what: str = "all of these") -> str:
    if not found.is_noisy:
        return f"| `{planned.cell}` | {what} | {found.runs} | 0 of {samples} | – |"
    counts = found.metrics["top1"].hits
    differing = sum(found.differing.values())
    return (
        f"| `{planned.cell}` | {what} | {found.runs} | {differing} of {samples} "
        f"| {min(counts)} to {max(counts)} |"
    )


def _each_part(bench: Bench, planned: PlannedCell, count: int) -> Iterator[str]:
    """The cell again, with one thing changed between its runs."""
    request, samples = (
        bench.request(planned),
        len(next(iter(bench.shared(planned).subject.data.values()))),
    )
    kept = repeats.shuffled, repeats._SPLITS  # noqa: SLF001
    same: Sequence[int] = (request.threads,)
    for what, order, splits, threads in (
        ("order", True, False, same),
        ("batches", False, True, same),
        ("threads", False, False, request.repeat_threads),
        ("nothing but the load", False, False, same),
    ):
        repeats.shuffled = kept[0] if order else lambda digest, count, number: list(range(count))  # noqa: ARG005
        repeats._SPLITS = kept[1] if splits else kept[1][-1:]  # noqa: SLF001
        found = measure_request(
            replace(request, repeat_threads=tuple(threads), repeats=count)
        ).repeats
        assert found is not None
        yield _row(planned, found, samples, what)
    repeats.shuffled, repeats._SPLITS = kept  # noqa: SLF001


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "models", nargs="*", default=["digits_cnn", "mobilenet_v2"], choices=[*DATA, []]
    )
    parser.add_argument("--backend", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--repeats", type=int, default=6, help="runs of a noisy cell")
    parser.add_argument(
        "--parts",
        action="store_true",
        help="run noisy cells again with one thing changed at a time",
    )
    arguments = parser.parse_args()
    print(
        "| cell | changed between runs | runs | samples whose answers differ | right of each run |"
    )
    print("|---|---|---|---|---|")
    for model in arguments.models:
        for row in measured(
            model, arguments.backend or BACKENDS, arguments.repeats, parts=arguments.parts
        ):
            print(row, flush=True)


if __name__ == "__main__":
    main()
