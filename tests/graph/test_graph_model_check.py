"""The gate of ONNX messages: files of others are not read, bombs do not go off, and what is
invalid is named.
"""

import os

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.errors import InputError
from qbench.graph import (
    as_model,
    declared_dims,
    graph_digest,
    limits_times,
    load_model,
    load_tensor,
    model_bytes,
    own_copy,
    pin_of,
)

TEXT = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
net (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, bool yes = {1}, int64 trips = {3}> {
  c = Constant <value = float[2] {1, 2}> ()
  h = MatMul(x, w)
  a = local.shift(h)
  i = If (yes) <then_branch = one () => (float[N, 2] t) { t = Add(a, c) },
                else_branch = two () => (float[N, 2] e) { e = Relu(a) }>
  y = Loop (trips, yes, i)
  <body = again (int64 n, bool go, float[N, 2] v) => (bool go2, float[N, 2] u) {
    go2 = Identity(go)
    u = Relu(v)
  }>
}
<domain: "local", opset_import: ["" : 21]>
shift (U) => (V) {
  k = Constant <value = float[2] {0.25, 1}> ()
  V = Add(U, k)
}
"""


def message():
    return onnx.parser.parse_model(TEXT)


def refused(proto, folder, name="net.onnx"):
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert str(path) in caught.value.doing
    return caught.value.found


def put_outside(tensor, location, **extent):
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **extent}.items():
        tensor.external_data.add(key=key, value=str(value))


def inner_graph(proto, index=0):
    return next(node for node in proto.graph.node if node.op_type == "If").attribute[index].g


def initializer(proto):
    return proto.graph.initializer[0]


def inner_initializer(proto):
    inner_graph(proto).initializer.append(
        onnx.numpy_helper.from_array(np.ones(2, np.float32), "inside")
    )
    return inner_graph(proto).initializer[0]


def constant(proto):
    return proto.graph.node[0].attribute[0].t


def function_constant(proto):
    return proto.functions[0].node[0].attribute[0].t


def function_initializer(proto):
    shift = proto.functions[0]
    node = shift.node.add(op_type="If", input=["b"], output=["z"])
    made = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["k2"], ["o"])],
        "g",
        [],
        [onnx.helper.make_tensor_value_info("o", 1, None)],
        [onnx.numpy_helper.from_array(np.ones(2, np.float32), "k2")],
    )
    node.attribute.append(onnx.helper.make_attribute("then_branch", made))
    node.attribute.append(onnx.helper.make_attribute("else_branch", made))
    return node.attribute[0].g.initializer[0]


def function_default(proto):
    """The default value of an attribute of a function, which a Constant of its body refers to."""
    shift = proto.functions[0]
    made = onnx.helper.make_attribute(
        "v", onnx.numpy_helper.from_array(np.ones(2, np.float32), "v")
    )
    shift.attribute_proto.append(made)
    shift.node[0].ClearField("attribute")
    shift.node[0].attribute.add(name="value", ref_attr_name="v", type=onnx.AttributeProto.TENSOR)
    return shift.attribute_proto[0].t


def default_graph(proto):
    """A constant in a graph that is the default value of an attribute of a function."""
    one = onnx.numpy_helper.from_array(np.ones(2, np.float32), "k3")
    made = onnx.helper.make_graph(
        [], "g", [], [onnx.helper.make_tensor_value_info("k3", 1, [2])], [one]
    )
    proto.functions[0].attribute_proto.append(onnx.helper.make_attribute("b", made))
    return proto.functions[0].attribute_proto[0].g.initializer[0]


PLACES = [
    initializer, inner_initializer, constant, function_constant, function_initializer,
    function_default, default_graph,
]  # fmt: skip


def test_a_default_of_a_function_is_read_where_it_is_whole(tmp_path):
    proto = message()
    function_default(proto)
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    assert load_model(path).functions


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(bytes(range(256)))
    return path


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "way", ["absolute", "above", "link", "folder link", "fifo", "missing", "folder"]
)
def test_no_constant_is_read_from_outside_the_folder(tmp_path, secret, place, way):
    home = tmp_path / "model"
    home.mkdir()
    (home / "link").symlink_to(secret)
    (home / "up").symlink_to(tmp_path)
    os.mkfifo(home / "fifo")
    locations = {
        "absolute": str(secret),
        "above": "../secret",
        "link": "link",
        "folder link": "up/secret",
        "fifo": "fifo",
        "missing": "nothing",
        "folder": ".",
    }
    proto = message()
    put_outside(place(proto), locations[way])
    assert refused(proto, home)


def test_sparse_tensors_are_refused_wherever_their_parts_are(tmp_path, secret):
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "s")
    put_outside(values, str(secret))
    sparse = onnx.helper.make_sparse_tensor(
        values, onnx.numpy_helper.from_array(np.zeros(1, np.int64)), [4]
    )
    one, two = message(), message()
    one.graph.sparse_initializer.append(sparse)
    assert "'s' as a sparse tensor" in refused(one, tmp_path)
    two.graph.node[0].ClearField("attribute")
    two.graph.node[0].attribute.append(onnx.helper.make_attribute("sparse_value", sparse))
    assert "sparse" in refused(two, tmp_path)


def test_external_data_below_the_folder_are_mapped_once_and_stay_as_they_were(tmp_path):
    (tmp_path / "data").mkdir()
    array = np.arange(8, dtype=np.float32)
    (tmp_path / "data" / "all").write_bytes(array.tobytes())
    (tmp_path / "near").symlink_to("data/all")
    proto = message()
    put_outside(initializer(proto), "data/all", offset=8, length=24)
    put_outside(inner_initializer(proto), "near")
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    model = load_model(tmp_path / "net.onnx")
    (tmp_path / "data" / "all").unlink()
    (tmp_path / "data" / "all").symlink_to("/dev/zero")
    np.testing.assert_array_equal(
        model.graph.initializers["w"].const_value.numpy(), array[2:].reshape(3, 2)
    )
    again = onnx.load_model_from_string(model_bytes(model))
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(inner_initializer(again)), array[:2])


def test_a_packed_constant_is_read_from_its_file(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> net (float[2] x) => (float[2] y) <float s = '
        "{0.5}> "
        "{ d = DequantizeLinear(q, s) y = Add(x, d) }"
    )
    proto.graph.initializer.append(
        onnx.helper.make_tensor("q", onnx.TensorProto.INT4, [2], [-3, 7])
    )
    put_outside(proto.graph.initializer[1], "four")
    proto.graph.initializer[1].ClearField("int32_data")
    (tmp_path / "four").write_bytes(bytes([0x7D]))
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    tensor = load_model(tmp_path / "net.onnx").graph.initializers["q"].const_value
    assert tensor.numpy().astype(int).tolist() == [-3, 7]
    assert tensor.tobytes() == bytes([0x7D])


def test_a_message_in_memory_has_no_folder():
    proto = message()
    put_outside(initializer(proto), "data")
    with pytest.raises(InputError, match="no folder"):
        as_model(proto)


# Limits
# --------------------------------------------------------------------------------------------------


def doubling(levels):
    proto = message()
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("local", 1)]
    for level in range(levels):
        name = f"f{level + 1}" if level + 1 < levels else "Relu"
        domain = "local" if level + 1 < levels else ""
        calls = [onnx.helper.make_node(name, ["a"], ["b"], domain=domain),
                 onnx.helper.make_node(name, ["b"], ["c"], domain=domain)]  # fmt: skip
        proto.functions.append(
            onnx.helper.make_function("local", f"f{level}", ["a"], ["c"], calls, imports)
        )
    proto.graph.node[1].input[0] = "x2"
    proto.graph.node.insert(0, onnx.helper.make_node("f0", ["x"], ["x2"], domain="local"))
    return proto


def nested(levels):
    proto = message()
    output = onnx.helper.make_tensor_value_info("z", 1, None)
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["z"])], "g", [], [output]
    )
    for level in range(levels):
        name = f"z{level}"
        node = onnx.helper.make_node("If", ["yes"], [name], then_branch=inner)
        inner = onnx.helper.make_graph(
            [node], "g", [], [onnx.helper.make_tensor_value_info(name, 1, None)]
        )
    proto.graph.node.append(inner.node[0])
    return proto


def loop_of(trips, *, ends=False):
    proto = message()
    next(t for t in proto.graph.initializer if t.name == "trips").CopyFrom(
        onnx.numpy_helper.from_array(np.array(trips, np.int64), "trips")
    )
    if ends:
        body = next(node for node in proto.graph.node if node.op_type == "Loop").attribute[0].g
        body.node[0].op_type = "Not"
    return proto


def of_shape(operator, sizes):
    proto = message()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(sizes, np.int64), "sizes"))
    inputs = ["x", "sizes"] if operator == "Expand" else ["sizes"]
    proto.graph.node.append(onnx.helper.make_node(operator, inputs, ["huge"]))
    return proto


def claimed(dims):
    proto = message()
    proto.graph.initializer.append(
        onnx.TensorProto(name="b", data_type=1, dims=dims, raw_data=b"1234")
    )
    return proto


@pytest.mark.parametrize(
    "proto",
    [
        pytest.param(doubling(18), id="2^18 calls"),
        pytest.param(doubling(60), id="2^60 calls"),
        pytest.param(nested(28), id="nesting"),
        pytest.param(loop_of(1 << 62), id="iterations"),
        pytest.param(of_shape("ConstantOfShape", [1 << 31]), id="ConstantOfShape"),
        pytest.param(of_shape("Expand", [1 << 20, 1 << 20, 3]), id="Expand"),
    ],
)
def test_what_asks_for_too_much_is_refused_with_the_factor_that_allows_it(tmp_path, proto):
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="at most") as caught:
        load_model(path)
    assert "--size-limits" in caught.value.remedy


def test_dimensions_without_data_are_invalid_since_no_factor_admits_them(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(claimed([1 << 40, 1 << 40]).SerializeToString())
    with pytest.raises(InputError, match="do not have that size"):
        load_model(path)


def chain(levels):
    """A model that calls ``levels`` functions inside each other."""
    proto = message()
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("local", 1)]
    for level in range(levels):
        last = level + 1 == levels
        call = onnx.helper.make_node(
            "Relu" if last else f"f{level + 1}", ["a"], ["b"], domain="" if last else "local"
        )
        proto.functions.append(
            onnx.helper.make_function("local", f"f{level}", ["a"], ["b"], [call], imports)
        )
    proto.graph.node.append(onnx.helper.make_node("f0", ["x"], ["deep"], domain="local"))
    return proto


def two_loops(trips, others):
    proto = loop_of(trips)
    second = onnx.NodeProto.FromString(
        next(node for node in proto.graph.node if node.op_type == "Loop").SerializeToString()
    )
    second.name, second.input[0], second.output[0] = "second", "trips2", "other"
    proto.graph.node.append(second)
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array(others, np.int64), "trips2")
    )
    return proto


@pytest.mark.parametrize(
    ("proto", "factor"),
    [
        pytest.param(chain(26), 2, id="26 levels"),
        pytest.param(chain(51), 3, id="51 levels"),
        pytest.param(chain(60), 3, id="60 levels"),
        pytest.param(loop_of(3_000_001), 4, id="iterations"),
        pytest.param(two_loops(1_500_000, 6_500_000), 7, id="two loops"),
    ],
)
def test_the_factor_is_the_smallest_that_admits_the_file(tmp_path, proto, factor):
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match=f"--size-limits {factor} "):
        load_model(path)
    with limits_times(factor - 1), pytest.raises(InputError, match=f"--size-limits {factor} "):
        load_model(path)
    with limits_times(factor):
        assert load_model(path).graph.name == "net"


@pytest.mark.parametrize("factor", [1, 4, 100])
def test_no_factor_is_named_where_none_helps(tmp_path, factor):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(100).SerializeToString())
    with path.with_name("long.onnx").open("wb") as file:
        file.truncate(2 << 30)
    for name in ("net.onnx", "long.onnx"):
        with limits_times(factor), pytest.raises(InputError, match="at most") as caught:
            load_model(tmp_path / name)
        assert "--size-limits" not in caught.value.remedy


def test_limits_are_raised_by_one_factor(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(loop_of(1_500_000).SerializeToString())
    with pytest.raises(InputError, match="--size-limits 2 "):
        load_model(path)
    with limits_times(2):
        assert load_model(path).graph.name == "net"
    with pytest.raises(InputError):
        load_model(path)


def test_a_loop_that_ends_by_its_condition_may_have_any_bound(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(loop_of((1 << 63) - 1, ends=True).SerializeToString())
    assert load_model(path).graph.name == "net"


@pytest.mark.slow
def test_inferring_sizes_takes_bounded_memory(tmp_path, monkeypatch):
    """onnx keeps each element of a Range of constants as a message of its own."""
    monkeypatch.setattr("qbench.graph.shapes._INFERENCE_BYTES", 64 << 20)
    ends = [
        onnx.numpy_helper.from_array(np.array(n, np.int64), name)
        for n, name in ((0, "s"), (2**22, "l"), (1, "d"))
    ]
    nodes = [
        onnx.helper.make_node("Range", ["s", "l", "d"], ["r"]),
        onnx.helper.make_node("Gather", ["r", "x"], ["y"]),
    ]
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [3]) for name in ("x", "y")
    ]
    graph = onnx.helper.make_graph(nodes, "net", values[:1], values[1:], ends)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    )
    assert "shapes" in refused(model, tmp_path)
    graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.array(1000, np.int64), "l"))
    small = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    )
    (tmp_path / "small.onnx").write_bytes(small.SerializeToString())
    assert load_model(tmp_path / "small.onnx").graph.name == "net"


def test_special_files_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "net.onnx")
    with pytest.raises(InputError, match="special file"):
        load_model(tmp_path / "net.onnx")


# Validity
# --------------------------------------------------------------------------------------------------


def edited(edit):
    proto = message()
    edit(proto)
    return proto


def twice(proto):
    proto.graph.initializer.add().CopyFrom(proto.graph.initializer[0])


def redeclared(proto):
    proto.graph.node.add().CopyFrom(proto.graph.node[1])


def dangling(proto):
    proto.graph.node[1].input[0] = "nowhere"


def cyclic(proto):
    proto.graph.node[1].input[0] = "y"


def short(proto):
    del proto.graph.initializer[0].float_data[-1]


def mistyped(proto):
    proto.graph.initializer[0].data_type = onnx.TensorProto.DOUBLE


def words_in_numbers(proto):
    proto.graph.initializer[0].data_type = onnx.TensorProto.STRING


def undefined(proto):
    proto.graph.initializer[0].data_type = 77


def not_text(proto):
    proto.graph.node[1].attribute.append(onnx.helper.make_attribute("bogus", b"\xff\xfe"))


def bytes_as_name(proto):
    data = proto.SerializeToString().replace(b"shift", b"shi\xfft")
    proto.ParseFromString(data)


def sequence(proto):
    kind = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(1, [1]))
    proto.graph.input.append(onnx.helper.make_value_info("many", kind))


def untyped(proto):
    proto.graph.output[0].ClearField("type")


def self_calling(proto):
    proto.functions[0].node[1].op_type, proto.functions[0].node[1].domain = "shift", "local"
    proto.functions[0].opset_import.add(domain="local", version=1)


def defined_twice(proto):
    proto.functions.add().CopyFrom(proto.functions[0])


def wrong_shapes(proto):
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7


def reference_to_nothing(proto):
    attribute = onnx.helper.make_attribute("alpha", 1.0)
    attribute.ref_attr_name = "slope"
    proto.graph.node.append(onnx.helper.make_node("LeakyRelu", ["x"], ["z"]))
    proto.graph.node[-1].attribute.append(attribute)


@pytest.mark.parametrize(
    "edit",
    [
        twice, redeclared, dangling, cyclic, short, mistyped, words_in_numbers, undefined, not_text,
        bytes_as_name, sequence, untyped, self_calling, defined_twice, wrong_shapes,
        reference_to_nothing,
    ],
)  # fmt: skip
def test_what_is_invalid_is_refused_as_it_came(tmp_path, edit):
    proto = edited(edit)
    assert refused(proto, tmp_path)
    with pytest.raises(InputError):
        as_model(proto)


def test_what_may_be_left_out_may_be_left_out(tmp_path):
    proto = message()
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert load_model(tmp_path / "net.onnx").graph.outputs[0].shape is None


def test_checking_and_reading_leave_the_message_as_it_is():
    proto = message()
    before = proto.SerializeToString(deterministic=True)
    as_model(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_a_copy_shares_no_name_with_the_message_that_its_model_came_from():
    proto = message()
    before = proto.SerializeToString(deterministic=True)
    model = ir.from_proto(proto)
    digest = graph_digest(model)
    copy = own_copy(model)
    for value in list(copy.graph.initializers.values()):
        value.name = f"{value.name}_other"
    copy.graph[0].attributes["value"].as_tensor().name = "other"
    assert proto.SerializeToString(deterministic=True) == before
    assert graph_digest(model) == digest
    assert [value.const_value.name for value in copy.graph.initializers.values()] == [
        "w_other",
        "yes_other",
        "trips_other",
    ]


@pytest.mark.parametrize("edit", [sequence, dangling])
def test_a_model_in_memory_that_no_verb_takes_is_refused(edit):
    with pytest.raises(InputError):
        as_model(ir.from_proto(edited(edit)))


def test_a_tensor_file_holds_its_own_numbers(tmp_path, secret):
    tensor = onnx.numpy_helper.from_array(np.arange(3, dtype=np.float32), "t")
    path = tmp_path / "t.pb"
    path.write_bytes(tensor.SerializeToString())
    assert load_tensor(path).tolist() == [0, 1, 2]
    put_outside(tensor, "secret")
    path.write_bytes(tensor.SerializeToString())
    with pytest.raises(InputError, match="external data"):
        load_tensor(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError):
        load_tensor(path)


# Metadata of our own
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{", "[]", "null", '"x"', '{"N": 0}', '{"N": 1.5}',
                                  '{"N": true}', '{"N": 1e999}', f'{{"N": {1 << 40}}}',
                                  "[" * 100_000])  # fmt: skip
def test_dimensions_in_metadata_are_checked(tmp_path, text):
    proto = message()
    proto.metadata_props.add(key="qbench.dims", value=text)
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    model = load_model(tmp_path / "net.onnx")
    with pytest.raises(InputError, match=r"qbench\.dims"):
        declared_dims(model)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"kind": "float", "source": 3}', "[" * 100_000,
    '{"kind": "grid", "source": "q", "qtype": "int8", "scale": "a", "zero_point": 0}',
    '{"kind": "dynamic", "source": "q", "qtype": "int99"}',
    '{"kind": "grid", "source": "q", "qtype": "int8", "scale": 1, "zero_point": 1' + "0" * 99
    + ', "axis": null, "block_size": null, "narrow_range": false}',
])  # fmt: skip
def test_pins_in_metadata_are_checked(text):
    value = ir.Value(name="v")
    value.metadata_props["qbench.pinned"] = text
    with pytest.raises(InputError, match=r"qbench\.pinned"):
        pin_of(value)


HALF = 1 << 27
"""Numbers of float32 in 512 MiB."""


@pytest.mark.parametrize(
    ("nodes", "factor"),
    [
        pytest.param(
            f"n = Constant <value = int64[1] {{{8 * HALF}}}> () big = ConstantOfShape (n)",
            4,
            id="not read",
        ),
        pytest.param(
            f"n = Constant <value = int64[1] {{{3 * HALF}}}> () big = Expand (one, n)",
            2,
            id="Expand",
        ),
        pytest.param(
            f"n = Constant <value = int64[1] {{{3 * HALF}}}> () big = Tile (one, n)", 2, id="Tile"
        ),
        pytest.param(
            f"n = Constant <value = int64[1] {{{HALF}}}> () a = ConstantOfShape (n) b = Relu (a)"
            " c = ConstantOfShape (n) d = ConstantOfShape (n)",
            2,
            id="three that are small alone",
        ),
    ],
)
def test_what_a_graph_makes_out_of_constants_has_a_limit(tmp_path, nodes, factor):
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N, 3] x) => (float[N, 3] y)
    <float[1] one = {{1}}, bool yes = {{1}}> {{ {nodes} y = Relu (x) }}"""
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(InputError, match=f"--size-limits {factor} "):
        load_model(path)
    with limits_times(factor):
        assert load_model(path).graph.name == "net"


def test_what_a_graph_makes_of_its_input_is_not_a_constant(tmp_path):
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[1] x) => (float[{3 * HALF}] y) {{
        n = Constant <value = int64[1] {{{3 * HALF}}}> () y = Expand (x, n) }}"""
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert load_model(path).graph.name == "net"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            """<ir_version: 10, opset_import: ["" : 21]>
            net (float[N, 3] x, bool c) => (float y) {{
              y = If (c) <then_branch = t () => (float a) {{
                n = Constant <value = int64[1] {{{count}}}> ()
                big = ConstantOfShape (n)
                a = ReduceMax <keepdims = 0> (big)
              }}, else_branch = e () => (float b) {{ b = Constant <value = float {{1}}> () }}>
            }}""",
            id="a branch of If",
        ),
        pytest.param(
            """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
            net (float[N, 3] x) => (float[N, 3] y) {{ y = own.shifted (x) }}
            <opset_import: ["" : 21], domain: "own">
            shifted (x) => (y) {{
              n = Constant <value = int64[1] {{{count}}}> ()
              big = ConstantOfShape (n)
              a = ReduceMax <keepdims = 0> (big)
              y = Add (x, a)
            }}""",
            id="a function",
        ),
    ],
)
def test_what_inner_graphs_and_functions_make_out_of_constants_has_the_limit_too(tmp_path, text):
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.parser.parse_model(text.format(count=3 * HALF)).SerializeToString())
    with pytest.raises(InputError, match="--size-limits 2 "):
        load_model(path)
    path.write_bytes(onnx.parser.parse_model(text.format(count=30)).SerializeToString())
    load_model(path)


@pytest.mark.parametrize("is_external", [False, True])
def test_the_name_of_a_constant_that_is_not_utf_8_is_refused(is_external, tmp_path):
    proto = message()
    tensor = proto.graph.initializer.add()
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(4096, np.float32), "weightname"))
    if is_external:
        put_outside(tensor, "weights.bin", length=4 * 4096)
        (tmp_path / "weights.bin").write_bytes(bytes(4 * 4096))
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString().replace(b"weightname", b"\xffeightname"))
    with pytest.raises(InputError, match="bytes that are not UTF-8 in a field 'name'"):
        load_model(path)


@pytest.mark.parametrize("kind", [0, 99])
def test_a_declared_value_without_an_element_type_is_refused(kind, tmp_path):
    proto = message()
    branch = proto.graph.node[3].attribute[0].g
    for graph in (proto.graph, branch):
        value = graph.value_info.add(name="h")
        value.type.tensor_type.elem_type = kind
        assert f"the value 'h' of element type {kind}" in refused(proto, tmp_path)
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    value.type.Clear()  # it need not say what it is
    (tmp_path / "right.onnx").write_bytes(proto.SerializeToString())
    load_model(tmp_path / "right.onnx")
