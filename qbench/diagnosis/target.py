"""What localization examines: a quantized graph on a backend, the float graph, and the
arithmetic it claims.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import onnx_ir as ir

from qbench.backends import (
    Backend,
    Feeds,
    IntegerBackend,
    Watchable,
    arithmetic_of,
    get_backend,
    in_slices,
    isolated,
    runs_as_written,
)
from qbench.errors import InputError
from qbench.evaluation import Quantized, Request, Rewriting, rewrite_quantized, steps_of
from qbench.graph import (
    constant_value,
    consumers,
    format_held_by,
    node_key,
    own_copy,
    producer,
    values_by_name,
)
from qbench.metrics import Differences, count_differences
from qbench.number_text import rough_percent
from qbench.passes import plannable

# Never add taps to the engine under test: they disable fusion and so change what it runs. An
# integer interpreter of the same arithmetic is watched in its place. How far its outputs are from
# the engine's is measured and reported.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target:
    """One quantized graph on one backend.

    Args:
        model: its name.
        graph: the name of the graph within the model.
        schema: the name of the quantization schema.
        original: the float graph that was quantized; values keep their names in ``quantized``.
        quantized: in QDQ form.
        backend: runs the quantized graph.
        watched: runs it with taps that change no number; ``backend`` itself where that is an
            integer interpreter.
        claims: an interpreter that ``backend`` must equal, where one is known and is not
            ``watched``.
        threads: of one engine.
        written, rewriting: the graph that the quantizer wrote, and the passes that made
            ``quantized`` from it; None: no pass ran.
    """

    model: str
    graph: str = "model"
    schema: str = ""
    original: ir.Model
    quantized: ir.Model
    backend: Backend
    watched: Backend
    claims: Backend | None = None
    threads: int = 1
    written: ir.Model | None = None
    rewriting: Rewriting | None = None

    @property
    def is_watched_itself(self) -> bool:
        """Whether taps on the backend itself change no number."""
        return self.watched is self.backend


def watches_itself(backend: Backend) -> bool:
    """Whether taps on ``backend`` change no number, as on an integer interpreter."""
    return isinstance(backend, Watchable)


def watched_backend(backend: Backend) -> Backend | None:
    """The backend to watch for ``backend``: itself where taps change no number, else an
    interpreter of its arithmetic.

    None: ``backend`` declares no arithmetic.
    """
    if watches_itself(backend) or runs_as_written(backend):
        return backend
    arithmetic = arithmetic_of(backend)
    return None if arithmetic is None else IntegerBackend(arithmetic=arithmetic)


FAR = 0.05
"""Share of the largest output: ties under another order of sums may move an output by some
steps of 8 bits.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The outputs of ``watched`` compared with those of ``engine``.

    Args:
        samples: number that both ran; 0: they are the same backend.
        found: the differences of their outputs.
    """

    engine: str
    watched: str
    samples: int = 0
    found: Differences = field(default_factory=Differences)

    @property
    def is_exact(self) -> bool:
        """Whether no output differs."""
        return not self.found.differing

    @property
    def strays(self) -> bool:
        """Whether they are so far apart that results for one may not hold for the other."""
        return self.found.unbounded > 0 or self.found.relative > FAR

    @property
    def sentence(self) -> str:
        """The comparison in one sentence, for a report."""
        if not self.samples:
            return f"'{self.watched}' is watched itself: taps change no number there"
        over = (
            f"{self.found.elements} outputs over {self.samples} "
            f"{'sample' if self.samples == 1 else 'samples'}"
        )
        if self.is_exact:
            return (
                f"'{self.watched}' is watched in place of '{self.engine}': equal to it bit for bit "
                f"in {over}"
            )
        return (
            f"'{self.watched}' is watched in place of '{self.engine}': {self.found.differing} of "
            f"{over} differ, {bound_of(self.found)}"
        )


def bound_of(found: Differences) -> str:
    """The size of the differences of outputs, in words."""
    if found.unbounded:
        return f"{found.unbounded} of them without bound"
    share = f"{rough_percent(found.relative)} of the largest"
    if found.steps is None:
        return f"by at most {share}"
    unit = "step" if found.steps == 1 else "steps"
    return f"by at most {found.steps:.3g} {unit}, {share}"


def match_outputs(target: Target, batches: Iterable[Feeds]) -> Matched:
    """The outputs of the watched backend compared with those of its engine; neither is tapped.

    Raises:
        QbenchError: one of the two does not run the graph.
    """
    engine, watched = target.backend.name, target.watched.name
    if target.is_watched_itself:
        return Matched(engine=engine, watched=watched)
    model = target.quantized
    outputs = tuple(steps_of(value) for value in model.graph.outputs)
    found, samples = Differences(), 0
    with ExitStack() as stack:
        ours, theirs = (
            in_slices(
                stack.enter_context(isolated(backend).prepare(model, threads=target.threads)), model
            )
            for backend in (target.watched, target.backend)
        )
        for feeds in batches:
            one, other = ours.run(feeds), theirs.run(feeds)
            for output in outputs:
                array = one[output.name]
                found = found.joined(
                    count_differences(array, other[output.name], output.broadcast(array.ndim))
                )
            samples += sample_count(feeds)
    return Matched(engine=engine, watched=watched, samples=samples, found=found)


def sample_count(feeds: Feeds) -> int:
    """How many samples a batch has: the length of its longest first axis."""
    return max((len(feed) for feed in feeds.values() if feed.ndim), default=1)


AS_WRITTEN = "ort-cpu-noopt"
"""The backend to watch for an engine that declares no arithmetic: it computes in float32 and
fuses nothing.
"""


def quantized_of(request: Request) -> Quantized:
    """The graphs that the cell of ``request`` runs.

    Raises:
        InputError: the cell runs the float model.
        QbenchError: they cannot be made.
    """
    written = _written(request)
    return (
        written
        if request.rewriting is None
        else rewrite_quantized(written, request.rewriting).quantized
    )


def _written(request: Request) -> Quantized:
    """The graphs as the quantizer wrote them, before the passes of the request."""
    if request.cell.is_given:
        return request.shared.given
    if request.schema is None:
        raise InputError(
            f"Localizing '{request.cell}'",
            found="the float model",
            expected=(
                "a quantized model: localization compares a quantized graph with its float graph"
            ),
            remedy="Name a schema.",
        )
    return request.shared.quantized(request.schema, request.backend.capabilities)


_CLIPS = ("Relu", "Clip")
FOLDED = "qbench_folded_into"
"""Metadata: the operator into whose range a tool folded this Relu or Clip, whose result is that
operator's then.
"""


def _with_folded_clips(lifted: ir.Model, partner: ir.Model) -> ir.Model:
    """``lifted`` with each Relu or Clip of its float partner that a tool folded into the range
    of a value.

    Such a tool removes the operator, as the ends of the range clip the value; without it the float
    graph would compute other numbers than the quantized one means.
    """
    theirs, copy = values_by_name(partner), own_copy(lifted)
    ours = values_by_name(copy)
    for name, value in ours.items():
        maker, clip = value.producer(), _folded_clip(theirs.get(name), ours)
        if maker is None or clip is None or maker.op_type in _CLIPS:
            continue
        ends = [constant_value(one) for one in clip.inputs[1:]]
        if any(
            end is None and one is not None for end, one in zip(ends, clip.inputs[1:], strict=True)
        ):
            continue  # ends that are computed are not those of a range
        bounds = [
            None if end is None else ir.val(f"{name}_end_{place}", const_value=ir.tensor(end))
            for place, end in enumerate(ends)
        ]
        for bound in bounds:
            if bound is not None:
                copy.graph.register_initializer(bound)
        value.name = f"{name}_unclipped"
        node = ir.node(clip.op_type, [value, *bounds], clip.attributes, name=f"{name}_clipped")
        (result,) = node.outputs
        result.name, result.shape, result.type = name, value.shape, value.type
        ir.convenience.replace_all_uses_with(value, result, replace_graph_outputs=True)
        node.replace_input_with(0, value)
        node.metadata_props[FOLDED] = node_key(maker)
        copy.graph.insert_after(maker, node)
    return copy


def _folded_clip(value: ir.Value | None, ours: Mapping[str, ir.Value]) -> ir.Node | None:
    """The Relu or Clip that computes ``value`` of the partner, or alone reads it and has left
    no value in ``ours``.
    """
    maker = producer(value)
    if value is None or (maker is not None and maker.op_type in _CLIPS):
        return maker
    readers = [node for node, place in consumers(value) if place == 0]
    if len(readers) != 1 or len(value.uses()) != 1 or readers[0].op_type not in _CLIPS:
        return None
    return None if readers[0].outputs[0].name in ours else readers[0]


def targets_of(request: Request) -> Mapping[str, Target]:
    """Graph → target, in the order of the model's graphs.

    Raises:
        InputError: the cell runs the float model, or a file of another format as it came.
        QbenchError: its graphs cannot be made.
    """
    quantized = quantized_of(request)
    formats = {
        held for model in quantized.models.values() if (held := format_held_by(model)) is not None
    }
    if formats:
        raise InputError(
            f"Localizing in '{request.cell}'",
            found=f"a '.{min(formats)}' file, of which no engine returns the values inside",
            expected="an ONNX graph",
            remedy="Localize the ONNX file that it was written from, on the same backend.",
        )
    written = {} if request.rewriting is None else _written(request).models
    watched = watched_backend(request.backend) or get_backend(AS_WRITTEN)
    comparator = request.comparator
    must_equal = (
        comparator is not None
        and comparator.criterion.is_exact
        and watches_itself(comparator.backend)
    )
    if request.is_by_others:
        partners = request.subject.model.graphs
        originals = {
            name: _with_folded_clips(plannable(model), partners[name]())
            for name, model in _written(request).models.items()
        }
    else:
        assert request.schema is not None
        originals = dict(request.shared.planned(request.schema.canonical))
    return {
        name: Target(
            model=request.cell.model,
            graph=name,
            schema=request.cell.schema,
            original=originals[name],
            quantized=model,
            backend=request.backend,
            watched=watched,
            claims=comparator.backend if comparator is not None and must_equal else None,
            threads=request.threads,
            written=written.get(name),
            rewriting=request.rewriting,
        )
        for name, model in quantized.models.items()
    }
