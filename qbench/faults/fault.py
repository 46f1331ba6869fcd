"""A fault: a bug that happened, as a value that can be put into a graph, a kernel, an
arithmetic or a profile.
"""

import enum
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.calibration import Profile, Statistics
from qbench.graph import (
    PRODUCTS,
    constant_value,
    input_at,
    int_attribute,
    ints_attribute,
    node_key,
    node_qparams,
    only_consumer,
    weight_channel_axis,
)
from qbench.interpreter import KernelFunction
from qbench.judging import Cause
from qbench.numerics import Arithmetic, QParams

# Questions about a float operator between quantized values, and new constants before it: edits of a
# graph need both.
#
# codes ─DequantizeLinear─ operator ─(Relu | Clip)─ QuantizeLinear─(Clip)─ codes

Array = npt.NDArray[Any]
Fits = Callable[[ir.Node], bool]

_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
_LIMITS = frozenset({"Relu", "Clip"})

MOVERS = frozenset({"Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity"})
"""Operators that compute nothing."""


def float_operators(model: ir.Model) -> Iterator[ir.Node]:
    """The operators of a QDQ graph that read a dequantized value, in its order.

    Where weights alone are quantized these are the products of them.
    """
    places = (0,) if any(node.op_type in _QUANTIZERS for node in model.graph) else (0, 1)
    for node in model.graph:
        if (
            node.domain == ""
            and node.op_type not in _PAIRS
            and any(pair_in_front(node, at) for at in places)
        ):
            yield node


def of_type(*op_types: str, also: Fits | None = None) -> Fits:
    """Whether a node is one of these operators, and ``also`` holds."""
    return lambda node: node.op_type in op_types and (also is None or also(node))


def pair_in_front(node: ir.Node, index: int) -> ir.Node | None:
    """The DequantizeLinear that makes input ``index``, if one does."""
    value = input_at(node, index)
    maker = None if value is None else value.producer()
    return maker if maker is not None and maker.op_type == "DequantizeLinear" else None


def qparams_in_front(node: ir.Node, index: int) -> QParams | None:
    """The static qparams of input ``index``."""
    pair = pair_in_front(node, index)
    return None if pair is None else node_qparams(pair)


def stored(node: ir.Node, index: int) -> Array | None:
    """The constant codes behind the pair at input ``index``."""
    pair = pair_in_front(node, index)
    return None if pair is None else constant_value(pair.inputs[0])


def quantizer_behind(node: ir.Node) -> ir.Node | None:
    """The QuantizeLinear that alone reads the result, or that of a Relu or Clip behind."""
    reader = only_consumer(node.outputs[0])
    if reader is not None and reader.op_type in _LIMITS and reader.inputs[0] is node.outputs[0]:
        reader = only_consumer(reader.outputs[0])
    return reader if reader is not None and reader.op_type == "QuantizeLinear" else None


def qparams_behind(node: ir.Node) -> QParams | None:
    """The qparams of the result."""
    quantizer = quantizer_behind(node)
    return None if quantizer is None else node_qparams(quantizer)


def is_requantized(node: ir.Node) -> bool:
    """Whether the result is quantized to 8 bits, per tensor, by static qparams."""
    qparams = qparams_behind(node)
    return qparams is not None and qparams.axis is None and qparams.qtype.bits == 8


def has_weight(node: ir.Node) -> bool:
    """Whether it sums products with constant codes of 8 bits or fewer."""
    codes = stored(node, 1) if node.op_type in PRODUCTS else None
    return codes is not None and codes.dtype.itemsize == 1


def has_bias(node: ir.Node) -> bool:
    """Whether it has a bias of int32 that is not zero throughout."""
    codes = stored(node, 2) if has_weight(node) else None
    return codes is not None and codes.dtype == np.int32 and bool(np.any(codes))


def reads_codes(node: ir.Node, index: int) -> bool:
    """Whether input ``index`` is computed and quantized to 8 bits, per tensor."""
    qparams = qparams_in_front(node, index)
    return (
        stored(node, index) is None
        and qparams is not None
        and qparams.axis is None
        and qparams.qtype.bits == 8
    )


def is_binary(node: ir.Node) -> bool:
    """Whether its two operands and its result are computed values of 8 bits, per tensor."""
    return reads_codes(node, 0) and reads_codes(node, 1) and is_requantized(node)


