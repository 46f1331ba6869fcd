"""What the cells of one subject share, made once: loaded graphs, samples, profiles, fp32 run, quantized graphs.

Samples, profiles and the fp32 run are content-addressed on disk, so that they outlive the process; quantized graphs are
kept for as long as the subject is at work. Measurements are never kept: every cell runs its engine.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Backend, Executor, in_slices
from qbench.calibration import PROFILE_VERSION, Profile, prepare_watch, watched_values
from qbench.evaluation.request import Subject
from qbench.evaluation.usual_sizes import with_usual_sizes
from qbench.graph import Capabilities, graph_digest, node_macs
from qbench.metrics import AnswerKind, Answers
from qbench.passes import canonicalize
from qbench.quantization import Plan, Schema, make_plan, quantize_model
from qbench.storage import Cache, digest_plain
from qbench.zoo import Dataset, Samples, prepare_samples


@dataclass(frozen=True)
class Quantized:
    """The graphs of a model under one schema, with the plans they were written from."""

    models: Mapping[str, ir.Model]
    plans: Mapping[str, Plan]

    @cached_property
    def digest(self) -> str:
        """One digest over all graphs."""
        return digest_plain({name: graph_digest(model) for name, model in self.models.items()})

    @property
    def integer_macs(self) -> float:
        """The planned share of multiply-accumulates in integers, over all graphs; 0 when there are none at all."""
        total = sum(plan.macs for plan in self.plans.values())
        return sum(plan.integer_macs * plan.macs for plan in self.plans.values()) / total if total else 0.0

    @property
    def refusals(self) -> tuple[str, ...]:
        """What stays in float although the schema asked otherwise, with reasons."""
        return tuple(reason for plan in self.plans.values() for reason in plan.refusals)


def prepare_runners(
    backend: Backend, graphs: Mapping[str, ir.Model], stack: ExitStack, *, threads: int
) -> dict[str, Executor]:
    """An executor a graph, for batches of any size; leaving ``stack`` closes them.

    Raises:
        QbenchError: what ``backend.prepare`` raises.
    """
    prepared = {name: stack.enter_context(backend.prepare(model, threads=threads)) for name, model in graphs.items()}
    return {name: in_slices(executor, graphs[name]) for name, executor in prepared.items()}


class SharedWork:
    """The shared things of one subject; each is made on first use.

    Args:
        subject: what is measured.
        cache: where what outlives the process is kept.
        fp32_backend: runs the float model for profiles and the fp32 run.
        environment_class: of ``fp32_backend`` here; part of the key of an fp32 run.
    """

    def __init__(self, subject: Subject, cache: Cache, fp32_backend: Backend, environment_class: str) -> None:
        self.subject = subject
        self._cache = cache
        self._fp32_backend = fp32_backend
        self._environment_class = environment_class
        self._samples: dict[str, Samples] = {}
        self._quantized: dict[tuple[Schema, Capabilities], Quantized] = {}

    @cached_property
    def graphs(self) -> Mapping[str, ir.Model]:
        """The float graphs as they were trained, by name; what sizes they leave open are those of the main data."""
        main = next(iter(self.subject.data.values()))
        loaded = {name: load() for name, load in self.subject.model.graphs.items()}
        return {name: with_usual_sizes(model, lambda: self.samples(main)) for name, model in loaded.items()}

    @cached_property
    def canonical(self) -> Mapping[str, ir.Model]:
        """The float graphs that profiles are taken of and schemas are planned on."""
        return {name: canonicalize(model) for name, model in self.graphs.items()}

    @cached_property
    def model_digest(self) -> str:
        """One digest over the float graphs: what a baseline calls the model."""
        return digest_plain({name: graph_digest(model) for name, model in self.graphs.items()})

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of one sample through every graph once."""
        return sum(sum(node_macs(model).values()) for model in self.graphs.values())

    def samples(self, dataset: Dataset) -> Samples:
        """``dataset`` prepared for this model."""
        if dataset.digest not in self._samples:
            self._samples[dataset.digest] = prepare_samples(dataset, self.subject.model.preprocess, self._cache)
        return self._samples[dataset.digest]

    def identity(self) -> dict[str, str]:
        """The digests that tell whether a stored reference is of this model, data and preprocessing."""
        data = {f"data:{name}": dataset.digest for name, dataset in self.subject.data.items()}
        return {
            "model": self.model_digest,
            "preprocessing": digest_plain([self.subject.model.preprocess.name, self.subject.model.task.name]),
            **data,
        }

    def reference(self) -> Mapping[str, Answers]:
        """Today's fp32 answers to every scored data set, from the cache when this very run was made before."""
        return {name: self._fp32_answers(dataset) for name, dataset in self.subject.data.items()}

    def _fp32_answers(self, dataset: Dataset) -> Answers:
        made_from = [self.model_digest, self.samples(dataset).key, self.subject.model.task.name]
        identity = [made_from, self._fp32_backend.name, self._environment_class]
        path = self._cache.entry("fp32", f"{digest_plain(identity)}.npz", lambda path: self._run_fp32(dataset, path))
        with np.load(path, allow_pickle=False) as stored:
            return Answers(ids=stored["ids"], ties=int(stored["ties"]), kind=AnswerKind(str(stored["kind"])))

    def _run_fp32(self, dataset: Dataset, path: Path) -> None:
        answers = self.answer(self._fp32_backend, self.graphs, dataset, threads=1)
        with path.open("wb") as file:
            np.savez_compressed(file, ids=answers.ids, ties=np.int64(answers.ties), kind=np.str_(answers.kind.value))

    def answer(self, backend: Backend, graphs: Mapping[str, ir.Model], dataset: Dataset, *, threads: int) -> Answers:
        """Load ``graphs`` into ``backend`` and let the task answer ``dataset``."""
        with ExitStack() as stack:
            runners = prepare_runners(backend, graphs, stack, threads=threads)
            return self.subject.model.task.answer(runners, self.samples(dataset))

    @cached_property
    def profiles(self) -> Mapping[str, Profile]:
        """The profile of every canonical graph over the calibration samples, taken once for all schemas."""
        watched = {name: [graph_digest(model), watched_values(model)] for name, model in self.canonical.items()}
        made_from = [watched, self.samples(self.subject.calibration).key, self.subject.model.task.name]
        made_by = [self._fp32_backend.name, self._environment_class, PROFILE_VERSION]
        folder = self._cache.entry("profiles", digest_plain([made_from, made_by]), self._calibrate)
        return {name: Profile.load(folder / f"{name}.json") for name in self.canonical}

    def _calibrate(self, folder: Path) -> None:
        folder.mkdir()
        with ExitStack() as stack:
            samples = self.samples(self.subject.calibration)
            watches: dict[str, Any] = {
                name: stack.enter_context(prepare_watch(model, self._fp32_backend, threads=1))
                for name, model in self.canonical.items()
            }
            self.subject.model.task.answer(watches, samples)
            for name, watch in watches.items():
                watch.profile().dump(folder / f"{name}.json")

    def quantized(self, schema: Schema, capabilities: Capabilities) -> Quantized:
        """The graphs under ``schema`` for a backend of these capabilities; equal capabilities share them."""
        key = (schema, capabilities)
        if key not in self._quantized:
            plans = {
                name: make_plan(model, self.profiles[name], schema, capabilities=capabilities)
                for name, model in self.canonical.items()
            }
            models = {name: quantize_model(model, plans[name]) for name, model in self.canonical.items()}
            self._quantized[key] = Quantized(models, plans)
        return self._quantized[key]
