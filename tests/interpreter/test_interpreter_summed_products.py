"""Products of floats of few bits and of blocks by declared accumulators: layouts and scales."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from float_sums_by_fractions import one_sum, sum_of_blocks
from onnx import numpy_helper, parser

from qbench.backends import IntegerBackend, get_backend
from qbench.interpreter import counting_means
from qbench.numerics import FLOAT_FORMATS, FloatSums, Override, Register, get_arithmetic
from qbench.quantization import get_schema, make_plan, quantize_model

NAMES = ("floats-float32", "floats-float16", "floats-kept-14", "floats-dequantized")
E4M3 = FLOAT_FORMATS["float8e4m3fn"]


def model(text: str, **constants: object) -> ir.Model:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return ir.from_proto(proto)


def run(graph: ir.Model, name: str, **feeds: np.ndarray) -> np.ndarray:
    """The output, which is the same by numpy and compiled."""
    backend = get_backend(f"integer-{name}")
    assert isinstance(backend, IntegerBackend)
    found = []
    for one in (backend, IntegerBackend(arithmetic=backend.arithmetic, means=counting_means())):
        with one.prepare(graph) as executor:
            found.append(next(iter(executor.run(feeds).values())))
    assert np.array_equal(*found)
    return found[0]


def product(x, w, name, *, blocks=None, scales=1.0, factor=1.0) -> np.ndarray:
    """One result by fractions: sums over ``blocks`` (pieces of K) times their ``scales``, times
    ``factor``.
    """
    rules = get_arithmetic(name).floats
    assert rules is not None
    x, w = (np.asarray(v, np.float64).tolist() for v in (x, w))
    if blocks is None:
        total = one_sum(x, w, rules)
    else:
        total = sum_of_blocks(x, w, list(zip(blocks, map(float, scales), strict=True)), rules)
    return np.float32(total * float(np.float32(factor)))


def codes(shape, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    found[found & 127 == 127] = 0  # no NaN
    return found.view(ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize("name", NAMES)
def test_float8_by_float8_with_a_scale_for_each_column(name: str) -> None:
    w, scales = codes((70, 3), 1), np.array([0.25, 0.3, 1.7], np.float32)
    graph = model(
        """net (float[2,70] x) => (float[2,3] y) {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        m = DequantizeLinear<axis = 1>(w, t)
        [fc] y = MatMul(d, m)
        }""",
        w=w, t=scales, s=np.float32(0.1), z=np.zeros((), ml_dtypes.float8_e4m3fn),
    )  # fmt: skip
    x = np.random.default_rng(2).normal(size=(2, 70)).astype(np.float32)
    found = run(graph, name, x=x)
    numbers, right = E4M3.decode(E4M3.encode(x / np.float32(0.1))), E4M3.decode(w)
    for row, column in np.ndindex(2, 3):
        left, factor = numbers[row], np.float32(0.1) * scales[column]
        other = right[:, column]
        if name == "floats-dequantized":
            left, other, factor = left * np.float32(0.1), other * scales[column], 1
        assert found[row, column] == product(left, other, name, factor=factor)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_the_last_of_which_is_shorter(name: str) -> None:
    random = np.random.default_rng(3)
    w = random.integers(0, 16, (2, 70)).astype(ml_dtypes.uint4)
    scales = random.uniform(0.01, 0.2, (2, 3)).astype(np.float32)
    points = random.integers(4, 12, (2, 3)).astype(ml_dtypes.uint4)
    graph = model(
        """net (float[70,4] x) => (float[4,2] y) {
        m = DequantizeLinear<axis = 1, block_size = 32>(w, t, p)
        [fc] y = Gemm<transA = 1, transB = 1, alpha = 0.7, beta = 0.3>(x, m, c)
        }""",
        w=w, t=scales, p=points, c=np.array([1.5, -2.3], np.float32),
    )  # fmt: skip
    x = random.normal(size=(70, 4)).astype(np.float32)
    found = run(graph, name, x=x)
    blocks = [slice(0, 32), slice(32, 64), slice(64, 70)]
    centred = w.astype(int) - np.repeat(points.astype(int), 32, 1)[:, :70]
    for row, column in np.ndindex(4, 2):
        if name == "floats-dequantized":
            whole = centred[column].astype(np.float32) * np.repeat(scales[column], 32)[:70]
            expected = product(x[:, row], whole, name)
        else:
            expected = product(
                x[:, row], centred[column], name, blocks=blocks,
                scales=scales[column].astype(float),
            )  # fmt: skip
        added = np.float32(0.3) * np.array([1.5, -2.3], np.float32)[column]
        assert found[row, column] == expected * np.float32(0.7) + added


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("schema", "size"), [("wmxfp4_sym_b32", 32), ("wnvfp4_sym_b16", 16)])
def test_scales_of_blocks_that_have_a_type(schema: str, size: int, name: str) -> None:
    """NVFP4's scale of the tensor comes after the sums: with it each would leave float16."""
    random = np.random.default_rng(8)
    w = (random.normal(size=(64, 3)) * 3e5).astype(np.float32)
    graph = model("net (float[2,64] x) => (float[2,3] y) {\n[fc] y = MatMul(x, w)\n}", w=w)
    written = quantize_model(graph, make_plan(graph, None, get_schema(schema)))
    (node,) = (node for node in written.graph if node.name == "fc")
    stored, scales = node.inputs[1].producer().inputs[:2]
    numbers = stored.const_value.numpy().astype(np.float64)
    own, of_tensor = scales, np.float32(1)
    if schema == "wnvfp4_sym_b16":
        own, whole = scales.producer().inputs[:2]
        of_tensor = whole.const_value.numpy()
        assert of_tensor > 100
    own = own.const_value.numpy().astype(np.float32)
    assert own.shape == (64 // size, 3)
    x = (random.normal(size=(2, 64)) * 2.0**-8).astype(np.float32)
    found = run(written, name, x=x)
    blocks = [slice(at, at + size) for at in range(0, 64, size)]
    for row, column in np.ndindex(2, 3):
        if name == "floats-dequantized":
            whole = numbers[:, column] * np.repeat(own[:, column] * of_tensor, size)
            expected = product(x[row], whole.astype(np.float32), name)
        else:
            expected = product(
                x[row], numbers[:, column], name,
                blocks=blocks, scales=own[:, column], factor=of_tensor,
            )  # fmt: skip
        assert found[row, column] == expected
    assert np.isfinite(found).all() or schema == "wmxfp4_sym_b32"


@pytest.mark.parametrize("name", NAMES[1:3])
def test_convolutions_in_groups_with_blocks_of_channels(name: str) -> None:
    random = np.random.default_rng(4)
    w = codes((4, 3, 2, 2), 5)  # two groups of three channels; blocks of two and one
    scales = random.uniform(0.01, 0.2, (4, 2, 2, 2)).astype(np.float32)
    graph = model(
        """net (float[2,6,5,5] x) => (float[2,4,3,3] y) {
        m = DequantizeLinear<axis = 1, block_size = 2>(w, t)
        [conv] y = Conv<group = 2, strides = [2,2], pads = [1,0,0,1], kernel_shape = [2,2]>(x, m, b)
        }""",
        w=w, t=scales, b=np.array([1, 2, 3, 4], np.float32),
    )  # fmt: skip
    x = random.normal(size=(2, 6, 5, 5)).astype(np.float32)
    found, numbers = run(graph, name, x=x), E4M3.decode(w)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 1)])
    for sample, filter_, i, j in np.ndindex(2, 4, 3, 3):
        group = filter_ // 2
        window = padded[sample, group * 3 : group * 3 + 3, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        left = np.moveaxis(window, 0, -1).reshape(-1)
        right = np.moveaxis(numbers[filter_], 0, -1).reshape(-1)
        blocks = [
            slice(3 * tap + at, 3 * tap + end) for tap in range(4) for at, end in ((0, 2), (2, 3))
        ]
        each = np.moveaxis(scales[filter_], 0, -1).reshape(-1).astype(float)
        expected = product(left, right, name, blocks=blocks, scales=each)
        assert found[sample, filter_, i, j] == expected + np.float32(filter_ + 1)


@pytest.mark.parametrize(
    ("left", "right"), [((2, 1, 3, 6), (4, 6, 5)), ((6,), (6, 5)), ((3, 6), (6,)), ((6,), (6,))]
)
def test_products_of_two_computed_operands(left, right) -> None:
    sizes = [",".join(map(str, shape)) for shape in (left, right)]
    graph = model(
        f"""net (float[{sizes[0]}] a, float[{sizes[1]}] b) => (float[?] y) {{
        q = QuantizeLinear(a, s, z)
        d = DequantizeLinear(q, s, z)
        r = QuantizeLinear(b, t, z)
        e = DequantizeLinear(r, t, z)
        [mm] y = MatMul(d, e)
        }}""".replace("float[?]", "float[" + ",".join("n" * max(len(left), len(right))) + "]"),
        s=np.float32(0.5), t=np.float32(0.25), z=np.zeros((), ml_dtypes.float8_e4m3fn),
    )  # fmt: skip
    random = np.random.default_rng(6)
    a, b = random.normal(size=left), random.normal(size=right)
    a, b = a.astype(np.float32), b.astype(np.float32)
    found = run(graph, "floats-float32", a=a, b=b)
    # scales are powers of two and sums are short: float64 has them exactly
    numbers = [E4M3.decode(E4M3.encode(v / s)) * s for v, s in ((a, 0.5), (b, 0.25))]
    exact = np.matmul(numbers[0].astype(float), numbers[1].astype(float))
    assert found.shape == exact.shape
    np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize(
    ("shape", "body", "expected"),
    [
        ("float[N,64] x", "y = MatMul(x, m)", (0, 8)),
        ("float[2,N,64] x", "y = MatMul(x, m)", (2, 0, 8)),
        ("float[N,64] x", "y = Gemm(x, m)", (0, 8)),
        ("float[N,3,64] x", "k = Identity(m)\n y = MatMul(x, k)", (0, 3, 8)),
        ("float[N,64,5] x", "y = Conv(x, n)", (0, 8, 5)),
    ],
)
def test_no_sample_at_all_has_an_answer_without_rows(shape, body, expected) -> None:
    axes = ",".join("abcd"[: len(expected)])
    graph = model(
        f"""net ({shape}) => (float[{axes}] y) {{
        m = DequantizeLinear(w, t)
        n = DequantizeLinear(v, t)
        {body}
        }}""",
        w=codes((64, 8), 9), v=codes((8, 64, 1), 9), t=np.float32(1),
    )  # fmt: skip
    fed = tuple(0 if axis == "N" else int(axis) for axis in shape[6:-3].split(","))
    for name in ("floats-float32", "floats-kept-14"):
        assert run(graph, name, x=np.empty(fed, np.float32)).shape == expected


def test_executed_names_types_and_accumulator() -> None:
    graph = model(
        """net (float[2,64] x) => (float[2,3] y) {
        m = DequantizeLinear<axis = 0, block_size = 32>(w, t)
        [fc] y = MatMul(x, m)
        }""",
        w=codes((64, 3), 7), t=np.ones((2, 3), np.float32),
    )  # fmt: skip
    words = {}
    for name in ("ideal", *NAMES):
        with get_backend(f"integer-{name}").prepare(graph) as executor:
            words[name] = executor.executed()["fc"].precision
            assert not executor.executed()["fc"].in_integers
    assert words == {
        "ideal": "float32",
        "floats-float32": "float32 by float8e4m3fn, summed in float32",
        "floats-float16": "float32 by float8e4m3fn, summed in float16",
        "floats-kept-14": "float32 by float8e4m3fn, summed in float32 of 14 bits",
        "floats-dequantized": "float32 by float8e4m3fn, summed in float32",
    }


ONE_PER_CHANNEL = """net (float[2,4] x) => (float[2,3] y) {
    q = QuantizeLinear<axis = 1>(x, s, z)
    d = DequantizeLinear<axis = 1>(q, s, z)
    m = DequantizeLinear(w, t)
    [fc] y = MatMul(d, m)
    }"""


def test_data_with_a_scale_for_each_channel_run_in_float32() -> None:
    graph = model(
        ONE_PER_CHANNEL,
        w=codes((4, 3), 11), t=np.float32(0.5), s=np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        z=np.zeros(4, ml_dtypes.float8_e4m3fn),
    )  # fmt: skip
    x = np.random.default_rng(12).normal(size=(2, 4)).astype(np.float32)
    with get_backend("integer-floats-float16").prepare(graph) as executor:
        (found,) = executor.run({"x": x}).values()
        how = executor.executed()["fc"]
    assert (how.precision, how.is_summed) == ("float32", False)
    with get_backend("integer-ideal").prepare(graph) as executor:
        assert np.array_equal(found, next(iter(executor.run({"x": x}).values())))


def test_an_override_sums_the_nodes_that_it_names() -> None:
    graph = model(
        """net (float[1,2] x) => (float[1,1] y) {
        m = DequantizeLinear(w, t)
        [named] a = MatMul(x, m)
        [other] b = MatMul(x, m)
        y = Sub(a, b)
        }""",
        w=np.array([[2], [1]], ml_dtypes.float8_e4m3fn), t=np.float32(1),
    )  # fmt: skip
    rules = FloatSums(accumulator=Register.FLOAT16)
    arithmetic = replace(
        get_arithmetic("ideal"), overrides=(Override(names=("named",), floats=rules),)
    )
    with IntegerBackend(arithmetic=arithmetic).prepare(graph) as executor:
        (found,) = executor.run({"x": np.array([[1024, 1]], np.float32)}).values()
        ran = executor.executed()
    assert found.tolist() == [[2048 - 2049]]  # float16 has no 2049
    assert ran["named"].precision == "float32 by float8e4m3fn, summed in float16"
    assert (ran["other"].precision, ran["other"].is_summed) == ("float32", False)


def test_sums_that_leave_float16_are_counted() -> None:
    graph = model(
        """net (float[1,2] x) => (float[1,1] y) {
        m = DequantizeLinear(w, t)
        [fc] y = MatMul(x, m)
        }""",
        w=np.full((2, 1), 448, ml_dtypes.float8_e4m3fn), t=np.float32(1),
    )  # fmt: skip
    with get_backend("integer-floats-float16").prepare(graph) as executor:
        (found,) = executor.run({"x": np.full((1, 2), 100, np.float32)}).values()
        assert found.tolist() == [[np.inf]]
        assert executor.counters["fc"].overflowed == 1
