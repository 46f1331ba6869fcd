"""An operator from outside as one value: facts, shape rule, kernel, and what a quantizer may
quantize.

    acme::Swish(x)                 real: its kernel, wherever an engine of ours runs the graph
    acme::QLinearSwish(x s z, s z) of one that treats every element alike: a table of its kernel
    over every code
    acme::Rotate(x_q)              of one that moves values: its kernel on the codes themselves

Nodes know their operator by name, from the installed extensions, or carry it (``with_operators``),
which outlives copies and passes. Who changes a kernel changes the version of its domain: that is
part of the digest of a graph.
"""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.graph.attention_operators import attention_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacts:
    """What holds of an operator everywhere.

    Args:
        weight, bias: index of the input that holds them, in operators that have such.
        moved: indices of inputs whose values, unchanged, are all that the outputs hold (Reshape,
            Slice, MaxPool, …): input and output share qparams. A constant may be mixed in (Pad's
            value).
        real: indices of inputs that carry real numbers, the others being shapes, axes or indices;
            None: all do.
        low, high: what the result cannot leave, whatever the inputs.
    """

    weight: int | None = None
    bias: int | None = None
    moved: tuple[int, ...] = ()
    real: tuple[int, ...] | None = None
    low: float = -math.inf
    high: float = math.inf


Dims = tuple[int | str | None, ...]
Kernel = Callable[..., npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]]
"""Arrays of the inputs in order (None where left out), attributes by keyword → the result, or
all of several.
"""

