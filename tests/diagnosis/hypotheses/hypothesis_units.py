"""Units made by hand, captured at work: small QDQ graphs, a machine's levels,
and levels made wrong.
"""

from contextlib import closing, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import IntegerBackend, get_backend
from qbench.diagnosis.hypotheses import name_cause
from qbench.diagnosis.hypotheses.hypothesis import evidence_of
from qbench.diagnosis.units import Captured, QuantizedUnit, quantized_units
from qbench.judging import Errors, NodeErrors
from qbench.numerics import get_arithmetic

MACHINE = get_arithmetic("ort-x64")
MACHINES = [
    pytest.param(MACHINE, id="claimed"),
    pytest.param(None, id="unknown", marks=pytest.mark.slow),
]
TEXT = {"float32": "float", "uint8": "uint8", "int8": "int8", "int32": "int32", "int64": "int64"}


@dataclass(frozen=True)
class Made:
    """One unit: its float graph, its quantized one, the levels in front and the fp32 numbers
    they were made of.
    """

    original: ir.Model
    unit: QuantizedUnit
    feeds: dict
    floats: dict
    expected: np.ndarray

    def levels(self, machine=MACHINE, feeds=None, graph=None):
        """What ``machine`` makes of ``feeds``, of a changed ``graph`` where one is given."""
        with IntegerBackend(arithmetic=machine).prepare(graph or self.unit.graph) as executor:
            return executor.run(feeds or self.feeds)[self.unit.value]

    def real(self, feeds=None):
        """The number in front of rounding, in steps."""
        with get_backend("ort-cpu-noopt").prepare(
            self.unit.graph, taps=(self.unit.real,)
        ) as executor:
            return self.unit.in_steps(executor.run(feeds or self.feeds))

    def rounded(self, steps):
        """Levels of numbers in steps."""
        return self.unit.rounded(steps).astype(self.unit.qparams.qtype.storage_dtype)

    def captured(self, found=None, again=None, **changed):
        """The unit with ``found`` in the target's run; alone it gives ``again``, or the same."""
        healthy = self.levels()
        found = healthy if found is None else np.asarray(found).astype(healthy.dtype)
        none = Errors(sqnr_db=0.0, relative=0.0)
        made = Captured(
            unit=self.unit,
            errors=NodeErrors(
                node=self.unit.node,
                operators=self.unit.operators,
                value=self.unit.represents,
                cumulative=none,
            ),
            feeds=self.feeds,
            found=found,
            again=found if again is None else again,
            real=self.real(),
            fed=self.feeds,
            isolated=found,
            expected=self.expected,
        )
        return replace(made, **changed)

    def cause(self, found=None, again=None, machine=MACHINE, *, original=True, **changed):
        """What is named, with no hypothesis that failed."""
        named = name_cause(
            self.captured(found, again, **changed),
            machine,
            original=self.original if original else None,
        )
        assert not named.notes, named.notes
        return named

    def facts(self, found=None, machine=MACHINE):
        """The facts that hypotheses see; its sessions are the test's to close."""
        facts, _ = evidence_of(self.captured(found), machine)
        return facts, nullcontext() if facts.interior is None else closing(facts.interior)


def grid_over(values, *, zero=None, levels="uint8", share=1.0):
    """(scale, zero point, type) of a grid over ``values`` times ``share``."""
    low, high = min(0.0, float(values.min()) * share), max(0.0, float(values.max()) * share)
    if levels == "int8":
        return float(np.float32(max(-low, high) / 127)), 0, levels
    scale = float(np.float32((high - low) / 255))
    return scale, round(-low / scale) if zero is None else zero, levels