def shape_of(value: ir.Value | None) -> tuple[int | None, ...]:
    """The sizes, None where one is free; empty where nothing is known."""
    if value is None or value.shape is None:
        return ()
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def window_of(node: ir.Node) -> tuple[int, ...]:
    """The kernel's height and width, from its attribute or its weight."""
    given = ints_attribute(node, "kernel_shape")
    codes = None if given else stored(node, 1)
    return given if codes is None else tuple(codes.shape[2:])


def pads_of(node: ir.Node) -> tuple[int, ...]:
    """Rows and columns beyond each edge: those before, then those behind."""
    return ints_attribute(node, "pads", (0,) * (2 * len(window_of(node))))


def group_of(node: ir.Node) -> int:
    """Into how many groups a convolution splits its channels."""
    return int_attribute(node, "group", 1)


def put_constant(node: ir.Node, index: int, array: Array) -> None:
    """Give ``node`` a constant of its own as input ``index``; the former one stays for its
    other readers.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    old = node.inputs[index]
    name = f"{'' if old is None else old.name}_of_{node.name or node.outputs[0].name}_{index}"
    while name in graph.initializers:
        name += "_"
    tensor = ir.Tensor(np.asarray(array, order="C"), name=name)
    value = ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)
    graph.register_initializer(value)
    node.replace_input_with(index, value)


def put_codes(node: ir.Node, index: int, codes: Array) -> None:
    """Other constant codes behind the pair at input ``index``."""
    pair = pair_in_front(node, index)
    assert pair is not None
    put_constant(pair, 0, codes)


def put_scales(pair: ir.Node, scales: Array) -> None:
    """Other scales of a Q or DQ, one per slice as before."""
    put_constant(pair, 1, np.asarray(scales, np.float32))


def put_point(pair: ir.Node, point: int) -> None:
    """Another zero point of a Q or DQ, the same for all slices."""
    old = constant_value(pair.inputs[2])
    assert old is not None
    put_constant(pair, 2, np.full(old.shape, point, old.dtype))


def put_ints(node: ir.Node, name: str, values: Sequence[int]) -> None:
    """The attribute ``name`` of several integers."""
    node.attributes[name] = ir.AttrInt64s(name, [int(value) for value in values])


# Which way a weight lies: its codes, and the axis of its output channels.


def weight_codes(node: ir.Node) -> Array:
    """The constant codes of its weight, as ONNX stores them."""
    codes = stored(node, 1)
    assert codes is not None
    return codes


def channel_axis(node: ir.Node) -> int:
    """The axis of the weight that runs over output channels; 0 where none does."""
    return weight_channel_axis(node, weight_codes(node).ndim) or 0


def has_channels(node: ir.Node) -> bool:
    """Whether it has a weight of several output channels."""
    return (
        has_weight(node)
        and weight_codes(node).ndim > 1
        and weight_codes(node).shape[channel_axis(node)] > 1
    )


# A kernel that a fault wraps: its node, its correct run, and the means to compile its node in
# another way.


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One node of the lowered graph.

    Args:
        node: as lowered.
        run: by the rules of the arithmetic.
        made: compiles another node by the same rules.
    """

    node: ir.Node
    run: KernelFunction
    made: Callable[[ir.Node], KernelFunction]

    def with_constant(self, index: int, array: Array) -> KernelFunction:
        """The run of the same node whose input ``index`` is ``array``; inputs are given as to
        ``run``.
        """
        inputs = [None if value is None else _copied(value, None) for value in self.node.inputs]
        replaced = self.node.inputs[index]
        assert replaced is not None
        inputs[index] = _copied(replaced, array)
        twin = ir.node(
            self.node.op_type,
            inputs,
            domain=self.node.domain,
            name=self.node.name,
            outputs=[ir.val(value.name) for value in self.node.outputs],
        )
        twin.attributes.update(self.node.attributes)
        return self.made(twin)


def _copied(value: ir.Value, array: Array | None) -> ir.Value:
    """A value like ``value`` that belongs to no graph; a constant where it is one, ``array``
    where that is given.
    """
    held = constant_value(value) if array is None else array
    if held is None:
        return ir.val(value.name, value.dtype, value.shape)
    tensor = ir.Tensor(np.asarray(held, order="C"), name=value.name)
    return ir.val(value.name, tensor.dtype, tensor.shape, const_value=tensor)


def changed(run: KernelFunction, change: Callable[[Array], Array]) -> KernelFunction:
    """``run`` whose first result is changed."""

    def other(inputs: Sequence[Array | None]) -> Sequence[Array]:
        first, *rest = run(inputs)
        return [change(first), *rest]

    return other


