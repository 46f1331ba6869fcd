"""ONNX Runtime's ``quantization.qdq_loss_debug``, asked about a faulty QDQ graph: rankings of
float operators.

Its three lists, lowest SQNR first: of weights and biases; over each pair of Q and DQ (``qdq_err``);
against the float model (``xmodel_err``). It matches by names that its own quantizer writes; what is
done to ours stands at ``ask_ort``.
"""

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
from onnxruntime.quantization import CalibrationDataReader
from onnxruntime.quantization import qdq_loss_debug as debug

from qbench.graph import (
    clip_of_codes,
    constant_value,
    is_constant,
    node_key,
    node_qparams,
    save_model,
)
from qbench.numerics import QParams

Array = npt.NDArray[Any]
Ranking = Sequence[Collection[str]]
"""Float operators that an entry of a list blames, the worst entry first."""

ORT = ("ORT weight SQNR", "ORT qdq_err", "ORT xmodel_err")
PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_LIMITS = frozenset({"Relu", "Clip"})
LEVELS = "_quantized"
"""What the names of our levels and of their quantized weights end with."""
_POST = "_DequantizeLinear_Output"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sick:
    """A float graph, the QDQ graph that is right, and the one with a fault."""

    original: ir.Model
    right: ir.Model
    wrong: ir.Model


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pair:
    """A value before its Q and behind a DQ. blamed: the operators that made it,
    or who reads it on another grid.
    """

    value: str
    before: ir.Value
    behind: ir.Value
    blamed: frozenset[str]


def place_of(ranking: Ranking, sites: Collection[str]) -> int | None:
    """The place, from 1, of the first entry that blames one of ``sites``; None where none does."""
    return next(
        (place for place, blamed in enumerate(ranking, 1) if set(blamed) & set(sites)), None
    )


def ask_ort(sick: Sick, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Ranking | None]:
    """The three lists of ``qdq_loss_debug``, lowest SQNR first.

    Its names: constants get back the names of the right graph, which its weights are matched by.
    Values are matched through Identity nodes beside the graph's own, named as its pairs are: a
    value before its Q, behind its DQ, and in the float model. Where the grid took over a Relu or
    Clip, the value before Q is limited by a copy of that, or else all that it cuts would count as
    noise of rounding. A result without a grid is a pair of equals.
    """
    wrong, original = sick.wrong.clone(), sick.original.clone()
    _rename_constants(wrong, sick.right)
    pairs = [one for one in _pairs(wrong) if one.value in _values(original)]
    entries = {f"entry{index}": one for index, one in enumerate(pairs)}
    for name, one in entries.items():
        float_one = _values(original)[one.value]
        _add_identity(wrong, _limited(wrong, one.before, float_one.producer(), name), name)
        _add_identity(wrong, one.behind, f"{name}{_POST}")
        _add_identity(original, float_one, name)
    with tempfile.TemporaryDirectory() as folder:
        paths = {which: os.path.join(folder, f"{which}.onnx") for which in ("float", "qdq")}
        save_model(original, paths["float"])
        save_model(wrong, paths["qdq"])
        weights = debug.compute_weight_error(
            debug.create_weight_matching(paths["float"], paths["qdq"])
        )
        float_ones, quantized = (_activations(paths[which], feeds) for which in ("float", "qdq"))
    errors = debug.compute_activation_error(debug.create_activation_matching(quantized, float_ones))
    readers = _weight_readers(wrong)
    lists: dict[str, Ranking | None] = {
        ORT[0]: [readers[name] for name in sorted(weights, key=weights.__getitem__)]
    }
    for tool, key in zip(ORT[1:], ("qdq_err", "xmodel_err"), strict=True):
        worst = sorted(
            entries.keys() & errors.keys(), key=lambda name: (errors[name][key], int(name[5:]))
        )
        lists[tool] = [entries[name].blamed for name in worst]
    return lists


def grid_key(grid: QParams) -> tuple[float, int, str]:
    """Scale, zero point and type of a grid per tensor."""
    return float(grid.scale), int(grid.zero_point), str(grid.qtype)


def constants_of(model: ir.Model) -> dict[str, ir.Node]:
    """The DequantizeLinear nodes of constants, by their names."""
    nodes = (
        node
        for node in model.graph
        if node.op_type == "DequantizeLinear" and is_constant(node.inputs[0])
    )
    return {node_key(node): node for node in nodes}


