"""Cells → jobs: units of models, the longest first onto the job that has least to do.

    unit   a model; where it takes longer than the limit, some of its backends, and where one
           backend does, some schemas of that
    limit  total / jobs, halved up to four times while longest job / mean is above 1.1

The cells of a model share samples, a profile and an fp32 run, so that no model is divided further
than balance needs. Equal times are put in the order of the suites: the same cells give the same
jobs.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from qbench.suite.job_plan import Unit

_BALANCED = 1.1
_HALVINGS = 4
_TRIES = 12
_DIGITS = 3  # of seconds, in the plan
_PARTS = 1000  # of a second, by these digits
MOST_JOBS = 9999
"""The names of run files have four digits for the number of a job."""


@dataclass(slots=True)
class Share:
    """The cells of one backend and schema of a model, which no division separates."""

    cells: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class TimedModel:
    """A model of a suite, with its cells by backend and schema."""

    suite: str
    model: str
    shares: dict[str, dict[str, Share]] = field(default_factory=dict)

    def add(self, backend: str, schema: str, seconds: float) -> None:
        """Add a cell."""
        share = self.shares.setdefault(backend, {}).setdefault(schema, Share())
        share.cells += 1
        share.seconds += seconds

    @property
    def seconds(self) -> float:
        """Of all its cells."""
        return math.fsum(
            share.seconds for by_schema in self.shares.values() for share in by_schema.values()
        )

    @property
    def longest_share(self) -> float:
        """The seconds of the longest of its parts that cannot be divided."""
        return max(
            share.seconds for by_schema in self.shares.values() for share in by_schema.values()
        )

    def units(self, limit: float) -> list[Unit]:
        """It as one unit, or as several where it takes longer than ``limit`` seconds."""
        if self.seconds <= limit:
            return [self._unit(tuple(self.shares), None)]
        whole: dict[str, float] = {}
        found = []
        for backend, by_schema in self.shares.items():
            seconds = {schema: share.seconds for schema, share in by_schema.items()}
            packs = _packs(seconds, limit)
            if len(packs) > 1:
                found += [self._unit((backend,), pack) for pack in packs]
            else:
                whole[backend] = math.fsum(seconds.values())
        return [*(self._unit(pack, None) for pack in _packs(whole, limit)), *found]

    def _unit(self, backends: Sequence[str], schemas: Sequence[str] | None) -> Unit:
        shares = [
            share
            for backend in backends
            for schema, share in self.shares[backend].items()
            if schemas is None or schema in schemas
        ]
        is_whole = schemas is None and len(backends) == len(self.shares)
        return Unit(
            suite=self.suite,
            model=self.model,
            backends=None if is_whole else tuple(backends),
            schemas=None if schemas is None else tuple(schemas),
            cells=sum(share.cells for share in shares),
            seconds=round(math.fsum(share.seconds for share in shares), _DIGITS),
        )


def divide_among(models: Sequence[TimedModel], count: int) -> list[list[Unit]]:
    """``count`` jobs of all cells of ``models``; some are empty where there are fewer units."""
    limit = math.fsum(model.seconds for model in models) / count
    best: list[list[Unit]] = []
    for halving in range(_HALVINGS + 1):
        units = [unit for model in models for unit in model.units(limit / 2**halving)]
        jobs = _assigned(units, count)
        if not best or imbalance(jobs) < imbalance(best):
            best = jobs
        if imbalance(best) <= _BALANCED:
            break
    return best


def divide_by_time(models: Sequence[TimedModel], seconds: float) -> list[list[Unit]]:
    """As few jobs as take at most ``seconds`` each, or where one part alone takes longer, at most
    as long as that; none is empty.
    """
    limit = max(seconds, *(_rounded_up(model.longest_share) for model in models))
    count = max(1, math.ceil(math.fsum(model.seconds for model in models) / limit))
    jobs = divide_among(models, min(count, MOST_JOBS))
    for _ in range(_TRIES):
        if max(map(_seconds, jobs)) <= limit or len(jobs) == MOST_JOBS:
            break
        jobs = divide_among(models, min(len(jobs) + max(1, len(jobs) // 20), MOST_JOBS))
    return [job for job in jobs if job]


def imbalance(jobs: Iterable[Iterable[Unit]]) -> float:
    """The time of the longest job, as a multiple of their mean; 1 where they take no time."""
    times = [_seconds(job) for job in jobs]
    mean = math.fsum(times) / len(times)
    return max(times) / mean if mean else 1.0


def _rounded_up(seconds: float) -> float:
    """Not less than a unit of ``seconds`` has in the plan, so that it fits into a job of it."""
    return math.ceil(seconds * _PARTS) / _PARTS


def _seconds(job: Iterable[Unit]) -> float:
    return math.fsum(unit.seconds for unit in job)


def _assigned(units: Sequence[Unit], count: int) -> list[list[Unit]]:
    """``units``, the longest first, each to the job that has least to do; in a job in their
    order.
    """
    order = sorted(range(len(units)), key=lambda place: (-units[place].seconds, place))
    bins = _spread([units[place].seconds for place in order], count)
    return [[units[place] for place in sorted(order[one] for one in each)] for each in bins]


def _packs(seconds: dict[str, float], limit: float) -> list[tuple[str, ...]]:
    """Names in as many packs as ``limit`` asks for, of about the same time; none is empty."""
    total = math.fsum(seconds.values())
    count = min(len(seconds), max(1, math.ceil(total / limit)) if limit else len(seconds))
    if not seconds:
        return []
    names = list(seconds)
    order = sorted(range(len(names)), key=lambda place: (-seconds[names[place]], place))
    bins = _spread([seconds[names[place]] for place in order], count)
    packs = (sorted(order[one] for one in each) for each in bins)
    return [tuple(names[place] for place in pack) for pack in packs if pack]


def _spread(times: Sequence[float], count: int) -> list[list[int]]:
    """The places of ``times`` in ``count`` bins, each in turn in the one that holds least; of
    equal ones in that of fewest.
    """
    bins: list[list[int]] = [[] for _ in range(count)]
    heap = [(0.0, 0, index) for index in range(count)]
    for place, time in enumerate(times):
        load, held, index = heapq.heappop(heap)
        bins[index].append(place)
        heapq.heappush(heap, (load + time, held + 1, index))
    return bins
