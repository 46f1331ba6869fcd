"""An executor whose runs are folded into a profile: every watched value of every run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Closing, Executor, Feeds, in_slices
from qbench.calibration.attention_masks import score_inputs
from qbench.calibration.float_bins import Counter
from qbench.calibration.observer import Observer, not_finite
from qbench.calibration.profile import Profile, note_sample
from qbench.calibration.watched import Rows, WatchedValue, watched_values
from qbench.errors import InputError
from qbench.graph import graph_digest
from qbench.passes import DEFAULT, canonicalize

# Constants are checked for NaN first, so that the error names the model and not the data; ±Inf is allowed, as masks
# contain it.

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


# A task runs a Watch like any executor and gets the plain outputs, so that decode loops are calibrated by running them.
# Rows of a run are samples; a row's key is its id, if ids are given, else the digest of its feeds. Rows are run one at
# a time (``Rows``).


class Watch(Closing):
    """An executor of a canonical graph whose runs are folded into a profile; a context manager that closes it.

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
        guarded = {node.inputs[0].name for node in model.graph if node.op_type == "IsNaN" and node.inputs[0]}
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
            InputError: NaN in a watched value, NaN or Inf in what is fed, a missing tap, more rows than sample ids.
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
            if name not in self._observers and array.dtype.kind == "f" and not np.isfinite(array).all():
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
            InputError: nothing was run, or a batch failed halfway: it counted samples that are not listed.
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
                "Calibrating", found="no samples", expected="at least one batch", remedy="Give calibration samples."
            )
        samples = dict(sorted(self._samples.items()))
        values = {name: observer.statistics(tuple(samples)) for name, observer in self._observers.items()}
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
        pipeline: the canonical passes, as the schemas that will use the profile name them; None: they ran already.
        channels: keep extremes of every channel of the values too.

    Raises:
        InputError: an unknown value or pipeline, NaN in a constant. What ``prepare`` raises passes through.
    """
    refuse_nan(model)
    canonical = model if pipeline is None else canonicalize(model, pipeline)
    watched = watched_values(canonical, values)
    given = {value.name for value in (*canonical.graph.inputs, *canonical.graph.outputs)}
    taps = tuple(value.name for value in watched if value.name not in given)
    executor = backend.prepare(canonical, taps=taps, threads=threads)
    return Watch(executor, canonical, watched, sample_ids, channels=channels)


def _missing_tap(name: str) -> InputError:
    return InputError(
        f"Watching value '{name}'",
        found="an executor that does not return it",
        expected="an executor prepared with every watched value as a tap",
        remedy="Prepare it on the canonical graph with taps=[…], or leave executor out.",
    )