def _rename_constants(wrong: ir.Model, right: ir.Model) -> None:
    """Give the constants behind pairs the names that they have in ``right``."""
    names = {
        key: str(node.inputs[0].name)
        for key, node in constants_of(right).items()
        if node.inputs[0] is not None
    }
    for key, node in constants_of(wrong).items():
        levels, name = node.inputs[0], names.get(key)
        if levels is None or name is None or levels.name == name:
            continue
        old = wrong.graph.initializers.get(name)
        if old is not None:
            old.name = f"{name}_before"
        levels.name = name


def _weight_readers(model: ir.Model) -> dict[str, set[str]]:
    """Name of a float parameter → the operators that read it."""
    found: dict[str, set[str]] = {}
    for node in constants_of(model).values():
        levels = node.inputs[0]
        assert levels is not None
        readers = {node_key(reader) for reader, _ in node.outputs[0].uses()}
        found.setdefault(str(levels.name).removesuffix(LEVELS), set()).update(readers)
    return found


def _pairs(model: ir.Model) -> list[_Pair]:
    found = []
    for node in list(model.graph):
        source = node.inputs[0] if node.inputs else None
        if node.op_type != "QuantizeLinear" or source is None or is_constant(source):
            continue
        clip = clip_of_codes(node)
        levels, makers = (node if clip is None else clip).outputs[0], _makers(source)
        readers = [reader for reader, _ in levels.uses() if reader.op_type == "DequantizeLinear"]
        odd = [one for one in readers if not _agrees(node, one)]
        even = [one for one in readers if _agrees(node, one)]
        name = str(node.outputs[0].name).removesuffix(LEVELS)
        for one in (*even[:1], *odd):
            using = (
                {node_key(user) for user, _ in one.outputs[0].uses()}
                if one in odd and even
                else makers
            )
            found.append(
                _Pair(value=name, before=source, behind=one.outputs[0], blamed=frozenset(using))
            )
    for value in model.graph.outputs:
        maker = value.producer()
        if maker is not None and maker.op_type not in PAIRS:
            found.append(
                _Pair(value=str(value.name), before=value, behind=value, blamed=_makers(value))
            )
    return found


def _agrees(quantize: ir.Node, other: ir.Node) -> bool:
    pair = [node_qparams(quantize), node_qparams(other)]
    return None not in pair and len({grid_key(grid) for grid in pair if grid is not None}) == 1


def _makers(value: ir.Value) -> frozenset[str]:
    """The float operators between the last levels and ``value``."""
    waiting, found = [value.producer()], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node.op_type not in PAIRS and node_key(node) not in found:
            found.add(node_key(node))
            waiting += [one.producer() for one in node.inputs if one is not None]
    return frozenset(found)


def _values(model: ir.Model) -> dict[str, ir.Value]:
    made = [value for node in model.graph for value in node.outputs]
    return {str(value.name): value for value in (*model.graph.inputs, *made)}


def _limited(model: ir.Model, value: ir.Value, limit: ir.Node | None, name: str) -> ir.Value:
    """``value`` behind a copy of ``limit``,
    if that is a Relu or Clip which ``value`` has not passed.
    """
    if limit is None or limit.op_type not in _LIMITS or (_type_of(value) == limit.op_type):
        return value
    ends: list[ir.Value | None] = []
    for index, one in enumerate(limit.inputs[1:]):
        constant = constant_value(one)
        if constant is None:
            ends.append(None)
            continue
        end = ir.val(
            f"{name}_end{index}", const_value=ir.Tensor(constant, name=f"{name}_end{index}")
        )
        model.graph.register_initializer(end)
        ends.append(end)
    node = ir.node(limit.op_type, [value, *ends], name=f"{name}_limited")
    node.outputs[0].name = f"{name}_limited"
    node.outputs[0].dtype, node.outputs[0].shape = ir.DataType.FLOAT, value.shape
    model.graph.append(node)
    return node.outputs[0]


def _type_of(value: ir.Value) -> str:
    maker = value.producer()
    return "" if maker is None else maker.op_type


def _add_identity(model: ir.Model, value: ir.Value, name: str) -> None:
    node = ir.node("Identity", [value], name=name)
    (result,) = node.outputs
    result.name, result.dtype, result.shape = name, ir.DataType.FLOAT, value.shape
    model.graph.append(node)


class _Feeds(CalibrationDataReader):  # type: ignore[misc]  # it comes without types
    def __init__(self, feeds: Sequence[Mapping[str, Array]]) -> None:
        self._left = iter(feeds)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._left, None)


def _activations(path: str, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Sequence[Array]]:
    """What the Identity nodes read and give: nothing else has a name in a pair."""
    watched = f"{path}.watched"
    debug.modify_model_output_intermediate_tensors(path, watched, op_types_for_saving=["Identity"])
    return dict(debug.collect_activations(watched, _Feeds(feeds)))
