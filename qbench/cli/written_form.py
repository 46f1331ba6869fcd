"""``qbench quantize``: the form that is written, plans from and into files, and the sizes of free dimensions."""

import argparse
from typing import TYPE_CHECKING

from qbench.cli.idle_settings import refuse_idle_settings
from qbench.errors import InputError, nearest

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.quantization import Plan

_OF_PLANNING = ("profile", "schema", "backend", "read")
_FORMS = ("qdq", "qoperator")


def declare_form(parser: argparse.ArgumentParser) -> None:
    """The arguments that are about it."""
    parser.add_argument(
        "--form", choices=_FORMS, default="qdq", help="Q/DQ pairs (default), or QLinearConv and its kin where there are"
    )
    parser.add_argument("--plan", metavar="P.json", help="write this plan, which --save-plan saved, and plan nothing")
    parser.add_argument("--save-plan", metavar="P.json", help="save the plan, too")
    parser.add_argument(
        "--size",
        metavar="DIM=N",
        action="append",
        default=[],
        type=_size,
        help="the usual size of a free dimension, as in H=224, for counts of multiply-accumulates; may be repeated",
    )


def read_saved_plan(arguments: argparse.Namespace) -> "tuple[ir.Model, Plan]":
    """The float model, and the plan in the file that ``--plan`` names.

    Raises:
        InputError: settings of planning are given too, or a file is no model or no plan.
    """
    from qbench.cli.own_subject import read_graph
    from qbench.quantization import load_plan

    refuse_idle_settings(arguments, _OF_PLANNING, beside="plan", doing=f"Writing the plan '{arguments.plan}'")
    return read_graph(arguments.model), load_plan(arguments.plan)


def declare_sizes(model: "ir.Model", arguments: argparse.Namespace) -> None:
    """Write the sizes that ``--size`` gives into ``model``.

    Raises:
        InputError: a name that no free dimension of an input has.
    """
    from qbench.graph import declare_dims, declared_dims

    sizes, free = dict(arguments.size), _free_dims(model)
    for name in sizes:
        if name not in free:
            close = nearest(name, free)
            raise InputError(
                f"Reading --size for '{arguments.model}'",
                found=f"a dimension '{name}'",
                expected=f"a free dimension of an input: {', '.join(free) or 'there is none'}",
                remedy=f"Did you mean '{close}'?" if close else "Leave it out.",
            )
    if sizes:
        declare_dims(model, declared_dims(model) | sizes)


def unknown_sizes(model: "ir.Model") -> tuple[str, ...]:
    """The free dimensions, behind the batch, that count as 1 because nobody said their usual size."""
    from qbench.graph import declared_dims

    known = declared_dims(model)
    return tuple(name for name, axes in _free_dims(model).items() if max(axes) > 0 and name not in known)


def in_form(model: "ir.Model", form: str) -> "tuple[ir.Model, dict[str, str]]":
    """The QDQ ``model`` in ``form``, and the nodes that stay float in it though they read integers, with the reason."""
    from qbench.passes import declined, lower_to_qoperator

    if form == "qdq":
        return model, {}
    lowered = lower_to_qoperator(model)
    return lowered, declined(lowered)


def _free_dims(model: "ir.Model") -> dict[str, set[int]]:
    """Name of a free dimension of an input → the axes where it stands."""
    found: dict[str, set[int]] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and dim.value:
                found.setdefault(str(dim.value), set()).add(axis)
    return found


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not (name and size.isdecimal() and int(size)):
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a dimension and its size, as in H=224")
    return name, int(size)
