"""What the cells of one subject share, made once: graphs, samples, profiles, fp32 run,
quantized graphs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    Array,
    Backend,
    CheckedExecutor,
    Executor,
    Feeds,
    OutputCheck,
    backends_of_format,
    in_slices,
    isolated,
    run_where_prepared,
    untaken_type,
)
from qbench.errors import InputError, QbenchError, UnsupportedError
from qbench.evaluation.fp32_run import FP32_VERSION, run_arrays, stored_run
from qbench.evaluation.quantizer_run import (
    RUN_VERSION,
    STACKED_VERSION,
    QuantizerTask,
    joined_note,
    read_run,
    run_quantizer,
    stacked,
)
from qbench.evaluation.subject import RecordingTask, Subject, read_given
from qbench.evaluation.watched_executor import recorded_feeds, task_profiles
from qbench.graph import (
    Capabilities,
    Form,
    declare_dims,
    declared_dims,
    file_products,
    form_of,
    form_text,
    format_held_by,
    graph_digest,
    node_macs,
    own_copy,
    require_float_cache,
)
from qbench.judging import QuantizerNote
from qbench.metrics import Answers
from qbench.number_text import counted
from qbench.passes import CANONICAL, DEFAULT, Pass, canonicalize, plannable
from qbench.storage import (
    Cache,
    FollowedCode,
    TooLargeError,
    current_limits,
    digest_arrays,
    digest_code,
    digest_plain,
    followed_code,
    read_archive,
    too_large,
)
from qbench.subjects import (
    Contents,
    Dataset,
    Samples,
    Task,
    content_notes,
    forced_likelihoods,
    prepare_samples,
    require_answers,
    task_answers,
    unfollowed_text,
)
from qbench.working import working

# The observers and the quantizer are imported where a cell is quantized: they are a third of what
# is to be loaded, and an evaluation in float needs neither.
if TYPE_CHECKING:
    from qbench.calibration import Profile
    from qbench.quantization import Plan, Quantizer, Ranges, Schema

# The usual sizes of a graph's free dimensions, read off the data that it is fed.
#
# A network for pictures of any size has no cost, and no share of it in integers, before the user
# gives the size that is meant: where the graph does not declare one, the data does.


def with_usual_sizes(model: ir.Model, samples: Callable[[], Samples]) -> ir.Model:
    """``model`` itself where all sizes are known, else a copy that declares those of the first
    batch of ``samples``.

    A named dimension after the batch is free. Inputs that the task does not feed by their names
    stay free.
    """
    declared = declared_dims(model)
    free = {
        (str(value.name), axis): str(dim.value)
        for value in model.graph.inputs
        for axis, dim in enumerate(value.shape or ())
        if axis and not isinstance(dim, int) and dim.value and dim.value not in declared
    }
    if not free:
        return model
    shapes = {name: array.shape for name, array in next(samples().batches()).items()}
    found = {
        dim: shapes[name][axis]
        for (name, axis), dim in free.items()
        if name in shapes and axis < len(shapes[name])
    }
    if not found:
        return model
    copy = own_copy(model)
    declare_dims(copy, {**found, **declared})
    return copy


# What the cells of one subject share, made once: loaded graphs, samples, profiles, fp32 run,
# quantized graphs.
#
# Samples, profiles and the fp32 run are content-addressed on disk, so that they outlive the
# process; quantized graphs are kept for as long as the subject is measured. Measurements are never
# kept: every cell runs its engine.


@dataclass(frozen=True)
class Quantized:
    """The graphs of a model under one schema, with the plans they were written from.

    ``note``: on the quantizer of other people that made them, whose plans are read; None: it was
    qbench, or they came so.
    """

    models: Mapping[str, ir.Model]
    plans: "Mapping[str, Plan]"
    note: QuantizerNote | None = None

    @cached_property
    def digest(self) -> str:
        """One digest over all graphs."""
        return digest_plain({name: graph_digest(model) for name, model in self.models.items()})

    @property
    def integer_macs(self) -> float:
        """The planned share of multiply-accumulates in integers, over all graphs; 0 when there
        are none at all.
        """
        return self._share(plan.integer_mac_count for plan in self.plans.values())

    @property
    def weight_macs(self) -> float:
        """The share of multiply-accumulates by a quantized weight, over all graphs; 0 when
        there are none at all.
        """
        return self._share(plan.weight_mac_count for plan in self.plans.values())

    @property
    def is_of_weights_alone(self) -> bool:
        """Whether weights are quantized and no computed value but what a decoder keeps."""
        plans = self.plans.values()
        return any(plan.constants for plan in plans) and all(
            plan.is_of_weights_alone for plan in plans if plan.decisions
        )

    def _share(self, counts: Iterable[int]) -> float:
        total = sum(plan.macs for plan in self.plans.values())
        return sum(counts) / total if total else 0.0

    @property
    def float8_macs(self) -> float:
        """The share of multiply-accumulates of float8 by float8, over all graphs."""
        return self._share(plan.float8_mac_count for plan in self.plans.values())

    @property
    def refusals(self) -> tuple[str, ...]:
        """What stays in float although the schema quantizes it, with reasons."""
        return tuple(reason for plan in self.plans.values() for reason in plan.refusals)

    @property
    def run_in_float(self) -> tuple[str, ...]:
        """Products of quantized values that the backend runs in floats, with reasons."""
        return tuple(
            f"{name}: {why}"
            for plan in self.plans.values()
            for name, why in plan.run_in_float.items()
        )

    @property
    def idle_rules(self) -> tuple[str, ...]:
        """The rules of the schema that matched no operator of any graph."""
        first, *others = [plan.idle_rules for plan in self.plans.values()]
        return tuple(rule for rule in first if all(rule in more for more in others))


def prepare_runners(
    backend: Backend, graphs: Mapping[str, ir.Model], stack: ExitStack, *, threads: int
) -> dict[str, Executor]:
    """One executor per graph, for batches of any size, with checked results; ``stack`` closes them.

    Raises:
        UnsupportedError: a graph holds a file of a format that the backend does not run.
        QbenchError: what ``backend.prepare`` raises.
    """
    held = {suffix for one in graphs.values() if (suffix := format_held_by(one)) is not None}
    if unread := sorted(held - backend.capabilities.file_formats):
        raise UnsupportedError(
            f"Running a '.{unread[0]}' file on '{backend.name}'",
            found="a backend that reads ONNX graphs",
            expected=f"one of {', '.join(backends_of_format(unread[0]))}",
            remedy="Choose one of these for this model.",
        )
    engine = isolated(backend)
    with working(f"preparing {backend.name}"):
        prepared = {
            name: stack.enter_context(_loaded(engine, model, backend, threads=threads))
            for name, model in graphs.items()
        }
    checked = {
        name: CheckedExecutor(executor, OutputCheck.of(graphs[name], backend.name))
        for name, executor in prepared.items()
    }
    return {name: in_slices(executor, graphs[name]) for name, executor in checked.items()}


def _loaded(engine: Backend, model: ir.Model, backend: Backend, *, threads: int) -> Executor:
    """``model`` on ``engine``, which is ``backend`` or runs it elsewhere."""
    try:
        return engine.prepare(model, threads=threads)
    except (UnsupportedError, InputError) as error:
        if (beyond := untaken_type(model, backend)) is not None:
            raise beyond from error
        raise


def answered(task: Task, runners: Mapping[str, Executor], samples: Samples) -> Answers:
    """The answers of ``task`` to ``samples``; in the process of the engine, if that is not this
    one.

    Raises:
        InputError: the task gives something else than answers, or other than one per sample.
        QbenchError: what the task and the engine raise.
    """
    with working(f"running {counted(len(samples), 'sample')}"):
        found = run_where_prepared(partial(_answers_of, task, samples), runners)
    require_answers(task, found, samples)
    if isinstance(task, RecordingTask):  # the process of the engine has a copy of it
        task.last = found
    return found


def _answers_of(task: Task, samples: Samples, runners: Mapping[str, Executor]) -> Answers:
    return task.answer(runners, samples)


class SubjectArtifacts:
    """The shared things of one subject; each is made on first use.

    Args:
        subject: what is measured.
        cache: where what outlives the process is kept.
        fp32_backend: runs the float model for profiles and the fp32 run.
        environment_class: of ``fp32_backend`` here; part of the key of an fp32 run.
        quantizes_twice: whether quantizers of other people run twice, to compare the bytes of
            their files.
    """

    def __init__(
        self,
        subject: Subject,
        cache: Cache,
        fp32_backend: Backend,
        environment_class: str,
        *,
        quantizes_twice: bool = False,
    ) -> None:
        self.subject = subject
        self._twice = quantizes_twice
        self._cache = cache
        self.fp32_backend = fp32_backend
        self._environment_class = environment_class
        self._samples: dict[str, Samples] = {}
        self._watched: dict[str, Mapping[str, ir.Model]] = {}
        self._planned: dict[str, Mapping[str, ir.Model]] = {}
        self._profiles: dict[tuple[tuple[Pass, ...], bool], Mapping[str, Profile]] = {}
        self._ranges: dict[tuple[tuple[Pass, ...], bool], Mapping[str, Ranges]] = {}
        self._given_answers: dict[str, Mapping[str, Answers]] = {}
        self._quantized: dict[tuple[Schema, Capabilities], Quantized] = {}
        self.made_by_others: dict[Quantizer, Quantized | QbenchError] = {}
        """Quantizer → what it made, or why it failed: it runs once for all that share this."""
        self.float_run: Mapping[str, Answers] = {}
        """Data set → the answers of an fp32 cell of this process, with their probabilities; empty
        where none was measured yet.
        """

    @cached_property
    def graphs(self) -> Mapping[str, ir.Model]:
        """The float graphs as they were trained, by name; what sizes they leave open are those
        of the main data.
        """
        main = next(iter(self.subject.data.values()))
        loaded = self.subject.model.loaded()
        return {
            name: with_usual_sizes(model, lambda: self.samples(main))
            for name, model in loaded.items()
        }

    def note(self, text: str) -> None:
        """Add ``text`` to the notices of the run, once in a process."""
        self._cache.note(text)

    @property
    def made_with(self) -> tuple[Cache, Backend, str]:
        """The cache, the backend of fp32 and its class: what other work on this subject shares
        with this one.
        """
        return self._cache, self.fp32_backend, self._environment_class

    def require_float(self) -> None:
        """Check that the graphs can be an fp32 reference, and schemas be planned on them.

        Raises:
            InputError: one is quantized already.
        """
        for graph in self.graphs.values():
            require_float_cache(graph, self.subject.model.id)
        suspected = [graph for graph in self.graphs.values() if form_of(graph) is not Form.FLOAT]
        if not suspected:
            return
        from qbench.quantization import has_quantized_products

        for graph in suspected:
            if has_quantized_products(graph):
                raise InputError(
                    f"Taking '{self.subject.model.id}' for a float model",
                    found=f"a model that is quantized already ({form_text(graph)})",
                    expected=(
                        "a float one: its answers are the reference, and schemas are planned on it"
                    ),
                    remedy=(
                        "Name its fp32 partner: fp32 = \"…\" in a suite, --fp32 at 'qbench eval'."
                    ),
                )

    @cached_property
    def given(self) -> Quantized:
        """The graphs of the subject's model as it came quantized, and the plans read from them."""
        assert self.subject.given is not None
        return Quantized(*read_given(self.subject.given, self._sized))

    def canonical(self, pipeline: str = DEFAULT) -> Mapping[str, ir.Model]:
        """The float graphs after ``pipeline``'s passes before profiling: what is profiled."""
        if pipeline not in self._watched:
            self._watched[pipeline] = {
                name: canonicalize(model, pipeline) for name, model in self.graphs.items()
            }
        return self._watched[pipeline]

    def planned(self, pipeline: str = DEFAULT) -> Mapping[str, ir.Model]:
        """The float graphs after all of ``pipeline``'s passes: what schemas are planned on and
        written into.
        """
        if pipeline not in self._planned:
            canonical = self.canonical(pipeline)
            self._planned[pipeline] = {
                name: plannable(model, pipeline, is_canonical=True)
                for name, model in canonical.items()
            }
        return self._planned[pipeline]

    @cached_property
    def model_digest(self) -> str:
        """One digest over the float graphs: what a baseline calls the model."""
        return digest_plain({name: graph_digest(model) for name, model in self.graphs.items()})

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of one sample through every graph once."""
        in_nodes = sum(sum(node_macs(model).values()) for model in self.graphs.values())
        return in_nodes + sum(
            one.macs for model in self.graphs.values() for one in file_products(model)
        )

    def samples(self, dataset: Dataset) -> Samples:
        """``dataset`` prepared for this model."""
        if dataset.digest not in self._samples:
            self._samples[dataset.digest] = prepare_samples(
                dataset, self.subject.model.preprocess, self._cache
            )
        return self._samples[dataset.digest]

    @property
    def prepared(self) -> int:
        """How many data sets have been prepared so far."""
        return len(self._samples)

    def content_notes(self) -> tuple[str, ...]:
        """Sentences on copies among the data sets that have been prepared so far; nothing is
        prepared for them.
        """
        every = (*self.subject.data.values(), self.subject.calibration)
        *scored, calibration = [
            Contents.of(data, self._samples[data.digest]) if data.digest in self._samples else None
            for data in every
        ]
        return content_notes([one for one in scored if one is not None], calibration)

    @cached_property
    def _task_code(self) -> FollowedCode:
        return followed_code(self.subject.model.task)

    @property
    def _task_identity(self) -> tuple[str, str]:
        """The name of the task and its code, which may change under one name."""
        return self.subject.model.task.name, self._task_code.digest

    def _entry(self, kind: str, key: str, make: Callable[[Path], None], dataset: Dataset) -> Path:
        """An entry of the cache that was made with the task and with ``dataset``; where these
        can be told again.
        """
        task = unfollowed_text(f"the task '{self.subject.model.task.name:.60}'", self._task_code)
        unknown = self.samples(dataset).unknown or task
        if unknown:
            return self._cache.passing_entry(
                kind, key, make, held=(self.subject.model.task,), why=unknown
            )
        return self._cache.entry(kind, key, make)

    def identity(self) -> dict[str, str]:
        """The digests that tell whether a stored reference is of this model, data and
        preprocessing.
        """
        data = {f"data:{name}": dataset.digest for name, dataset in self.subject.data.items()}
        return {
            "model": self.model_digest,
            "preprocessing": digest_plain(
                [self.subject.model.preprocess.name, self.subject.model.task.name]
            ),
            **data,
        }

    def reference(self) -> Mapping[str, Answers]:
        """Today's fp32 answers to every scored data set, from the cache when this very run was
        made before.
        """
        return {name: self._fp32_answers(dataset) for name, dataset in self.subject.data.items()}

    def _fp32_answers(self, dataset: Dataset) -> Answers:
        made_from = [self.model_digest, self.samples(dataset).key, *self._task_identity]
        identity = [made_from, self.fp32_backend.name, self._environment_class, FP32_VERSION]
        if self.subject.asks_likelihoods(dataset):
            identity.append("likelihoods")
        name = f"{digest_plain(identity)}.npz"
        path = self._entry("fp32", name, lambda path: self._run_fp32(dataset, path), dataset)
        try:
            stored = stored_run(read_archive(path, most=current_limits().tensor_bytes))
        except TooLargeError as error:
            raise too_large(
                f"Reading the fp32 run '{path}'", "arrays", error.size, "tensor_bytes"
            ) from error
        return task_answers(self.subject.model.task, stored)

    def _run_fp32(self, dataset: Dataset, path: Path) -> None:
        answers = self.answer(self.fp32_backend, self.graphs, dataset, threads=1)
        with path.open("wb") as file:
            np.savez_compressed(file, **run_arrays(answers))

    def given_answers(self, backend: Backend, *, threads: int) -> Mapping[str, Answers]:
        """What ``backend`` answers to every scored data set with the graphs as they came
        quantized.
        """
        if backend.name not in self._given_answers:
            self._given_answers[backend.name] = {
                name: self.answer(backend, self.given.models, data, threads=threads)
                for name, data in self.subject.data.items()
            }
        return self._given_answers[backend.name]

    def answer(
        self, backend: Backend, graphs: Mapping[str, ir.Model], dataset: Dataset, *, threads: int
    ) -> Answers:
        """Load ``graphs`` into ``backend`` and let the task answer ``dataset``."""
        with working(f"{self.subject.model.id} on {backend.name}"), ExitStack() as stack:
            runners = prepare_runners(backend, graphs, stack, threads=threads)
            answers = answered(self.subject.model.task, runners, self.samples(dataset))
            return self.with_likelihoods(answers, runners, dataset)

    def with_likelihoods(
        self, answers: Answers, runners: Mapping[str, Executor], dataset: Dataset
    ) -> Answers:
        """``answers`` to ``dataset`` of ``runners``, with how likely its labels are where a
        metric asks.

        Raises:
            InputError: the task cannot compute it, or its graphs do not run.
        """
        if not self.subject.asks_likelihoods(dataset):
            return answers
        task = self.subject.model.task
        return answers.with_run(
            likelihoods=forced_likelihoods(task, runners, self.samples(dataset))
        )

    def profiles(
        self, pipeline: str = DEFAULT, *, channels: bool = False
    ) -> "Mapping[str, Profile]":
        """The profile of every graph over the calibration samples, taken once for all schemas
        of ``pipeline``.

        Pipelines that do the same before profiling share it. With ``channels`` it keeps extremes of
        channels too.
        """
        key = (CANONICAL[pipeline].watched, channels)
        if not len(self.subject.calibration):
            raise InputError(
                f"Calibrating '{self.subject.model.id}'",
                found="a subject without calibration samples",
                expected="samples that ranges are taken from, which this schema needs",
                remedy="Name calibration data, or choose a schema of weights only.",
            )
        from qbench.calibration import PROFILE_VERSION, Profile, prepare_watch, watched_values

        if key not in self._profiles:
            canonical = self.canonical(pipeline)
            watched = {
                name: [graph_digest(model), watched_values(model)]
                for name, model in canonical.items()
            }
            made_from = [watched, self.samples(self.subject.calibration).key, *self._task_identity]
            steps = [repr(step) for step in key[0]]
            made_by = [
                steps,
                self.fp32_backend.name,
                self._environment_class,
                digest_code(prepare_watch),
            ]
            identity = digest_plain([made_from, made_by, PROFILE_VERSION, channels])
            folder = self._entry(
                "profiles",
                identity,
                lambda path: self._calibrate(pipeline, path, channels),
                self.subject.calibration,
            )
            self._profiles[key] = {
                name: Profile.load(folder / f"{name}.json") for name in canonical
            }
        return self._profiles[key]

    def _calibrate(self, pipeline: str, folder: Path, channels: bool) -> None:
        folder.mkdir()
        with working(f"calibrating {self.subject.model.id}"):
            profiles = task_profiles(
                self.subject.model.task,
                self.canonical(pipeline),
                self.samples(self.subject.calibration),
                self.fp32_backend,
                pipeline=None,
                channels=channels,
            )
        for name, profile in profiles.items():
            profile.dump(folder / f"{name}.json")

    def quantized(self, schema: "Schema", capabilities: Capabilities) -> Quantized:
        """The graphs under ``schema`` for a backend of these capabilities; equal capabilities
        share them.
        """
        from qbench.passes import require_codes_inside
        from qbench.quantization import adjusted_on_samples, insert_qdq

        if schema.made_by is not None:
            return self._quantized_by(schema.made_by)
        key = (schema, capabilities)
        if key not in self._quantized:
            graphs = self.planned(schema.canonical)
            plans = self._plans(schema, capabilities, graphs)
            models = {name: insert_qdq(model, plans[name]) for name, model in graphs.items()}
            for model in models.values():
                require_codes_inside(model)
            if schema.bias_correction or schema.fits_weights:
                feeds = self.calibration_feeds
                models = {
                    name: adjusted_on_samples(graphs[name], one, plans[name], feeds[name])
                    for name, one in models.items()
                }
            self._quantized[key] = Quantized(models, plans)
        return self._quantized[key]

    def _quantized_by(self, quantizer: "Quantizer") -> Quantized:
        """The graphs that ``quantizer`` writes, for every backend the same; where it fails, it
        fails for each of them, and does not run again in this process.
        """
        if quantizer not in self.made_by_others:
            try:
                self.made_by_others[quantizer] = self._made_by(quantizer)
            except QbenchError as error:
                self.made_by_others[quantizer] = error
        found = self.made_by_others[quantizer]
        if isinstance(found, QbenchError):
            raise found
        return found

    def _made_by(self, quantizer: "Quantizer") -> Quantized:
        from qbench.quantization import read_plan

        self.require_float()
        runs = {name: read_run(self._run_by(quantizer, name)) for name in self.graphs}
        models = {name: self._sized(model) for name, (model, _) in runs.items()}
        note = joined_note([note for _, note in runs.values()])
        return Quantized(models, {n: read_plan(model) for n, model in models.items()}, note)

    def _sized(self, model: ir.Model) -> ir.Model:
        main = next(iter(self.subject.data.values()))
        return with_usual_sizes(model, lambda: self.samples(main))

    def _run_by(self, quantizer: "Quantizer", graph: str) -> Path:
        """The entry of the cache with what ``quantizer`` made of one graph."""
        calibration = self.subject.calibration
        doing = f"Quantizing '{self.subject.model.id}' by '{quantizer.name}'"
        if quantizer.takes_samples and not len(calibration):
            raise InputError(
                doing,
                found="a subject without calibration samples",
                expected="samples, which this quantizer takes",
                remedy="Name calibration data.",
            )
        model = self.graphs[graph]
        identity = graph_digest(model)
        fed = self._digest_of_feeds(graph, doing) if quantizer.takes_samples else ""
        key = digest_plain([identity, fed, quantizer.digest, self._twice, RUN_VERSION])

        def make(entry: Path) -> None:
            taken = quantizer.takes_samples
            samples = self._stacked(graph, doing) if taken else {}
            task = QuantizerTask(
                quantizer=quantizer,
                model=model,
                samples=samples,
                what=self.subject.model.id,
                identity=identity,
                twice=self._twice,
            )
            run_quantizer(task, entry, self._cache)

        with self._cache.alone("quantized", key):  # two processes run it once
            return self._cache.entry("quantized", key, make)

    def _stacked(self, graph: str, doing: str) -> dict[str, Array]:
        """The samples that a quantizer receives for ``graph``."""
        remedy = "Measure this model under a schema of qbench."
        return stacked(self.calibration_feeds[graph], doing, remedy)

    def _digest_of_feeds(self, graph: str, doing: str) -> str:
        """Of the samples that a quantizer receives for ``graph``.

        The backend that runs the float model feeds the later ones of several graphs. A lone graph
        is fed the same by each, so that its quantized file is the same for all backends.
        """
        calibration = self.subject.calibration
        made_from = [self.model_digest, self.samples(calibration).key, *self._task_identity]
        made_by = [self.fp32_backend.name, self._environment_class]

        def make(path: Path) -> None:
            digest = digest_arrays(self._stacked(graph, doing))
            path.write_text(digest, encoding="utf-8")

        key = digest_plain([graph, made_from, made_by, STACKED_VERSION, RUN_VERSION])
        return self._entry("fed", key, make, calibration).read_text(encoding="utf-8")

    def forget(self, schema: "Schema", capabilities: Capabilities) -> None:
        """Release the graphs under ``schema``: a search makes many that are used once."""
        self._quantized.pop((schema, capabilities), None)

    def _plans(
        self, schema: "Schema", capabilities: Capabilities, graphs: Mapping[str, ir.Model]
    ) -> "dict[str, Plan]":
        from qbench.quantization import Ranges, make_plan

        by_graph = dict.fromkeys(graphs, schema)
        if schema.by_hand is not None:
            hands = schema.by_hand.of_graphs(graphs)
            by_graph = {name: schema.with_ranges(hands[name]) for name in graphs}
        if not schema.needs_profile and not len(self.subject.calibration):
            return {
                name: make_plan(model, None, by_graph[name], capabilities=capabilities)
                for name, model in graphs.items()
            }
        profiles = self.profiles(schema.canonical, channels=schema.wants_channels)
        ranges = self._ranges.setdefault(
            (CANONICAL[schema.canonical].watched, schema.wants_channels),
            {name: Ranges(profile) for name, profile in profiles.items()},
        )
        return {
            name: make_plan(
                model,
                profiles[name],
                by_graph[name],
                capabilities=capabilities,
                ranges=ranges[name],
            )
            for name, model in graphs.items()
        }

    @cached_property
    def calibration_feeds(self) -> Mapping[str, Sequence[Feeds]]:
        """The batches that every graph is fed while the float model answers the calibration
        samples.
        """
        with ExitStack() as stack:
            runners = prepare_runners(self.fp32_backend, self.graphs, stack, threads=1)
            return recorded_feeds(
                self.subject.model.task, runners, self.samples(self.subject.calibration)
            )
