"""OpenVINO on the CPU: it takes QDQ graphs as they are, and reports in which precision each
node runs.
"""

import functools
import os
import re
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    HANG_S,
    Array,
    EngineExecutor,
    Executed,
    Executor,
    FeedCheck,
    Miscomputed,
    importing_engine,
    loaded,
)
from qbench.errors import InputError, QbenchError, UnsupportedError, require_count
from qbench.graph import (
    MESSAGE_LIMIT,
    Capabilities,
    constant_bytes,
    model_bytes,
    node_key,
    save_model,
)
from qbench.host import has_amx, package_versions, processor_class
from qbench_engines.openvino_limits import PATTERNS, miscomputed

# The settings of a compiled model. OpenVINO chooses some of them by the processor, and they change
# numbers: on a processor with bf16 instructions its default computes what is float in bf16. So they
# are fixed here, and a backend of another precision is a backend of another name.

_SETTINGS: Mapping[str, object] = {
    "NUM_STREAMS": 1,
    # Threads that are bound to cores would compete with the other workers of a run for the same
    # cores.
    "ENABLE_CPU_PINNING": False,
    # No activation of a float product is quantized at run time, for weights of 8 or 4 bits.
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    "EXECUTION_MODE_HINT": "ACCURACY",
}

_CAPABILITIES = Capabilities(
    # Pairs of 16 bits load too, but the engine removes them and computes in float, without rounding
    # to their codes.
    activation_qtypes=frozenset({"int8", "uint8"}),
    weight_qtypes=frozenset(
        {"int4", "uint4", "int8", "uint8", "float8e4m3fn", "float8e5m2", "float4e2m1"}
    ),
    scale_types=frozenset({"float8e8m0", "float8e4m3fn"}),
    weight_per_block=True,
    short_blocks=False,
    integer_products=frozenset({("uint8", "int8"), ("int8", "int8")}),
    taps=False,
    miscomputes=frozenset(PATTERNS),
)
"""What it loads and runs (2026.4); products with unsigned or 4-bit weights run in float."""

_ARITHMETICS = {
    "x64-avx512-vnni": "openvino-vnni",
    "x64-avx2-vnni": "openvino-vnni",
    "x64-avx2": "openvino-avx2",
}
"""Class of processor → arithmetic. Kernels for AVX-512 without VNNI sum other pairs, which no
arithmetic describes.
"""

_LACKING = (
    "No conversion rule",
    "OpConversionFailure",
    "implementations.empty()",
    "mplemented",
    "upported",
)
"""Parts of messages that mean that the engine does not support the model, and not that the
graph is invalid.
"""


