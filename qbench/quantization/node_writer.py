"""New nodes and constants under fresh names, put right behind what makes a value or right before what reads it."""

from collections.abc import Sequence

import onnx_ir as ir

from qbench.graph import origin_of, set_origin
from qbench.passes import NameScope


class NodeWriter:
    """The names taken in one model, which grow with what is written into it."""

    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._value_names = NameScope.of_values(model)
        self._node_names = NameScope.of_nodes(model)

    def made(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        wanted: str,
        dtype: ir.DataType,
        *,
        outputs: int = 1,
    ) -> ir.Node:
        """A node that is in no graph yet; it and its first result, of ``dtype``, are called ``wanted``."""
        name = self._node_names.fresh(wanted)
        node = ir.Node("", operator, inputs, attributes, num_outputs=outputs, name=name)
        self.name_output(node.outputs[0], wanted)
        node.outputs[0].dtype = dtype
        return node

    def name_output(self, value: ir.Value, wanted: str) -> None:
        """Call ``value`` ``wanted``, or that with a number."""
        value.name = self._value_names.fresh(wanted)

    def behind(self, maker: ir.Node | None, node: ir.Node, *, origin: str | None = None) -> None:
        """Put ``node`` right behind ``maker``, of whose origin it is; for a graph input (None), at the beginning."""
        if maker is None:
            self._graph.insert_before(self._graph[0], node)
            return
        self._graph.insert_after(maker, node)
        set_origin(node, origin or origin_of(maker))

    def before(self, consumer: ir.Node, index: int, node: ir.Node) -> None:
        """Put ``node`` right before ``consumer``, in its graph; its input ``index`` is what ``node`` gives."""
        graph = consumer.graph
        assert graph is not None
        graph.insert_before(consumer, node)
        consumer.replace_input_with(index, node.outputs[0])

    def initializer(self, wanted: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A new constant of the main graph, called ``wanted`` or that with a number."""
        name = self._value_names.fresh(wanted)
        tensor.name = name
        shape, kind = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        value = ir.Value(name=name, shape=shape, type=kind, const_value=tensor)
        self._graph.register_initializer(value)
        return value
