"""A suite as cells that faults are put into: measured, judged and compared as the suite says."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from qbench.backends import Backend
from qbench.errors import InputError, QbenchError
from qbench.faults import CATALOGUE, Fault, Gating, ProofPlan, ProofRun, ProvenCell, fits, get_fault
from qbench.host import utc_today
from qbench.judging import Cell, EnvironmentClass, Measurement, Verdict
from qbench.storage import Cache, digest_file, digest_plain
from qbench.suite.catalogues import Catalogues, gather
from qbench.suite.expansion import PlannedCell, Selection, Shard, expand
from qbench.suite.judged_cell import lacking_package
from qbench.suite.plan_identity import describe_code, suite_digest
from qbench.suite.session import Bench, Settings
from qbench.suite.suite_file import Suite, load_suite
from qbench.tracking import Proof

_TWINS = ("ort-cpu-noopt", "ort-cpu-precise", "integer-ort-x64")
"""Backends that a cell might equal, tried after those that the suite has for the same model."""
_MOST_PARTNERS = 4
_MOST_WORK = 300_000_000
"""Multiply-accumulates of all samples beyond which our interpreter is no such backend: a gate that
takes minutes of each night is no proposal.
"""
_NEW = EnvironmentClass("new-class")
"""A class in which nothing is accepted: no processor has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    """What of a suite is proven.

    Args:
        select: cells, as ``Selection.parse`` reads them.
        shard: a share of the trials.
        faults: names; empty: the whole catalogue.
        seed: of order and places.
        places: of a fault in each cell.
        new_class: whether cells are judged as on a class of environments without accepted results,
            as after an upgrade of the engine.
        baselines, cache: folders; None: the user's cache.
    """

    baselines: Path
    select: str = ""
    shard: str = ""
    faults: Sequence[str] = ()
    seed: int = 0
    places: int = 1
    new_class: bool = False
    cache: Cache | None = None


class ProvenSuite:
    """The suite at ``path``, opened to put faults into its cells.

    Raises:
        InputError: the suite, the selection, the share or a fault's name is wrong, or no quantized
            cell is selected.
    """

    def __init__(self, path: Path, options: ProofOptions) -> None:
        self._path, self._options = path, options
        for name in options.faults:
            get_fault(name)
        self.suite: Suite = load_suite(path)
        self._catalogues: Catalogues = gather(suites=path.parent)
        selection = Selection.parse(options.select)
        self._planned = {
            str(one.cell): _without_costs(one)
            for one in expand(self.suite, self._catalogues)
            if selection.covers(one.cell) and not (one.cell.is_fp32 or one.cell.is_recorded)
        }
        if not self._planned:
            raise InputError(
                f"Proving suite '{self.suite.name}'",
                found=f"no quantized cell that '{options.select}' selects"
                if options.select
                else "no quantized cell",
                expected="at least one, because faults are put into quantized cells",
                remedy="Correct the selection; 'qbench doctor' lists what a suite holds.",
            )

    @cached_property
    def _bench(self) -> Bench:
        settings = Settings(
            baselines=self._options.baselines,
            suite_path=str(self._path),
            today=utc_today(),
            cache=self._options.cache or Cache.default(),
        )
        return Bench(self.suite, self._catalogues, settings)

    @cached_property
    def plan(self) -> ProofPlan:
        """What is tried."""
        options = self._options
        shard = Shard.parse(options.shard)
        return ProofPlan(
            suite=self.suite.name,
            made=self._made,
            cells=tuple(one.cell for one in self._planned.values()),
            kinds=tuple(dict.fromkeys(options.faults)) or tuple(CATALOGUE),
            fits=self._fits,
            seed=options.seed,
            places=options.places,
            shard=shard.text,
            holds=shard.holds,
        )

    @property
    def _made(self) -> Mapping[str, str]:
        code = describe_code(self._path.parent)
        folder = self._options.baselines / self.suite.name
        files = sorted(folder.glob("*.json"))
        return {
            "suite": suite_digest(self._path),
            "baselines": digest_plain({one.name: digest_file(one) for one in files}),
            "qbench": code.qbench,
            "code": code.source,
            "seed": str(self._options.seed),
            "class": _NEW.processor if self._options.new_class else "",
        }

    def _fits(self, cell: Cell, fault: Fault) -> bool:
        """Whether the backend of ``cell`` can have ``fault``; one that cannot be made is named once
        its cell is opened.
        """
        try:
            return fits(self._catalogues.backends.get(cell.backend), fault)
        except (ModuleNotFoundError, QbenchError):
            return True

    def run(self, kept: Proof, *, is_over: Callable[[], bool], most: int | None = None) -> ProofRun:
        """The trials, without those that are ``kept``.

        Args:
            is_over: whether the budget is used up.
            most: trials; None: all.
        """
        return ProofRun(
            self.plan,
            kept,
            self.open_cell,
            is_over=is_over,
            most=most,
            timer=time.perf_counter,
        )

    def open_cell(self, cell: Cell) -> ProvenCell:
        """``cell``, ready to be measured.

        Raises:
            QbenchError: its subject, backend or schema cannot be made.
        """
        try:
            return self._opened(cell)
        except ModuleNotFoundError as error:
            if (lacking := lacking_package(cell, error)) is None:
                raise
            raise lacking from error

    def _opened(self, cell: Cell) -> ProvenCell:
        planned = self._planned[str(cell)]
        bench = self._bench
        environment = bench.environment(cell.backend)

        def judged(measurement: Measurement, gating: Gating) -> Verdict:
            tolerances = ((None, gating.tolerance),)
            changed = replace(
                planned, rules=gating.rules, tolerances=tolerances, criterion=gating.criterion
            )
            if self._options.new_class:
                measurement = replace(measurement, environment=_NEW)
            return bench.judge(changed, measurement)

        def refused(error: QbenchError) -> Verdict:
            return bench.unmeasured(planned, error).verdict

        return ProvenCell(
            request=bench.request(planned),
            gating=Gating(
                rules=planned.rules,
                tolerance=planned.tolerance(environment),
                criterion=planned.criterion,
            ),
            judge=judged,
            refused=refused,
            partners=self._partners(cell),
            environment_of=self._environment_of,
            is_new_class=self._options.new_class,
        )

    def _environment_of(self, backend: Backend) -> EnvironmentClass:
        return self._bench.environment(backend.name)

    def _partners(self, cell: Cell) -> tuple[Backend, ...]:
        """Backends that ``cell`` might equal: those of its model in the suite, then our own."""
        others = [
            one.cell.backend
            for one in self._planned.values()
            if (one.cell.model, one.cell.schema) == (cell.model, cell.schema)
        ]
        shared = self._bench.shared(self._planned[str(cell)])
        work = shared.macs * sum(map(len, shared.subject.data.values()))
        slow = self._catalogues.integer_backends if work > _MOST_WORK else frozenset()
        known = set(self._catalogues.backends.names()) - slow - {cell.backend}
        names = [one for one in dict.fromkeys((*others, *_TWINS)) if one in known]
        made = []
        for name in names[:_MOST_PARTNERS]:
            with contextlib.suppress(ModuleNotFoundError, QbenchError):  # its own cells say so
                made.append(self._catalogues.backends.get(name))
        return tuple(made)


def _without_costs(planned: PlannedCell) -> PlannedCell:
    """``planned`` without the gates of time and size: a busy computer would catch faults there."""
    return replace(planned, rules=replace(planned.rules, more={}))