_THROWN = "CALLBACK HAS THROWN"
"""What the engine says where it fails to prepare a kernel for the shapes of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenvinoBackend:
    """OpenVINO's CPU plugin.

    Args:
        name: its name in suites.
        precision: in which it computes operators that are not quantized, by the engine's name:
            ``f32`` or ``bf16``.
        hang_s: as of ``MayCrash``.
    """

    name: str = "openvino"
    precision: str = "f32"
    capabilities: Capabilities = field(default_factory=lambda: _CAPABILITIES)
    packages: tuple[str, ...] = ("openvino",)
    hang_s: float = HANG_S

    @property
    def arithmetic(self) -> str | None:
        """That of its integer kernels on this processor; None: they are not known."""
        found = _ARITHMETICS.get(processor_class())
        return "openvino-amx" if found == "openvino-vnni" and has_amx() else found

    @property
    def unusual_kernels(self) -> dict[str, str]:
        """``onednn``: ``amx``, where the processor has it; others are of its class."""
        return {"onednn": "amx"} if has_amx() else {}

    def miscomputed(self, model: ir.Model) -> tuple[Miscomputed, ...]:
        """The nodes of ``model`` that OpenVINO computes wrong, with the reason.

        ``prepare`` refuses those that it computes wrong on this processor, and all where its
        arithmetic is not known.

        Raises:
            InputError: an invalid Q or DQ.
        """
        return miscomputed(model)

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """A compiled model.

        Raises:
            InputError: not an ONNX model, or an invalid graph.
            UnsupportedError: OpenVINO does not run it, or taps are requested: further outputs
                change what it fuses.
            NotFetchedError: openvino is not installed.
        """
        doing = f"Preparing a model on '{self.name}'"
        require_count(doing, "threads", threads)  # 0 would be all processors
        core = _core(self.name)
        if self.precision == "bf16" and "BF16" not in core.get_property(
            "CPU", "OPTIMIZATION_CAPABILITIES"
        ):
            raise UnsupportedError(
                doing,
                found="a processor without instructions for bf16",
                expected="one on which OpenVINO computes in bf16",
                remedy="Choose the backend 'openvino', which computes in float32.",
            )
        graph = loaded(model)
        outputs = {value.name for value in graph.graph.outputs}
        if further := [name for name in taps if name not in outputs]:
            raise UnsupportedError(
                doing,
                found=f"a tap on '{further[0]}'",
                expected=(
                    "no taps: OpenVINO fuses other operators when a value between them is an output"
                ),
                remedy="Watch an integer interpreter of its arithmetic, or another backend.",
            )
        if wrong := [
            one for one in miscomputed(graph) if self.arithmetic in (None, *one.arithmetics)
        ]:
            raise UnsupportedError(
                doing,
                found=f"'{wrong[0].node}': {wrong[0].why}",
                expected="no graph that this engine is known to compute wrong without a word",
                remedy=(
                    "Change the node as docs/backends.md says for OpenVINO, or choose another "
                    "backend."
                ),
            )
        compiled = self._compiled(core, graph, threads)
        return _OpenvinoExecutor(compiled, graph, FeedCheck.of(graph, self.name))

    def _compiled(self, core: Any, graph: ir.Model, threads: int) -> Any:  # noqa: ANN401 - a module without types
        settings = {
            **_SETTINGS,
            "INFERENCE_PRECISION_HINT": self.precision,
            "INFERENCE_NUM_THREADS": threads,
        }
        try:
            if constant_bytes(graph) < MESSAGE_LIMIT:
                return core.compile_model(core.read_model(model_bytes(graph)), "CPU", settings)
            with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
                path = Path(folder) / "model.onnx"
                save_model(graph, path)
                return core.compile_model(core.read_model(os.fspath(path)), "CPU", settings)
        except QbenchError:
            raise
        except Exception as error:  # its exceptions share no public parent
            raise self._refusal(str(error), graph) from error

    def _refusal(self, message: str, graph: ir.Model) -> QbenchError:
        doing = f"Preparing '{graph.graph.name or 'model'}' on '{self.name}'"
        found = _sentence(message)
        version = package_versions(self.packages)["openvino"]
        if any(words in message for words in _LACKING):
            return UnsupportedError(
                doing,
                found=found,
                expected=f"operators that OpenVINO {version} runs on the CPU",
                remedy="Choose another backend, or export the model with supported operators.",
            )
        return InputError(
            doing,
            found=found,
            expected=f"a graph that OpenVINO {version} reads",
            remedy="Export the model again, or report the pass or quantizer that wrote it.",
        )


@functools.cache
def _core(backend: str) -> Any:  # noqa: ANN401 - a module without types
    """The engine, which loads its plugins once per process."""
    with importing_engine(extra="openvino", backend=backend):
        import openvino

        return openvino.Core()


def _sentence(message: str) -> str:
    """The engine's message without its source files and lines."""
    text = re.sub(
        r"Exception from \S+:\d+:|FrontEnd API failed with \w+:|(?<=\n)-- |\bat src/\S+:\d+:?",
        " ",
        message,
    )
    return textwrap.shorten(text, 300, placeholder=" …")


# How the nodes of a graph run, by the compiled model.
#
# Each of its nodes names the nodes that it stems from, by the name of the node or of its result,
# sometimes with a part after '/'. ``runtimePrecision`` is the narrowest type of its inputs, which
# may be that of a weight that the kernel dequantizes; ``primitiveType`` ends with the type that the
# kernel computes with, ``I8`` for both 8-bit types.

