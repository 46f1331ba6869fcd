"""A graph compiled under one arithmetic: kernels in order, and when each value is last needed."""

import functools
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx.defs
import onnx_ir as ir

from qbench.errors import InputError, UnsupportedError, unknown_name
from qbench.graph import (
    INTEGER_FORMS,
    OPERATORS,
    QLINEAR,
    REFERENCE_KERNEL,
    constant_value,
    float_name,
    node_key,
    outside_operator,
)
from qbench.interpreter.arrays import Array, BatchError
from qbench.interpreter.float_kernels.reference import reference as reference_kernel
from qbench.interpreter.fused_sums import fused_sum, fused_sums
from qbench.interpreter.gemm import Pairs, best_gemm, engine_gemm, float_gemm, pairs_here
from qbench.interpreter.integer_kernels import functions
from qbench.interpreter.kernel import (
    Counters,
    KernelContext,
    KernelFunction,
    KernelWrapper,
    Maker,
    Means,
)
from qbench.interpreter.summed_kernels import summed_kernel
from qbench.interpreter.summed_products import no_longer_read, summed_products
from qbench.numerics import Arithmetic

# Operator → what makes its kernel.


def _maker(reference: str) -> Maker:
    """The maker that a row of ``graph.ops`` names."""
    if reference == REFERENCE_KERNEL:
        return reference_kernel
    module, _, name = reference.partition(":")
    found: Maker = getattr(
        importlib.import_module(f"qbench.interpreter.integer_kernels.{module}"), name
    )
    return found


KERNELS: Mapping[tuple[str, str], Maker] = MappingProxyType(
    {("", row.name): _maker(row.kernel) for row in OPERATORS.values() if row.kernel}
    | {key: _maker(form.kernel) for key, form in INTEGER_FORMS.items() if form.kernel}
)
"""(domain, operator) → maker, from the rows of operators."""


def float_operator(node: ir.Node) -> str:
    """What a node of a lowered graph was called in the float graph: ``Conv`` of a QLinearConv."""
    return float_name(node.op_type)


def require_known_operators(arithmetic: Arithmetic) -> None:
    """Refuse overrides of operators that neither ONNX nor this interpreter has.

    Raises:
        InputError: there is one; the nearest name is suggested.
    """
    for operator in dict.fromkeys(
        name for override in arithmetic.overrides for name in override.operators
    ):
        if operator not in _operators():
            doing = f"Reading the overrides of the arithmetic '{arithmetic.name}'"
            raise unknown_name(doing, "operator", operator, _operators())


@functools.cache
def _operators() -> frozenset[str]:
    own = {float_name(name) for _, name in KERNELS}
    onnx_has = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    return frozenset({name for name in onnx_has if float_name(name) == name} | own)


def _of_others(node: ir.Node) -> Maker:
    """A table for the function of an extension on codes; for anything else what computes it as
    it is.
    """
    on_codes = node.op_type.startswith(QLINEAR) and outside_operator(node) is not None
    return functions.function if on_codes else reference_kernel


