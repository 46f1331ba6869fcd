"""The cache of a decoder: keys and values of earlier tokens, in its inputs and outputs.

Names differ between exporters. A value of the cache has key or value in its name; an input belongs
to the output with the same numbers and the same one of the two words:
``past_key_values.0.key`` → ``present.0.key``. Where two inputs fit an output, as in a decoder that
also reads what an encoder gives, its past is the one whose other words are those of the output.

Other graphs have inputs called ``key`` or ``v`` too. A value is of a cache where its name says so
(``past``, ``present``, ``cache``, ``kv``), or where keys and values come in and leave in one type
and one form, (n, heads, tokens, numbers), of which the tokens alone may differ: ``key_3`` →
``next_key_3``.

    past and present     of the output Concat(past, new) the new part is what is stored; another
                         output is stored as it is
    present alone        the outputs: a first run, or what an encoder gives to the steps
    neither              the two values that attention reads, Softmax(x · key) · value

An operator that works on a cache itself (ONNX Runtime's GroupQueryAttention) names its type.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph.ops import is_mover
from qbench.graph.query import int_attribute, is_constant

CacheSlot = tuple[tuple[int, ...], str]
"""The numbers of a name, and ``key`` or ``value``."""

_RANK = 4
_ROLES = {"key": "key", "k": "key", "value": "value", "v": "value"}
_PASSED = frozenset({"Add", "Sub", "Mul", "Div", "Where", "Cast", "Clip", "Identity"})
"""What is between a product and its Softmax."""
_CACHE_WORDS = frozenset({"past", "present", "cache", "kv", "pkv"})
_SIDES = _CACHE_WORDS | {"next", "new", "in", "out", "input", "output", "values"}
"""What names of the past and of the present have that are of one slot."""
_OTHER_TYPES = frozenset({"INT64", "INT32", "BOOL", "STRING"})
_FLOATS = frozenset({"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"})
_CACHE_TYPES = ("k_quant_type", "v_quant_type")


def cache_slot(value: ir.Value) -> CacheSlot | None:
    """Which key or value of a cache it would be, by its name; None: none."""
    role = next((_ROLES[word] for word in reversed(_words(value)) if word in _ROLES), None)
    return None if role is None else (tuple(map(int, re.findall(r"\d+", str(value.name)))), role)


def _words(value: ir.Value) -> list[str]:
    return re.findall(r"[a-z]+", str(value.name).lower().replace("key_values", "kv"))


@dataclass(frozen=True, slots=True, eq=False)
class CacheValue:
    """One value of a cache.

    Args:
        value: what is stored, of the tokens of this run where a cache is there.
        role: ``key`` or ``value``.
        present: the output that holds it; the value itself where the graph has none.
        token_axis: 2; 3 of a key that a product reads as (n, heads, numbers, tokens).
        past: the input of the same key or value; None: the graph takes none.
    """

    value: ir.Value
    role: str
    present: str
    token_axis: int = 2
    past: ir.Value | None = None


def cache_values(graph: ir.Graph) -> tuple[CacheValue, ...]:
    """The values of the cache of ``graph``, in the order of its outputs or nodes.

    Raises:
        InputError: an input of the past has no output of the present, or an output no input.
    """
    past, present = _past_and_present(graph)
    if past:
        _require_pairs(graph, past, present)
        return tuple(_stored(value, _past_of(value, past)) for value in present)
    if present:
        return tuple(_stored(value, None) for value in present)
    return tuple(_attention_reads(graph))


def quantized_cache(model: ir.Model) -> str:
    """What of the cache of ``model`` has a narrow type: ``past_key_values.0.key in int8``; empty:
    nothing has.
    """
    graph = model.graph
    past, present = _past_and_present(graph)
    for value in (*past, *present):
        if value.dtype is not None and value.dtype.name not in _FLOATS:
            return f"'{value.name}' in {value.dtype.name.lower()}"
    for node in graph:
        if kept_type(node):
            return f"the {node.op_type} '{node.name}' with a quantized cache"
    stored = stored_codes(graph)
    return f"'{stored[0].of.present}' between QuantizeLinear and DequantizeLinear" if stored else ""


@dataclass(frozen=True, slots=True, eq=False)
class StoredCodes:
    """A value of a cache that lies behind a DequantizeLinear.

    Args:
        of: the value.
        dequantize: the node.
        quantized: the real value whose codes it takes; None: the codes come from elsewhere.
        between: names of the values from ``quantized`` to the stored one, both included.
    """

    of: CacheValue
    dequantize: ir.Node
    quantized: ir.Value | None
    between: frozenset[str]


def stored_codes(graph: ir.Graph) -> tuple[StoredCodes, ...]:
    """The values of the cache of ``graph`` that are stored as what codes mean; none of a graph that
    takes no past.
    """
    past, _ = _past_and_present(graph)
    if not past:
        return ()
    try:
        cache = cache_values(graph)
    except InputError:  # what its names pair is no cache of ours
        return ()
    found = (_stored_codes(one) for one in cache)
    return tuple(one for one in found if one is not None)


def _stored_codes(one: CacheValue) -> StoredCodes | None:
    values: list[ir.Value] = [one.value]
    dequantize = _before(values, is_mover)
    if dequantize is None or dequantize.op_type != "DequantizeLinear":
        return None
    codes = dequantize.inputs[0]
    assert codes is not None
    values.append(codes)
    quantize = _before(values, _is_clip)
    quantized = None
    if quantize is not None and quantize.op_type == "QuantizeLinear":
        quantized = quantize.inputs[0]
    if quantized is not None:
        values.append(quantized)
    return StoredCodes(one, dequantize, quantized, frozenset(str(value.name) for value in values))


def _before(values: list[ir.Value], is_passed: Callable[[ir.Node], bool]) -> ir.Node | None:
    """The first node before the last of ``values`` that is not passed; the inputs of those that are
    passed are added to ``values``.
    """
    maker = values[-1].producer()
    while maker is not None and is_passed(maker) and maker.inputs[0] is not None:
        values.append(maker.inputs[0])
        maker = maker.inputs[0].producer()
    return maker


def _is_clip(node: ir.Node) -> bool:
    return node.op_type == "Clip"


def kept_type(node: ir.Node) -> str:
    """The type of the codes in which ``node`` itself keeps keys and values, such as ``int4``;
    empty: it keeps none in codes.
    """
    kinds = [node.attributes.get(name) for name in _CACHE_TYPES]
    if not any(one is not None and one.as_string() not in ("", "NONE") for one in kinds):
        return ""
    return f"int{int_attribute(node, 'kv_cache_bit_width', 8)}"


def require_float_cache(model: ir.Model, title: str) -> None:
    """Check that ``model``, which is called ``title``, can be a reference.

    Raises:
        InputError: what it keeps is quantized.
    """
    if found := quantized_cache(model):
        raise InputError(
            f"Taking '{title}' for a float model",
            found=f"a cache that is quantized: {found}",
            expected="keys and values in floats: its answers are the reference",
            remedy="Export the decoder with a cache of floats, and compare with that.",
        )


def _past_and_present(graph: ir.Graph) -> tuple[list[ir.Value], list[ir.Value]]:
    """The inputs and the outputs of ``graph`` that are of a cache."""
    inputs = [one for one in graph.inputs if _can_be_cache(one) and not is_constant(one)]
    outputs = [one for one in graph.outputs if _can_be_cache(one)]
    alike = {
        cache_slot(past)
        for past in inputs
        for present in outputs
        if cache_slot(past) == cache_slot(present) and _are_alike(past, present)
    }
    has_both = {slot[1] for slot in alike if slot is not None} == {"key", "value"}
    paired = alike if has_both else set()
    past, present = (
        [one for one in values if _is_named_cache(one) or cache_slot(one) in paired]
        for values in (inputs, outputs)
    )
    return past, present


def _can_be_cache(value: ir.Value) -> bool:
    return cache_slot(value) is not None and (
        value.dtype is None or value.dtype.name not in _OTHER_TYPES
    )


def _is_named_cache(value: ir.Value) -> bool:
    return not _CACHE_WORDS.isdisjoint(_words(value))


def _are_alike(past: ir.Value, present: ir.Value) -> bool:
    """Whether both have rank 4, one type, and the same heads and numbers: either of the last two
    axes has the tokens, and how samples are called differs between exporters.
    """
    before, after = past.shape, present.shape
    if before is None or after is None or past.dtype != present.dtype:
        return False
    if not len(before) == len(after) == _RANK:
        return False
    return before[1] == after[1] and (before[2] == after[2] or before[3] == after[3])


def _past_of(present: ir.Value, past: Sequence[ir.Value]) -> ir.Value:
    """That of the same slot with the most equal words."""
    own = {*_words(present)} - _SIDES
    fitting = [value for value in past if cache_slot(value) == cache_slot(present)]
    return min(fitting, key=lambda value: len(own ^ ({*_words(value)} - _SIDES)))


def _require_pairs(graph: ir.Graph, past: Sequence[ir.Value], present: Sequence[ir.Value]) -> None:
    for values, others, word, other in (
        (past, present, "past", "present"),
        (present, past, "present", "past"),
    ):
        known = {cache_slot(value) for value in others}
        alone = next((value for value in values if cache_slot(value) not in known), None)
        if alone is not None:
            raise InputError(
                f"Looking for the cache of '{graph.name}'",
                found=f"'{alone.name}' of the {word}, which has no {other}",
                expected=f"for each {word} the {other} of the same number, key or value",
                remedy="Export past and present of every layer, or none of them.",
            )


def _stored(present: ir.Value, past: ir.Value | None) -> CacheValue:
    """The new part of a Concat with the past, else the output itself."""
    slot, maker = cache_slot(present), present.producer()
    assert slot is not None
    value = present
    if past is not None and maker is not None and maker.op_type == "Concat":
        new = [one for one in maker.inputs if one is not None and one is not past]
        value = new[0] if len(new) == 1 else present
    return CacheValue(value, slot[1], str(present.name), past=past)


def _attention_reads(graph: ir.Graph) -> Iterator[CacheValue]:
    """Of each Softmax between two products of computed values: their right sides."""
    for node in graph:
        if node.op_type != "Softmax":
            continue
        scores = _product_before(node.inputs[0])
        reads = [use.node for use in node.outputs[0].uses() if use.idx == 0]
        mixed = next((one for one in reads if one.op_type == "MatMul"), None)
        if scores is None or mixed is None:
            continue
        for product, role, axis in ((scores, "key", 3), (mixed, "value", 2)):
            value = product.inputs[1]
            if value is not None and not is_constant(value):
                yield CacheValue(value, role, str(value.name), axis)


def _product_before(value: ir.Value | None) -> ir.Node | None:
    while value is not None and (maker := value.producer()) is not None:
        if maker.op_type == "MatMul":
            return maker
        if maker.op_type not in _PASSED:
            return None
        computed = [one for one in maker.inputs if one is not None and not is_constant(one)]
        value = next((one for one in computed if _leads_to_product(one)), None)
    return None


def _leads_to_product(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is not None and (maker.op_type == "MatMul" or maker.op_type in _PASSED)
