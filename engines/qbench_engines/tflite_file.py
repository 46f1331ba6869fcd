"""A TFLite file in the making: tensors with two orders of axes, operators, and the flatbuffer
around them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Array
from qbench.errors import NotFetchedError, UnsupportedError
from qbench.extension import install_command
from qbench.graph import (
    INTEGER_FORMS,
    constant_value,
    float_name,
    input_at,
    node_key,
    only_consumer,
    op_spec,
)

Shape = tuple[int, ...]
Options = tuple[str, Mapping[str, object]] | None
"""The table of an operator's options and its fields."""

_SHIFT = 128
"""Between a uint8 code and the int8 code of the same number."""
IMAGE = 4
"""The rank of tensors that have two orders of axes."""
TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_NO_ACTIVATION, _RELU = 0, 1
_ALIGNMENT = 16
"""Bytes: kernels may read constants in vectors of this size (schema.fbs, table Buffer)."""
_LARGEST = (1 << 31) - 1
"""Bytes of a flatbuffer, whose offsets have 32 bits."""

_SIGNATURE = "serving_default"
"""The name of the only signature, as converters call it."""

_VERSIONS = MappingProxyType(
    {
        "CONV_2D": 3,
        "DEPTHWISE_CONV_2D": 3,
        "FULLY_CONNECTED": 4,
        "HARD_SWISH": 1,
        "QUANTIZE": 1,
        "RESHAPE": 1,
    }
)
"""The first version of an operator that takes int8
(tensorflow/lite/tools/versioning/op_version.cc).
"""
_OTHERS = 2
_TYPES = MappingProxyType(
    {"float32": "FLOAT32", "int32": "INT32", "int64": "INT64", "uint8": "UINT8", "int8": "INT8"}
)


@dataclass(frozen=True, slots=True, eq=False)
class TensorQParams:
    """Qparams as TFLite stores them: scales and zero points along ``axis`` where there are many."""

    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int64]
    axis: int = 0

    def same_as(self, other: "TensorQParams | None") -> bool:
        """Whether both stand for the same real numbers, bit for bit."""
        return (
            other is not None
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


class TfliteFile:
    """A flatbuffer in the making: tensors, then operators in their order."""

    def __init__(self) -> None:
        self._schema, self._flatbuffers = tflite_libraries("Writing a TFLite file")
        self._tensors: list[Any] = []
        self._buffers: list[Any] = [self._schema.BufferT()]
        self._operators: list[Any] = []
        self._codes: dict[tuple[str, int], int] = {}
        self._bytes = 0
        self.dtypes: list[str] = []

    def add_tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        qparams: TensorQParams | None = None,
        data: Array | None = None,
        *,
        free: bool = False,
    ) -> int:
        """The number of a new tensor; ``data`` makes it a constant, ``free`` lets its first
        axis have any size.
        """
        schema, buffer = self._schema, 0
        if data is not None:
            buffer = len(self._buffers)
            self._buffers.append(
                schema.BufferT(data=np.ascontiguousarray(data).view(np.uint8).reshape(-1))
            )
            self._bytes += data.nbytes
        quantization = None
        if qparams is not None:
            quantization = schema.QuantizationParametersT(
                scale=qparams.scale, zeroPoint=qparams.zero_point, quantizedDimension=qparams.axis
            )
        signature = np.array([-1, *shape[1:]], np.int32) if free else None
        self._tensors.append(
            schema.TensorT(
                shape=np.array(shape, np.int32),
                type=getattr(schema.TensorType, _TYPES[dtype]),
                buffer=buffer,
                name=name,
                quantization=quantization,
                shapeSignature=signature,
                hasRank=True,
            )
        )
        self.dtypes.append(dtype)
        return len(self._tensors) - 1

    def add_operator(
        self,
        operator: str,
        options: Options,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        version: int,
    ) -> None:
        """The next operator; an absent input is −1."""
        schema = self._schema
        code = self._codes.setdefault((operator, version), len(self._codes))
        made = schema.OperatorT(
            opcodeIndex=code, inputs=np.array(inputs, np.int32), outputs=np.array(outputs, np.int32)
        )
        if options is not None:
            table, settings = options
            made.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            made.builtinOptions = getattr(schema, f"{table}T")(**settings)
        self._operators.append(made)

    def finished(
        self,
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
        description: str,
    ) -> bytes:
        """The file, with one signature: what its inputs and outputs are called.

        Args:
            inputs, outputs: name → number of the tensor, in their order.
            description: of the file.

        Raises:
            UnsupportedError: it would be larger than a flatbuffer can be.
        """
        schema = self._schema
        if self._bytes > _LARGEST:
            raise UnsupportedError(
                "Writing a TFLite file",
                found=f"{self._bytes} bytes of constants",
                expected=f"at most {_LARGEST} bytes, as offsets of a flatbuffer have 32 bits",
                remedy="Split the model.",
            )
        codes = [
            schema.OperatorCodeT(
                deprecatedBuiltinCode=min(number, 127), builtinCode=number, version=version
            )
            for number, version in (
                (getattr(schema.BuiltinOperator, name), version) for name, version in self._codes
            )
        ]
        self._name_apart([*inputs.values(), *outputs.values()])
        graph = schema.SubGraphT(
            tensors=self._tensors,
            inputs=np.array(list(inputs.values()), np.int32),
            outputs=np.array(list(outputs.values()), np.int32),
            operators=self._operators,
            name="main",
        )
        model = schema.ModelT(
            version=3,
            operatorCodes=codes,
            subgraphs=[graph],
            buffers=self._buffers,
            description=description,
            signatureDefs=[
                schema.SignatureDefT(
                    signatureKey=_SIGNATURE,
                    inputs=self._named(inputs),
                    outputs=self._named(outputs),
                )
            ],
        )
        builder = _aligned(self._flatbuffers)(self._bytes + 4096)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def _named(self, tensors: Mapping[str, int]) -> list[Any]:
        return [
            self._schema.TensorMapT(name=name, tensorIndex=number)
            for name, number in tensors.items()
        ]

    def _name_apart(self, first: Sequence[int]) -> None:
        """Give each tensor a name of its own: other tools tell them apart by it.

        Args:
            first: numbers of the tensors that keep the name they have.
        """
        taken: set[str] = set()
        for number in dict.fromkeys((*first, *range(len(self._tensors)))):
            tensor = self._tensors[number]
            wanted = tensor.name or f"constant_{number}"
            name, count = wanted, number
            while name in taken:
                name, count = f"{wanted}_{count}", count + 1
            taken.add(name)
            tensor.name = name


