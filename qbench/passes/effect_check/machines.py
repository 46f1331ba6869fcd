"""A graph run as one machine of a promise runs it: the float graph node by node, or lowered and counted."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from qbench.interpreter import Program
from qbench.numerics import Arithmetic, get_arithmetic
from qbench.passes.effect import QDQ
from qbench.passes.effect_check.verdicts import Array
from qbench.passes.machine_form import lower_to_machines

Machine = str | Arithmetic
"""``qdq``, the name of an arithmetic, or one."""
Feeds = Mapping[str, Array]
Running = Callable[[Feeds], dict[str, Array]]


def machine_name(machine: Machine) -> str:
    """How messages call it."""
    return machine if isinstance(machine, str) else machine.name


def running(model: ir.Model, machine: Machine, taps: tuple[str, ...] = ()) -> Running:
    """What runs ``model`` on a batch; feeds that it does not take are passed over.

    Args:
        machine: ``qdq`` runs the graph as it is, Q by ONNX's own rule and everything else by ONNX's reference; any
            other lowers it to operators on integers first.
        taps: names of further values, of the graph as it is run.

    Raises:
        InputError: an unknown machine, or a scale that it cannot hold.
        UnsupportedError: a node that has no kernel.
    """
    if machine == QDQ:
        program = Program(model, get_arithmetic("ideal"), taps)  # whose rule at a border is ONNX's
    else:
        arithmetic = get_arithmetic(machine) if isinstance(machine, str) else machine
        program = Program(lower_to_machines(model), arithmetic, taps)

    def run(feeds: Feeds) -> dict[str, Array]:
        with np.errstate(all="ignore"):  # what overflows in a kernel is a result
            return program.run(feeds)

    return run
