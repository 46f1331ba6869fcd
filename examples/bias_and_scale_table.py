"""Measures bias-and-scale.qbench.toml and writes the tables of docs/evidence/bias-and-scale.md.

    python examples/bias_and_scale_table.py
        all three networks, then the tables; 40 minutes
    python examples/bias_and_scale_table.py fashion_preact
        that network anew, then the tables
    python examples/bias_and_scale_table.py --render
        the tables alone, from the two records here
    python examples/bias_and_scale_table.py --integers
        the cells in integers without a line yet, then the tables
    python examples/bias_and_scale_table.py --integers fashion_preact
        those of one network

A line of bias-and-scale.jsonl is one cell (right answers, losses and gains against fp32) or one
pair of cells (losses and gains of the second against the first), counted sample by sample. A line
of bias-and-scale-integers.jsonl is one cell as the backend ``integer-tvm-relay`` counts it, with
losses and gains against the same cell under ONNX Runtime, and the planned and the executed share of
its multiply-accumulates in integers. It is written as soon as it is measured, so that an
interrupted run goes on where it was.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from bias_and_scale import BITS, EXTENSION, FINER, NARROW_BITS, RANGES, SKIPS

from qbench.errors import QbenchError
from qbench.host import package_versions, processor_class, utc_today
from qbench.judging import paired_interval
from qbench.metrics import Gathering, source_interval
from qbench.suite import Bench, PlannedCell, Settings, expand, gather, load_suite

HERE = Path(__file__).parent
SUITE = HERE / "bias-and-scale.qbench.toml"
RECORD = HERE / "bias-and-scale.jsonl"
INTEGERS = HERE / "bias-and-scale-integers.jsonl"
PAGE = HERE.parent / "docs" / "evidence" / "bias-and-scale.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"

RELAY = "integer-tvm-relay"
"""The arithmetic of TVM's quantizer:
biases at scales of their own are shifted and added in int32.
"""
_POW2 = tuple(("pow2", bits) for bits in (*BITS, *NARROW_BITS))
IN_INTEGERS = {"fashion_preact": _POW2, "fashion_mobile": _POW2}
"""Network → range and bits of the cells in integers, none with a convolution in float."""

SOURCES = {"mobilenet_v2": 20}
"""Photographs that a network's samples are cut from: intervals are those where the crops of
each change together.
"""

Line = dict[str, Any]
Right = npt.NDArray[np.bool_]


# -- measuring


def measured(model: str) -> Iterator[Line]:
    """The lines of ``model``: its fp32 run, its cells, and pairs of them."""
    suite = load_suite(SUITE)
    catalogues = gather([EXTENSION], suites=SUITE.parent)
    settings = Settings(baselines=HERE / "none", suite_path=str(SUITE), today=utc_today())
    bench = Bench(suite, catalogues, settings)
    planned = [one for one in expand(suite, catalogues) if one.model.id == model]
    fp32 = right_answers(bench, planned[0])
    versions = package_versions(["onnxruntime", "numpy"])
    yield {
        "model": model,
        "n": len(fp32),
        "fp32": int(fp32.sum()),
        "processor": processor_class(),
        **versions,
    }
    found = {}
    for count, one in enumerate(planned[1:], start=2):
        schema = one.cell.schema
        found[schema] = right_answers(bench, one)
        yield {
            "model": model,
            "schema": schema,
            "right": int(found[schema].sum()),
            **change(fp32, found[schema]),
        }
        sys.stderr.write(f"\r{model}: {count} of {len(planned)} cells ")
    sys.stderr.write("\n")
    for first, second in pairs():
        yield {"model": model, "from": first, "to": second, **change(found[first], found[second])}


def measured_in_integers(model: str) -> Iterator[Line]:
    """The lines of the cells of ``model`` in integers that have none yet."""
    suite = load_suite(SUITE)
    catalogues = gather([EXTENSION], suites=SUITE.parent)
    bench = Bench(
        suite,
        catalogues,
        Settings(baselines=HERE / "none", suite_path=str(SUITE), today=utc_today()),
    )
    planned = {one.cell.schema: one for one in expand(suite, catalogues) if one.model.id == model}
    known = {line["schema"] for line in kept(INTEGERS) if line["model"] == model}
    wanted = [schema for schema in in_integers(model) if schema not in known]
    for count, schema in enumerate(wanted, start=1):
        one = planned[schema]
        right, by_ort = right_answers(bench, one, RELAY), right_answers(bench, one)
        facts = {
            "model": model,
            "schema": schema,
            "right": int(right.sum()),
            "n": len(right),
            **shares(bench, one),
        }
        yield facts | {"of": "ort-cpu", "of_right": int(by_ort.sum()), **change(by_ort, right)}
        sys.stderr.write(f"\r{model}: {count} of {len(wanted)} cells in integers ")
    sys.stderr.write("\n" if wanted else "")


def in_integers(model: str) -> Iterator[str]:
    """The schemas whose cells are also counted in integers."""
    for range_name in dict.fromkeys(name for name, _ in IN_INTEGERS.get(model, ())):
        yield f"product_{range_name}_skip0"
        for bits in (bits for name, bits in IN_INTEGERS[model] if name == range_name):
            yield from (
                f"bias{bits}_{f}_{range_name}_skip0" for f in FINER if bits in BITS or f == "chosen"
            )


def shares(bench: Bench, planned: PlannedCell) -> Line:
    """Planned and executed shares of multiply-accumulates
    in integers under the arithmetic of TVM's quantizer.
    """
    backend = gather().backends.get(RELAY)
    found = bench.shared(planned).quantized(
        EXTENSION.schemas[planned.cell.schema](), backend.capabilities
    )
    (graph,) = found.models.values()
    (plan,) = found.plans.values()
    with backend.prepare(graph) as executor:
        ran = executor.executed()
    executed = sum(
        count for name, count in plan.node_macs.items() if name in ran and ran[name].in_integers
    )
    return {"planned": round(plan.integer_macs, 6), "executed": round(executed / plan.macs, 6)}


def right_answers(bench: Bench, planned: PlannedCell, by: str = "") -> Right:
    """Per sample whether the answer is right; on data without labels, whether it is that of fp32.

    ``by``: the backend; empty: that of the cell.
    """
    shared = bench.shared(planned)
    backend = gather().backends.get(by or planned.cell.backend)
    data = shared.subject.data[planned.model.data]
    graphs = shared.graphs
    if not planned.cell.is_fp32:
        schema = EXTENSION.schemas[planned.cell.schema]()
        graphs = shared.quantized(schema, backend.capabilities).models
    answers = shared.answer(backend, graphs, data, threads=1)
    reference = shared.reference()[data.id]
    wanted = data.labels or [reference.best(index) for index in range(len(data))]
    return np.array([answers.best(index)[0] in wanted[index] for index in range(len(data))])


def change(before: Right, after: Right) -> dict[str, int]:
    """Samples that only ``before`` has right, and that only ``after`` has."""
    return {"losses": int((before & ~after).sum()), "gains": int((after & ~before).sum())}


def pairs() -> Iterator[tuple[str, str]]:
    """The cells that are compared: one more bit, many more bits, and the other grid."""
    for place in (f"{range_name}_skip{skip}" for range_name in RANGES for skip in SKIPS):
        for finer in FINER:
            yield f"bias8_{finer}_{place}", f"bias9_{finer}_{place}"
            yield f"bias8_{finer}_{place}", f"bias16_{finer}_{place}"
        yield f"bias8_chosen_{place}", f"bias8_forced_{place}"
        yield f"product_{place}", f"bias8_chosen_{place}"


# -- telling


def page_with(tables: str, page: str) -> str:
    """``page`` with what stands between the marks replaced."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{rest.partition(END)[2]}"


