"""What a backend adds to its engine: MobileNetV2 in batches of 8 by the engine's own API, and
by the backend.

    python benchmarks/engine_overhead.py                     every engine that is installed
    python benchmarks/engine_overhead.py openvino ep-cpu     some

The task of the network answers the same pictures in each form, with samples read and answers
decoded as in a cell: "none" runs no engine; "raw" is the engine's own API with the same settings
(for PyTorch, which has no API for such a graph, its operators alone); "backend" is the backend in
this process; "cell" is the backend as a cell runs it, in the process of the engine. What a form
adds is (form - raw) / (raw - none) in one round; the median over rounds is printed with its
quartiles. Processor time is that of this process and of the engine's. Memory is what both processes
keep more for one more session, measured in a process of its own for each form.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench import get_backend
from qbench.backends import Backend, isolated, load_provider
from qbench.evaluation import SubjectArtifacts, build_subject, subject_artifacts
from qbench.evaluation.artifacts import answered
from qbench.graph import constant_bytes, model_bytes
from qbench.quantization import get_schema

ENGINES = (
    "openvino",
    "litert-xnnpack",
    "litert-builtin",
    "torch-fbgemm",
    "torch-onednn",
    "ep-cpu",
    "tvm",
)
FORMS = ("none", "raw", "backend", "cell")
SCHEMA, PICTURES, ROUNDS = "w8a8_asym_pc", 225, 9
SLOW = {"tvm": (16, 2)}
"""Engine → its pictures and rounds, where all of them would take minutes."""
PROVIDER = Path(__file__).parents[1] / "suites" / "engines" / "cpu.toml"

Run = Callable[[np.ndarray[Any, Any]], Any]


class Raw:
    """An executor of the engine's own function."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """One batch."""
        return {"logits": self._run(feeds["x"])}


def backend_of(name: str) -> Backend:
    """The backend ``name``; ep-cpu is declared by a file."""
    return load_provider(PROVIDER) if name == "ep-cpu" else get_backend(name)


