"""Random calls of one operator, computed by the interpreter and by ``onnx-reference``, and
judged by ONNX Runtime.

A result is equal, within float rounding, or wrong: |ours − engine's| ≤ slack · (64 ε |y| + 8 ε max
|y|), or for sums of products slack · 16 ε Σ |terms|, where the sum is the operator's own result for
the absolute values of its operands.
"""

import functools
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from operator_cases import float_control, float_elementwise, float_moving, float_sums, float_windows
from operator_cases.float_ground import NEWEST, OLDEST, Array, Draw, Example, Strategy, model_of
from qbench.backends import get_backend
from qbench.errors import InputError, UnsupportedError
from qbench.interpreter import BatchError, Program
from qbench.numerics import Arithmetic, get_arithmetic

STRATEGIES: Mapping[str, Strategy] = {
    **float_elementwise.STRATEGIES,
    **float_windows.STRATEGIES,
    **float_moving.STRATEGIES,
    **float_sums.STRATEGIES,
    **float_control.STRATEGIES,
}
Feeds = Mapping[str, Array]


@functools.cache
def _arithmetic() -> Arithmetic:
    """Its file is read once: reading it takes a third of the time of a small call."""
    return get_arithmetic("ort-x64")


def _by_interpreter(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    return list(Program(ir.from_proto(model), _arithmetic()).run(feeds).values())


def _by_reference(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    with get_backend("onnx-reference").prepare(ir.from_proto(model)) as executor:
        return list(executor.run(feeds).values())


SIDES: Mapping[str, Callable[[onnx.ModelProto, Feeds], list[Array]]] = {
    "interpreter": _by_interpreter,
    "onnx-reference": _by_reference,
}


def by_engine(model: onnx.ModelProto, feeds: Feeds) -> list[Array] | None:
    """What ONNX Runtime makes of it without optimizing it; None where it has no kernel or does
    not take the batch.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [np.asarray(found) for found in session.run(None, dict(feeds))]
    except Exception:
        return None


@dataclass(slots=True)
class Tally:
    """What came of the calls of one operator on one side.

    Args:
        counts: equal, rounding, refused, refused-late (by the batch), wrong, crash; unjudged (the
            engine refused it), neither (both did).
        shown: the first calls of each kind that is not meant to be.
        reasons: why calls were refused.
    """

    counts: Counter[str] = field(default_factory=Counter)
    shown: dict[str, list[str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def compared(self) -> int:
        """The calls whose results were compared with the engine's."""
        return sum(self.counts[kind] for kind in ("equal", "rounding", "wrong", "crash"))


def swept(
    operator: str, count: int, seed: int = 0, sides: Sequence[str] = tuple(SIDES), most: int = 5
) -> dict[str, Tally]:
    """Side → what came of calls of ``operator``: until ``count`` are compared, ``most`` ×
    ``count`` calls at most.
    """
    random = np.random.default_rng([seed, zlib.crc32(operator.encode())])
    tallies = {side: Tally() for side in sides}
    versions = opset_ranges(operator)
    for _ in range(most * count):
        if all(tally.compared >= count for tally in tallies.values()):
            break
        first, last = versions[random.integers(len(versions))]
        opset = int(random.integers(first, last + 1))
        with np.errstate(all="ignore"):  # infinities and what overflows are drawn on purpose
            judge(operator, opset, STRATEGIES[operator](Draw(random, operator, opset)), tallies)
    return tallies


def opset_ranges(operator: str) -> list[tuple[int, int]]:
    """The first and last opset, from 7 to 25,
    of each version of ``operator`` that is not removed.
    """
    found: dict[int, list[int]] = {}
    for opset in range(OLDEST, NEWEST + 1):
        try:
            schema = onnx.defs.get_schema(operator, opset)
        except onnx.defs.SchemaError:
            continue
        if not schema.deprecated or operator == "GroupNormalization":
            found.setdefault(schema.since_version, []).append(opset)
    return [(opsets[0], opsets[-1]) for opsets in found.values()]


def judge(operator: str, opset: int, example: Example, tallies: Mapping[str, Tally]) -> None:
    """Compute one call on all sides and count what came of it."""
    model, feeds = model_of(operator, opset, example)
    expected = by_engine(model, feeds)
    scales = _scales(operator, opset, example, expected) if expected is not None else None
    for side, tally in tallies.items():
        kind, why = _verdict(SIDES[side], model, feeds, expected, scales, example)
        tally.counts[kind] += 1
        if kind.startswith("refused"):
            tally.reasons[why] += 1
        if kind in ("wrong", "crash") and len(tally.shown.setdefault(kind, [])) < 8:
            shapes = [None if a is None else f"{a.dtype}{list(a.shape)}" for a in example.inputs]
            text = (
                f"opset {opset} {dict(example.attributes)} {shapes} fixed "
                f"{sorted(example.fixed)}: {why}"
            )
            tally.shown[kind].append(text.replace("\n", " "))


def _verdict(
    side: Callable[[onnx.ModelProto, Feeds], list[Array]],
    model: onnx.ModelProto,
    feeds: Feeds,
    expected: Sequence[Array] | None,
    scales: Sequence[Array] | None,
    example: Example,
) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = side(model, feeds)
    except UnsupportedError as error:
        return ("refused" if expected is not None else "neither"), error.found
    except (InputError, BatchError) as error:
        return (
            "refused-late" if expected is not None else "neither"
        ), f"{getattr(error, 'found', error)}"[:200]
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"[:300]
    if expected is None or scales is None:
        return "unjudged", ""
    verdicts = [compared(*three, example) for three in zip(found, expected, scales, strict=True)]
    for why in verdicts:
        if why not in ("equal", "rounding"):
            return "wrong", why
    return ("rounding" if "rounding" in verdicts else "equal"), ""


def _scales(operator: str, opset: int, example: Example, expected: Sequence[Array]) -> list[Array]:
    """How large the terms are that each element is the sum of: the results for absolute values,
    where it is a sum.
    """
    if example.terms:
        arrays = [None if a is None or a.dtype.kind != "f" else np.abs(a) for a in example.inputs]
        inputs = [
            b if a is None or b is not None else a
            for a, b in zip(example.inputs, arrays, strict=True)
        ]
        attributes = {
            k: abs(v) if isinstance(v, float) else v for k, v in example.attributes.items()
        }
        model, feeds = model_of(
            operator, opset, Example(inputs, attributes, example.outputs, example.fixed)
        )
        found = by_engine(model, feeds)
        if found is not None and [f.shape for f in found] == [e.shape for e in expected]:
            return [2 * np.abs(_wide(f)) for f in found]
    return [np.asarray(8 * np.abs(_wide(e)) + _largest(e)) for e in expected]


def _largest(array: Array) -> float:
    wide = np.abs(_wide(array))
    finite = wide[np.isfinite(wide)]
    return float(finite.max()) if finite.size else 0.0


def _wide(array: Array) -> Array:
    is_real = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
    return (
        array.astype(np.float64) if is_real or array.dtype.kind in "iub" else np.zeros(array.shape)
    )


def compared(found: Array, expected: Array, scale: Array, example: Example) -> str:
    """``equal``, ``rounding``, or what differs."""
    if found.dtype != expected.dtype:
        return f"{found.dtype} in place of {expected.dtype}"
    if found.shape != expected.shape:
        return f"shape {found.shape} in place of {expected.shape}"
    if found.tobytes() == expected.tobytes():
        return "equal"
    if found.dtype.kind not in "f" and found.dtype != ml_dtypes.bfloat16:
        if (
            example.steps
            and np.max(np.abs(found.astype(np.int64) - expected.astype(np.int64))) <= 1
        ):
            return "rounding"
        return "equal" if np.array_equal(found, expected) else f"{_first(found, expected)}"
    ours, theirs = _wide(found), _wide(expected)
    epsilon = {
        2: 2.0**-7 if found.dtype == ml_dtypes.bfloat16 else 2.0**-10,
        4: 2.0**-23,
        8: 2.0**-23,
    }[found.dtype.itemsize]
    with np.errstate(all="ignore"):
        near = (
            np.abs(ours - theirs) <= example.slack * 8 * epsilon * scale + np.finfo(np.float32).tiny
        )
    good = near | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if np.array_equal(ours, theirs, equal_nan=True):
        return "equal"
    return "rounding" if good.all() else _first(np.where(good, expected, found), expected)


def _first(found: Array, expected: Array) -> str:
    differ = np.argwhere((found != expected) & ~((found != found) & (expected != expected)))
    place = tuple(int(i) for i in differ[0])
    return (
        f"{len(differ)} of {found.size} differ, at {list(place)} {found[place]} in place of "
        f"{expected[place]}"
    )