def tables(lines: Iterable[Line], integers: Iterable[Line] = ()) -> str:
    """All tables as Markdown, of the cells in floats and of those in ``integers``."""
    lines, integers = list(lines), list(integers)
    parts = []
    for head in (line for line in lines if "fp32" in line):
        own = [line for line in lines if line["model"] == head["model"]]
        parts += [_head(head), _cross(head, own), _steps(head, own), _narrow(head, own)]
        counted = {line["schema"]: line for line in integers if line["model"] == head["model"]}
        ranges = [name for name in RANGES if f"product_{name}_skip0" in counted]
        parts += [_counted(counted, name) for name in ranges]
    return "\n".join(parts)


def _head(head: Line) -> str:
    share = (
        f"{_percent(head['fp32'], head['n'])} % right in fp32"
        if head["fp32"] < head["n"]
        else "agreement with fp32"
    )
    return (
        f"### {head['model']}\n\n{head['n']:,} samples, {share}; "
        f"ONNX Runtime {head['onnxruntime']}, {head['processor']}.\n"
    )


def _cross(head: Line, own: list[Line]) -> str:
    """Shares of right answers: a row for each range and skip, a column for each bias."""
    right = {line["schema"]: line["right"] for line in own if "schema" in line}
    columns = ["int32 at product", *(f"{finer} {bits}" for finer in FINER for bits in BITS)]
    rows = [["range", "float convs", *columns], ["---", "---:", *["---:"] * len(columns)]]
    for range_name in RANGES:
        for skip in SKIPS:
            place = f"{range_name}_skip{skip}"
            names = [
                f"product_{place}",
                *(f"bias{bits}_{finer}_{place}" for finer in FINER for bits in BITS),
            ]
            rows.append(
                [range_name, str(skip), *(_percent(right[name], head["n"]) for name in names)]
            )
    return _markdown(rows)


