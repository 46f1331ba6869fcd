"""How often a healthy cell is called bad: clean reruns under other threads, batch sizes, orders
and processes.

    python benchmarks/clean_reruns.py [N]

Cells of ``digits_cnn`` on four backends under three schemas. Each rerun draws how many threads the
engine has, how many samples a run takes, in which order they come and in which process; every gate
looks at it. One line: N and the alarms.
"""

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Closing, Executor, Feeds
from qbench.evaluation import Subject, SubjectArtifacts
from qbench.faults.trial import DetectedBy, FaultHarness
from qbench.storage import Cache
from qbench.subjects import Dataset
from qbench.suite import gather, load_suite, make_subject

SUITE = Path(__file__).parents[1] / "suites" / "smoke.qbench.toml"
MODEL = "digits_cnn"
BACKENDS = ("ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "integer-ort-x64")
SCHEMAS = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc")
TWINS = {"integer-ort-x64": "ort-cpu-precise", "ort-cpu-precise": "integer-ort-x64"}
THREADS, SIZES = (1, 2), (1, 3, 8)
IN_A_PROCESS = 25


@dataclass(frozen=True, slots=True)
class Reruns:
    """``count`` reruns in ``processes``, and the ``alarms`` by gate."""

    count: int
    processes: int
    alarms: Mapping[str, int]

    @property
    def sentence(self) -> str:
        """What came of them."""
        raised = (
            ", ".join(f"{count} by ({gate})" for gate, count in sorted(self.alarms.items()))
            or "0 false alarms"
        )
        return f"Clean reruns: {self.count} in {self.processes} processes, {raised}."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _InParts:
    """A backend whose runs take ``size`` samples at most."""

    inner: Backend
    size: int

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def prepare(self, model: ir.Model, *, taps: Sequence[str] = (), threads: int = 1) -> "_Parts":
        return _Parts(self.inner.prepare(model, taps=taps, threads=threads), self.size)


class _Parts(Closing):
    """One graph of it."""

    def __init__(self, executor: Executor, size: int) -> None:
        self._executor, self._size = executor, size

    def run(self, feeds: Feeds) -> dict[str, Array]:
        count = len(next(iter(feeds.values())))
        starts = range(0, count, self._size)
        parts = [
            self._executor.run({name: x[at : at + self._size] for name, x in feeds.items()})
            for at in starts
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def close(self) -> None:
        self._executor.close()


def _reordered(data: Dataset, order: list[int]) -> Dataset:
    return replace(
        data,
        sample_ids=tuple(data.sample_ids[i] for i in order),
        sources=tuple(data.sources[i] for i in order),
        labels=None if data.labels is None else tuple(data.labels[i] for i in order),
        load=lambda index: data.load(order[index]),
    )


def _some(job: tuple[int, int]) -> Counter[str]:
    """The alarms of some reruns, in a process of their own."""
    seed, count = job
    random, alarms = np.random.default_rng(seed), Counter[str]()
    suite, catalogues = load_suite(SUITE), gather(suites=SUITE.parent)
    (written,) = (one for one in suite.models if one.id == MODEL)
    subject = make_subject(written, written.calibration, catalogues, limit=None)
    wards: dict[tuple[str, str], FaultHarness] = {}
    for _ in range(count):
        backend, schema = str(random.choice(BACKENDS)), str(random.choice(SCHEMAS))
        if (backend, schema) not in wards:
            wards[backend, schema] = FaultHarness(
                shared=SubjectArtifacts(
                    subject, Cache.default(), catalogues.backends.get("ort-cpu"), "detection"
                ),
                backend=catalogues.backends.get(backend),
                schema=catalogues.schemas.get(schema),
                agreement=suite.rules(MODEL).agreement,
                timer=time.perf_counter,
            )
        in_order = bool(random.integers(2))
        count_of = len(next(iter(subject.data.values())))
        order = list(range(count_of)) if in_order else random.permutation(count_of).tolist()
        again = Subject(
            model=subject.model,
            data={name: _reordered(data, order) for name, data in subject.data.items()},
            metrics=subject.metrics,
            calibration=subject.calibration,
        )
        shared = SubjectArtifacts(
            again, Cache.default(), catalogues.backends.get("ort-cpu"), "detection"
        )
        engine = _InParts(inner=catalogues.backends.get(backend), size=int(random.choice(SIZES)))
        twin = TWINS.get(backend)
        seen = wards[backend, schema].alarms(
            shared,
            backend=engine,
            twin=None if twin is None else catalogues.backends.get(twin),
            threads=int(random.choice(THREADS)),
            in_order=in_order,
        )
        alarms.update(gate.value for gate in seen)
    return alarms


def count_alarms(count: int, *, seed: int) -> Reruns:
    """The alarms of ``count`` clean reruns."""
    jobs = [
        (seed * 1000 + place, min(IN_A_PROCESS, count - start))
        for place, start in enumerate(range(0, count, IN_A_PROCESS))
    ]
    alarms = Counter[str]()
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=2, mp_context=fresh, max_tasks_per_child=1) as pool:
        for found in pool.map(_some, jobs):
            alarms.update(found)
    return Reruns(count=count, processes=len(jobs), alarms=alarms)


def main() -> int:
    """Count and print; 1 when a gate that needs no accepted result raised an alarm."""
    reruns = count_alarms(int(sys.argv[1]) if len(sys.argv) > 1 else 500, seed=1)
    print(reruns.sentence)
    return 1 if set(reruns.alarms) - {DetectedBy.DRIFT.value} else 0


if __name__ == "__main__":
    sys.exit(main())
