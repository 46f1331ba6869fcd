"""Watching an executor: every watched value of every run is folded; attention masks are
recognized.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Closing, Executor, Feeds, in_slices, isolated
from qbench.calibration.float_bins import Counter
from qbench.calibration.observer import Observer, not_finite
from qbench.calibration.profile import Profile, note_sample
from qbench.calibration.statistics import Statistics
from qbench.calibration.watched import Rows, WatchedValue, watched_values
from qbench.errors import InputError
from qbench.graph import constant_value, graph_digest, is_constant, node_key, op_spec
from qbench.passes import DEFAULT, canonicalize

# Attention masks: numbers so far below all others that a Softmax makes them 0, and the values that
# hold them.
#
#     scores + (0 | −1e9)    Where(keep, scores, −Inf)    Min(scores, mask)
#     scores − (1 − keep) · 1e9
#
# A range that covers such numbers leaves all others less than one step, so a value that holds them
# is better in float. Calibration shows which values these are, among those that are added, chosen
# or moved on their way into a Softmax:
#
#     −Inf, or numbers below −50 under a gap that is at least twice as wide as everything above it
#
# Calibration on samples without padding shows no masked entries. So two more are taken for masks: a
# computed or fed operand that was 0 throughout, and a Where that chooses between scores and a
# constant below −50.

_FORGETTING = frozenset({"Exp", "LogSoftmax", "Softmax"})
"""Operators of whose result nothing of a masked entry is left, but 0 (of LogSoftmax: the masked
entry itself).
"""
_ON_THE_WAY = frozenset(
    {"Add", "Cast", "Clip", "Div", "Max", "Min", "Mul", "Neg", "Sub", "Sum", "Where"}
)
_BELOW = 50.0
"""exp(−50) is 2e-22: nothing in codes of 16 bits, nor compared with 1 in float32."""
_GAP = 2.0


def score_nodes(graph: ir.Graph) -> dict[ir.Node, str]:
    """The nodes whose results are added, chosen or moved on their way into a Softmax, in graph
    order, and its name.
    """
    found: dict[ir.Value, str] = {}
    nodes = list(graph)
    for node in reversed(nodes):
        if node.domain == "" and node.op_type in _FORGETTING and node.inputs[0] is not None:
            found.setdefault(node.inputs[0], node_key(node))
            if node.op_type == "LogSoftmax":
                found.setdefault(node.outputs[0], node_key(node))
        elif name := next((found[v] for v in node.outputs if v in found), ""):
            found.update({value: name for value in _operands(node) if value not in found})
    return {
        node: name
        for node in nodes
        if (name := next((found[v] for v in node.outputs if v in found), ""))
    }


def score_inputs(graph: ir.Graph) -> frozenset[str]:
    """The names of the graph's inputs that are added to scores, where −Inf is a mask and not a
    mistake.
    """
    read = {value for node in score_nodes(graph) for value in _operands(node)}
    return frozenset(value.name or "" for value in graph.inputs if value in read)


def masked_values(graph: ir.Graph, seen: Mapping[str, Statistics]) -> dict[str, str]:
    """The names of values that hold an attention mask, and how that shows.

    Args:
        graph: canonical.
        seen: value name → what calibration saw.
    """
    found: dict[str, str] = {}
    hidden: dict[ir.Value, str] = {}
    for node, softmax in score_nodes(graph).items():
        operands = [value for value in _operands(node) if not is_constant(value)]
        for value in (*operands, *node.outputs):
            statistics = seen.get(value.name or "")
            if statistics is not None and (how := _mask_in(statistics)):
                found[value.name or ""] = (
                    f"'{value.name}' holds an attention mask, {how}, which '{softmax}' makes 0"
                )
            if (
                statistics is not None
                and statistics.count
                and statistics.low == 0 == statistics.high
            ):
                hidden.setdefault(value, f"'{value.name}' was 0 throughout calibration")
        if why := next(
            (hidden[value] for value in operands if value in hidden), ""
        ) or _masking_constant(node):
            hidden.update({value: why for value in node.outputs if value not in hidden})
    for value, why in hidden.items():
        found.setdefault(value.name or "", f"'{value.name}' can hold an attention mask: {why}")
    return found


def _operands(node: ir.Node) -> list[ir.Value]:
    """What ``node`` adds, chooses between or moves; nothing of other operators."""
    if node.domain:
        return []
    if op_spec(node).moved == (0,):
        found = node.inputs[:1]
    elif node.op_type in _ON_THE_WAY:
        found = node.inputs
    else:
        return []
    return [value for value in found if value is not None]


def _mask_in(statistics: Statistics) -> str:
    """What of ``statistics`` shows masked entries; empty where nothing does."""
    if statistics.negative_infinite:
        return f"−Inf {statistics.negative_infinite:,} times"
    if not statistics.count or statistics.low > -_BELOW:
        return ""
    points = statistics.distribution().points
    lower, upper = points[:-1], points[1:]
    gaps = (lower <= -_BELOW) & (upper - lower >= np.maximum(_BELOW, _GAP * (points[-1] - upper)))
    return f"numbers down to {statistics.low:.4g}" if gaps.any() else ""


def _masking_constant(node: ir.Node) -> str:
    """Which constant of a Where is a mask, in words; empty where none is."""
    if node.op_type != "Where":
        return ""
    for value in node.inputs[1:]:
        array = constant_value(value)
        if array is not None and array.size and array.dtype.kind == "f" and array.min() <= -_BELOW:
            return f"'{node_key(node)}' writes {float(array.min()):.4g} into it"
    return ""


# An executor whose runs are folded into a profile: every watched value of every run.

# Constants are checked for NaN first, so that the error names the model and not the data; ±Inf is
# allowed, as masks contain it.

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def refuse_nan(model: ir.Model) -> None:
    """Check that no float constant of ``model`` holds NaN.

    Raises:
        InputError: one does; it is named.
    """
    for name, tensor in _constants(model):
        if tensor.dtype in _FLOATS and np.isnan(tensor.numpy()).any():
            raise InputError(
                f"Calibrating the model '{model.graph.name}'",
                found=f"NaN in its constant '{name}'",
                expected="numbers",
                remedy="Correct the model: every result that depends on the constant is NaN.",
            )


def _constants(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.name or "", value.const_value
        for node in graph:
            attribute = node.attributes.get("value") if node.op_type == "Constant" else None
            if attribute is not None and attribute.type is ir.AttributeType.TENSOR:
                yield node.outputs[0].name or "", attribute.as_tensor()


# A task runs a Watch like any executor and gets the plain outputs, so that decode loops are
# calibrated by running them. Rows of a run are samples; a row's key is its id, if ids are given,
# else the digest of its feeds. Rows are run one at a time (``Rows``).


class Watch(Closing):
    """An executor of a canonical graph whose runs are folded into a profile; a context manager
    that closes it.

    Args:
        executor: runs the graph and returns its outputs and every value in ``values`` (its taps).
        model: the canonical graph that ``executor`` runs.
        values: the watched values, as ``watched_values`` gives them.
        sample_ids: of the rows to come, in their order; None: rows are identified by content.
        channels: keep extremes of every channel of the values too.
    """

    def __init__(
        self,
        executor: Executor,
        model: ir.Model,
        values: Sequence[WatchedValue],
        sample_ids: Iterable[str] | None = None,
        *,
        channels: bool = False,
    ) -> None:
        self._executor = in_slices(executor, model)
        self._graph = graph_digest(model)
        self._batches = Rows.of(model)
        self._outputs = tuple(value.name or "" for value in model.graph.outputs)
        fed = {value.name for value in model.graph.inputs} - score_inputs(model.graph)
        guarded = {
            node.inputs[0].name
            for node in model.graph
            if node.op_type == "IsNaN" and node.inputs[0]
        }
        counter, alone = Counter(), self._batches.size == 1
        self._observers = {
            value.name: Observer(
                value,
                counter,
                alone=alone,
                fed=value.name in fed,
                guarded=value.name in guarded,
                channels=channels,
            )
            for value in values
        }
        self._ids = None if sample_ids is None else iter(sample_ids)
        self._samples: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._half_folded = False

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, sample by sample: folds the watched values, returns the graph's own outputs.

        Raises:
            InputError: NaN in a watched value, NaN or Inf in what is fed, a missing tap, more rows
                than sample ids.
        """
        count = self._batches.count(feeds)
        contents = self._batches.digests(feeds, count)
        keys = contents if self._ids is None else self._next_ids(count)
        outputs, whole = [], not self._half_folded
        for start, stop, part in self._batches.parts(feeds, count):
            results = self._executor.run(part)
            self._half_folded = True
            self._fold(part, results, keys[start:stop])
            outputs.append({name: results[name] for name in self._outputs})
        for key, content in zip(keys, contents, strict=True):
            note_sample(self._samples, key, content)
            self._times[key] = self._times.get(key, 0) + 1
        self._half_folded = not whole
        return self._batches.joined(outputs, self._outputs)

    def _fold(self, feeds: Feeds, results: Mapping[str, Array], keys: Sequence[str]) -> None:
        for name, array in feeds.items():
            if (
                name not in self._observers
                and array.dtype.kind == "f"
                and not np.isfinite(array).all()
            ):
                raise not_finite(name, " or ".join(keys), fed=True)
        for name, observer in self._observers.items():
            value = feeds.get(name) if name in feeds else results.get(name)
            if value is None:
                raise _missing_tap(name)
            observer.fold(np.asarray(value), keys)

    @property
    def _rows(self) -> int:
        return sum(self._times.values())

    def profile(self) -> Profile:
        """The profile of everything run so far.

        Raises:
            InputError: nothing was run, or a batch failed halfway: it counted samples that are not
                listed.
        """
        if self._half_folded:
            raise InputError(
                "Calibrating",
                found="a batch that failed after some of its numbers were counted",
                expected="batches that ran to their end",
                remedy="Correct or remove the sample, and calibrate again.",
            )
        if not self._rows:
            raise InputError(
                "Calibrating",
                found="no samples",
                expected="at least one batch",
                remedy="Give calibration samples.",
            )
        samples = dict(sorted(self._samples.items()))
        values = {
            name: observer.statistics(tuple(samples)) for name, observer in self._observers.items()
        }
        repeats = {key: times for key, times in self._times.items() if times > 1}
        return Profile(self._graph, samples, self._rows, values, repeats)

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()

    def _next_ids(self, count: int) -> list[str]:
        assert self._ids is not None
        found = [str(name) for _, name in zip(range(count), self._ids, strict=False)]
        if len(found) < count:
            raise InputError(
                "Calibrating",
                found=f"more samples than ids ({self._rows + len(found)} ids)",
                expected="an id for every sample",
                remedy="Give as many sample ids as samples.",
            )
        return found


