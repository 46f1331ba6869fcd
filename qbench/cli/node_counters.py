"""``qbench eval --counters``: what an integer machine clipped, wrapped and saturated, node by node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.printing import print_columns, put
from qbench.errors import InputError
from qbench.number_text import rough_percent

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Backend, Counting, Executor
    from qbench.graph import Capabilities
    from qbench.interpreter import Counters
    from qbench.numerics import Arithmetic


@dataclass(frozen=True, slots=True)
class CountedBackend:
    """``machine``, keeping the counters of what it prepared."""

    machine: "Backend"
    prepared: "list[tuple[str, Counting]]" = field(default_factory=list)

    @property
    def name(self) -> str:
        """The machine's own: it gives the same numbers."""
        return self.machine.name

    @property
    def capabilities(self) -> "Capabilities":
        """What graphs it takes."""
        return self.machine.capabilities

    @property
    def arithmetic(self) -> "Arithmetic | None":
        """By which it counts."""
        from qbench.backends import arithmetic_of

        return arithmetic_of(self.machine)

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions whose versions it counts with."""
        return self.machine.packages

    @property
    def digests(self) -> Mapping[str, str]:
        """What it counts by."""
        from qbench.backends import HasRuleDigests

        return self.machine.digests if isinstance(self.machine, HasRuleDigests) else {}

    def prepare(self, model: "ir.Model | Path | str", *, taps: Sequence[str] = (), threads: int = 1) -> "Executor":
        """What the machine prepares.

        Raises:
            QbenchError: what the machine raises.
        """
        from qbench.backends import Counting

        executor = self.machine.prepare(model, taps=taps, threads=threads)
        assert isinstance(executor, Counting)
        graph = model.graph.name if not isinstance(model, Path | str) else str(model)
        self.prepared.append((graph or f"graph {len(self.prepared)}", executor))
        return executor

    @property
    def counters(self) -> "dict[str, Mapping[str, Counters]]":
        """Graph → node → what happened there."""
        return {graph: executor.counters for graph, executor in self.prepared}


def counted_backend(backend: "Backend") -> CountedBackend:
    """``backend`` with every event counted.

    Raises:
        InputError: it is none of our integer machines, and tells nothing of what it does.
    """
    from qbench.backends import CountsEvents

    if not isinstance(backend, CountsEvents):
        raise InputError(
            f"Counting what happens in '{backend.name}'",
            found="a backend that tells nothing of it",
            expected="one of our integer machines",
            remedy="Choose integer-… (qbench list backends), or leave --counters out.",
        )
    return CountedBackend(backend.counting_events())


def counters_table(counted: CountedBackend) -> dict[str, dict[str, dict[str, int]]]:
    """Graph → node → event → how often, plain; nodes that count nothing are left out."""
    from qbench.storage import plain

    every: dict[str, Any] = plain(counted.counters)
    return {
        graph: {node: events for node, events in nodes.items() if any(events.values())}
        for graph, nodes in every.items()
    }


def print_counters(counted: CountedBackend) -> None:
    """One line a node at which something happened, worst first."""
    table, arithmetic = counters_table(counted), counted.arithmetic
    overflow = "" if arithmetic is None else arithmetic.accumulator.overflow.value
    verb = {"wrap": "sums wrapped", "saturate": "sums saturated"}.get(overflow, "sums overflowed")
    for graph, nodes in table.items():
        seen = {node: events for node, events in nodes.items() if any(_badness(events))}
        where = f" of '{graph}'" if len(table) > 1 else ""
        put()
        put(f"counted{where}: {len(seen)} of {len(nodes)} nodes clipped, overflowed or saturated")
        if seen:
            ordered = sorted(seen.items(), key=lambda item: _badness(item[1]), reverse=True)
            header = ("node", "results", "pairs saturated", verb, "clipped high", "clipped low")
            print_columns([_line(node, events) for node, events in ordered], header)
    put("clipped low is what a Relu does, too; nodes that count nothing (tables, pools, moves) are not listed")


def _badness(events: Mapping[str, int]) -> tuple[int, int, int]:
    return events["saturated"] + events["overflowed"], events["clipped_high"], events["clipped_low"]


def _line(node: str, events: Mapping[str, int]) -> tuple[str, ...]:
    def share(count: int) -> str:
        return f"{count} ({rough_percent(count / events['levels'])})" if count and events["levels"] else str(count)

    ends = (share(events[name]) for name in ("clipped_high", "clipped_low"))
    return node, str(events["levels"]), str(events["saturated"]), str(events["overflowed"]), *ends
