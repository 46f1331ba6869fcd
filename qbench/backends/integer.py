"""integer-<arithmetic>: computes a quantized graph exactly by the named arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import onnx_ir as ir

from qbench.backends.execution import EngineExecutor, executed_as_written
from qbench.backends.feeds import FeedCheck, loaded, require_taps
from qbench.backends.protocol import Array, Executed, Executor
from qbench.errors import UnsupportedError
from qbench.graph import Capabilities, Form, form_of
from qbench.interpreter import BatchError, Counters, KernelWrapper, Means, Program, counting_means
from qbench.numerics import FLOAT_FORMATS, Arithmetic, BiasScheme
from qbench.passes import integer_target, lower_to_integers

PREFIX = "integer-"
_ACTIVATIONS = ("int8", "uint8", "int16", "uint16")
_WEIGHTS = ("int4", "uint4", "int8", "uint8")
_FLOATS = frozenset(name for name, form in FLOAT_FORMATS.items() if form.signed)
_BIASES = frozenset(f"int{bits}" for bits in (*range(2, 17), 32))
"""At scales of their own, under an arithmetic that adds such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerBackend:
    """The interpreter under one arithmetic; always one thread.

    Args:
        arithmetic: by which it computes.
        means: the implementation of its sums; None: the fastest one here. ``counting_means`` count
            every event, slower; results do not depend on it.
        around: wraps every kernel; None: kernels are not wrapped.
    """

    arithmetic: Arithmetic
    means: Means | None = None
    around: KernelWrapper | None = None
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            forms=frozenset({Form.QDQ, Form.QOPERATOR}),
            activation_qtypes=frozenset(_ACTIVATIONS) | _FLOATS,
            weight_qtypes=frozenset(_WEIGHTS) | _FLOATS,
            scale_types=frozenset({"float8e8m0", "float8e4m3fn"}),
            simulated=_FLOATS,
            weight_per_block=True,
            integer_products=frozenset(product(_ACTIVATIONS, _WEIGHTS)),
            dynamic=True,
            dynamic_products=frozenset(product(("Conv", "Gemm", "MatMul"), (1, 2))),
        )
    )
    packages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        declared = [self.arithmetic.floats, *(one.floats for one in self.arithmetic.overrides)]
        if any(declared):
            summing = replace(self.capabilities, sums_floats=True)
            object.__setattr__(self, "capabilities", summing)
        if self.arithmetic.biases is BiasScheme.FINEST:
            added = self.capabilities.bias_qtypes | _BIASES
            object.__setattr__(self, "capabilities", replace(self.capabilities, bias_qtypes=added))

    @property
    def name(self) -> str:
        """``integer-`` and the arithmetic's name."""
        return PREFIX + self.arithmetic.name

    @property
    def digests(self) -> Mapping[str, str]:
        """The digest of the arithmetic."""
        return {"arithmetic": self.arithmetic.digest}

    def surrounded(self, around: KernelWrapper) -> "IntegerBackend":
        """The same with every kernel, as it is wrapped already, wrapped by ``around``."""
        inner = self.around
        if inner is None:
            return replace(self, around=around)
        return replace(self, around=lambda node, run: around(node, inner(node, run)))

    def counting_events(self) -> "IntegerBackend":
        """The same with all events counted, slower."""
        return replace(self, means=counting_means())

    def prepare(
        self,
        model: ir.Model | Path | str,
        *,
        taps: Sequence[str] = (),
        threads: int = 1,  # noqa: ARG002
    ) -> Executor:
        """A compiled program over the lowered ``model``; taps are values of the lowered graph
        and change nothing.

        Raises:
            InputError: not an ONNX model, a tap that names no value, or a multiplier that the
                arithmetic cannot hold.
            UnsupportedError: a float graph, or an operator that the interpreter does not support.
        """
        graph = loaded(model)
        if form_of(graph) is Form.FLOAT:
            raise UnsupportedError(
                f"Preparing '{graph.graph.name}' on '{self.name}'",
                found="a float graph",
                expected="a quantized graph, since this backend computes in integers",
                remedy="Quantize the model by a schema that quantizes some of its operators "
                "('qbench quantize --why' says why slots stay float), or choose a float backend.",
            )
        lowered = lower_to_integers(graph, integer_target(self.arithmetic))
        computed = (value for node in lowered.graph for value in node.outputs)
        names = {value.name or "" for value in (*lowered.graph.inputs, *computed)}
        require_taps(
            taps, names, doing=f"Tapping '{lowered.graph.name}'", where="the lowered graph"
        )
        program = Program(lowered, self.arithmetic, taps, self.means, self.around)
        return _IntegerExecutor(program, lowered, FeedCheck.of(lowered, self.name))


class _IntegerExecutor(EngineExecutor[Program]):
    """The executor of one program."""

    def __init__(self, program: Program, lowered: ir.Model, check: FeedCheck) -> None:
        super().__init__(program, check)
        self._lowered = lowered
        self._counters, self._summed = program.counters, program.summed

    @property
    def counters(self) -> Mapping[str, Counters]:
        """Node → its events so far; still available after ``close``."""
        return self._counters

    def _answer(self, held: Program, arrays: dict[str, Array]) -> dict[str, Array]:
        try:
            return held.run(arrays)
        except BatchError as error:
            raise self._refusal(str(error)) from error

    def executed(self) -> Mapping[str, Executed]:
        """Every node of the lowered graph, on integers where it was lowered to operators on
        integers; of products of floats that the arithmetic sums, their types and the accumulator.
        """
        summed = {
            node: Executed(words, "cpu", is_summed=True) for node, words in self._summed.items()
        }
        return executed_as_written(self._lowered, "cpu") | summed