def make_kernel(making: KernelContext, maker: Maker | None = None) -> KernelFunction:
    """The kernel of a node under its arithmetic, by ``maker`` (None: that of its operator).

    Raises:
        UnsupportedError: no kernel of this operator, or not of such a node.
        InputError: scales that the arithmetic cannot hold; it names the node.
    """
    node = making.node
    maker = maker or KERNELS.get((node.domain, node.op_type), _of_others(node))
    doing = (
        f"Compiling '{node_key(node)}' ({node.op_type}) for the arithmetic "
        f"'{making.arithmetic.name}'"
    )
    try:
        return maker(making)
    except (InputError, UnsupportedError) as error:
        if f"'{node_key(node)}'" in error.doing:
            raise
        what = error.doing[:1].lower() + error.doing[1:]
        raise type(error)(
            f"{doing}, {what}", found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    except ValueError as error:
        raise UnsupportedError(
            doing,
            found=str(error),
            expected="an operator that the interpreter has",
            remedy="Keep the node in float, or choose another backend.",
        ) from error


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One kernel: its node, the places it reads and writes, and those that nothing reads later."""

    node: str
    run: KernelFunction
    reads: tuple[int | None, ...]
    writes: tuple[int, ...]
    empties: tuple[int, ...]


class Program:
    """A compiled graph; ``run`` may be called any number of times.

    ``counters`` are the events of each node, ``summed`` the types and the accumulator of
    the products that are summed as the arithmetic declares it, by the names of nodes.

    Args:
        model: a graph in operator form (what is left in QDQ or float runs as that).
        arithmetic: how its integer operators compute.
        taps: names of further values to give back.
        means: what kernels compute with; None: the fastest that there are here.
        around: wraps every kernel; None: nothing does. Faults are put into kernels by it.

    Raises:
        UnsupportedError: a node that has no kernel.
        InputError: scales that the arithmetic cannot hold, or an override of an unknown operator.
    """

    def __init__(
        self,
        model: ir.Model,
        arithmetic: Arithmetic,
        taps: Sequence[str] = (),
        means: Means | None = None,
        around: KernelWrapper | None = None,
    ) -> None:
        require_known_operators(arithmetic)
        graph, using = model.graph, means or best_means()
        self._places: dict[ir.Value, int] = {}
        self._constants: dict[int, Array] = {}
        self.counters: dict[str, Counters] = {}
        wanted = {value.name or "": value for value in graph.outputs}
        values = {
            v.name or "": v for v in (*graph.inputs, *(v for node in graph for v in node.outputs))
        }
        wanted |= {name: values[name] for name in taps if name in values}
        self._inputs = {value.name or "": self._place(value) for value in graph.inputs}
        compiled = []
        making = {
            node: KernelContext(
                node,
                arithmetic.at(float_operator(node), node_key(node)),
                using,
                self.counters.setdefault(node_key(node), Counters()),
            )
            for node in graph
        }
        fused = fused_sums(graph, lambda node: making[node].arithmetic)
        if around is not None:  # a node whose kernel is wrapped is computed by that kernel
            fused = {
                node: one
                for node, one in fused.items()
                if not _wraps(around, making, node, one.convolution)
            }
        inside = {
            one.convolution
            for one in fused.values()
            if one.convolution.outputs[0].name not in wanted
        }
        products = summed_products(graph, lambda node: making[node].arithmetic)
        self.summed = {node_key(node): one.precision for node, one in products.items()}
        inside |= no_longer_read(products, wanted)
        for node in graph:
            if node in inside:
                continue
            joined, product, given = fused.get(node), products.get(node), list(node.inputs)
            if product is not None:
                run = make_kernel(making[node], functools.partial(summed_kernel, product))
                given = product.inputs(node)
            elif joined is None:
                run = make_kernel(making[node])
            else:
                run = make_kernel(
                    making[node],
                    functools.partial(fused_sum, joined.place, making[joined.convolution]),
                )
                given[joined.place] = joined.convolution.inputs[0]
            run = run if around is None else around(node, run)
            reads = tuple(None if value is None else self._read(value) for value in given)
            compiled.append(
                (node_key(node), run, reads, tuple(self._place(value) for value in node.outputs))
            )
        self._outputs = {name: self._read(value) for name, value in wanted.items()}
        self._steps = _with_ends(compiled, set(self._outputs.values()) | set(self._constants))

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array, channels first in memory.

        Raises:
            BatchError: a node that cannot compute it.
        """
        held: dict[int, Array] = dict(self._constants)
        held.update(
            {
                place: np.asarray(feeds[name])
                for name, place in self._inputs.items()
                if name in feeds
            }
        )
        for step in self._steps:
            try:
                results = step.run([None if place is None else held[place] for place in step.reads])
            except BatchError as error:
                raise BatchError(f"{error} at '{step.node}'") from error
            held.update(zip(step.writes, results, strict=False))
            for place in step.empties:
                held.pop(place, None)
        return {name: np.asarray(held[place], order="C") for name, place in self._outputs.items()}

    def _place(self, value: ir.Value) -> int:
        return self._places.setdefault(value, len(self._places))

    def _read(self, value: ir.Value) -> int:
        """The place of ``value``, filled beforehand when it is a constant."""
        place = self._place(value)
        if place not in self._constants and value.producer() is None and not value.is_graph_input():
            array = constant_value(value)
            if array is not None:
                self._constants[place] = array
        return place


def _wraps(around: KernelWrapper, making: Mapping[ir.Node, KernelContext], *nodes: ir.Node) -> bool:
    kernels = {node: make_kernel(making[node]) for node in nodes}
    return any(around(node, kernel) is not kernel for node, kernel in kernels.items())


def best_means() -> Means:
    """The fastest exact products here, and compiled loops where numba is installed."""
    return Means(best_gemm(), compiled=importlib.util.find_spec("numba") is not None)


def counting_means() -> Means:
    """Exact products and loops of numpy, under which every clip, wrap and saturation of a
    product is counted.
    """
    return Means(engine_gemm if pairs_here() is Pairs.EXACT else float_gemm, compiled=False)


def _with_ends(
    compiled: Sequence[tuple[str, KernelFunction, tuple[int | None, ...], tuple[int, ...]]],
    kept: set[int],
) -> tuple[_Step, ...]:
    """Steps that know which places they empty: those read or written for the last time, unless
    ``kept``.
    """
    last: dict[int, int] = {}
    for index, (_, _, reads, writes) in enumerate(compiled):
        last.update(dict.fromkeys((*(r for r in reads if r is not None), *writes), index))
    empties: dict[int, list[int]] = {}
    for place, index in last.items():
        if place not in kept:
            empties.setdefault(index, []).append(place)
    return tuple(
        _Step(node, run, reads, writes, tuple(empties.get(index, ())))
        for index, (node, run, reads, writes) in enumerate(compiled)
    )