def int8_version(operator: str) -> int:
    """The first version of ``operator`` that takes int8."""
    return _VERSIONS.get(operator, _OTHERS)


def tflite_libraries(doing: str) -> tuple[Any, Any]:
    """The schema of TFLite files, and flatbuffers.

    Raises:
        NotFetchedError: they are not installed.
    """
    try:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema
    except Exception as error:  # a wheel that does not load raises errors of any type
        raise NotFetchedError(
            doing,
            found=str(error),
            expected="the packages ai-edge-litert and flatbuffers",
            remedy=f"Install them: {install_command('litert')}.",
        ) from error
    return schema, flatbuffers


def _aligned(flatbuffers: Any) -> Any:  # noqa: ANN401 - modules without types
    class Aligned(flatbuffers.Builder):  # type: ignore[misc]
        """A builder whose vectors of bytes start at multiples of 16, which Python's own does
        not do.
        """

        def CreateNumpyVector(self, x: Array) -> int:  # noqa: N802 - the library's name
            self.StartVector(x.itemsize, x.size, _ALIGNMENT)
            size = x.nbytes
            self.head -= size
            self.Bytes[self.head : self.head + size] = x.tobytes(order="C")
            self.vectorNumElems = x.size
            return int(self.EndVector())

    return Aligned


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A TFLite file and where the parts of the graph are in it.

    Args:
        data: the file.
        inputs, outputs: names, in the order of the file's inputs and outputs.
        nodes: of every operator of the file, the node that it computes; "": it only brings an
            operand into place.
        in_float: of these, the ones that compute in float32.
        shapes: of the inputs; another batch may be fed where ``free`` says so.
        free: whether the size of the batch is free.
    """

    data: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    in_float: tuple[str, ...]
    shapes: Mapping[str, Shape]
    free: bool


def refuse(doing: str, node: ir.Node, why: str) -> NoReturn:
    """Refuse ``node`` by name.

    Raises:
        UnsupportedError: always.
    """
    name = float_name(node.op_type)
    raise UnsupportedError(
        doing,
        found=f"{name} '{node_key(node)}': {why}",
        expected="operators that TFLite has with the same numbers",
        remedy="Choose another backend, or keep this operator out of the graph.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of the file: its number, ONNX shape, type, qparams, and whether its channels are
    last.
    """

    number: int
    shape: Shape
    dtype: str
    qparams: TensorQParams | None = None
    last: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An input of a node with its qparams; ``constant``: its codes or reals, as the file holds
    them.
    """

    value: ir.Value
    qparams: TensorQParams | None = None
    constant: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A node of the lowered graph, by the name of its float operator.

    Args:
        operands: those that are tensors; None: absent.
        qparams: of the result; None: as the first operand, or real.
        bias: int32, of products.
    """

    node: ir.Node
    name: str
    operands: list[Operand | None]
    qparams: TensorQParams | None = None
    bias: Array | None = None

    @property
    def data(self) -> Operand:
        """The first operand."""
        assert self.operands[0] is not None
        return self.operands[0]

    @property
    def out(self) -> ir.Value:
        """The first output."""
        return self.node.outputs[0]