QLINEAR = "QLinear"
_KEY = "qbench.operator"
_OURS = frozenset({"", "ai.onnx", "qbench.integer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that no engine of others knows.

    Args:
        kernel: computes it, in any precision; float32 inputs give float32 results.
        facts: as of ONNX's own. With ``moved=(0,)`` the kernel runs on codes too, and input and
            output share qparams.
        shape: shapes of the inputs (None where unknown) → shape of the first result; None: that of
            the first input.
        pointwise: whether every element is a function of the like elements of the inputs, so that a
            table will do.
        data: the inputs that a quantizer may quantize; none: it stays float.

    Raises:
        ValueError: values that are moved and computed at once.
    """

    kernel: Kernel
    facts: OperatorFacts = field(default_factory=OperatorFacts)
    shape: Callable[[tuple[Dims | None, ...]], Dims] | None = None
    pointwise: bool = False
    data: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if self.pointwise and self.facts.moved:
            raise ValueError("an operator that moves values and computes them")

    def run(
        self, inputs: Iterable[npt.NDArray[Any] | None], attributes: Iterable[ir.Attr]
    ) -> tuple[npt.NDArray[Any], ...]:
        """The results for ``inputs`` of a node with ``attributes``; float64 that came of
        float32 is float32 again.
        """
        given = list(inputs)
        with np.errstate(all="ignore"):  # overflow in a kernel is a result, as in every engine
            found = self.kernel(*given, **{one.name: _plain(one) for one in attributes})
        results = found if isinstance(found, tuple) else (found,)
        wide = any(one is not None and one.dtype == np.float64 for one in given)
        return tuple(_narrow(np.asarray(one), wide=wide) for one in results)


def operator_catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[Operator]:
    """The operators of ``extensions``, by ``domain::Name``.

    Raises:
        InputError: two owners define one name, or one has no domain of its own.
    """
    none: Catalogue[Operator] = Catalogue("operator", {})
    found = none.extended(extensions)
    _require_domains(found)
    return found


def outside_operator(node: ir.Node) -> Operator | None:
    """The operator of ``node``, or of its QLinear… form, where an extension defines it."""
    if node.domain in _OURS:
        return None
    carried = node.meta.get(_KEY)
    return carried if isinstance(carried, Operator) else _installed(_name(node))


def with_operators(model: ir.Model, operators: Catalogue[Operator]) -> ir.Model:
    """``model`` itself, its nodes carrying those of ``operators`` that they are of.

    Raises:
        InputError: an operator has no domain of its own.
    """
    _require_domains(operators)
    made: dict[str, Operator] = {}
    for node in _foreign(model):
        name = _name(node)
        if name not in made and operators.knows(name):
            made[name] = operators.get(name)
        if name in made:
            node.meta[_KEY] = made[name]
    return model


def carried_operators(model: ir.Model) -> Catalogue[Operator]:
    """What nodes of ``model`` carry, for a graph that was made of it by way of a file."""
    held = {_name(node): node.meta[_KEY] for node in _foreign(model) if _KEY in node.meta}
    return Catalogue(
        "operator", {name: functools.partial(_itself, one) for name, one in held.items()}
    )


def _require_domains(operators: Catalogue[Operator]) -> None:
    for name in operators.names():
        domain, mark, operator = name.partition("::")
        if domain in _OURS or not mark or not operator:
            raise InputError(
                f"Adding the operator '{name}' of '{operators.owner(name)}'",
                found="no domain of its own",
                expected="a name such as 'acme::Swish'",
                remedy="Give it the domain and the name that its nodes have.",
            )


def _itself(operator: Operator) -> Operator:
    return operator


def _foreign(model: ir.Model) -> list[ir.Node]:
    return [node for graph in model.graphs() for node in graph if node.domain not in _OURS]


def _name(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type.removeprefix(QLINEAR)}"


@functools.cache
def _installed(name: str) -> Operator | None:
    known = _all_installed()
    return known.get(name) if known.knows(name) else None


@functools.cache
def _all_installed() -> Catalogue[Operator]:
    return operator_catalogue(installed_extensions())


def _narrow(result: npt.NDArray[Any], *, wide: bool) -> npt.NDArray[Any]:
    return result.astype(np.float32) if result.dtype == np.float64 and not wide else result


def _plain(attribute: ir.Attr) -> object:
    """The value of an attribute as numpy and Python have it; several are a tuple."""
    if attribute.type is ir.AttributeType.TENSOR:
        return attribute.as_tensor().numpy()
    return attribute.value


# Shapes through operators from outside, and through ONNX Runtime's attention, which onnx's
# inference does not know.
#
# One without a shape rule is replaced by an Identity of its first input; a shape rule is called as
# soon as everything before the node is known.


def stood_in(light: ir.Model) -> ir.Model:
    """``light``, or a copy with Identities where operators from outside keep the shape of their
    first input.
    """
    if not any(outside_operator(node) for graph in light.graphs() for node in graph):
        return light
    copy = light.clone()
    for graph in copy.graphs():
        for node in graph:
            operator = outside_operator(node)
            if (
                operator is not None
                and operator.shape is None
                and node.inputs
                and node.inputs[0] is not None
            ):
                node.op_type, node.domain = "Identity", ""
                node.resize_inputs(1)
                node.attributes.clear()
    return copy


def ask_rules(model: ir.Model, light: ir.Model) -> bool:
    """Write into ``model``, and into ``light`` of the same nodes, what shape rules say now;
    True when any was new.
    """
    asked = False
    for graph, other in zip(model.graphs(), light.graphs(), strict=True):
        for node, same in zip(graph, other, strict=True):
            first = node.inputs[0] if node.inputs else None
            if first is None or node.outputs[0].shape is not None:
                continue
            dims = _ruled(node)
            if dims is None:
                continue
            for value in (node.outputs[0], same.outputs[0]):
                value.shape, value.type = ir.Shape(dims), first.type
            asked = True
    return asked


def _ruled(node: ir.Node) -> Dims | None:
    """The shape of the first result by a rule; None: there is none, or an input is not known."""
    operator = outside_operator(node)
    if operator is None:
        return attention_shape(node)
    is_open = any(value is not None and value.shape is None for value in node.inputs)
    if operator.shape is None or is_open:
        return None
    return operator.shape(tuple(_dims(value) for value in node.inputs))


def _dims(value: ir.Value | None) -> Dims | None:
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