_IDLE = frozenset({"Const", "Input", "Output"})
_PRODUCTS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
_TYPES = {
    "u8": "uint8",
    "i8": "int8",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i32": "int32",
}
_INTEGER = re.compile(r"[uiI]\d+")


def executed_nodes(compiled: Any, graph: ir.Model) -> dict[str, Executed]:  # noqa: ANN401 - a module without types
    """How ``compiled``, a compiled model of ``graph``, runs the nodes of ``graph``."""
    names = {str(value.name): node_key(node) for node in graph.graph for value in node.outputs}
    names |= {node.name: node_key(node) for node in graph.graph if node.name}
    found: dict[str, Executed] = {}
    products: set[str] = set()
    for one in compiled.get_runtime_model().get_ordered_ops():
        info = {key: value.astype(str) for key, value in one.get_rt_info().items() if key in _FACTS}
        kind = info.get("layerType", "")
        if kind in _IDLE:
            continue
        executed = Executed(_precision(info), "cpu")
        for made_of in filter(None, info.get("originalLayersNames", "").split(",")):
            key = _traced(made_of, names)
            if key and (key not in found or kind in _PRODUCTS) and key not in products:
                found[key] = executed
                products |= {key} if kind in _PRODUCTS else set()
    return found


_FACTS = frozenset({"layerType", "originalLayersNames", "primitiveType", "runtimePrecision"})


def _precision(info: Mapping[str, str]) -> str:
    inputs = info.get("runtimePrecision", "")
    kernel = info.get("primitiveType", "").rpartition("_")[2]
    of_kernel = inputs if _INTEGER.fullmatch(kernel) else kernel
    return _TYPES.get(of_kernel, "")


def _traced(name: str, names: Mapping[str, str]) -> str:
    """The node that ``name``, of a node of the compiled model, refers to; empty: none."""
    while name and name not in names:
        name = name.rpartition("/")[0]
    return names.get(name, "")


class _OpenvinoExecutor(EngineExecutor[Any]):
    """The executor of one compiled model; closing it frees the memory."""

    def __init__(self, compiled: Any, graph: ir.Model, check: FeedCheck) -> None:  # noqa: ANN401 - a module without types
        super().__init__(compiled, check)
        self._request: Any = compiled.create_infer_request()
        self._graph = graph
        self._inputs = {
            name: index for index, port in enumerate(compiled.inputs) for name in port.get_names()
        }
        self._outputs = [str(value.name) for value in graph.graph.outputs]

    def _answer(self, held: Any, arrays: dict[str, Array]) -> dict[str, Array]:  # noqa: ANN401, ARG002 - its request runs
        for name in arrays.keys() - self._inputs.keys():
            if name not in self._check.required:
                # one that the graph requires and the engine has not is of no effect
                raise self._refusal(
                    f"input '{name}' with a default value, which the engine does not replace"
                )
        given = {
            self._inputs[name]: np.asarray(array, order="C")
            for name, array in arrays.items()
            if name in self._inputs
        }
        try:
            results = self._request.infer(given, share_inputs=True)
        except Exception as error:  # its exceptions share no public parent
            if _THROWN in str(error):
                raise self._unsupported() from error
            raise self._refusal(_sentence(str(error))) from error
        return {name: np.asarray(results[index]) for index, name in enumerate(self._outputs)}

    def _unsupported(self) -> UnsupportedError:
        return UnsupportedError(
            f"Running '{self._check.graph}' on '{self._check.backend}'",
            found="an exception inside OpenVINO while it prepared a kernel for these shapes",
            expected="kernels for every node",
            remedy=(
                "Choose another backend, or fix the batch of the model: kernels are then chosen "
                "beforehand."
            ),
        )

    def executed(self) -> Mapping[str, Executed]:
        """The nodes of the compiled model under the names of those that they stem from."""
        if self._held is None:
            raise RuntimeError(f"this executor of '{self._check.backend}' was closed")
        return executed_nodes(self._held, self._graph)

    def close(self) -> None:
        """Free the compiled model."""
        self._request = None
        super().close()
