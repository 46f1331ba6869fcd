"""The slots of what a decoder keeps of earlier tokens, its keys and values.

    stored(t) = dequantize(quantize(k(t)))          for every token, once, where it is computed
    attention and every later run read stored(t)

So what is written is what is read back, and text that is written token by token carries the error
on. Parameters are chosen beforehand, from the extremes of calibration: one pair for a value, one
for each of its heads, which are axis 1 of (n, heads, tokens, numbers), or one for each number of
each head, axis 1 of (n, heads · numbers, tokens) (``CacheChannels``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from qbench.graph import CacheValue, Capabilities, cache_values, node_key
from qbench.passes import channels_of_cache
from qbench.quantization.decision import Decision, KeptFloat, Static, qparams_of
from qbench.quantization.internal_qparams import Ranges
from qbench.quantization.spec import Granularity, Role, Slot, Spec, beyond_activations

_RANK = 4
IDLE_CACHE = "the cache"
"""The idle rule of a schema that quantizes a cache, where the graph has none: no rule that a user
wrote, which has a number.
"""


@dataclass(frozen=True, slots=True, eq=False)
class CacheSlots:
    """What is decided about the cache of a graph.

    Args:
        decisions: of its slots, in the order of the graph's outputs.
        outputs: the graph outputs among them, which leave the graph quantized and dequantized.
        idle: ``IDLE_CACHE`` where the graph has none.
    """

    decisions: Mapping[Slot, Decision] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()


def plan_cache(
    model: ir.Model, spec: Spec | None, ranges: Ranges, capabilities: Capabilities
) -> CacheSlots:
    """The slots of ``model``'s keys and values under ``spec``; none where it is None.

    Args:
        model: canonical, float.
        spec: per tensor, head or channel.
        ranges: of its profile.
        capabilities: the backend's limits.

    Raises:
        InputError: its past and present do not match.
    """
    if spec is None:
        return CacheSlots()
    cache = cache_values(model.graph)
    decisions: dict[Slot, Decision] = {}
    outputs = []
    for one in cache:
        value = _quantized_at(one, spec)
        maker = value.producer()
        name = "" if maker is None else node_key(maker)
        index = 0 if maker is None else list(maker.outputs).index(value)
        decision = _decided(one, value, spec, ranges, capabilities)
        decisions[Slot(name, Role.CACHE, index, value.name or "")] = decision
        if value.is_graph_output() and qparams_of(decision) is not None:
            outputs.append(value.name or "")
    return CacheSlots(decisions, tuple(outputs), () if cache else (IDLE_CACHE,))


def _quantized_at(one: CacheValue, spec: Spec) -> ir.Value:
    """The value that Q and DQ are put behind: its own, or the form with its channels."""
    if spec.granularity is not Granularity.CHANNEL:
        return one.value
    return channels_of_cache(one.value) or one.value


def _decided(
    one: CacheValue, value: ir.Value, spec: Spec, ranges: Ranges, capabilities: Capabilities
) -> Decision:
    plain = replace(spec, granularity=Granularity.TENSOR)
    problem = beyond_activations(plain, capabilities, moved=False)
    if problem is not None:
        return KeptFloat(problem)
    shape = one.value.shape
    if spec.granularity is Granularity.HEAD and (shape is None or len(shape) != _RANK):
        return KeptFloat("it has no axis of heads, (n, heads, tokens, numbers)")
    if spec.granularity is Granularity.CHANNEL and value is one.value:
        return KeptFloat("how many heads and numbers it has, (n, heads, tokens, numbers), is open")
    by_tensor = spec.granularity is Granularity.TENSOR
    asked = plain if by_tensor else replace(spec, granularity=Granularity.CHANNEL)
    found = ranges.qparams((value.name or "",), asked)
    if isinstance(found, str):
        return KeptFloat(found)
    return Static(found, f"the {one.role} that '{one.present}' keeps")
