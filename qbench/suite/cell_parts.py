"""The parts of the key of a planned cell: all that its result and its verdict depend on, known
before anything is quantized.

    model, data, task, metrics       what is measured, by content and by the code that reads it
    calibration, schema, ranges      what the quantizer takes; passes behind it
    backend, package P, environment  what runs it, with the versions of what it computes with
    qbench, python, package P here   what quantizes, counts and judges
    tolerance, rules, accepted …     what decides the verdict
"""

import functools
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.backends import Backend, HasRuleDigests
from qbench.evaluation import Request, Subject, SubjectArtifacts, environment_of
from qbench.graph import graph_digest
from qbench.host import blas_kernels, package_versions
from qbench.judging import COSTS, EnvironmentClass
from qbench.storage import digest_bytes, followed_code, plain
from qbench.subjects import Dataset, unfollowed_text
from qbench.suite.catalogues import Catalogues
from qbench.suite.expansion import PlannedCell
from qbench.tracking import Baseline, digest_part

if TYPE_CHECKING:
    from qbench.quantization import Schema

PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "ml-dtypes")
"""What profiles, plans, writes, sums and scores here, for every cell."""

NOT_MEASURING = ("cli", "diagnosis", "faults", "plugin", "reporting")
"""Packages of qbench that no measured number and no verdict comes from: they start cells, look for
causes of red ones, and show what was found. Nothing else of qbench that measures imports them.
"""


class NoKeyError(Exception):
    """No key follows all that a cell depends on; the text says why."""


@functools.cache
def own_sources() -> str:
    """The part of qbench's own code in this process.

    Not the version: an editable installation keeps its version while its files change.
    """
    return sources_part(Path(__file__).parents[1])


def sources_part(folder: Path) -> str:
    """The part of the sources in ``folder`` and of the data next to them, without those that
    measure nothing (``NOT_MEASURING``).
    """
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in (".py", ".toml")
        and path.relative_to(folder).parts[0] not in NOT_MEASURING
    )
    return digest_part(
        [(path.relative_to(folder).as_posix(), digest_bytes(path.read_bytes())) for path in files]
    )


