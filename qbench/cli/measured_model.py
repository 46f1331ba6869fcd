"""``qbench eval``: the work itself, from what was typed to measurements; nothing is printed here."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.chosen_machine import choose_backend
from qbench.cli.chosen_schema import choose_schema, refuse_idle_rules
from qbench.cli.loss_parts import count_parts
from qbench.cli.node_counters import counted_backend

if TYPE_CHECKING:
    from qbench.cli.node_counters import CountedBackend
    from qbench.evaluation import SharedWork
    from qbench.judging import LossParts, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The measurements, fp32 first, with what else was asked for."""

    shared: "SharedWork"
    measured: "list[Measurement]"
    parts: "tuple[LossParts, ...]" = ()
    counted: "CountedBackend | None" = None


def measure_model(arguments: argparse.Namespace) -> Evaluated:
    """The fp32 measurement, and that of the quantized model when a schema is named or the model came quantized."""
    from qbench.cli.own_subject import build_subject
    from qbench.evaluation import KeptAnswers, environment_here, measure_cell, shared_work
    from qbench.judging import FP32, GIVEN, Cell
    from qbench.storage import Cache

    backend = choose_backend(arguments.backend, arguments.python)
    counted = counted_backend(backend) if arguments.counters else None
    backend = backend if counted is None else counted
    schema = choose_schema(arguments.schema) if arguments.schema else None
    metrics = [name.strip() for name in arguments.metrics.split(",") if name.strip()]
    subject = build_subject(
        arguments.fp32 or arguments.model,
        arguments.data,
        arguments.calib,
        metrics,
        arguments.calib_count,
        given=arguments.model if arguments.fp32 else None,
    )
    kept = KeptAnswers(subject.model.task)
    subject = replace(subject, model=replace(subject.model, task=kept))
    cache = Cache(Path(arguments.cache)) if arguments.cache else Cache.default()
    shared = shared_work(subject, backend, cache)
    if schema is not None or arguments.fp32:
        shared.require_float()
    if schema is not None:
        refuse_idle_rules(schema.name, arguments.model, shared.quantized(schema, backend.capabilities).idle_rules)
    measured = []
    more = [(schema.name, schema)] if schema is not None else [(GIVEN, None)] if arguments.fp32 else []
    for name, one in [(FP32, None), *more]:
        runner = shared.fp32_backend if name == FP32 and more else backend
        cell = Cell("eval", subject.model.id, runner.name, name)
        measured.append(
            measure_cell(
                shared, runner, one, cell=cell, environment=environment_here(runner), threads=arguments.threads
            )
        )
    parts: tuple[LossParts, ...] = ()
    if arguments.parts:
        made = shared.given if schema is None else shared.quantized(schema, backend.capabilities)
        parts = count_parts(shared, made.models, kept, threads=arguments.threads)
    return Evaluated(shared=shared, measured=measured, parts=parts, counted=counted)
