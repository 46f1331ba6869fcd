"""The file that a quantizer of other people wrote: checked, and first opened, in a child process.

What is checked: it is one regular file below a bound, with constants outside of it only in its own
folder; it is a valid model; it is quantized; its inputs and outputs are those of the float model;
and most weights of the float model are found in it again.

    row by row, mean cosine(w, w_dq) > 0.5          for more than half of the weights

Rounding, per-channel scales, a folded batch normalization and fitted roundings keep the cosine of a
row near 1; weights of another model give one near 0.
"""

import os
import resource
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from qbench.backends import Child, ChildError, EngineError, own_environment, own_python, serve
from qbench.errors import InputError, QbenchError
from qbench.graph import Form, form_of, format_of_path, load_model
from qbench.storage import digest_file

_MODULE = "qbench.evaluation.written_file"
_START_S, _CHECK_S = 600.0, 600.0
"""Beyond which the child is killed: on a busy computer it took more than two minutes to start."""
_LARGER = 3
_SPARE = 16_000_000
"""A quantized file has at most ``_LARGER`` times the bytes of the float one, and ``_SPARE``: float
weights with their Q and DQ take about as many as the float model.
"""
_NEAR = 0.5
_FEWEST = 64
"""Elements of a weight that is compared."""
_ROWS, _COLUMNS = 64, 512
"""Of a weight that are compared."""
_MATRIX = 2
_REMEDY = "Report it to its authors; 'qbench list quantizers' names the package and its version."


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that passed.

    Args:
        digest: SHA-256 of its bytes.
        size: bytes of it and of the files of its constants.
        parts: names of those files, relative to its folder.
        weights: how many weights were compared with those of the float model.
        near: how many of them were found again.
    """

    digest: str
    size: int
    parts: tuple[str, ...] = ()
    weights: int = 0
    near: int = 0


def check_in_child(path: Path, partner: Path, doing: str) -> WrittenFile:
    """The facts of the file at ``path``, which was to be the float model at ``partner``, quantized.

    Raises:
        QbenchError: it is not there or not accepted, or the child that opens it crashes.
    """
    question = {"path": os.fspath(path), "partner": os.fspath(partner), "doing": doing}
    try:
        with Child(own_python(_MODULE), own_environment()) as child:
            child.receive(_START_S)
            answer, _ = child.ask(question, {}, seconds=_CHECK_S)
    except EngineError as error:
        found = error.parts[1] if error.parts else f"{error.kind}: {error}"
        expected = error.parts[2] if error.parts else "a model that can be read"
        raise QbenchError(doing, found=found, expected=expected, remedy=_REMEDY) from error
    except ChildError as error:
        raise QbenchError(
            doing,
            found=f"a file at which the process that opens it {error.found}",
            expected="a model that can be opened",
            remedy=_REMEDY,
        ) from error
    return WrittenFile(**{**answer, "parts": tuple(answer["parts"])})


def checked_file(path: Path, partner: Path, doing: str) -> WrittenFile:
    """As ``check_in_child``, in this process."""
    _refuse_odd_file(path, partner, doing)
    model, float_model = _opened(path, doing), _opened(partner, doing)
    parts = _parts_of(path) if form_of(model) is not Form.FILE else ()
    size = path.stat().st_size + sum((path.parent / one).stat().st_size for one in parts)
    _refuse_large(size, partner, doing)
    if form_of(model) is Form.FLOAT:
        raise InputError(doing, found="a float model", expected="a quantized one", remedy=_REMEDY)
    same_format = path.suffix == partner.suffix
    _refuse_other_ends(doing, "input", model.graph.inputs, float_model.graph.inputs, same_format)
    _refuse_other_ends(doing, "output", model.graph.outputs, float_model.graph.outputs, same_format)
    weights, near = (0, 0) if form_of(model) is Form.FILE else _compared(model, float_model)
    if near * 2 < weights:
        raise InputError(
            doing,
            found=f"{weights - near} of {weights} weights that are not those of the float model",
            expected="its weights, quantized",
            remedy=_REMEDY,
        )
    return WrittenFile(digest=digest_file(path), size=size, parts=parts, weights=weights, near=near)


def _refuse_odd_file(path: Path, partner: Path, doing: str) -> None:
    try:
        status = path.lstat()
    except OSError:
        raise InputError(
            doing, found="no file", expected="a quantized model", remedy=_REMEDY
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            doing,
            found="a link, a folder or a special file",
            expected="a regular file",
            remedy=_REMEDY,
        )
    _refuse_large(status.st_size, partner, doing)
    if path.suffix == partner.suffix and digest_file(path) == digest_file(partner):
        raise InputError(
            doing,
            found="the float model, byte for byte",
            expected="a quantized one",
            remedy=_REMEDY,
        )


def _refuse_large(size: int, partner: Path, doing: str) -> None:
    folder = partner.parent
    own = sum(one.stat().st_size for one in folder.glob(f"{partner.name}*"))
    most = _LARGER * own + _SPARE
    if size > most:
        raise InputError(
            doing,
            found=f"a file of {size:,} bytes",
            expected=f"at most {most:,}, {_LARGER} times the float model and {_SPARE // 10**6} MB",
            remedy=_REMEDY,
        )


def _opened(path: Path, doing: str) -> ir.Model:
    form = format_of_path(path, doing)
    return load_model(path) if form is None else form.read(path)


def _parts_of(path: Path) -> tuple[str, ...]:
    """The files that hold constants of the model at ``path``, which ``load_model`` has found to
    be in its folder.
    """
    message = onnx.load(path, load_external_data=False)
    found = {
        entry.value
        for tensor in _tensors(message.graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return tuple(sorted(found))


def _tensors(graph: onnx.GraphProto) -> Iterable[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def _refuse_other_ends(
    doing: str,
    word: str,
    found: "Iterable[ir.Value]",
    wanted: "Iterable[ir.Value]",
    has_names: bool,
) -> None:
    """Check that inputs or outputs have the names, types and shapes of those of the float model."""
    ours, theirs = list(found), list(wanted)
    names = [one.name for one in ours], [one.name for one in theirs]
    if len(ours) != len(theirs) or (has_names and names[0] != names[1]):
        raise InputError(
            doing,
            found=f"the {word}s {', '.join(map(str, names[0]))}",
            expected=f"{', '.join(map(str, names[1]))}, as the float model has",
            remedy=_REMEDY,
        )
    for one, other in zip(ours, theirs, strict=True):
        if has_names and not _is_alike(one, other):
            raise InputError(
                doing,
                found=f"the {word} '{one.name}' of {_type_text(one)}",
                expected=f"{_type_text(other)}, as the float model has",
                remedy=_REMEDY,
            )


def _is_alike(one: ir.Value, other: ir.Value) -> bool:
    if one.dtype != other.dtype:
        return False
    if one.shape is None or other.shape is None:
        return True
    pairs = list(zip(one.shape, other.shape, strict=False))
    numbers = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    return len(one.shape) == len(other.shape) and all(a == b for a, b in numbers)


def _type_text(value: ir.Value) -> str:
    return f"type {value.dtype} and shape {value.shape}"


def _compared(model: ir.Model, partner: ir.Model) -> tuple[int, int]:
    """How many weights of ``partner`` could be compared, and how many are in ``model`` again."""
    from qbench.passes import canonicalize, plannable

    try:
        lifted, plain = plannable(model), canonicalize(partner)
    except QbenchError:  # operators that no pass reads: the engine will say so
        return 0, 0
    ours: dict[int, list[npt.NDArray[Any]]] = {}
    for array in _weights(lifted).values():
        ours.setdefault(array.size, []).append(array)
    found = [
        any(_is_near(one, array) for one in ours[array.size])
        for array in _weights(plain).values()
        if array.size in ours
    ]
    return len(found), sum(found)


def _weights(model: ir.Model) -> Mapping[str, npt.NDArray[Any]]:
    """The large float constants of the main graph."""
    return {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
        and value.const_value.size >= _FEWEST
        and len(value.const_value.shape) >= _MATRIX
    }


def _is_near(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    turned = other.T if other.ndim == _MATRIX else other
    return any(
        one.shape == shaped.shape and _mean_cosine(one, shaped) > _NEAR
        for shaped in (other, turned)
    )


def _mean_cosine(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Of the rows that are not zero."""
    a, b = (
        array.reshape(array.shape[0], -1)[:_ROWS, :_COLUMNS].astype(np.float64)
        for array in (one, other)
    )
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    rows = (a * b).sum(axis=1)[norms > 0] / norms[norms > 0]
    return float(rows.mean()) if rows.size else 1.0


def _answer(
    header: Mapping[str, Any], _: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        found = checked_file(Path(header["path"]), Path(header["partner"]), header["doing"])
    except QbenchError as error:
        parts = [error.doing, error.found, error.expected, error.remedy]
        return {"error": {"kind": "QbenchError", "text": str(error), "parts": parts}}, {}
    return {
        "digest": found.digest,
        "size": found.size,
        "parts": found.parts,
        "weights": found.weights,
        "near": found.near,
    }, {}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    serve(sys.argv[1:], lambda: ({}, {}), _answer)
