"""What ``qbench eval`` prints: the tables of one model, or all facts as JSON."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qbench.cli.event_counters import counters_table, print_counters
from qbench.cli.loss_parts import print_parts
from qbench.cli.printing import print_columns, put
from qbench.cli.token_lines import plain_table, print_token_table
from qbench.number_text import change_text, counted

if TYPE_CHECKING:
    from qbench.cli.model_measurement import Evaluated, Refused
    from qbench.judging import Measurement
    from qbench.metrics import Score
    from qbench.subjects import Dataset

REFUSALS_SHOWN = 10

_MILLION = 1_000_000


def print_evaluated(arguments: argparse.Namespace, evaluated: "Evaluated") -> None:
    """Print what was measured, its values, how long it took, what the plan left in float, parts
    and counters.
    """
    _print_head(arguments, evaluated)
    put()
    fp32, *quantized = evaluated.measured
    (data,) = evaluated.shared.subject.data.values()
    if quantized:
        _print_unquantized(quantized[0])
        _print_cost(fp32, *quantized)
        _print_no_labels(arguments, evaluated)
        if evaluated.tokens is not None:
            put()
            print_token_table(evaluated.tokens)
    else:
        _print_values(fp32, data)
    put()
    put(f"inference took {', '.join(_seconds(one) for one in evaluated.measured)}")
    _print_ties(evaluated.measured)
    if not quantized:
        _print_cache(fp32)
    elif not quantized[0].cell.is_recorded:
        _print_plan(*quantized)
    if evaluated.parts:
        print_parts(evaluated.parts, evaluated.measured[-1].cell.backend)
    if evaluated.counted is not None:
        print_counters(evaluated.counted)


def _print_unquantized(measured: "Measurement") -> None:
    from qbench.judging import NOTHING_QUANTIZED

    if measured.is_unquantized:
        put(f"{NOTHING_QUANTIZED}: the numbers below are those of the float model")


def _print_head(arguments: argparse.Namespace, evaluated: "Evaluated") -> None:
    """The model, the data, the backend and the schema, a line each."""
    shared, last = evaluated.shared, evaluated.measured[-1]
    (data,) = shared.subject.data.values()
    put(f"model    {arguments.model}  ({_macs(shared.macs)} multiply-accumulates a sample)")
    if arguments.fp32:
        put(f"fp32     {arguments.fp32}")
    put(f"data     {arguments.data}  ({len(data)} samples)")
    put(f"backend  {_backend(arguments, last)}  ({last.environment})")
    if arguments.schema:
        put(f"schema   {arguments.schema}")
        if arguments.calib:
            put(f"calib    {arguments.calib}  ({len(shared.subject.calibration)} samples)")
        if last.quantizer is not None:
            put(f"by       {last.quantizer.text}")
        if "ranges" in last.made:
            put(f"ranges   {last.made['ranges']}, by hand")


def _macs(count: int) -> str:
    return f"{count / _MILLION:.4g} million" if count >= _MILLION else str(count)


def _backend(arguments: argparse.Namespace, measurement: "Measurement") -> str:
    """The name on the command line; with ``--python`` the name of the results."""
    return measurement.cell.backend if arguments.python else str(arguments.backend)


def _print_no_labels(arguments: argparse.Namespace, evaluated: "Evaluated") -> None:
    """Why the usual metrics of the task are not counted, where the data has no labels and no
    metric is named.
    """
    (data,) = evaluated.shared.subject.data.values()
    task = evaluated.shared.subject.model.task
    inner = getattr(task, "__wrapped__", task)
    usual: Sequence[str] = getattr(inner, "usual_metrics", ())
    if data.labels is None and usual and not arguments.metrics:
        put(f"no labels: {_no_labels(data)}, so that nothing is counted against them")


def _seconds(measurement: "Measurement") -> str:
    cell = measurement.cell
    kind = _kind(measurement) if cell.is_given else cell.schema
    return f"{measurement.seconds.get('inference', 0):.2f} s {kind}"


def _print_ties(measured: "Sequence[Measurement]") -> None:
    for measurement in measured:
        schema = measurement.cell.schema
        for name, ties in measurement.ties.items():
            if ties:
                put(
                    f"{schema}: {ties} samples of '{name}' had equal best scores; the lowest class "
                    "was taken"
                )


def _print_plan(quantized: "Measurement") -> None:
    """How much is planned and executed in integers, and what is left in float."""
    planned = quantized.planned_share
    executed = quantized.executed_macs
    backend = quantized.cell.backend
    verb = "" if quantized.cell.is_by_others else "planned "
    left = ""
    if quantized.refusals:
        left = f", {counted(len(quantized.refusals), 'unit')} left in float"
    put()
    is_cache_alone = _is_cache_alone(quantized)
    if not is_cache_alone:
        share = f"{100 * planned:.1f} % of the multiply-accumulates"
        put(f"{share} are {verb}{quantized.planned_words}{left}")
    if quantized.float8_macs:
        put(
            f"{100 * quantized.float8_macs:.1f} % multiply float8 by float8, which are not "
            "integers: engines without float8 products compute these in float"
        )
    if quantized.simulated:
        put(
            f"{', '.join(quantized.simulated)}: simulated: {backend} computes in float32 from "
            "the numbers of their codes"
        )
    _print_cache(quantized)
    if executed is not None and (executed or not is_cache_alone):
        put(f"{100 * executed:.1f} % were executed in integers by {backend}")
        if quantized.misread:
            put(quantized.misread)
        if quantized.rounded_data:
            _print_some(
                f"real data that {backend} rounds to 8 bits itself:", quantized.rounded_data
            )
        if executed < quantized.integer_macs:
            _print_some("executed in float, with their share:", quantized.executed_in_float)
        else:
            from qbench.interpreter import SUMMED

            summed = [line for line in quantized.executed_in_float if SUMMED in line]
            _print_some("products of floats, with their share:", summed)
    _print_some("left in float:", quantized.refusals)
    _print_some(f"run in float by {backend}, between their qparams:", quantized.run_in_float)


def _is_cache_alone(measured: "Measurement") -> bool:
    return bool(measured.cache) and not measured.planned_share


def _print_cache(measured: "Measurement") -> None:
    """What the cache holds, where it holds codes."""
    if not measured.cache:
        return
    alone = "; nothing else is quantized" if _is_cache_alone(measured) else ""
    put(f"the cache holds {measured.cache}, which every later token reads{alone}")


def _print_some(heading: str, lines: "Sequence[str]") -> None:
    """The first lines below a heading, and how many more there are; nothing where there are
    none.
    """
    if not lines:
        return
    put(heading)
    for line in lines[:REFUSALS_SHOWN]:
        put(f"  {line}")
    if len(lines) > REFUSALS_SHOWN:
        put(f"  and {len(lines) - REFUSALS_SHOWN} more (--json lists them all)")


def _kind(measurement: "Measurement") -> str:
    """What a table calls a model that was measured alone."""
    return "quantized" if measurement.cell.is_given else "fp32"


def _no_labels(data: "Dataset") -> str:
    """Why the data has none."""
    if data.kind == "picture":
        return f"no class folders found in '{data.id.removeprefix('folder:')}'"
    return f"no classes found in '{data.id}' (an array y, or 'label' in each line)"


def _print_values(alone: "Measurement", data: "Dataset") -> None:
    """The scores of one model against labels; compared with itself it has none."""
    rows = [_value_row(score) for score in alone.scores if _against_labels(score)]
    compared = "--fp32 with the float model" if alone.cell.is_given else "--schema and --calib"
    if rows:
        print_columns(rows, ("metric", _kind(alone), "of"))
    elif data.labels is None:
        put(f"nothing to score: {_no_labels(data)}; add them, or")
        put(f"compare with fp32: {compared}")
    else:
        put(f"nothing to score: these metrics compare with fp32; add {compared}")


def _value_row(score: "Score") -> tuple[str, str, str]:
    from qbench.judging import valued

    out_of = f"{score.hits}/{score.out_of}" if score.proportion else str(score.n)
    return score.metric, valued(score, score.value), out_of


def _print_cost(fp32: "Measurement", quantized: "Measurement") -> None:
    """One line for each metric: fp32, quantized, change."""
    from qbench.judging import excluded_text
    from qbench.metrics import LEAST_OF_MEAN

    kind = "recorded" if quantized.cell.is_recorded else "quantized"
    rows = [
        score_row(before, after)
        for before, after in zip(fp32.scores, quantized.scores, strict=True)
    ]
    is_mixed = any(row[5].endswith(_BOOTSTRAP) for row in rows)
    interval = "interval" if is_mixed else "95 % interval"
    if is_mixed:  # each says its own confidence
        rows = [(*row[:5], _with_confidence(row[5]), *row[6:]) for row in rows]
    print_columns(rows, ("metric", "fp32", kind, "of", "change", interval, "losses", "gains"))
    put(f"{_sign_text(quantized.scores)}; shares change by percentage points")
    found = [score for score in quantized.scores if score.clusters]
    known = {(score.n, score.clusters.sources) for score in found if score.clusters}
    has_shares = any(score.proportion for score in found)
    for n, sources in sorted(known):
        proves = "one source proves nothing about others"
        if sources > 1:
            proves = "fewer than five sources prove nothing about a mean"
        if sources >= LEAST_OF_MEAN or (sources > 1 and has_shares):
            proves = "the interval is that of the sources"
        if sources > 1 and has_shares:  # a loss in points is one of shares
            proves = f"{proves}; {excluded_text(sources)}"
        put(f"{n} samples from {counted(sources, 'source')}: {proves}")


_BOOTSTRAP = " (90 %)"
"""Behind an interval of the bootstrap; the others are at 95 %."""


def _with_confidence(interval: str) -> str:
    return interval if not interval or interval.endswith(_BOOTSTRAP) else f"{interval} (95 %)"


def _sign_text(scores: "Sequence[Score]") -> str:
    """Which sign of a change is a loss."""
    changing = [score for score in scores if _against_labels(score)]
    lower = [score.metric for score in changing if score.lower_is_better]
    if not lower:
        return "minus is a loss"
    others = "" if len(lower) == len(changing) else "minus is a loss; "
    return f"{others}plus is a loss of {', '.join(lower)}"


def score_row(before: "Score", after: "Score") -> tuple[str, ...]:
    """The cells of the table of costs: metric, fp32, quantized, of, change, interval, losses,
    gains.

    Args:
        before: of the fp32 model.
        after: of the quantized model, on the same samples.
    """
    from qbench.judging import valued

    reference = change = losses = gains = ""
    if _against_labels(after):  # agreement with fp32: fp32 itself has none, and no change either
        reference = valued(before, before.value)
        change = change_text(after.value - after.reference_hits / after.out_of, after.unit)
    if _against_labels(after) or after.proportion:
        losses, gains = str(after.losses), str(after.gains)
    out_of = after.out_of if after.proportion else after.n
    return (
        after.metric,
        reference,
        valued(after, after.value),
        str(out_of),
        change,
        _interval_text(after),
        losses,
        gains,
    )


def _interval_text(score: "Score") -> str:
    """The ends of the interval of the change; those of the bootstrap (90 %) where the value is
    not a share.
    """
    from qbench.judging import negative_is_worse, share_interval

    interval = share_interval(score)
    if interval is not None:  # turned again: a change is shown as the value minus that of fp32
        return _ends_text(negative_is_worse(interval, score), score.unit)
    if score.interval is None or score.proportion or not _against_labels(score):
        return ""
    return _ends_text(score.interval, score.unit) + _BOOTSTRAP


def _ends_text(interval: tuple[float, float], unit: str) -> str:
    return " … ".join(change_text(end, unit, digits=3).removesuffix(" pp") for end in interval)


def _against_labels(score: "Score") -> bool:
    from qbench.metrics import Against

    return score.against is Against.LABELS


def evaluated_table(arguments: argparse.Namespace, evaluated: "Evaluated") -> dict[str, Any]:
    """All facts as plain values, for ``--json``."""
    from qbench.storage import plain

    first, *others = evaluated.measured
    fp32 = quantized = None
    if others:
        fp32, quantized = _measurement_table(first), _measurement_table(others[-1])
    elif first.cell.is_given:
        quantized = _measurement_table(first)
    else:
        fp32 = _measurement_table(first)
    table = {
        "model": arguments.model,
        "data": arguments.data,
        "samples": len(next(iter(evaluated.shared.subject.data.values()))),
        "backend": _backend(arguments, evaluated.measured[-1]),
        "schema": arguments.schema,
        "environment_class": str(first.environment),
        "fp32": fp32,
        "quantized": quantized,
    }
    if evaluated.parts:
        table["parts"] = plain(evaluated.parts)
    if evaluated.tokens is not None:
        table["tokens"] = plain_table(evaluated.tokens)
    if evaluated.counted is not None:
        table["counters"] = counters_table(evaluated.counted)
    return table


def refused_table(arguments: argparse.Namespace, refused: "Refused") -> dict[str, Any]:
    """A cell that was not measured as plain values, for ``--json``."""
    return {
        "model": arguments.model,
        "data": arguments.data,
        "backend": arguments.backend,
        "schema": arguments.schema,
        "error": str(refused.error),
    }


def _measurement_table(measurement: "Measurement") -> dict[str, Any]:
    from qbench.judging import share_interval
    from qbench.storage import plain

    table: dict[str, Any] = plain(measurement)
    for score, entry in zip(measurement.scores, table["scores"], strict=True):
        interval = share_interval(score)
        entry.update(value=score.value, drop=score.drop, drop_pp=100 * score.drop / score.out_of)
        if interval is not None:
            entry["interval"] = list(interval)
    return table
