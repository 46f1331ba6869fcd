"""qbench lint: which layers can saturate, and what kernels store, before anything runs."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    choose_arithmetic,
    choose_cache,
    choose_own_schema,
    declare_cache,
    declare_count,
    declare_data,
    declare_json,
    declare_model,
    declare_planned_backend,
    read_samples,
    refuse_idle_rules,
)
from qbench.cli.printing import print_columns, print_json, put
from qbench.errors import InputError
from qbench.number_text import counted, rough_percent

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.diagnosis import LayerLint, ModelLint
    from qbench.passes import StorageCost


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench lint``."""
    declare_model(parser, "an ONNX file, quantized unless --schema is given")
    parser.add_argument(
        "--schema", metavar="S", help="quantize with this schema first: a name or a .toml"
    )
    declare_data(parser, "calibration samples")
    declare_count(parser)
    declare_planned_backend(parser)
    parser.add_argument(
        "--arithmetic",
        metavar="A",
        action="listed",
        default=[],
        help=(
            "also list what this arithmetic cannot represent: a name (qbench list arithmetics) or "
            "a .toml; repeatable"
        ),
    )
    parser.add_argument(
        "--storage",
        action="store_true",
        help=(
            "also list what kernels write for others to read, with type and bytes of one sample, "
            "and what is computed again where wide values are not stored"
        ),
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help=(
            "exit code 1 if a layer can saturate or overflow (with --arithmetic: in that "
            "arithmetic)"
        ),
    )
    declare_cache(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print one line per layer, worst first; a layer that can saturate is a failure only with
    ``--strict``.

    Raises:
        QbenchError: the model, the data or a name is wrong.
    """
    from qbench.diagnosis import lint_products

    arithmetics = [choose_arithmetic(text) for text in dict.fromkeys(arguments.arithmetic)]
    model = _quantized(arguments)
    lint = lint_products(model, arithmetics)
    storage = _storage(model) if arguments.storage else {}
    if arguments.json:
        print_json(_table(arguments, lint) | _storage_table(storage))
    else:
        _print(arguments, lint)
        _print_storage(storage)
    return ExitCode.GATE_FAILED if arguments.strict and lint.risky else ExitCode.FINE


def _quantized(arguments: argparse.Namespace) -> "ir.Model":
    """The quantized model: the one that is named, or made here of a float one."""
    from qbench.subjects import read_graph

    if arguments.schema:
        return _quantized_here(arguments)
    idle = [name for name in ("data", "count", "backend") if getattr(arguments, name)]
    if idle:
        raise _mistake(
            arguments,
            f"--{idle[0]} without --schema",
            "both to quantize it first, or neither",
            "Add --schema.",
        )
    return read_graph(arguments.model)


def _quantized_here(arguments: argparse.Namespace) -> "ir.Model":
    from qbench.backends import get_backend
    from qbench.quantization import is_quantized, make_plan, quantize_model
    from qbench.subjects import only_graph, read_graph

    schema = choose_own_schema(arguments.schema, f"Reading '{arguments.model}'")
    capabilities = get_backend(arguments.backend).capabilities if arguments.backend else None
    taken = None
    if arguments.data:
        taken = read_samples(
            arguments.model, arguments.data, arguments.count, choose_cache(arguments.cache)
        )
        model = only_graph(taken[0])
    elif schema.needs_profile:
        raise _mistake(
            arguments, "--schema without --data", "samples to take ranges from", "Name both."
        )
    else:
        model = read_graph(arguments.model)
    if is_quantized(model):
        raise _mistake(
            arguments,
            "--schema with a model that is quantized already",
            "a float one",
            "Leave it out.",
        )
    profile = None
    if taken is not None:
        from qbench.evaluation import profile_of

        profile = profile_of(*taken, pipeline=schema.canonical, channels=schema.wants_channels)
    plan = make_plan(model, profile, schema, capabilities=capabilities)
    refuse_idle_rules(schema.name, arguments.model, plan.idle_rules)
    return quantize_model(model, plan)


def _mistake(arguments: argparse.Namespace, found: str, expected: str, remedy: str) -> InputError:
    doing = f"Looking for saturation in '{arguments.model}'"
    return InputError(doing, found=found, expected=expected, remedy=remedy)


def _print(arguments: argparse.Namespace, lint: "ModelLint") -> None:
    if lint.float8:
        put(
            f"{arguments.model}: {counted(len(lint.float8), 'product')} of float8 by float8, "
            f"{rough_percent(lint.float8_macs)} of the multiply-accumulates; not judged, because "
            "they are not integers"
        )
    if not lint.layers:
        put(f"{arguments.model}: no product of quantized values and constant weights")
        _print_engines(lint)
        return
    risky = [layer for layer in lint.layers if layer.pairs.risky]
    layers = counted(len(lint.layers), "layer")
    put(f"{arguments.model}: {layers}, {len(risky)} with pairs that can saturate in 16 bits")
    put()
    header = (
        "layer",
        "kind",
        "types",
        "pairs",
        "can saturate",
        "worst |w0|+|w1|",
        "worst loss",
        "sum bits",
        "notes",
    )
    print_columns([_line(layer) for layer in _worst_first(lint)], header)
    put(
        "worst loss in steps of the layer's result; a pair of 8-bit values can saturate from "
        "|w0|+|w1| = 129 on"
    )
    if lint.unjudged:
        put(
            f"not judged: {', '.join(lint.unjudged)} (two computed operands, or a different sum at "
            "every position)"
        )
    _print_engines(lint)
    for name in arguments.arithmetic:
        _print_limits(lint, choose_arithmetic(name).name)


_NAMED = 5
"""Nodes that a line names; --json has all of them."""


def _print_engines(lint: "ModelLint") -> None:
    """What engines compute wrong, one line each, and what else they do, one line each way."""
    for one in lint.miscomputed:
        put(f"{one.engine} computes this wrong: {one.node}: {one.why}")
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for note in lint.engine_notes:
        nodes.setdefault((note.engine, note.effect, note.why), []).append(note.node)
    for (engine, effect, why), found in nodes.items():
        named = ", ".join(found[:_NAMED])
        if len(found) > _NAMED:
            named += f" and {len(found) - _NAMED} more"
        put(f"{engine} {effect}: {named}: {why}")


def _print_limits(lint: "ModelLint", arithmetic: str) -> None:
    found = [(layer.node, layer.limits[arithmetic]) for layer in lint.layers]
    lines = [(node, "; ".join(limits)) for node, limits in found if limits]
    put()
    put(
        f"{arithmetic}: "
        + (
            f"{len(lines)} of {counted(len(lint.layers), 'layer')}"
            if lines
            else "represents every layer"
        )
    )
    if lines:
        print_columns(lines)


# ``qbench lint --storage``: the two ways in which a compiler can treat a wide value that several
# kernels read, by their names in ``Shared``.


def _storage(model: "ir.Model") -> "dict[str, StorageCost]":
    from qbench.passes import Shared, storage_cost

    return {shared.value: storage_cost(model, shared) for shared in Shared}


def _print_storage(storage: "Mapping[str, StorageCost]") -> None:
    if not storage:
        return
    stored, recomputed = storage["stored"], storage["recomputed"]
    put()
    put(f"between kernels, of one sample: {stored}")
    rows = [
        (
            row.name,
            row.dtype,
            "unknown" if row.bytes is None else str(row.bytes),
            row.node,
            str(row.readers),
            "leaves the graph" * row.is_output,
        )
        for row in stored.values
    ]
    print_columns(rows, ("value", "type", "bytes", "written by", "readers", ""))
    put()
    if not recomputed.recomputed:
        put("no kernel shares a value of more than 16 bits: nothing needs to be computed again")
        return
    put(f"where shared values of more than 16 bits are not stored: {recomputed}")
    print_columns(
        [(node, str(count)) for node, count in recomputed.recomputed.items()],
        ("computed again", "times"),
    )


def _storage_table(storage: "Mapping[str, StorageCost]") -> dict[str, Any]:
    from qbench.storage import plain

    facts = {
        name: {
            "intermediates": cost.intermediates,
            "bytes_written": cost.bytes_written,
            "unsized": cost.unsized,
            "recomputed": dict(cost.recomputed),
            "values": [plain(row) for row in cost.values],
        }
        for name, cost in storage.items()
    }
    return {"storage": facts} if facts else {}


def _worst_first(lint: "ModelLint") -> "list[LayerLint]":
    return sorted(
        lint.layers, key=lambda layer: (-(layer.pairs.loss_steps or 0), -layer.pairs.share)
    )


def _line(layer: "LayerLint") -> tuple[str, ...]:
    pairs = layer.pairs
    steps = "" if pairs.loss_steps is None else f"{pairs.loss_steps:.3g}"
    return (
        layer.node,
        f"{layer.operator} depthwise" if layer.depthwise else layer.operator,
        f"{layer.levels} × {layer.weights}",  # stored name
        str(pairs.pairs),
        f"{pairs.risky} ({rough_percent(pairs.share)})" if pairs.risky else "none",
        str(pairs.worst),
        steps,
        str(layer.sum_bits),
        "; ".join(filter(None, (pairs.why_not, *layer.notes))),
    )


def _table(arguments: argparse.Namespace, lint: "ModelLint") -> dict[str, Any]:
    from qbench.storage import plain

    layers = [
        {
            **plain(layer),
            "notes": list(layer.notes),
            "pairs": {**plain(layer.pairs), "share": layer.pairs.share},
        }
        for layer in lint.layers
    ]
    return {
        "model": arguments.model,
        "risky": lint.risky,
        "unjudged": list(lint.unjudged),
        "float8": list(lint.float8),
        "float8_macs": lint.float8_macs,
        "miscomputed": [plain(one) for one in lint.miscomputed],
        "engine_notes": [plain(one) for one in lint.engine_notes],
        "layers": layers,
    }


COMMAND = Command(
    name="lint",
    summary="find the layers of a quantized model that can saturate or overflow",
    example="qbench lint int8.onnx --arithmetic ort-x64-avx2 --strict",
    declare=declare,
    execute=execute,
)
