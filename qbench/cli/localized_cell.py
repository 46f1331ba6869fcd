"""``qbench localize``: the work itself, from what was typed to a finding; nothing is printed here."""

import argparse
import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.chosen_machine import choose_backend
from qbench.cli.chosen_schema import choose_schema, refuse_idle_rules
from qbench.errors import InputError

if TYPE_CHECKING:
    from qbench.diagnosis import RepeatableCell
    from qbench.judging import Finding, Measurement, Verdict
    from qbench.quantization import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalizedCell:
    """A cell that was run, judged and examined."""

    measurement: "Measurement"
    verdict: "Verdict"
    finding: "Finding"


def localize_model(arguments: argparse.Namespace, told: Callable[[str], None]) -> LocalizedCell:
    """The finding on one model under one schema on one backend.

    Raises:
        QbenchError: the model, the data or the names are wrong, or the backend does not run it.
    """
    from qbench.diagnosis import Budget, LocalizeOptions, check_replay, localize, samples_that_moved

    cell = _cell(arguments)
    if arguments.replay:
        check_replay(Path(arguments.replay), cell.identity())
    told("running the cell")
    measurement = cell.measured(cell.schema)
    refuse_idle_rules(cell.schema.name, arguments.model, measurement.idle_rules)
    _require_quantized(arguments, cell)
    verdict = cell.judge(measurement)
    options = LocalizeOptions(
        samples=arguments.samples,
        first=samples_that_moved(measurement),
        suspects=arguments.top,
        replay=Path(arguments.replay) if arguments.replay else None,
        override=Path(arguments.overrides).stem if arguments.overrides else "",
    )
    budget = Budget.begin(arguments.budget, time.perf_counter)  # what the cell itself took is not of it
    finding = localize(cell, verdict, budget, options=options, progress=told)
    return LocalizedCell(measurement=measurement, verdict=verdict, finding=finding)


def _cell(arguments: argparse.Namespace) -> "RepeatableCell":
    from qbench.cli.own_subject import build_subject
    from qbench.diagnosis import RepeatableCell
    from qbench.evaluation import Request, environment_here, shared_work
    from qbench.judging import Cell, Decision, DecisionRule, Expectation, GateState, Rules, Tolerance, judge
    from qbench.storage import Cache, digest_plain

    backend, schema = choose_backend(arguments.backend), choose_schema(arguments.schema)
    _require_samples(arguments, schema)
    metrics = [name.strip() for name in arguments.metrics.split(",") if name.strip()]
    subject = build_subject(arguments.model, arguments.data, arguments.calib, metrics, arguments.calib_count)
    cache = Cache(Path(arguments.cache)) if arguments.cache else Cache.default()
    shared = shared_work(subject, backend, cache)
    shared.require_float()
    tolerance = Tolerance() if arguments.tolerance is None else Tolerance(arguments.tolerance, "--tolerance")
    rules = Rules(integer_macs=0.0, rule="qbench localize")

    def judged(measurement: "Measurement", rules: "Rules" = rules) -> "Verdict":
        verdict = judge(
            measurement,
            Expectation(whole=False, stored=False),
            tolerance=tolerance,
            rules=rules,
            today=datetime.date.min,  # no list of known-bad cells: no day decides anything
        )
        # counts cannot decide a margin under one sample; what the sample shows can, where it shows a loss
        undecided = any(gate.kind == "loss" and gate.state is GateState.SHOWN for gate in verdict.gates)
        if undecided and rules.decision.by is DecisionRule.POINT:
            return judged(measurement, replace(rules, decision=Decision(DecisionRule.CI, "qbench localize")))
        return verdict

    cell = Cell("localize", subject.model.id, backend.name, schema.name)
    return RepeatableCell(
        request=Request(
            cell=cell,
            shared=shared,
            backend=backend,
            schema=schema,
            reference=shared.reference(),
            environment=environment_here(backend),
            threads=arguments.threads,
        ),
        judge=judged,
        rules=digest_plain([tolerance.value, rules.agreement, [use.name for use in subject.metrics]]),
    )


def _require_samples(arguments: argparse.Namespace, schema: "Schema") -> None:
    if (schema.needs_profile or schema.bias_correction) and not arguments.calib:
        raise InputError(
            f"Localising '{arguments.model}'",
            found="--schema without --calib",
            expected="samples: this schema takes ranges from some",
            remedy="Name data with --calib that are not scored.",
        )


def _require_quantized(arguments: argparse.Namespace, cell: "RepeatableCell") -> None:
    plans = cell.request.shared.quantized(cell.schema, cell.request.backend.capabilities).plans
    if not any(plan.quantized_units for plan in plans.values()):
        raise InputError(
            f"Localising '{arguments.model}'",
            found=f"nothing of it is quantized under schema '{cell.schema.name}'",
            expected="an operator that the schema quantizes: what is looked for is what quantization changes",
            remedy="Name another schema or model; 'qbench quantize --why' says why each operator stays in float.",
        )
