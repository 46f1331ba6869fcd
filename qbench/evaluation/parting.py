"""Where two runs of one quantized graph part: the first integers, in the order of the graph, that are not the same.

    v_q = Q(v)        the first v with v_q(ours) ≠ v_q(theirs); both run the same feeds, tapped at every v_q

Only integers are tapped: an engine that fuses a node with the Q behind it still does so, whereas a tapped real value
would keep it from that and make it another program.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Feeds, in_slices
from qbench.errors import QbenchError
from qbench.graph import clip_of_levels, is_qdq, node_key, origin_of
from qbench.judging import FirstNode
from qbench.metrics import count_differences, unequal

Outputs = Mapping[str, Array]

_LEVELS = frozenset({"INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16"})


def first_parting(
    model: ir.Model, feeds: Feeds, runs: Sequence[tuple[Backend, Outputs]], *, threads: int
) -> FirstNode | None:
    """The node with the first integers that differ on ``feeds``, or what is known instead.

    Args:
        model: the quantized graph that both ran.
        feeds: a batch on which their outputs differ.
        runs: both backends with what they answered untapped, ours first.
        threads: of one engine.

    Returns:
        None when the graph computes no integers.
    """
    taps = dict(_integers(model))
    if not taps:
        return None
    try:
        ours, theirs = (_run(model, backend, tuple(taps), feeds, threads) for backend, _ in runs)
    except QbenchError as error:
        return FirstNode(origin="", note=f"its nodes could not be compared: found {error.found}")
    moved = [
        backend.name
        for (backend, plain), seen in zip(runs, (ours, theirs), strict=True)
        if any(unequal(plain[name], seen[name]).any() for name in plain)
    ]
    note = f"tapping changes what {' and '.join(moved)} answers, so that is where the tapped runs part" if moved else ""
    for name, origin in taps.items():
        found = count_differences(ours[name].astype(np.int64), theirs[name].astype(np.int64), np.ones(()))
        if found.differing:
            return FirstNode(origin=origin, elements=found.differing, steps=found.steps or 0.0, note=note)
    return _behind(model, ours, theirs, note)


def _integers(model: ir.Model) -> Iterator[tuple[str, str]]:
    """The computed integers of ``model`` in its order, each with the fp32 node whose result they are."""
    for node in model.graph:
        if node.op_type == "DequantizeLinear" or not node.outputs:
            continue
        levels = node.outputs[0]
        if (is_qdq(node) or (levels.dtype is not None and levels.dtype.name in _LEVELS)) and not clip_of_levels(node):
            yield str(levels.name), _origin(node)


def _origin(node: ir.Node) -> str:
    """The fp32 node whose result ``node`` puts on a grid: written, or that of what it reads when it is a quantizer."""
    origin, maker = origin_of(node), None if node.inputs[0] is None else node.inputs[0].producer()
    return origin_of(maker) if is_qdq(node) and maker is not None and origin == node_key(node) else origin


def _run(model: ir.Model, backend: Backend, taps: tuple[str, ...], feeds: Feeds, threads: int) -> Outputs:
    with ExitStack() as stack:
        executor = stack.enter_context(backend.prepare(model, taps=taps, threads=threads))
        return in_slices(executor, model).run(feeds)


def _behind(model: ir.Model, ours: Outputs, theirs: Outputs, note: str) -> FirstNode:
    """All integers are equal: the outputs part in floats behind them, or not at all in the tapped runs."""
    for output in model.graph.outputs:
        name, maker = str(output.name), output.producer()
        if maker is not None and unequal(ours[name], theirs[name]).any():
            return FirstNode(origin=origin_of(maker), note=note)
    return FirstNode(origin="", note=f"the tapped runs do not differ{f'; {note}' if note else ''}")