def raw_openvino(model: ir.Model) -> Run:
    """A compiled model under the settings of the backend."""
    import openvino

    from qbench_engines.openvino import _SETTINGS

    settings = {**_SETTINGS, "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    core = openvino.Core()
    request = core.compile_model(
        core.read_model(model_bytes(model)), "CPU", settings
    ).create_infer_request()
    return lambda x: np.asarray(request.infer({0: x}, share_inputs=True)[0])


def raw_litert(model: ir.Model, resolver: str, shape: tuple[int, ...]) -> Run:
    """An interpreter over the written file."""
    from ai_edge_litert import interpreter

    from qbench_engines import write_tflite

    written = write_tflite(model, shapes={"x": shape}, taps=(), backend="raw")
    one = interpreter.Interpreter(
        model_content=written.data,
        experimental_op_resolver_type=interpreter.OpResolverType[resolver],
        num_threads=1,
    )
    (fed,), (given,) = one.get_input_details(), one.get_output_details()
    one.resize_tensor_input(fed["index"], shape)
    one.allocate_tensors()

    def run(x: np.ndarray[Any, Any]) -> object:
        one.set_tensor(fed["index"], x)
        one.invoke()
        return one.get_tensor(given["index"])

    return run


def raw_torch(model: ir.Model, engine: str, x: np.ndarray[Any, Any]) -> Run:
    """The operators of the program, each on operands that were made before; numbers other than
    ``x`` are not fed.
    """
    import torch

    executor: Any = get_backend(f"torch-{engine}").prepare(model)
    program = executor._program  # noqa: SLF001 - the only list of its operators
    torch.backends.quantized.engine = engine
    torch.set_num_threads(1)
    held: dict[int, Any] = {**program._constants, program.inputs["x"]: x}  # noqa: SLF001
    calls = []
    with torch.inference_mode():
        for step in program.steps:
            operands = [
                held[place] if bring is None else bring(held[place]) for place, bring in step.reads
            ]
            results = step.run(*operands)
            calls.append((step.run, operands))
            held.update(
                zip(step.writes, [results] if len(step.writes) == 1 else results, strict=False)
            )

    def run(_: np.ndarray[Any, Any]) -> object:
        with torch.inference_mode():
            return [call(*operands) for call, operands in calls][-1]

    return run


def raw_onnxruntime(model: ir.Model) -> Run:
    """A session with the options of ort-cpu."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.use_deterministic_compute = True
    session = onnxruntime.InferenceSession(
        model_bytes(model), options, providers=["CPUExecutionProvider"]
    )
    return lambda x: session.run(None, {"x": x})[0]


def raw_tvm(model: ir.Model) -> Run:
    """A virtual machine of the compiled module."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    module = from_onnx(onnx.ModelProto.FromString(model_bytes(model)), keep_params_in_input=False)
    main = relax.VirtualMachine(tvm.compile(module, tvm.target.Target("llvm")), tvm.cpu())["main"]
    return lambda x: main(tvm.runtime.tensor(x)).numpy()


def raw(name: str, model: ir.Model, x: np.ndarray[Any, Any]) -> Run:
    """The engine of backend ``name`` without it."""
    kernels = {"litert-xnnpack": "BUILTIN", "litert-builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES"}
    if name in kernels:
        return raw_litert(model, kernels[name], x.shape)
    if name.startswith("torch-"):
        return raw_torch(model, name.removeprefix("torch-"), x)
    return {"openvino": raw_openvino, "ep-cpu": raw_onnxruntime, "tvm": raw_tvm}[name](model)


def form_of(
    form: str, name: str, model: ir.Model, x: np.ndarray[Any, Any], stack: ExitStack
) -> Any:  # noqa: ANN401
    """An executor of ``model`` on the engine of ``name`` in one of ``FORMS``."""
    if form == "none":
        nothing = np.zeros((len(x), 1000), np.float32)
        return Raw(lambda fed: nothing[: len(fed)])
    if form == "raw":
        return Raw(raw(name, model, x))
    backend = backend_of(name)
    return stack.enter_context((isolated(backend) if form == "cell" else backend).prepare(model))


def children() -> Iterator[int]:
    """The processes that this one started and that run."""
    for task in Path("/proc/self/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def processor_seconds() -> float:
    """Of this process and of its children."""
    clocks = (
        time.clock_gettime((~child << 3) | 2) for child in children()
    )  # the clock of a process, by its number
    return time.process_time() + sum(clocks)


def megabytes() -> float:
    """What this process and its children keep in memory and share with no file."""
    found = 0
    for process in ("self", *children()):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(("RssAnon", "RssShmem")):
                found += int(line.split()[1])
    return found / 1024


def quantized(pictures: int = PICTURES) -> tuple[SubjectArtifacts, ir.Model]:
    """The network with a few pictures, and its quantized graph."""
    subject = build_subject("mobilenet_v2", "labelled_photos", "calibration_crops", [], 135)
    (data,) = subject.data.values()
    shared = subject_artifacts(
        replace(subject, data={data.id: data.take(pictures)}), get_backend("ort-cpu")
    )
    (model,) = shared.quantized(
        get_schema(SCHEMA), get_backend("ort-cpu").capabilities
    ).models.values()
    return shared, model


def timed(shared: SubjectArtifacts, executor: Any) -> tuple[float, float]:  # noqa: ANN401
    """Processor and wall clock seconds for each batch of 8."""
    (data,) = shared.subject.data.values()
    (graph,) = shared.subject.model.graphs
    samples = shared.samples(data)
    busy, wall = processor_seconds(), time.perf_counter()
    answered(shared.subject.model.task, {graph: executor}, samples)
    batches = len(samples) / 8
    return (processor_seconds() - busy) / batches, (time.perf_counter() - wall) / batches


def overhead(name: str) -> str:
    """The row of ``name``."""
    pictures, rounds = SLOW.get(name, (PICTURES, ROUNDS))
    shared, model = quantized(pictures)
    (data,) = shared.subject.data.values()
    x = next(shared.samples(data).batches(8))["x"]
    with ExitStack() as stack:
        # as a cell runs it, where that is another form than the backend's own
        forms = [
            one
            for one in FORMS
            if one != "cell" or isolated(backend_of(name)) is not backend_of(name)
        ]
        executors = {form: form_of(form, name, model, x, stack) for form in forms}
        for one in executors.values():
            timed(shared, one)
        taken = [
            {form: timed(shared, one) for form, one in executors.items()} for _ in range(rounds)
        ]
    base = np.median([one["raw"][0] - one["none"][0] for one in taken]) * 1e3
    cells = [f"`{name}`", f"{base:.1f}"]
    for form in FORMS[2:]:
        for clock in (0, 1):
            if form not in executors:
                cells.append("–")
                continue
            added = [
                (one[form][clock] - one["raw"][clock]) / (one["raw"][clock] - one["none"][clock])
                for one in taken
            ]
            low, middle, high = np.percentile(added, [25, 50, 75])
            cells.append(f"{100 * middle:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f})")
    cells += [_memory(name, form) if form in executors else "–" for form in FORMS[1:]]
    return f"| {' | '.join(cells)} |"


def _memory(name: str, form: str) -> str:
    done = subprocess.run(
        [sys.executable, __file__, "--memory", form, name],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "failed"


def memory(name: str, form: str) -> None:
    """Print the megabytes that ``form`` of ``name`` keeps for the model:
    those of a second session.
    """
    shared, model = quantized(16)
    (data,) = shared.subject.data.values()
    x = next(shared.samples(data).batches(8))["x"]
    with ExitStack() as stack:
        first = form_of(form, name, model, x, stack)
        timed(shared, first)  # with what the engine itself keeps once
        before = megabytes()
        second = form_of(form, name, model, x, stack)
        timed(shared, second)
        print(f"{megabytes() - before:.0f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engines", nargs="*", default=list(ENGINES))
    parser.add_argument("--memory", choices=FORMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = "1"
    if given.memory:
        memory(given.engines[0], given.memory)
        return
    print(f"constants of the model: {constant_bytes(quantized()[1]) / 2**20:.1f} MB")
    print(
        "| engine | ms of a batch | backend: processor | wall clock "
        "| cell: processor | wall clock | MB, raw",
        end="",
    )
    print(" | MB, backend | MB, cell |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for name in given.engines:
        print(overhead(name), flush=True)


if __name__ == "__main__":
    main()