def _steps(head: Line, own: list[Line]) -> str:
    """Changes in points with 95 % intervals (Tango's; widest where samples share sources): one
    row a range and skip.
    """
    found = {(line["from"], line["to"]): line for line in own if "from" in line}
    sources = SOURCES.get(head["model"])
    columns = [
        "chosen 8 → 9",
        "chosen 8 → 16",
        "forced 8 → 9",
        "forced 8 → 16",
        "8: chosen → forced",
    ]
    rows = [["range", "float convs", *columns], ["---", "---:", *["---:"] * len(columns)]]
    for range_name in RANGES:
        for skip in SKIPS:
            place = f"{range_name}_skip{skip}"
            wanted = [
                (f"bias8_{f}_{place}", f"bias{b}_{f}_{place}") for f in FINER for b in (9, 16)
            ]
            wanted.append((f"bias8_chosen_{place}", f"bias8_forced_{place}"))
            rows.append(
                [
                    range_name,
                    str(skip),
                    *(_interval(found[pair], head["n"], sources) for pair in wanted),
                ]
            )
    return _markdown(rows)


def _narrow(head: Line, own: list[Line]) -> str:
    right = {line["schema"]: line["right"] for line in own if "schema" in line}
    bits = [*NARROW_BITS, *BITS]
    return _markdown(
        [
            ["bits of the bias (pow2, chosen, no float convs)", *map(str, bits)],
            ["---", *["---:"] * len(bits)],
            ["right, %", *(_percent(right[f"bias{b}_chosen_pow2_skip0"], head["n"]) for b in bits)],
        ]
    )


def _counted(counted: dict[str, Line], range_name: str) -> str:
    """Right answers of ``integer-tvm-relay`` and of ONNX Runtime, a column a bias; the row of
    answers that differ.
    """
    names = [f"product_{range_name}_skip0"]
    names += [f"bias{bits}_chosen_{range_name}_skip0" for bits in (*NARROW_BITS, *BITS)]
    names += [f"bias{bits}_forced_{range_name}_skip0" for bits in BITS]
    found = [counted[name] for name in names if name in counted]
    words = {"product": "int32 at product"}
    columns = [
        words.get(line["schema"].partition("_")[0]) or _spelled(line["schema"]) for line in found
    ]
    rows = [
        [f"in integers ({range_name}, no float convs)", *columns],
        ["---", *["---:"] * len(found)],
    ]
    rows.append(["`integer-tvm-relay`, %", *(_percent(line["right"], line["n"]) for line in found)])
    rows.append(["ONNX Runtime, %", *(_percent(line["of_right"], line["n"]) for line in found)])
    rows.append(
        ["right there alone, here alone", *(f"{line['losses']}, {line['gains']}" for line in found)]
    )
    return _markdown(rows)


def _spelled(schema: str) -> str:
    bits, finer, *_ = schema.removeprefix("bias").split("_")
    return f"{finer} {bits}"


def _interval(line: Line, n: int, sources: int | None = None) -> str:
    counts = line["losses"], line["gains"], n
    low, high = paired_interval(*counts)
    if sources is not None and sources < n:  # the lines do not say which sample changed
        low, high = source_interval(*counts, Gathering.whole(n, sources), confidence=0.95)
    return (
        f"{100 * (line['gains'] - line['losses']) / n:+.2f} ({100 * low:+.2f} … {100 * high:+.2f})"
    )


def _percent(count: int, n: int) -> str:
    return f"{100 * count / n:.2f}" if n >= 1000 else f"{100 * count / n:.1f}"


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


# -- both


def main(arguments: list[str]) -> int:
    """Measure what is asked for, keep it, write the page."""
    known = [model.id for model in load_suite(SUITE).models]
    if any(argument not in (*known, "--render", "--integers") for argument in arguments):
        sys.stderr.write(
            f"usage: python {Path(__file__).name} [--integers] [{' | '.join(known)} | --render]\n"
        )
        return 2
    models = [argument for argument in arguments if argument in known]
    if "--integers" in arguments:
        for model in models or IN_INTEGERS:
            for line in measured_in_integers(model):
                with INTEGERS.open("a", encoding="utf-8") as record:
                    record.write(json.dumps(line) + "\n")
    for model in [] if {"--render", "--integers"} & set(arguments) else models or known:
        try:
            new = list(measured(model))
        except QbenchError as error:  # such as a package that cannot be had
            sys.stderr.write(f"{model}: {error}\n")
            return 1
        old = [line for line in kept(RECORD) if line["model"] != model]
        by_model = sorted([*old, *new], key=lambda line: known.index(line["model"]))
        RECORD.write_text("".join(json.dumps(line) + "\n" for line in by_model))
    PAGE.write_text(
        page_with(tables(kept(RECORD), kept(INTEGERS)), PAGE.read_text(encoding="utf-8")),
        encoding="utf-8",
    )
    return 0


def kept(record: Path) -> list[Line]:
    """The lines of ``record``; none where there is no such file."""
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