def fed(run: KernelFunction, change: Callable[[Array], Array]) -> KernelFunction:
    """``run`` whose first input is changed."""

    def other(inputs: Sequence[Array | None]) -> Sequence[Array]:
        first, *rest = inputs
        assert first is not None
        return run([change(first), *rest])

    return other


# A fault: a bug that really happened, as a value that can be put into a graph, a kernel, an
# arithmetic or a profile.
#
# CALIBRATION   another profile; everything behind it is right
# PASS          another QDQ graph; every engine runs it, and so does the search for the cause
# ENGINE        the graph is right, one engine computes something else

Random = np.random.Generator


class Stage(enum.Enum):
    """The step of the flow that a fault changes."""

    CALIBRATION = "calibration"
    PASS = "pass"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class GraphEdit:
    """Changes a QDQ graph in place at one of its float operators; draws from the generator."""

    edit: Callable[[ir.Node, Random], None]


@dataclass(frozen=True, slots=True)
class KernelFault:
    """Wraps the kernel of a node of the lowered graph: the kernel, a generator → the wrong run."""

    around: Callable[[Kernel, Random], KernelFunction]


@dataclass(frozen=True, slots=True)
class ArithmeticFault:
    """The wrong arithmetic of one node; it has no overrides."""

    counted: Callable[[Arithmetic], Arithmetic]


@dataclass(frozen=True, slots=True)
class ProfileFault:
    """Other statistics of a value: the right profile, the value's name, a generator → them."""

    profiled: Callable[[Profile, str, Random], Statistics]


Injection = GraphEdit | KernelFault | ArithmeticFault | ProfileFault


@dataclass(frozen=True, slots=True)
class Story:
    """The bug that a fault is modelled on.

    Args:
        thread: ``owner/repository#number``.
        sentence: what happened there, in our words.
    """

    thread: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the catalogue.

    Args:
        name: in kebab case.
        summary: what it does, in one sentence.
        story: where it was seen.
        injection: how it is put at an operator of a QDQ graph.
        fits: whether it would change something there.
        causes: what a right diagnosis may name, the likeliest first.
        stage: the step of the flow that it changes.
        at_once: at how many operators; more than one of faults that are small.
    """

    name: str
    summary: str
    story: Story
    injection: Injection
    fits: Fits
    causes: tuple[Cause, ...]
    stage: Stage = Stage.ENGINE
    at_once: int = 1

    def sites(self, quantized: ir.Model) -> tuple[str, ...]:
        """The float operators of ``quantized``, a QDQ graph, at which it can be put, in graph
        order.
        """
        return tuple(node_key(node) for node in float_operators(quantized) if self.fits(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A fault at some float operators, with the seed of what it draws there.

    Args:
        sites: as many as the fault changes at once, in graph order.
    """

    fault: Fault
    sites: tuple[str, ...]
    seed: int = 0

    @property
    def spelled(self) -> str:
        """``fault@site``; of several sites with commas between them."""
        return f"{self.fault.name}@{','.join(self.sites)}"

    def random(self, site: str) -> Random:
        """A generator for ``site``: the same in the whole graph and in any piece of it."""
        return np.random.default_rng((self.seed, zlib.crc32(site.encode())))

    def among(self, nodes: Container[str]) -> tuple[str, ...]:
        """Those of the sites that are names of ``nodes``."""
        return tuple(site for site in self.sites if site in nodes)


def draw_sites(fault: Fault, quantized: ir.Model, seed: int, count: int) -> tuple[Placed, ...]:
    """``fault`` at up to ``count`` places of ``quantized`` drawn by ``seed``, no two alike;
    none where it has no site.

    Args:
        quantized: in QDQ form.
        count: fewer come where there are fewer sites.
    """
    sites, width = fault.sites(quantized), fault.at_once
    if len(sites) < width:
        return ()
    random = np.random.default_rng((seed, zlib.crc32(fault.name.encode())))
    if width == 1:
        drawn = random.permutation(len(sites))[:count]
        return tuple(Placed(fault=fault, sites=(sites[index],), seed=seed) for index in drawn)
    chosen = {
        tuple(sorted(random.permutation(len(sites))[:width].tolist())): None for _ in range(count)
    }
    return tuple(
        Placed(fault=fault, sites=tuple(sites[i] for i in group), seed=seed) for group in chosen
    )