Handler = Callable[["Network", Operation], None]


@dataclass(slots=True)
class Network:
    """A lowered graph being written."""

    model: ir.Model
    shapes: Mapping[str, Shape]
    doing: str
    file: TfliteFile = field(default_factory=TfliteFile)
    nodes: list[str] = field(default_factory=list)
    in_float: list[str] = field(default_factory=list)
    known: dict[str, dict[bool, Tensor]] = field(default_factory=dict)
    reals: dict[str, Array] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    done: set[str] = field(default_factory=set)
    free: bool = False
    node: ir.Node | None = None

    def written(
        self, taps: tuple[str, ...], handlers: Callable[[ir.Node], "Handler | None"]
    ) -> Written:
        """The file of the whole graph."""
        graph = self.model.graph
        inputs = [value for value in graph.inputs if value.name not in graph.initializers]
        first = inputs[0].shape if inputs else None
        has_size = any(float_name(node.op_type) in _FIX_BATCH for node in graph)
        self.free = (
            bool(first) and first is not None and not isinstance(first[0], int) and not has_size
        )
        asked = list(dict.fromkeys((*(str(value.name) for value in graph.outputs), *taps)))
        self.kept = frozenset(asked)
        fed = [self._input(value) for value in inputs]
        for node in graph:
            if node_key(node) not in self.done:
                self.node = node
                handler = handlers(node)
                assert handler is not None
                handler(self, self._operation(node))
        results = [self._output(name) for name in asked]
        names = tuple(str(value.name) for value in inputs)
        data = self.file.finished(
            dict(zip(names, fed, strict=True)),
            dict(zip(asked, results, strict=True)),
            f"{graph.name} written by qbench",
        )
        shapes = {str(value.name): self.shape_of(value) for value in inputs}
        return Written(
            data=data,
            inputs=names,
            outputs=tuple(asked),
            nodes=tuple(self.nodes),
            in_float=tuple(self.in_float),
            shapes=shapes,
            free=self.free,
        )

    def refuse(self, why: str) -> NoReturn:
        """Refuse the present node.

        Raises:
            UnsupportedError: always.
        """
        assert self.node is not None
        refuse(self.doing, self.node, why)

    # The ends. Integers of 8 bits without sign get a QUANTIZE there, which every kernel does
    # exactly.

    def _input(self, value: ir.Value) -> int:
        dtype, shape, name = codes_dtype(value), self.shape_of(value), str(value.name)
        if dtype not in _TYPES:
            raise UnsupportedError(
                self.doing,
                found=f"input '{name}' of type {dtype}",
                expected="float32, or 8-bit integers",
                remedy="Choose another backend.",
            )
        qparams = self._qparams_of_input(value) if dtype in {"int8", "uint8"} else None
        number = self.file.add_tensor(name, shape, dtype, _raw(qparams, dtype), free=self.free)
        tensor = Tensor(number, shape, dtype, qparams)
        if dtype == "uint8":
            inner = self.file.add_tensor(f"{name}_int8", shape, "int8", qparams)
            self.emit("QUANTIZE", ("QuantizeOptions", {}), [number], [inner], key="")
            tensor = Tensor(inner, shape, "int8", qparams)
        self.known[name] = {False: tensor}
        return number

    def _qparams_of_input(self, value: ir.Value) -> TensorQParams:
        """The qparams by which the first operator reads an input of integers."""
        for use in value.uses():
            for operand in self._operation(use.node).operands:
                if operand is not None and operand.value is value and operand.qparams is not None:
                    return operand.qparams
        return TensorQParams(
            np.ones(1, np.float32),
            np.array([-_SHIFT if codes_dtype(value) == "uint8" else 0], np.int64),
        )

    def _output(self, name: str) -> int:
        value = next(v for v in _values(self.model) if v.name == name)
        tensor = self.at(value, last=False)
        if codes_dtype(value) != "uint8" or tensor.dtype != "int8":
            return tensor.number
        number = self.file.add_tensor(
            f"{name}_uint8", tensor.shape, "uint8", _raw(tensor.qparams, "uint8")
        )
        self.emit("QUANTIZE", ("QuantizeOptions", {}), [tensor.number], [number], key="")
        return number

    # Reading a node.

    def _operation(self, node: ir.Node) -> Operation:
        name, inputs = float_name(node.op_type), list(node.inputs)
        form = INTEGER_FORMS.get((node.domain, node.op_type))
        if form is None and not node.domain:
            return Operation(
                node, name, [None if v is None else Operand(v, None, self.real(v)) for v in inputs]
            )
        if node.op_type == "QLinearConcat":
            places = [(at, at + 1, at + 2) for at in range(2, len(inputs), 3)]
            return self._quantized(node, name, places, (0, 1))
        if form is not None and form.operands:
            return self._quantized(node, name, list(form.operands), form.result, form.bias)
        end = len(inputs) - 2
        return self._quantized(
            node, name, [(at, at + 1, at + 2) for at in range(0, end, 3)], (end, end + 1)
        )

    def _quantized(
        self,
        node: ir.Node,
        name: str,
        places: Sequence[tuple[int, ...]],
        result: tuple[int, int] | None,
        bias: int | None = None,
    ) -> Operation:
        operands = [self._operand(node, place) for place in places]
        written = None if result is None else self._written(node, *result)
        added = None if bias is None else constant_value(input_at(node, bias))
        return Operation(node, name, operands, written, added)

    def _operand(self, node: ir.Node, place: tuple[int, ...]) -> Operand | None:
        """The input of ``node`` at ``place``: (its position[, that of its scale[, that of its
        zero point]]).
        """
        value = input_at(node, place[0])
        if value is None:
            return None
        constant = constant_value(value)
        scale = input_at(node, place[1]) if len(place) > 1 else None
        if scale is None:
            return Operand(value, None, constant)
        point = input_at(node, place[2]) if len(place) > 2 else None
        qparams = self.qparams(scale, point, codes_dtype(value))
        codes = None if constant is None else self.codes(constant, codes_dtype(value))
        return Operand(value, qparams, codes)

    def _written(self, node: ir.Node, scale_at: int, point_at: int) -> TensorQParams | None:
        """The qparams of the result of ``node``; None where it is real."""
        scale = input_at(node, scale_at)
        if scale is None:
            return None
        return self.qparams(scale, input_at(node, point_at), codes_dtype(node.outputs[0]))

    def qparams(self, scale: ir.Value, point: ir.Value | None, dtype: str) -> TensorQParams:
        """Qparams of int8 codes for those of codes of ``dtype``.

        Raises:
            UnsupportedError: they are computed, or of a type without int8 codes.
        """
        scales = constant_value(scale)
        points = np.zeros(1, np.int64) if point is None else constant_value(point)
        if scales is None or points is None:
            self.refuse("its qparams are computed for every batch")
        if dtype not in {"int8", "uint8", "int4", "uint4"}:
            self.refuse(f"codes of type {dtype}, where TFLite's integer kernels take int8")
        points = points.astype(np.int64).reshape(-1) - (_SHIFT if dtype == "uint8" else 0)
        scales = scales.astype(np.float32).reshape(-1)
        return TensorQParams(scales, np.broadcast_to(points, scales.shape).copy())

    def codes(self, codes: Array, dtype: str) -> Array:
        """Constant codes as int8."""
        wide = codes.astype(np.int16)
        return np.asarray(wide - _SHIFT if dtype == "uint8" else wide, np.int8)

    def real(self, value: ir.Value) -> Array | None:
        """The reals, or other numbers, of a constant; None: it is computed."""
        return self.reals.get(str(value.name), constant_value(value))

    def shape_of(self, value: ir.Value) -> Shape:
        """The shape of ``value`` in ONNX's order of axes."""
        shape = self.shapes.get(str(value.name))
        if (
            shape is None
            and value.shape is not None
            and all(isinstance(size, int) for size in value.shape)
        ):
            shape = tuple(size for size in value.shape if isinstance(size, int))
        if shape is None:
            node = value.producer()
            if node is None or not (node.op_type in _KEEP_SHAPE or op_spec(node).pointwise):
                self.refuse(f"the shape of '{value.name}' cannot be inferred")
            source = input_at(node, 0)
            assert source is not None
            shape = self.shape_of(source)
        return shape

    # Tensors.

    def at(self, value: ir.Value, *, last: bool | None = None) -> Tensor:
        """The tensor of ``value`` with its channels last or not; None: as it is."""
        name = str(value.name)
        orders = self.known.get(name)
        if orders is None:
            constant = self.real(value)
            if constant is None:
                self.refuse(f"'{name}' is computed by a part of the graph that TFLite lacks")
            return self.constant(name, constant, last=bool(last))
        if last is None:
            return next(iter(orders.values()))
        some = next(iter(orders.values()))
        last = last and len(some.shape) == IMAGE
        if last not in orders:
            orders[last] = self.turned(name, some, last=last)
        return orders[last]

    def turned(self, name: str, tensor: Tensor, *, last: bool) -> Tensor:
        """``tensor`` with its channels last or first: a TRANSPOSE, or a RESHAPE where elements
        keep their order.
        """
        made = self.new(
            f"{name}_{'nhwc' if last else 'nchw'}",
            tensor.shape,
            tensor.dtype,
            tensor.qparams,
            last=last,
        )
        _, channels, height, width = tensor.shape
        if channels == 1 or height * width == 1:  # the order of the elements is the same
            self.reshape(tensor.number, made, key="")
        else:
            order = self.index(np.array(TO_LAST if last else _TO_FIRST, np.int32))
            self.emit(
                "TRANSPOSE", ("TransposeOptions", {}), [tensor.number, order], [made.number], key=""
            )
        return made

    def reshape(self, number: int, made: Tensor, *, key: str | None = None) -> None:
        """RESHAPE of a tensor to ``made``; the batch stays free."""
        shape = np.array(_stored(made.shape, last=made.last), np.int32)
        if self.free and shape.size and math.prod(shape[1:]):
            shape[0] = -1
        self.emit(
            "RESHAPE",
            ("ReshapeOptions", {"newShape": shape}),
            [number, self.index(shape)],
            [made.number],
            key=key,
        )

    def new(
        self,
        name: str,
        shape: Shape,
        dtype: str,
        qparams: TensorQParams | None,
        *,
        last: bool = False,
    ) -> Tensor:
        """A computed tensor."""
        last = last and len(shape) == IMAGE
        number = self.file.add_tensor(name, _stored(shape, last=last), dtype, qparams)
        return Tensor(number, shape, dtype, qparams, last)

    def constant(
        self, name: str, array: Array, qparams: TensorQParams | None = None, *, last: bool = False
    ) -> Tensor:
        """A constant tensor; given in ONNX's order of axes."""
        if str(array.dtype) not in _TYPES:
            self.refuse(f"a constant of type {array.dtype}")
        last = last and array.ndim == IMAGE
        stored = array.transpose(TO_LAST) if last else array
        number = self.file.add_tensor(name, stored.shape, str(array.dtype), qparams, stored)
        return Tensor(number, array.shape, str(array.dtype), qparams, last)

    def index(self, array: Array) -> int:
        """A constant of places, sizes or axes."""
        return self.file.add_tensor("", array.shape, str(array.dtype), None, array)

    def result(
        self,
        value: ir.Value,
        qparams: TensorQParams | None,
        *,
        last: bool = False,
        dtype: str | None = None,
    ) -> Tensor:
        """The tensor that ``value`` becomes."""
        kind = dtype or ("int8" if qparams is not None else codes_dtype(value))
        if kind not in _TYPES:
            self.refuse(f"a result of type {kind}")
        made = self.new(str(value.name), self.shape_of(value), kind, qparams, last=last)
        self.known[str(value.name)] = {made.last: made}
        return made

    def read(
        self, operand: Operand, *, last: bool | None = None, rank: int | None = None
    ) -> Tensor:
        """The tensor of an operand, checked to have the qparams that the node reads it by."""
        name = str(operand.value.name)
        if operand.constant is not None and name not in self.known:
            array = operand.constant
            if rank is not None and last:
                array = array.reshape((1,) * (rank - array.ndim) + array.shape)
            return self.constant(name, array, operand.qparams, last=bool(last))
        tensor = self.at(operand.value, last=last)
        if operand.qparams is not None and not operand.qparams.same_as(tensor.qparams):
            self.refuse(f"'{name}' is read by other qparams than it was written with")
        return tensor

    def emit(
        self,
        operator: str,
        options: Options,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        version: int = 0,
        key: str | None = None,
    ) -> None:
        """An operator, of the present node unless ``key`` names another or ("") none."""
        self.file.add_operator(
            operator, options, inputs, outputs, version=version or int8_version(operator)
        )
        if key is None:
            assert self.node is not None
            key = node_key(self.node)
        self.nodes.append(key)
        if key and all(self.file.dtypes[number] == "float32" for number in (inputs[0], outputs[0])):
            self.in_float.append(key)

    # Clips after an operator.

    def fused(self, op: Operation) -> tuple[ir.Value, int]:
        """The value that an operator gives and its fused activation: RELU where a Clip of codes
        after it is just that.

        RELU clips at the zero point, by every set of kernels. RELU6 is rounded differently by each:
        it stays a MINIMUM.
        """
        clip = only_consumer(op.out)
        if (
            op.qparams is None
            or clip is None
            or clip.op_type != "Clip"
            or clip.domain
            or str(op.out.name) in self.kept
        ):
            return op.out, _NO_ACTIVATION
        low, high = self.limits(clip, codes_dtype(op.out))
        if clip.inputs[0] is not op.out or low != int(op.qparams.zero_point[0]) or high != 127:
            return op.out, _NO_ACTIVATION
        self.done.add(node_key(clip))
        return clip.outputs[0], _RELU

    def limits(self, clip: ir.Node, dtype: str) -> tuple[int, int]:
        """The ends of a Clip of codes, as int8."""
        shift = _SHIFT if dtype == "uint8" else 0
        found = []
        for place, end in ((1, -128), (2, 127)):
            value = input_at(clip, place)
            known = None if value is None else constant_value(value)
            if value is not None and known is None:
                self.refuse("the ends of a Clip of codes are computed")
            found.append(end if known is None else int(known.reshape(-1)[0]) - shift)
        return max(found[0], -128), min(found[1], 127)

    def is_last(self, operands: Sequence[Operand]) -> bool:
        """Whether an operator on all of them has its channels last: one does, and the rest
        follow.
        """
        tensors = [self.known.get(str(operand.value.name)) for operand in operands]
        ranks = {len(next(iter(orders.values())).shape) for orders in tensors if orders}
        return ranks == {IMAGE} and any(True in orders for orders in tensors if orders)


