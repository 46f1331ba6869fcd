"""A failing case as a folder in the layout of ONNX's backend tests."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from qbench.backends import Array, Backend, contained
from qbench.diagnosis.engine.divergence import REAL_WIDTH
from qbench.diagnosis.engine.shrink import FailingCase
from qbench.errors import InputError, QbenchError, StoreError
from qbench.graph import load_model, load_tensor, save_model
from qbench.metrics import Differences, count_differences

_MODEL, _DATA, _README = "model.onnx", "test_data_set_0", "README.txt"
_TENSOR = re.compile(r"(input|output|engine_output)_[0-9]+\.pb")
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """The result of a backend on a test case; ``crash``: how it fails, empty: it does not."""

    backend: str
    found: Differences = field(default_factory=Differences)
    crash: str = ""

    @property
    def passes(self) -> bool:
        """Whether the result is the expected one: integers exactly, real numbers up to the
        order of float32 sums.
        """
        return not self.crash and not self.found.differing


def save_test_case(case: FailingCase, folder: Path) -> Path:
    """Write ``case`` into ``folder``, which is created if necessary; return the folder.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        data = folder / _DATA
        data.mkdir(parents=True, exist_ok=True)
        for old in data.glob("*.pb"):
            if _TENSOR.fullmatch(old.name):  # of a former case; other files are the user's
                old.unlink()
        save_model(case.model, folder / _MODEL)
        names = [str(value.name) for value in case.model.graph.outputs]
        inputs = [str(value.name) for value in case.model.graph.inputs if value.name in case.feeds]
        _write(data, "input", [(name, case.feeds[name]) for name in inputs])
        _write(data, "output", [(name, case.expected[name]) for name in names])
        if case.found is not None:
            _write(data, "engine_output", [(name, case.found[name]) for name in names])
        (folder / _README).write_text(_words(case, names), encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"Writing a test case to '{folder}'",
            found=str(error),
            expected="a folder that can be written",
            remedy="Name another folder.",
        ) from error
    return folder


def _write(folder: Path, kind: str, arrays: list[tuple[str, Array]]) -> None:
    for index, (name, array) in enumerate(arrays):
        tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
        (folder / f"{kind}_{index}.pb").write_bytes(tensor.SerializeToString())


def _words(case: FailingCase, outputs: list[str]) -> str:
    lines = [f"{case.sentence}."]
    for name in outputs:
        lines.append(f"expected {name}: {_listed(case.expected[name])}")
        if case.found is not None:
            lines.append(f"found    {name}: {_listed(case.found[name])}")
    if not case.is_smallest:
        lines.append(f"The search for a smaller input was stopped after {case.trials} trials.")
    return "\n".join(lines) + "\n"


def _listed(array: Array) -> str:
    flat = array.reshape(-1)
    more = "" if flat.size <= _SHOWN else f" … ({flat.size} in all)"
    return f"{list(array.shape)} " + " ".join(f"{value:.9g}" for value in flat[:_SHOWN]) + more


def run_test_case(folder: Path, backend: Backend, *, threads: int = 1) -> CaseRun:
    """Run the test case in ``folder`` on ``backend``, in a child process if it may crash.

    Args:
        folder: written by ``save_test_case``, or any ONNX test case with one data set.

    Raises:
        InputError: the folder holds no test case.
    """
    model = load_model(folder / _MODEL)
    feeds, expected = (_read(folder / _DATA, kind) for kind in ("input", "output"))
    names = [
        str(value.name)
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
    ]
    outputs = [str(value.name) for value in model.graph.outputs]
    if len(feeds) != len(names) or len(expected) != len(outputs):
        raise InputError(
            f"Reading the test case '{folder}'",
            found=f"{len(feeds)} inputs and {len(expected)} outputs",
            expected=f"{len(names)} inputs and {len(outputs)} outputs, as {_MODEL} declares",
            remedy=f"Check the files in {_DATA}.",
        )
    try:
        with contained(backend).prepare(model, threads=threads) as executor:
            answers = executor.run(dict(zip(names, feeds, strict=True)))
    except QbenchError as error:
        return CaseRun(backend=backend.name, crash=error.found)
    found = Differences()
    for name, array in zip(outputs, expected, strict=True):
        found = found.joined(_compared(answers[name], array))
    return CaseRun(backend=backend.name, found=found)


def _compared(answer: Array, expected: Array) -> Differences:
    if answer.shape != expected.shape:
        return Differences(elements=expected.size, differing=expected.size, unbounded=expected.size)
    if expected.dtype.kind == "f":
        width = REAL_WIDTH * float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
        with np.errstate(invalid="ignore"):
            answer = np.where(np.abs(answer - expected) <= width, expected, answer)
    return count_differences(answer, expected, np.ones(()) if expected.dtype.kind in "iu" else None)


def _read(folder: Path, kind: str) -> list[Array]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [load_tensor(folder / f"{kind}_{index}.pb") for index in range(count)]
