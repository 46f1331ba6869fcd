"""What the engine of a cell ran in integers, and which products of floats it summed as its
arithmetic declares it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbench.backends import Executed, Executor, executed_by
from qbench.evaluation.artifacts import Quantized
from qbench.number_text import rough_percent

if TYPE_CHECKING:
    from qbench.quantization import Plan


@dataclass(frozen=True, slots=True)
class ExecutedShare:
    """What engines ran in integers, and how they summed floats of few bits.

    Args:
        share: of the multiply-accumulates; None: an executor knows the precision of no product, of
            none that is planned in integers, or is not asked.
        in_float: the products in float, the largest first: ``conv1 in float32 (12.5 %)``.
        rounded: of those in integers, the products whose real data the engine rounded itself, the
            largest first: ``fc (75 %)``.
        unplanned: products that were run in integers and are float in the plan.
        summed_types: names of the types of floats of few bits all products of which were summed in
            a declared accumulator.
    """

    share: float | None = None
    in_float: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    unplanned: tuple[str, ...] = ()
    summed_types: frozenset[str] = frozenset()


def executed_share(runners: Mapping[str, Executor], quantized: Quantized) -> ExecutedShare:
    """What ``runners`` run in integers; a product that they do not list counts as one in float,
    and nothing is known where they list none of those that are planned in integers.
    """
    total = sum(plan.macs for plan in quantized.plans.values())
    integer, left, rounded, unplanned = 0, [], [], []
    summed: dict[str, bool] = {}
    for graph, plan in quantized.plans.items():
        try:
            found = executed_by(runners[graph])
        except Exception:  # whatever an engine raises here, its answers are measured
            return ExecutedShare()
        # of a plan with products in integers those: a report on other nodes says nothing of them
        asked = plan.integer_nodes or plan.node_macs.keys()
        if plan.macs and not any(found[node].precision for node in found.keys() & asked):
            return ExecutedShare()
        for name, is_summed in _float_operands(plan, found):
            summed[name] = summed.get(name, True) and is_summed
        for node, macs in plan.node_macs.items():
            how = found.get(node)
            name = f"{graph}::{node}" if len(quantized.plans) > 1 else node
            if how is None or not how.in_integers:
                left.append((macs, name, how, plan))
                continue
            integer += macs
            if how.rounds_data:
                rounded.append((macs, name))
            elif macs and node not in plan.integer_nodes:
                unplanned.append(name)
    words = [
        f"{name}"
        f"{' in ' + how.precision if how is not None and how.precision else ', not reported,'} "
        f"({rough_percent(macs / total)}"
        f"{'' if name.rpartition('::')[2] in plan.integer_nodes else ', as planned'})"
        for macs, name, how, plan in sorted(left, key=lambda one: -one[0])
        if macs
    ]
    return ExecutedShare(
        share=integer / total if total else None,
        in_float=tuple(words),
        rounded=tuple(
            f"{name} ({rough_percent(macs / total)})"
            for macs, name in sorted(rounded, key=lambda one: -one[0])
            if macs
        ),
        unplanned=tuple(unplanned),
        summed_types=frozenset(name for name, all_summed in summed.items() if all_summed),
    )


def _float_operands(plan: "Plan", found: Mapping[str, Executed]) -> Iterator[tuple[str, bool]]:
    """Of each operand of a product that is of floats of few bits, its type and whether ``found``
    says that the product was summed in a declared accumulator.
    """
    from qbench.quantization import Role, qparams_of

    for slot, decision in plan.decisions.items():
        qparams = qparams_of(decision)
        if slot.node not in plan.node_macs or slot.role not in (Role.INPUT, Role.WEIGHT):
            continue
        if qparams is not None and qparams.qtype.is_float:
            how = found.get(slot.node)
            yield qparams.qtype.name, how is not None and how.is_summed