_FIX_BATCH = frozenset({"ConvTranspose"})
"""Operators whose result has its whole shape as a constant in the file."""
_KEEP_SHAPE = frozenset(
    {"Clip", "QuantizeLinear", "DequantizeLinear", "QLinearRequantize", "Identity", "Softmax"}
)


def _values(model: ir.Model) -> list[ir.Value]:
    return [
        *model.graph.inputs,
        *model.graph.initializers.values(),
        *(v for n in model.graph for v in n.outputs),
    ]


def codes_dtype(value: ir.Value) -> str:
    """The element type of ``value`` by numpy's name; "" where it has none."""
    if value.dtype is None or value.dtype is ir.DataType.STRING:
        return ""
    return np.dtype(value.dtype.numpy()).name


def _stored(shape: Shape, *, last: bool) -> Shape:
    return tuple(shape[axis] for axis in TO_LAST) if last and len(shape) == IMAGE else shape


def file_axis(axis: int, rank: int, *, last: bool) -> int:
    """Where the ONNX axis is in the file."""
    axis %= rank
    return TO_LAST.index(axis) if last and rank == IMAGE else axis


def _raw(qparams: TensorQParams | None, dtype: str) -> TensorQParams | None:
    """Qparams of codes of ``dtype`` itself."""
    return (
        TensorQParams(qparams.scale, qparams.zero_point + _SHIFT)
        if qparams is not None and dtype == "uint8"
        else qparams
    )
