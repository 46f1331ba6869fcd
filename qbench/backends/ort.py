"""ONNX Runtime on the CPU: one session a prepared model, deterministic, without spinning threads.

Three backends of one engine, because its int8 results depend on its options: with all graph optimizations (QDQ
becomes integer kernels), with none (each QDQ pair is counted in float), and with all of them in the precise x64 mode,
which keeps u8×s8 dot products from saturating in pairs of 16 bits on processors without VNNI.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from qbench.backends.closing import Closing
from qbench.backends.feeds import FeedCheck
from qbench.backends.int8_movers import with_int8_pairs
from qbench.backends.optimization import Level, Optimization
from qbench.backends.protocol import Array, Executor, Feeds
from qbench.backends.refusal import batch_refusal, refusal
from qbench.backends.tapping import loaded, with_taps
from qbench.backends.unsharing import unshared
from qbench.errors import QbenchError, UnavailableError
from qbench.graph import MESSAGE_LIMIT, Capabilities, constant_bytes, model_bytes, save_model

if TYPE_CHECKING:
    import onnxruntime

_FATAL_ONLY = 4
"""Log level: every error is raised too, and then told once, in a sentence."""
_EVERYTHING = 0
"""Log level: what each optimizer did, among much else."""
_LEVELS = {
    Level.NONE: "ORT_DISABLE_ALL",
    Level.BASIC: "ORT_ENABLE_BASIC",
    Level.EXTENDED: "ORT_ENABLE_EXTENDED",
    Level.LAYOUT: "ORT_ENABLE_LAYOUT",
    Level.ALL: "ORT_ENABLE_ALL",
}
_ENTRIES = {
    # Spinning threads burn the cores that other workers of the same run need.
    "session.intra_op.allow_spinning": "0",
    "session.inter_op.allow_spinning": "0",
    # Its default would round float activations to 8 bits before products with dequantized weights.
    "session.qdq_matmulnbits_accuracy_level": "0",
}
_PROVIDERS = ("CPUExecutionProvider",)
_CAPABILITIES = Capabilities(
    activation_qtypes=frozenset({"int8", "uint8", "int16", "uint16"}),
    weight_qtypes=frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16"}),
    weight_per_block=True,
    # QLinearMatMul, MatMulIntegerToFloat and DynamicQuantizeMatMul fail at run time; DequantizeLinear refuses both.
    batched_per_channel=False,
    blocks_of_vectors=False,
    integer_products=frozenset({("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")}),
    float_products=frozenset({"ConvTranspose"}),
    dynamic=True,
)
"""What every level of optimization loads and runs (1.31). Optimized sessions refuse sums of activations per channel,
though the operators alone have kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrtBackend:
    """ONNX Runtime's CPU provider under one set of options.

    Args:
        name: how suites call it.
        optimization: which of its graph optimizations run: all, if nothing is said.
        precise: ``session.x64quantprecision``: exact u8×s8 sums on every x64 processor, at some speed.
        arena: whether a session keeps the memory that it has once used: not worth it where there are many of them.
    """

    name: str
    optimization: Optimization = field(default_factory=Optimization)
    precise: bool = False
    arena: bool = True
    capabilities: Capabilities = field(default_factory=lambda: _CAPABILITIES)
    packages: tuple[str, ...] = ("onnxruntime",)

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over ``model``; ``taps`` become graph outputs before it is made.

        Taps on an optimized session stop fusions and so change other outputs: a tapped run is a run of its own.

        Raises:
            InputError: no ONNX model, an invalid graph, or a tap that names no value of it.
            UnsupportedError: ONNX Runtime has no kernel or opset for it.
            UnavailableError: onnxruntime is not installed.
        """
        runtime = _runtime()
        graph = loaded(model)
        session = self._session(runtime, self.fitted(graph, taps), threads)
        return _OrtExecutor(session, FeedCheck.of(graph, self.name), self.name)

    def fitted(self, model: ir.Model, taps: Sequence[str] = ()) -> ir.Model:
        """What a session is made of: ``model`` with ``taps`` as outputs, rewritten where an optimizer would stumble.

        Raises:
            InputError: a tap names no value of it.
        """
        tapped = with_taps(model, taps)
        if self.optimization.level is not Level.NONE:
            tapped = with_int8_pairs(tapped)
        return unshared(tapped) if self.precise else tapped

    @property
    def level_name(self) -> str:
        """Its optimization level, as the engine calls it."""
        return _LEVELS[self.optimization.level]

    @property
    def session_entries(self) -> Mapping[str, str]:
        """The entries of a session's configuration."""
        return _ENTRIES | ({"session.x64quantprecision": "1"} if self.precise else {})

    def _session(self, runtime: Any, model: ir.Model, threads: int) -> "onnxruntime.InferenceSession":  # noqa: ANN401 - a module without types
        options = self._options(runtime, threads)
        given = {"providers": list(_PROVIDERS), "disabled_optimizers": set(self.optimization.without)}
        try:
            if constant_bytes(model) < MESSAGE_LIMIT:
                return runtime.InferenceSession(model_bytes(model), options, **given)
            with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
                path = Path(folder) / "model.onnx"
                save_model(model, path)
                return runtime.InferenceSession(os.fspath(path), options, **given)
        except QbenchError:
            raise
        except Exception as error:  # onnxruntime's exceptions share no public parent
            graph = model.graph.name or "model"
            raise refusal(
                type(error).__name__, str(error), graph=graph, backend=self.name, version=runtime.__version__
            ) from error

    def _options(self, runtime: Any, threads: int) -> Any:  # noqa: ANN401 - a module without types
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, self.level_name)
        if self.optimization.kept is not None:
            options.optimized_model_filepath = os.fspath(self.optimization.kept)
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = _EVERYTHING if self.optimization.told else _FATAL_ONLY
        options.use_deterministic_compute = True
        options.enable_cpu_mem_arena = self.arena
        options.enable_mem_pattern = False  # it keeps a plan per input shape: memory that grows, no time that shrinks
        for name, value in self.session_entries.items():
            options.add_session_config_entry(name, value)
        return options


class _OrtExecutor(Closing):
    """One session; closing drops it, which frees its memory."""

    def __init__(self, session: "onnxruntime.InferenceSession", check: FeedCheck, backend: str) -> None:
        self._session: onnxruntime.InferenceSession | None = session
        self._check = check
        self._backend = backend
        self._outputs = [output.name for output in session.get_outputs()]

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input does not fit the graph, or the batch as a whole does not.
        """
        if self._session is None:
            raise RuntimeError(f"this executor of '{self._backend}' was closed")
        arrays = self._check.checked(feeds)
        try:
            results = self._session.run(self._outputs, arrays)
        except Exception as error:  # onnxruntime's exceptions share no public parent
            raise batch_refusal(str(error), graph=self._check.graph, backend=self._backend) from error
        return dict(zip(self._outputs, results, strict=True))

    def close(self) -> None:
        """Free the session."""
        self._session = None


def _runtime() -> Any:  # noqa: ANN401 - a module without types
    try:
        import onnxruntime
    except ImportError as error:
        raise UnavailableError(
            "Preparing a model on ONNX Runtime",
            found=str(error),
            expected="the package onnxruntime",
            remedy="Install it: pip install onnxruntime.",
        ) from error
    onnxruntime.disable_telemetry_events()
    return onnxruntime
