"""What callers hand to ``requantize`` and to operators of two operands, looked at before anything is counted.

Levels lie on their grid, accumulators are integers that an int64 holds, a zero point and limits are levels of the
output, scales are positive and finite as the machine reads them, and all shapes belong together.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.multiplier import Scales
from qbench.numerics.operands import Grids
from qbench.numerics.qtype import QType
from qbench.numerics.rounding import Ints
from qbench.numerics.scaling import MultiplierForm, Precision, Scaling

REQUANTIZING = "Requantizing accumulators"
_COUNTING = "Counting with quantized arrays"
_NAMES = ("input", "weight", "output")
_LARGEST = int(np.iinfo(np.int64).max)


def integers(values: npt.ArrayLike, what: str, doing: str = REQUANTIZING) -> Ints:
    """``values`` as int64; floats that are whole numbers below 2⁵³ are integers too.

    Raises:
        InputError: they are no integers, or beyond an int64.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f" and bool(((np.rint(array) == array) & (np.abs(array) < 2**53)).all()):
        return array.astype(np.int64)
    if array.size and array.dtype.kind not in "iu":
        raise _refused(doing, f"{what} of {array.dtype}", "integers that an int64 holds")
    if array.size and array.dtype.kind == "u" and int(array.max()) > _LARGEST:
        raise _refused(doing, f"{what} up to {array.max()}", "integers that an int64 holds")
    return array.astype(np.int64)


def scales_read(scales: Scales, scaling: Scaling) -> tuple[float, npt.NDArray[np.float64], float]:
    """``scales`` of input, weight (a number, or 1-d) and output, as float64.

    Raises:
        InputError: one is not positive and finite as ``scaling`` reads it, or has another shape.
    """
    single = scaling.precision is not Precision.DOUBLE or scaling.form is MultiplierForm.CHAIN or scaling.real_bias
    found = [np.asarray(scale, np.float64) for scale in scales]
    for name, scale in zip(_NAMES, found, strict=True):
        dimensions = 1 if name == "weight" else 0
        if scale.ndim > dimensions:
            expected = "a number" if not dimensions else "a number, or one a channel"
            raise _refused(REQUANTIZING, f"scales of the {name} of shape {scale.shape}", expected)
        with np.errstate(over="ignore", under="ignore"):
            read = scale.astype(np.float32) if single else scale
        wrong = ~(np.isfinite(read) & (read > 0))
        if wrong.any():
            expected = "one that is positive and finite" + (" as float32, as this machine reads it" if single else "")
            raise _refused(REQUANTIZING, f"a scale of {float(scale[wrong][0])!r} of the {name}", expected)
    return float(found[0]), found[1], float(found[2])


def level(value: object, qtype: QType, what: str) -> int:
    """``value``, an integer that is a level of ``qtype``.

    Raises:
        InputError: it is not.
    """
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "iu" or not qtype.qmin <= int(array) <= qtype.qmax:
        raise _refused(REQUANTIZING, f"{what} {value!s}", f"a level of {qtype}: {qtype.qmin} … {qtype.qmax}")
    return int(array)


def clamps(limits: tuple[int, int], qtype: QType) -> tuple[int, int]:
    """``limits``, two levels of ``qtype`` in order.

    Raises:
        InputError: they are not.
    """
    low, high = (level(one, qtype, "the limit") for one in limits)
    if low > high:
        raise _refused(REQUANTIZING, f"limits {low} … {high}", "the lower one first")
    return low, high


def along_axis(values: npt.NDArray[Any], shape: tuple[int, ...], axis: int, what: str) -> npt.NDArray[Any]:
    """``values``, a number or one a channel, in a form that broadcasts against ``shape``.

    Raises:
        InputError: there is no such axis, or it has another number of channels.
    """
    if not values.ndim:
        return values
    if values.ndim > 1 or not -len(shape) <= axis < len(shape) or values.size not in (1, shape[axis]):
        raise _refused(
            REQUANTIZING,
            f"{what} of shape {values.shape} along axis {axis} of accumulators of shape {shape}",
            "a number, or one a channel of that axis",
        )
    return values.reshape(tuple(-1 if index == axis % len(shape) else 1 for index in range(len(shape))))


def operands(a: npt.ArrayLike, b: npt.ArrayLike, grids: Grids) -> tuple[Ints, Ints]:
    """Levels ``a`` and ``b`` as int64, which are on their grids and broadcast.

    Raises:
        InputError: they are no such levels.
    """
    left, right = levels_on(a, grids[0].qtype, "'a'"), levels_on(b, grids[1].qtype, "'b'")
    try:
        np.broadcast_shapes(left.shape, right.shape)
    except ValueError as error:
        shapes = f"'a' of shape {left.shape} and 'b' of shape {right.shape}"
        raise _refused(_COUNTING, shapes, "shapes that broadcast") from error
    return left, right


def levels_on(values: npt.ArrayLike, qtype: QType, what: str) -> Ints:
    """``values``, levels of ``qtype``, as int64.

    Raises:
        InputError: they are none.
    """
    levels = integers(values, what, _COUNTING)
    if levels.size and (levels.min() < qtype.qmin or levels.max() > qtype.qmax):
        found, expected = (
            f"{what} of {levels.min()} … {levels.max()}",
            f"levels of {qtype}: {qtype.qmin} … {qtype.qmax}",
        )
        raise _refused(_COUNTING, found, expected)
    return levels


def _refused(doing: str, found: str, expected: str) -> InputError:
    return InputError(doing, found=found, expected=expected, remedy="Correct what is handed in.")
