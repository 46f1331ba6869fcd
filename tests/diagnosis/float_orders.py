"""An engine between Q and DQ that sums float32 products in an order of its own, as BLAS kernels
of other CPUs do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from qbench.backends import Closing, Executed
from qbench.graph import Capabilities

Sum = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _running(parts):
    """The sum of ``parts`` one by one, in float32."""
    total = np.zeros(parts[0].shape, np.float32)
    for part in parts:
        total = total + part
    return total


def _products(x, w):
    return np.moveaxis(x * w, -1, 0)


def sequential(x, w, *, order=slice(None)):
    """One register; ``order``: of the terms."""
    return _running(_products(x, w)[order])


def permuted(x, w, *, seed=0):
    """One register, the terms in a drawn order."""
    return sequential(x, w, order=np.random.default_rng(seed).permutation(x.shape[-1]))


def doubles(x, w):
    """In float64, rounded once."""
    return np.sum(x.astype(np.float64) * w, axis=-1).astype(np.float32)


def pairwise(x, w):
    """A tree."""
    parts = list(_products(x, w))
    while len(parts) > 1:
        odd = parts[len(parts) // 2 * 2 :]
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)] + odd
    return parts[0]


def blocks(x, w, *, size, step=1):
    """Blocks of ``size`` terms with a register each, then their sums; ``step`` -1:
    the last block first.
    """
    terms = _products(x, w)
    return _running([_running(terms[at : at + size]) for at in range(0, len(terms), size)][::step])


def lanes(x, w, *, count):
    """``count`` lanes of a register, which are summed at the end, as vector instructions do."""
    terms = _products(x, w)
    return pairwise_of([_running(terms[lane::count]) for lane in range(min(count, len(terms)))])


def pairwise_of(parts):
    """The sum of ``parts`` as a tree."""
    return pairwise(np.stack(parts, axis=-1), np.float32(1))


def fused(x, w):
    """One register, each product added without a rounding of its own."""
    total = np.zeros(np.broadcast_shapes(x.shape, w.shape)[:-1], np.float32)
    for place in range(x.shape[-1]):
        total = (total + x[..., place].astype(np.float64) * w[..., place]).astype(np.float32)
    return total


ORDERS: dict[str, Sum] = {
    "sequential": sequential,
    "reversed": partial(sequential, order=slice(None, None, -1)),
    "permuted": permuted,
    "float64": doubles,
    "pairwise": pairwise,
    "blocks of 64": partial(blocks, size=64),
    "blocks of 64, the last first": partial(blocks, size=64, step=-1),
    "blocks of 320": partial(blocks, size=320),
    "blocks of 384": partial(blocks, size=384),
    "16 lanes": partial(lanes, count=16),
    "8 lanes": partial(lanes, count=8),
    "fused": fused,
}
"""Orders of summation; each is one that a correct float32 engine may have."""


@dataclass(frozen=True)
class OrderedNpu:
    """The toy engine of examples/own-backend without its bug, whose products ``total`` adds;
    declares ``ideal``.

    ``spoil`` may change the bias of a convolution or Gemm, for a bug. ``bias_first``: the register
    begins with it.
    """

    total: Sum
    spoil: Callable[[np.ndarray], np.ndarray] = lambda bias: bias
    round_: Callable[[np.ndarray], np.ndarray] = np.rint
    name: str = "ordered-npu"
    capabilities: Capabilities = Capabilities(  # noqa: RUF009
        activation_qtypes=frozenset({"uint8", "int8"}), weight_qtypes=frozenset({"int8"})
    )
    arithmetic: str = "ideal"
    packages: tuple[str, ...] = ("onnx", "numpy")

    def prepare(self, model, *, taps=(), threads=1):
        proto = ir.to_proto(model)
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in taps)
        kinds = {"Conv": self._conv, "Gemm": self._gemm, "MatMul": self._matmul}
        own = [
            type(name, (OpRun,), {"op_domain": "", "_run": _method(run)})
            for name, run in kinds.items()
        ]
        return _Prepared(proto, ReferenceEvaluator(proto, new_ops=own))

    def _with_bias(self, result, bias):
        return (
            result if bias is None else result + self.spoil(np.asarray(bias)).astype(np.float32),
        )

    def _conv(self, x, w, b=None, *, auto_pad, dilations, group, kernel_shape, pads, strides):
        kernel = w.shape[2:]
        pads, strides, dilations = pads or [0, 0, 0, 0], strides or [1, 1], dilations or [1, 1]
        padded = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
        span = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
        windows = np.lib.stride_tricks.sliding_window_view(padded, span, axis=(2, 3))
        windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
        samples, channels, height, width = windows.shape[:4]
        each, makes = channels // (group or 1), w.shape[0] // (group or 1)
        results = []
        for one in range(group or 1):
            rows = windows[:, one * each : (one + 1) * each].transpose(0, 2, 3, 1, 4, 5)
            rows = np.ascontiguousarray(rows).reshape(samples, height, width, 1, -1)
            results.append(self.total(rows, w[one * makes : (one + 1) * makes].reshape(makes, -1)))
        result = np.concatenate(results, axis=-1).transpose(0, 3, 1, 2)
        return self._with_bias(result, None if b is None else self.spoil(b)[:, None, None])

    def _gemm(self, a, b, c=None, **attributes):
        a, b = (x.T if attributes[name] else x for x, name in ((a, "transA"), (b, "transB")))
        return self._with_bias(self._matmul(a, b)[0], c)

    def _matmul(self, a, b, **_):
        return (self.total(a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :]),)


def _method(function):
    def _run(_, *args, **more):
        return function(*args, **more)

    return _run


class _Prepared(Closing):
    def __init__(self, proto, evaluator):
        self._proto, self._evaluator = proto, evaluator

    def run(self, feeds):
        return dict(
            zip(self._evaluator.output_names, self._evaluator.run(None, dict(feeds)), strict=True)
        )

    def executed(self):
        return {
            node.name: Executed(precision="float32", device="toy")
            for node in self._proto.graph.node
        }

    def close(self):
        pass
