"""What benchmarks/onnx_fuzz.py mutates: six small models, the external data of one, and
metadata of qbench's.
"""

import json
from typing import Any

import numpy as np
import onnx

HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>'

MLP = """
net (float[N, 1, 8, 8] x) => (float[N, 4] y) <int64[2] flat = {0, -1}> {
  f = Reshape <allowzero=0> (x, flat)
  [fc1] h = MatMul(f, w1)
  a = Add(h, b1)
  r = Relu(a)
  [fc2] y = Gemm <transB=0, alpha=1.0> (r, w2, b2)
}"""
CONV = """
net (float[N, 1, 8, 8] x) => (float[N, 4] y)
<float s = {0.02}, uint8 z = {128}, float sw = {0.01}, int8 zw = {0}> {
  xq = QuantizeLinear(x, s, z)
  xd = DequantizeLinear(xq, s, z)
  wd = DequantizeLinear(cwq, sw, zw)
  [conv] c = Conv <pads=[1, 1, 1, 1], kernel_shape=[3, 3], strides=[1, 1]> (xd, wd, cb)
  n = BatchNormalization <epsilon=0.00001> (c, gamma, cb, cb, gamma)
  r = Clip(n, low, high)
  p = MaxPool <kernel_shape=[2, 2], strides=[2, 2]> (r)
  q = AveragePool <kernel_shape=[4, 4]> (p)
  f = Flatten <axis=1> (q)
  k = Constant <value = float[4, 4] {1, 0, 2, -1, 0, 1, 1, 0, 3, 0, -1, 1, 0.5, 1, 0, 2}> ()
  m = MatMul(f, k)
  y = Softmax <axis=-1> (m)
}"""
CONTROL = """
net (float[N, 1, 8, 8] x) => (float[N, 4] y)
<int64[2] flat = {0, -1}, int64 trips = {3}, bool yes = {1}> {
  f = Reshape(x, flat)
  h = MatMul(f, w1)
  mean = ReduceMean <keepdims=0> (h)
  zero = Constant <value_float=0.0> ()
  cond = Greater(mean, zero)
  i = If (cond) <
    then_branch = one () => (t) { t = Relu(h) },
    else_branch = two () => (e) { half = Constant <value = float {0.5}> () e = Mul(h, half) }
  >
  l = Loop (trips, yes, i) <
    body = again (int64 n, bool go, float[N, 16] v) => (go2, w) {
      go2 = Identity(go)
      nf = Cast <to=1> (n)
      w = Add(v, nf)
    }
  >
  y = MatMul(l, w2)
}"""
FUNCTIONS = """
net (float[N, 1, 8, 8] x) => (float[N, 4] y) <int64[2] flat = {0, -1}> {
  f = Reshape(x, flat)
  h = local.linear <slope = 0.1> (f, w1)
  g = local.twice (h)
  y = MatMul(g, w2)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]>
linear <slope> (X, W) => (Y) {
  P = MatMul(X, W)
  Y = LeakyRelu <alpha : float = @slope> (P)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]>
twice (A) => (B) {
  C = local.shift (A)
  B = local.shift (C)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]>
shift (U) => (V) {
  k = Constant <value = float[1] {0.25}> ()
  V = Add(U, k)
}"""
ATTENTION = """
net (float[N, 1, 8, 8] x) => (float[N, 4] y)
<int64[1] axes = {1}, int64[2] flat = {0, -1}, float scale = {0.35}> {
  t = Squeeze(x, axes)
  q = MatMul(t, wq)
  k = MatMul(t, wq)
  kt = Transpose <perm=[0, 2, 1]> (k)
  s = MatMul(q, kt)
  ss = Mul(s, scale)
  a = Softmax <axis=-1> (ss)
  o = MatMul(a, t)
  n = LayerNormalization <axis=-1> (o, ln)
  g = Gelu(n)
  sh = Shape(g)
  i0 = Constant <value_int=0> ()
  d = Gather(sh, i0)
  f = Reshape(g, flat)
  y = MatMul(f, wo)
}"""


GRID = {
    "kind": "grid",
    "source": "a pair",
    "qtype": "int8",
    "axis": None,
    "block_size": None,
    "narrow_range": False,
}
METADATA = {
    "qbench.dims": '{"N": 3, "H": 8}',
    "qbench.pinned": json.dumps({**GRID, "scale": 0.1, "zero_point": 0}),
    "qbench.pinned ": json.dumps(
        {**GRID, "scale": [0.1, 0.2, 0.3, 0.4], "zero_point": [0, 0, 0, 0], "axis": 1}
    ),
    "qbench.pinned  ": json.dumps({"kind": "dynamic", "source": "a pair", "qtype": "uint8"}),
    "qbench.pinned   ": json.dumps({"kind": "float", "source": "two pairs"}),
    "qbench.bias_correction": "[1, 32, 0]",
    "qbench.declined": "no kernel",
    "qbench.levels": "int32",
    "qbench.lineage": "a b",
    "qbench.moved": "1",
    "qbench.origin": "conv",
    "qbench.split": "product",
    "qbench.split ": "bias",
    "qbench.plan": "0",
    "qbench.canonical": "0 0",
}
"""Entries of qbench's own, as it writes them; spaces behind a key keep several of one key apart."""


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """Initializers by name; every seed takes those it reads."""
    draw = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return (draw.normal(size=shape) * 0.3).astype(np.float32)

    return {
        "w1": normal(64, 16), "b1": normal(16), "w2": normal(16, 4), "b2": normal(4),
        "wq": normal(8, 8), "wo": normal(64, 4), "ln": np.ones(8, np.float32),
        "cb": np.ones(4, np.float32), "gamma": np.ones(4, np.float32),
        "cwq": draw.integers(-127, 127, size=(4, 1, 3, 3)).astype(np.int8),
        "low": np.array(0, np.float32), "high": np.array(6, np.float32),
    }  # fmt: skip


def seeds() -> dict[str, onnx.ModelProto]:
    """The models that are mutated, by name."""
    made, constants = {}, arrays()
    texts = {
        "mlp": MLP,
        "conv": CONV,
        "control": CONTROL,
        "functions": FUNCTIONS,
        "attention": ATTENTION,
        "outside": MLP,
    }
    for name, text in texts.items():
        model = onnx.parser.parse_model(HEAD + text)
        read = {value for node in model.graph.node for value in node.input}
        for key, array in constants.items():
            if key in read:
                model.graph.initializer.append(onnx.numpy_helper.from_array(array, key))
        made[name] = model
    for tensor in made["outside"].graph.initializer:
        if tensor.name in ("w1", "w2"):
            put_outside(tensor, "net.data", offset=0 if tensor.name == "w1" else 4096)
    return made


def data_file() -> bytes:
    """What the external tensors of the seed ``outside`` are read from."""
    w1, w2 = arrays()["w1"].tobytes(), arrays()["w2"].tobytes()
    return w1.ljust(4096, b"\0") + w2


def put_outside(
    tensor: onnx.TensorProto, location: str, *, offset: int = 0, length: int | None = None
) -> None:
    """Make the numbers of ``tensor`` external data."""
    for field in ("raw_data", "float_data", "int32_data", "int64_data"):
        tensor.ClearField(field)  # type: ignore[arg-type]
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset)} | (
        {} if length is None else {"length": str(length)}
    )
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
