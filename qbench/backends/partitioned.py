"""partitioned-<device>: islands on the integer interpreter, the rest on ONNX Runtime."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from qbench.backends.execution import EngineExecutor, executed_as_written
from qbench.backends.feeds import FeedCheck, loaded, require_taps
from qbench.backends.ort import OrtBackend
from qbench.backends.protocol import (
    Array,
    Backend,
    Executed,
    Executor,
    Feeds,
    device_of,
    executed_by,
)
from qbench.errors import InputError
from qbench.graph import Capabilities, constant_value, values_by_name
from qbench.interpreter import BatchError, Counters, Means, Program
from qbench.numerics import Arithmetic, get_arithmetic
from qbench.passes import Device, Partition, Place, partition_model, read_partition

PREFIX = "partitioned-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedBackend:
    """A device that computes islands of a graph, and a host that runs the rest.

    Args:
        accelerator: computes the islands, by its description.
        host: runs the other sections.
        means: the implementation of sums in islands; None: the fastest one here. Results do not
            depend on it.
    """

    accelerator: Device
    host: Backend = field(default_factory=lambda: OrtBackend(name="ort-cpu"))
    means: Means | None = None

    @property
    def name(self) -> str:
        """``partitioned-`` and the device's name."""
        return PREFIX + self.accelerator.name

    @property
    def capabilities(self) -> Capabilities:
        """Those of the device: what it cannot quantize stays float, for the host."""
        return self.accelerator.capabilities

    @property
    def arithmetic(self) -> Arithmetic:
        """The device's, by which its islands are computed."""
        return self.accelerator.arithmetic

    @property
    def packages(self) -> tuple[str, ...]:
        """The host's."""
        return self.host.packages

    @property
    def device(self) -> str:
        """The host's: the islands are computed here, by the integer interpreter."""
        return device_of(self.host)

    @property
    def digests(self) -> Mapping[str, str]:
        """Those of the device's arithmetic and of its description."""
        return self.accelerator.digests

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """The sections of the partitioned ``model``, each prepared where it runs; taps may be
        values of any section.

        A tap in an island or at a border changes no number; a tap in a section of the host disables
        fusions there.

        Raises:
            InputError: not an ONNX model, a tap that names no value, or a multiplier that the
                device cannot hold.
            UnsupportedError: a graph that is not in QDQ form or has no operator for the device, or
                an operator that the host lacks.
            UnavailableError: the host's engine is not installed.
        """
        partition = partition_model(loaded(model), self.accelerator)
        nodes = [node for section in partition.sections for node in section.nodes]
        computed = [value for node in nodes for value in node.outputs]
        names = {value.name or "" for value in (*partition.model.graph.inputs, *computed)}
        doing = f"Tapping '{partition.model.graph.name}'"
        require_taps(
            taps, names, doing=doing, where="the partitioned graph ('qbench partition --json')"
        )
        steps = [
            self._step(partition, index, taps, threads) for index in range(len(partition.sections))
        ]
        return _PartitionedExecutor(
            self.accelerator.name,
            partition.model,
            steps,
            FeedCheck.of(partition.model, self.name),
            taps,
        )

    def _step(self, partition: Partition, index: int, taps: Sequence[str], threads: int) -> "_Step":
        section = partition.sections[index]
        model = section.model(partition.model, taps)
        runner = (
            self.host.prepare(model, threads=threads)
            if section.place is Place.HOST
            else Program(model, self.accelerator.arithmetic, (), self.means)
        )
        return _Step(
            runner, model, section.place, _names(model.graph.inputs), _names(model.graph.outputs)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One prepared section, and the names of its inputs and outputs."""

    runner: Executor | Program
    model: ir.Model
    place: Place
    reads: tuple[str, ...]
    gives: tuple[str, ...]


class _PartitionedExecutor(EngineExecutor[Sequence[_Step]]):
    """The executor of sections that run one after the other."""

    def __init__(
        self,
        device: str,
        model: ir.Model,
        steps: Sequence[_Step],
        check: FeedCheck,
        taps: Sequence[str],
    ) -> None:
        super().__init__(steps, check)
        self._device = device
        outputs = model.graph.outputs
        self._wanted = tuple(dict.fromkeys((*_names(outputs), *taps)))
        values = values_by_name(model)
        known = {name: constant_value(values[name]) for name in self._wanted}
        self._constants = {name: array for name, array in known.items() if array is not None}
        self._last = {name: index for index, step in enumerate(steps) for name in step.reads}
        programs = [step.runner for step in steps if isinstance(step.runner, Program)]
        self._counters = {
            node: counted for program in programs for node, counted in program.counters.items()
        }

    @property
    def counters(self) -> Mapping[str, Counters]:
        """Node of an island or a conversion → its events so far; still available after
        ``close``.
        """
        return self._counters

    def _answer(self, held: Sequence[_Step], arrays: dict[str, Array]) -> dict[str, Array]:
        values = self._constants | arrays
        for index, step in enumerate(held):
            values.update(self._run(step, {name: values[name] for name in step.reads}))
            for name in (*step.reads, *step.gives):
                if self._last.get(name, index) <= index and name not in self._wanted:
                    values.pop(name, None)
        return {name: np.asarray(values[name], order="C") for name in self._wanted}

    def _run(self, step: _Step, feeds: Feeds) -> dict[str, Array]:
        try:
            return step.runner.run(feeds)
        except BatchError as error:
            raise self._refusal(str(error)) from error

    def executed(self) -> Mapping[str, Executed]:
        """The nodes of islands on the device, conversions on the CPU, and the host's as it
        reports them.
        """
        found: dict[str, Executed] = {}
        for step in self._held or ():
            if isinstance(step.runner, Program):
                found |= executed_as_written(
                    step.model, self._device if step.place is Place.DEVICE else "cpu"
                )
            else:
                found |= executed_by(step.runner)
        return found

    def close(self) -> None:
        """Close the executors of the host, and release the programs."""
        for step in self._held or ():
            if not isinstance(step.runner, Program):
                step.runner.close()
        super().close()


def _names(values: Sequence[ir.Value]) -> tuple[str, ...]:
    return tuple(value.name or "" for value in values)


def open_partition(
    folder: Path | str,
    *,
    host: Backend | None = None,
    arithmetic: Arithmetic | None = None,
    threads: int = 1,
) -> Executor:
    """What runs the files of ``qbench partition -o``: the host graph on ``host``, each island from
    its file on the integer interpreter.

    Args:
        folder: of the files.
        host: runs the host graph; None: ONNX Runtime on the CPU.
        arithmetic: of the device; None: the one that the manifest names.
        threads: of the host.

    Raises:
        InputError: the folder holds no partition, or the arithmetic is another than that of the
            device.
        UnsupportedError: the host lacks an operator.
    """
    read = read_partition(folder)
    chosen = arithmetic or get_arithmetic(str(read.manifest.get("arithmetic")))
    digests = read.manifest.get("digests")
    known = digests.get("arithmetic") if isinstance(digests, dict) else None
    if known != chosen.digest:
        raise InputError(
            f"Running the partition '{folder}'",
            found=f"the arithmetic '{chosen.name}' with another digest than when it was written",
            expected="the arithmetic of the device",
            remedy="Write the partition again, or give the arithmetic that it was written for.",
        )
    runs_host = host or OrtBackend(name="ort-cpu")
    steps: list[_Step] = []
    for section in read.sections:
        if section.place is Place.DEVICE:
            steps += [_call(node, read.islands[node.op_type], chosen) for node in section.nodes]
            continue
        model = section.model(read.host)
        runner = (
            runs_host.prepare(model, threads=threads)
            if section.place is Place.HOST
            else Program(model, chosen, (), None)
        )
        reads, gives = _names(model.graph.inputs), _names(model.graph.outputs)
        steps.append(_Step(runner, model, section.place, reads, gives))
    device = str(read.manifest.get("device"))
    return _PartitionedExecutor(device, read.host, steps, FeedCheck.of(read.host, device), ())


def _call(node: ir.Node, island: ir.Model, arithmetic: Arithmetic) -> _Step:
    """One call of an island: its values have one name in both files."""
    reads, gives = _names(island.graph.inputs), _names(island.graph.outputs)
    if reads != _names([v for v in node.inputs if v is not None]) or gives != _names(node.outputs):
        raise InputError(
            f"Calling the island '{node.op_type}'",
            found=f"inputs and outputs {', '.join((*reads, *gives))} in its file",
            expected=", ".join(_names([v for v in (*node.inputs, *node.outputs) if v is not None])),
            remedy="Write the partition again.",
        )
    return _Step(Program(island, arithmetic, (), None), island, Place.DEVICE, reads, gives)


def run_partition(
    folder: Path | str, feeds: Feeds, *, arithmetic: Arithmetic | None = None
) -> Mapping[str, Array]:
    """Output → array, of one batch ``feeds`` through the files in ``folder`` (``open_partition``).

    Raises:
        What ``open_partition`` raises; InputError: feeds that do not fit.
    """
    with closing(open_partition(folder, arithmetic=arithmetic)) as run:
        return run.run(feeds)
