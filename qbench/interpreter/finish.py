"""From accumulators to levels, made for one node: bias, register, multiplier, rounding, zero point, clamp.

Where numba is there and no sum can leave the register, one pass over memory does all of it; else numpy does the same,
step by step, by ``numerics.requantization``. Both give the same bits.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.interpreter.epilogue import Epilogue, Finish
from qbench.interpreter.kernel import Counters
from qbench.numerics import Arithmetic, held, scaler

_SUMS = 32
"""Bits of the sums that compiled loops take."""
_LEVELS = 2
"""Bytes of the widest levels that they make."""


def finish(epilogue: Epilogue, machine: Arithmetic, counters: Counters, *, compiled: bool) -> Finish:
    """What finishes accumulators under ``machine``; ``compiled`` where it can be.

    Raises:
        InputError: a multiplier that the machine cannot hold.
    """
    stepwise = _stepwise(epilogue, machine, counters)
    safe = epilogue.reach < 1 << (min(machine.accumulator.bits, _SUMS) - 1)
    if not (compiled and safe and epilogue.output.qtype.storage_dtype.itemsize <= _LEVELS):
        return stepwise
    from qbench.interpreter.finish_compiled import in_one_pass

    return in_one_pass(epilogue, machine.scaling, stepwise)


def _stepwise(epilogue: Epilogue, machine: Arithmetic, counters: Counters) -> Finish:
    real = epilogue.bias if machine.scaling.real_bias else None
    scale = scaler(epilogue.scales, machine.scaling, int(epilogue.output.zero_point), real)
    bias = epilogue.bias if real is None else None
    (low, high), dtype = epilogue.limits, epilogue.output.qtype.storage_dtype

    def run(sums: npt.NDArray[Any]) -> Array:
        total = sums.astype(np.int64)
        if bias is not None:
            total += bias
        kept = held(total, machine.accumulator)
        counters.overflowed += int(np.count_nonzero(kept != total))
        levels = scale(kept)
        return counters.clip(levels, low, high).astype(dtype)

    return run