@dataclass
class CellParts:
    """Computes the parts of the cells of one suite; what cells share is computed once.

    Args:
        catalogues: of the suite.
        limit: samples of each data set; None: all.
    """

    catalogues: Catalogues
    limit: int | None = None
    _of_subject: tuple[SubjectArtifacts | None, dict[str, str]] = (None, {})
    _followed: dict[str, str] = field(default_factory=dict)
    _of_baseline: tuple[Baseline | None, dict[str, str]] = (None, {})

    def of(
        self, planned: PlannedCell, request: Request, baseline: Baseline | None
    ) -> dict[str, str]:
        """The parts of ``planned``.

        Args:
            request: for measuring it; its reference is not read.
            baseline: that it is judged by; None: there is none.

        Raises:
            NoKeyError: something that no key can follow.
            QbenchError: the model, its data or a backend cannot be made.
        """
        _refuse_unkeyed(planned, request)
        parts = dict(self._subject_parts(request))
        parts |= self._schema_parts(planned, request)
        parts |= self._backend_parts("", request.backend, request.environment)
        for other, environment in self._others(request):
            parts |= self._backend_parts(f" {other.name}", other, environment)
        parts |= self._here(parts)
        parts |= self._settings(planned, request)
        return parts | self._baseline_parts(planned, baseline)

    def _code(self, what: str, value: object) -> str:
        """The part of what ``what`` names, and of the code that it runs; followed once."""
        known = self._followed.get(what)
        if known is None:
            known = self._followed[what] = _code_part(what, value)
        return known

    def _subject_parts(self, request: Request) -> Mapping[str, str]:
        shared, known = self._of_subject
        if shared is not request.shared:
            known = dict(self._each_subject_part(request.shared))
            self._of_subject = request.shared, known
        return known

    def _each_subject_part(self, shared: SubjectArtifacts) -> Iterator[tuple[str, str]]:
        subject = shared.subject
        yield "model", digest_part([shared.model_digest, _written(subject, of_given=False)])
        if subject.given is not None:
            yield "quantized model", digest_part(_written(subject, of_given=True))
        operators = self.catalogues.operators
        if names := sorted(operators.names()):
            yield "operators", self._code("an operator", tuple(map(operators.get, names)))
        for name, data in subject.data.items():
            yield f"data {name}", self._data(shared, data)
        task = subject.model.task
        yield "task", _code_part(f"the task '{task.name:.60}'", task)
        codes = [
            [one.name, one.data, self._code(f"the metric '{one.name}'", one.metric)]
            for one in subject.metrics
        ]
        yield "metrics", digest_part(codes)
        _, backend, environment = shared.made_with
        name = f"the backend '{backend.name}'"
        yield "fp32 backend", digest_part([self._code(name, backend), environment])

    @staticmethod
    def _data(shared: SubjectArtifacts, data: Dataset) -> str:
        samples = shared.samples(data)
        if samples.unknown:
            raise NoKeyError(samples.unknown)
        facts = [data.clusters, plain(data.columns)]
        return digest_part([data.digest, samples.key, facts])

    def _schema_parts(self, planned: PlannedCell, request: Request) -> dict[str, str]:
        schema = request.schema
        if schema is None:
            return {}
        chosen, learned = planned.calibration, request.subject.calibration
        parts = {
            "schema": self._schema(schema),
            "calibration": f"{chosen.count} of {chosen.data}",
        }
        if len(learned):
            parts["calibration data"] = self._data(request.shared, learned)
        if schema.by_hand is not None:
            parts["ranges file"] = f"#{schema.by_hand.digest}"
        return parts

    def _schema(self, schema: "Schema") -> str:
        return self._code(f"the schema '{schema.name}'", replace(schema, by_hand=None))

    @staticmethod
    def _others(request: Request) -> list[tuple[Backend, EnvironmentClass]]:
        """The other backends that the cell is judged with."""
        processor, threads = request.environment.processor, request.threads
        found = [one for one in request.asked.values() if isinstance(one, Backend)]
        if request.comparator is not None:
            found.append(request.comparator.backend)
        return [(one, environment_of(one, processor, threads=threads)) for one in found]

    def _backend_parts(
        self, name: str, backend: Backend, environment: EnvironmentClass
    ) -> dict[str, str]:
        code = self._code(f"the backend '{backend.name}'", backend)
        rules = dict(backend.digests) if isinstance(backend, HasRuleDigests) else {}
        of = f" of{name}" if name else ""
        return {
            f"backend{name}": digest_part([code, rules]),
            f"environment{of}": environment.hardware,
            **{f"package {one}{of}": version for one, version in environment.packages},
        }

    def _settings(self, planned: PlannedCell, request: Request) -> dict[str, str]:
        tolerance = planned.tolerance(request.environment)
        rules = plain(planned.rules)
        del rules["repeats"], rules["repeats_rule"]
        parts = {
            "tolerance": digest_part(tolerance),
            "rules": digest_part([rules, planned.criterion]),
            "samples": "all" if self.limit is None else f"at most {self.limit}",
            "repeats": "+".join(map(str, (request.repeats, *request.repeat_threads))),
            "threads": str(request.threads),
        }
        if request.rewriting is not None:
            passes = f"the passes '{planned.passes}'"
            code = self._code(passes, request.rewriting.pipeline)
            parts["passes"] = digest_part([request.rewriting.digest, code])
        return parts

    @functools.cached_property
    def _process(self) -> tuple[dict[str, str], dict[str, str]]:
        """What quantizes and counts in this process, and the versions of its packages."""
        found = {"qbench": own_sources(), "python": platform.python_version()}
        if kernels := blas_kernels():
            found["kernels of numpy"] = kernels
        return found, package_versions(PACKAGES)

    def _here(self, parts: Mapping[str, str]) -> dict[str, str]:
        """The parts of this process; a package that the backend has in the same version is one part
        with that of the backend.
        """
        found, versions = self._process
        named = {
            f"package {name}"
            if parts.get(f"package {name}", version) == version
            else f"package {name} here": version
            for name, version in versions.items()
        }
        return found | named

    def _baseline_parts(self, planned: PlannedCell, baseline: Baseline | None) -> dict[str, str]:
        if baseline is None:
            return {}
        if self._of_baseline[0] is not baseline:
            self._of_baseline = baseline, _shared_parts(baseline)
        known = baseline.cells.get(planned.cell.slug)
        own = {} if known is None else {"accepted result": digest_part(known)}
        return self._of_baseline[1] | own


def _shared_parts(baseline: Baseline) -> dict[str, str]:
    """The parts of ``baseline`` that are those of all of its cells."""
    reference = [
        *(baseline.model_digest, baseline.preprocessing, baseline.backend),
        *(baseline.environment_class, plain(baseline.metrics), plain(baseline.data)),
    ]
    parts = {"fp32 reference": digest_part(reference)}
    if baseline.calibrations:
        parts["accepted ranges"] = digest_part(baseline.calibrations)
    return parts


def _code_part(what: str, value: object) -> str:
    found = followed_code(value)
    if text := unfollowed_text(what, found):
        raise NoKeyError(text)
    return digest_part(found.digest)


def _refuse_unkeyed(planned: PlannedCell, request: Request) -> None:
    """Refuse a cell that is measured whatever its key.

    Raises:
        NoKeyError: it is one.
    """
    if planned.cell.is_recorded:
        raise NoKeyError("its answers are read, not measured")
    if planned.quarantine_entry(request.environment) is not None:
        raise NoKeyError("it is listed as known bad")
    timed = sorted(
        COSTS[kind].name for kind in request.asked if kind in COSTS and not COSTS[kind].is_exact
    )
    if timed:
        raise NoKeyError(f"its {timed[0]} is judged, and no key holds a time")


def _written(subject: Subject, *, of_given: bool) -> list[object]:
    """What the graphs hold besides what they compute, which an engine may read; of the given ones
    also that.
    """
    model = subject.given if of_given and subject.given is not None else subject.model
    found: list[object] = []
    for name, graph in sorted(model.loaded().items()):
        inputs = [[value.name, str(value.shape)] for value in graph.graph.inputs]
        facts = [name, graph.ir_version, sorted(graph.metadata_props.items()), inputs]
        found.append([*facts, graph_digest(graph)] if of_given else facts)
    return found
