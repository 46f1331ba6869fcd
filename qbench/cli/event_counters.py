"""``qbench eval --counters``: how often an integer backend clipped, wrapped and saturated, node
by node.
"""

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
    """``backend``, which also keeps the counters of everything that it prepared."""

    backend: "Backend"
    prepared: "list[tuple[str, Counting]]" = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the backend itself, because the numbers are the same."""
        return self.backend.name

    @property
    def capabilities(self) -> "Capabilities":
        """The graphs that the backend takes."""
        return self.backend.capabilities

    @property
    def arithmetic(self) -> "Arithmetic | None":
        """The arithmetic of the backend."""
        from qbench.backends import arithmetic_of

        return arithmetic_of(self.backend)

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions with whose versions the backend computes."""
        return self.backend.packages

    @property
    def device(self) -> str:
        """The device of the backend."""
        from qbench.backends import device_of

        return device_of(self.backend)

    @property
    def digests(self) -> Mapping[str, str]:
        """The digests of the rules of the backend."""
        from qbench.backends import HasRuleDigests

        if isinstance(self.backend, HasRuleDigests):
            return self.backend.digests
        return {}

    def prepare(
        self, model: "ir.Model | Path | str", *, taps: Sequence[str] = (), threads: int = 1
    ) -> "Executor":
        """The executor that the backend prepares; its counters are kept.

        Raises:
            QbenchError: what the backend raises.
        """
        from qbench.backends import Counting

        executor = self.backend.prepare(model, taps=taps, threads=threads)
        assert isinstance(executor, Counting)
        name = str(model) if isinstance(model, Path | str) else model.graph.name
        self.prepared.append((name or f"graph {len(self.prepared)}", executor))
        return executor

    @property
    def counters(self) -> "dict[str, Mapping[str, Counters]]":
        """Graph → node → counters."""
        return {graph: executor.counters for graph, executor in self.prepared}


def counted_backend(backend: "Backend") -> CountedBackend:
    """``backend`` with every event counted.

    Raises:
        InputError: it is not an integer backend, so it counts no events.
    """
    from qbench.backends import CountsEvents

    if not isinstance(backend, CountsEvents):
        raise InputError(
            f"Counting what happens in '{backend.name}'",
            found="a backend that counts no events",
            expected="an integer backend",
            remedy="Choose integer-… (qbench list backends), or leave --counters out.",
        )
    return CountedBackend(backend.counting_events())


def counters_table(counted: CountedBackend) -> dict[str, dict[str, dict[str, int]]]:
    """Graph → node → event → count, as plain values; a node whose counts are all 0 is left out."""
    from qbench.storage import plain

    every: dict[str, Any] = plain(counted.counters)
    return {
        graph: {node: events for node, events in nodes.items() if any(events.values())}
        for graph, nodes in every.items()
    }


def print_counters(counted: CountedBackend) -> None:
    """One line per node that clipped, overflowed or saturated, worst first."""
    table = counters_table(counted)
    sums = _name_of_overflows(counted.arithmetic)
    for graph, nodes in table.items():
        seen = {node: events for node, events in nodes.items() if any(_badness(events))}
        where = f" of '{graph}'" if len(table) > 1 else ""
        put()
        put(f"counted{where}: {len(seen)} of {len(nodes)} nodes clipped, overflowed or saturated")
        if seen:
            ordered = sorted(seen.items(), key=lambda item: _badness(item[1]), reverse=True)
            header = ("node", "results", "pairs saturated", sums, "clipped high", "clipped low")
            print_columns([_line(node, events) for node, events in ordered], header)
    put(
        "clipped low includes the values that a Relu clips; nodes without counters (tables, pools, "
        "moves) are not listed"
    )


def _name_of_overflows(arithmetic: "Arithmetic | None") -> str:
    overflow = "" if arithmetic is None else arithmetic.accumulator.overflow.value
    return {"wrap": "sums wrapped", "saturate": "sums saturated"}.get(overflow, "sums overflowed")


def _badness(events: Mapping[str, int]) -> tuple[int, int, int]:
    return events["saturated"] + events["overflowed"], events["clipped_high"], events["clipped_low"]


def _line(node: str, events: Mapping[str, int]) -> tuple[str, ...]:
    results = events["levels"]  # stored name
    return (
        node,
        str(results),
        str(events["saturated"]),
        str(events["overflowed"]),
        _with_share(events["clipped_high"], results),
        _with_share(events["clipped_low"], results),
    )


def _with_share(count: int, results: int) -> str:
    if not count or not results:
        return str(count)
    return f"{count} ({rough_percent(count / results)})"