def made(operator, inputs, *, weight=None, bias=None, channelwise=True, behind="", output=None,
         grids=None, shape=None, levels="uint8", attributes="", weight_zero=0):  # fmt: skip
    """A unit of one ``operator`` (in ONNX text) over float ``inputs`` by name, each on a grid
    over its range.

    Args:
        operator: as ``Conv``;
        inputs: name → numbers, samples first.
        weight, bias: real; the weight on int8, one scale a channel or one.
        behind: ``Relu`` or ``Clip(0, 6)``.
        output: (scale, zero point, type); None: over the fp32 result.
        grids: of the inputs, likewise.
        levels: type of the grids.
        attributes: in text.
        weight_zero: of the weight, uint8 where it is not 0.
    """
    float_constants, constants, lines, operands, fed, feeds = {}, {}, [], [], {}, {}
    for name, values in inputs.items():
        scale, zero, kind = (grids or {}).get(name) or grid_over(values, levels=levels)
        constants |= {f"{name}_s": np.float32(scale), f"{name}_z": np.array(zero, kind)}
        lines.append(f"{name}_q = QuantizeLinear({name}, {name}_s, {name}_z)")
        lines.append(f"{name}_d = DequantizeLinear({name}_q, {name}_s, {name}_z)")
        ends = np.iinfo(kind)
        feeds[f"{name}_q"] = np.clip(
            np.rint(values / np.float32(scale)) + zero, ends.min, ends.max
        ).astype(kind)
        operands.append(name)
        fed[name] = values.astype(np.float32)
    quantized = [f"{name}_d" for name in operands]
    if weight is not None:
        axis = 0 if operator in ("Conv",) else weight.ndim - 1
        rows = np.abs(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)).max(axis=1)
        scales = (rows if channelwise else rows.max(keepdims=True)) / 127
        shaped = scales.reshape(
            [-1 if channelwise and a == axis else 1 for a in range(weight.ndim)]
        )
        kind = "uint8" if weight_zero else "int8"
        ends = np.iinfo(kind)
        integers = np.clip(
            np.rint(weight / shaped) + weight_zero, max(ends.min, -127), ends.max
        ).astype(kind)
        scales = scales.astype(np.float32) if channelwise else np.float32(scales[0])
        zeros = np.full(np.shape(scales), weight_zero, kind)
        float_constants["w"] = weight.astype(np.float32)
        constants |= {"w_q": integers, "w_s": scales, "w_z": zeros}
        lines.append(f"w_d = DequantizeLinear<axis={axis if channelwise else 1}>(w_q, w_s, w_z)")
        operands.append("w")
        quantized.append("w_d")
        if bias is not None:
            steps = np.float32(constants[f"{next(iter(inputs))}_s"] * scales)
            float_constants["b"] = bias.astype(np.float32)
            constants |= {
                "b_q": np.rint(bias / steps).astype(np.int32),
                "b_s": np.broadcast_to(steps, bias.shape).astype(np.float32),
                "b_z": np.zeros(bias.shape, np.int32),
            }
            lines.append("b_d = DequantizeLinear<axis=0>(b_q, b_s, b_z)")
            operands.append("b")
            quantized.append("b_d")
    for extra, array in (shape or {}).items():
        float_constants[extra] = constants[extra] = array
        operands.append(extra)
        quantized.append(extra)
    own = "core" if behind else "y"
    inner = [f"{own} = {operator}{attributes}({', '.join(operands)})"]
    lines.append(f"{own} = {operator}{attributes}({', '.join(quantized)})")
    if behind == "Relu":
        inner.append("y = Relu(core)")
        lines.append("y = Relu(core)")
    elif behind:
        low, high = (float(one) for one in behind[5:-1].split(","))
        for table in (float_constants, constants):
            table |= {"low": np.float32(low), "high": np.float32(high)}
        inner.append("y = Clip(core, low, high)")
        lines.append("y = Clip(core, low, high)")
    original = _model(fed, float_constants, inner)
    with get_backend("ort-cpu-noopt").prepare(original) as executor:
        expected = executor.run(fed)["y"]
    scale, zero, kind = output or grid_over(expected, levels=levels)
    constants |= {"y_s": np.float32(scale), "y_z": np.array(zero, kind)}
    lines += ["y_q = QuantizeLinear(y, y_s, y_z)", "out = DequantizeLinear(y_q, y_s, y_z)"]
    unit = quantized_units(_model(fed, constants, lines, "out"))[-1]
    return Made(original, unit, feeds, fed, expected)


def _model(inputs, constants, lines, output="y"):
    heads = ", ".join(
        f"float[{', '.join(['n', *map(str, a.shape[1:])])}] {name}" for name, a in inputs.items()
    )
    body = "\n".join(lines)
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 21]> net ({heads}) => (float {output}) {{\n{body}\n'
        f"}}"
    )
    known = {str(v.name): v for node in model.graph for v in node.inputs if v is not None}
    for name, array in constants.items():
        if name in known:
            value = known[name]
            value.const_value = ir.tensor(np.asarray(array), name=name)
            value.shape, value.type = (
                ir.Shape(np.shape(array)),
                ir.TensorType(value.const_value.dtype),
            )
            model.graph.register_initializer(value)
    for node in model.graph:
        node.name = node.outputs[0].name
    return model


def edited(unit, **constants):
    """The piece with other constants."""
    model = unit.graph.clone()
    for name, array in constants.items():
        value = model.graph.initializers[name]
        value.const_value = ir.tensor(
            np.asarray(array).astype(value.const_value.numpy().dtype), name=name
        )
    return model


def constant(unit, name):
    """One of the piece."""
    return unit.graph.graph.initializers[name].const_value.numpy()


def conv(
    seed=0,
    *,
    channels=(8, 12),
    size=9,
    samples=3,
    kernel=3,
    bias=True,
    stride=1,
    group=1,
    scale=1.0,
    **changed,
):
    """A padded convolution of channels with their own ranges."""
    rng = np.random.default_rng(seed)
    into, out = channels
    weight = (
        rng.normal(size=(out, into // group, kernel, kernel))
        * rng.uniform(0.4, 1.6, (out, 1, 1, 1))
        * scale
    )
    biases = rng.normal(size=out) * 4 if bias else None
    pad = kernel // 2
    changed.setdefault(
        "attributes",
        f"<pads=[{pad},{pad},{pad},{pad}], kernel_shape=[{kernel},{kernel}], "
        f"strides=[{stride},{stride}], group={group}>",
    )
    x = rng.normal(size=(samples, into, size, size)) + 0.3
    return made("Conv", {"x": x}, weight=weight, bias=biases, **changed)


def gemm(seed=0, *, width=64, out=10, samples=48, **changed):
    """A matrix product."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(width, out)) * rng.uniform(0.4, 1.6, (1, out))
    return made(
        "Gemm",
        {"x": rng.normal(size=(samples, width)) + 0.2},
        weight=weight,
        bias=rng.normal(size=out) * 6,
        **changed,
    )


def add(seed=0, **changed):
    """A sum of two values of unlike ranges."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(3, 8, 7, 7)), rng.normal(size=(3, 8, 7, 7)) * 2.7 + 0.5
    return made(changed.pop("operator", "Add"), {"a": a, "b": b}, **changed)