def prepare_watch(
    model: ir.Model,
    backend: Backend,
    *,
    values: Iterable[str] | None = None,
    sample_ids: Iterable[str] | None = None,
    threads: int = 1,
    pipeline: str | None = DEFAULT,
    channels: bool = False,
) -> Watch:
    """A Watch over ``model`` in its canonical form on ``backend``, with the taps it needs.

    Args:
        model: float graph.
        backend: whose float arithmetic makes the values.
        values: names of values of the canonical graph; None: all that some schema could use.
        sample_ids: of the rows to come.
        threads: of the executor.
        pipeline: the canonical passes, as the schemas that will use the profile name them; None:
            they ran already.
        channels: keep extremes of every channel of the values too.

    Raises:
        InputError: an unknown value or pipeline, NaN in a constant. What ``prepare`` raises passes
            through.
    """
    refuse_nan(model)
    canonical = model if pipeline is None else canonicalize(model, pipeline)
    watched = watched_values(canonical, values)
    given = {value.name for value in (*canonical.graph.inputs, *canonical.graph.outputs)}
    taps = tuple(value.name for value in watched if value.name not in given)
    executor = isolated(backend).prepare(canonical, taps=taps, threads=threads)
    return Watch(executor, canonical, watched, sample_ids, channels=channels)


def _missing_tap(name: str) -> InputError:
    return InputError(
        f"Watching value '{name}'",
        found="an executor that does not return it",
        expected="an executor prepared with every watched value as a tap",
        remedy="Prepare it on the canonical graph with taps=[…], or leave executor out.",
    )
