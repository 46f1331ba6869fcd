"""Patients of the little network of digits: as the quantizer writes it,
and with one thing changed.
"""

import functools
import itertools
import tempfile
from pathlib import Path

import numpy as np
import onnx_ir as ir

from qbench.backends import Backend, Feeds, IntegerBackend, get_backend
from qbench.diagnosis.capture import Capturing
from qbench.diagnosis.examine import Examination
from qbench.diagnosis.target import Target, watches_itself
from qbench.diagnosis.unit_runs import Units
from qbench.evaluation import SubjectArtifacts, build_subject
from qbench.interpreter import KernelWrapper
from qbench.numerics import get_arithmetic
from qbench.quantization import get_schema
from qbench.storage import Cache


@functools.cache
def digits() -> SubjectArtifacts:
    subject = build_subject("digits_cnn", "digits_test", "digits_train", [], 64, given=None)
    cache = Cache(Path(tempfile.mkdtemp(prefix="qbench-digits-")))
    return SubjectArtifacts(subject, cache, get_backend("ort-cpu"), "here")


def machine(around: KernelWrapper | None = None, arithmetic: str = "ort-x64") -> IntegerBackend:
    return IntegerBackend(arithmetic=get_arithmetic(arithmetic), around=around)


def batches(count: int, size: int = 16) -> list[Feeds]:
    (data,) = digits().subject.data.values()
    found: list[Feeds] = list(itertools.islice(digits().samples(data).batches(size), count))
    return found


def quantized(schema: str = "w8a8_asym_pc") -> ir.Model:
    return digits().quantized(get_schema(schema), machine().capabilities).models["model"].clone()


def target(
    backend: Backend | None = None,
    *,
    claims: Backend | None = None,
    model: ir.Model | None = None,
    schema: str = "w8a8_asym_pc",
) -> Target:
    runs = backend or machine()
    return Target(
        model="digits_cnn",
        schema=schema,
        original=digits().planned()["model"],
        quantized=quantized(schema) if model is None else model,
        backend=runs,
        watched=runs if watches_itself(runs) else machine(),
        claims=claims,
    )


def constant_behind(
    model: ir.Model, node: str, place: int, part: int
) -> tuple[ir.Value, np.ndarray]:
    """Operand ``part`` (levels, scale, zero point) of the pair
    in front of input ``place`` of ``node``.
    """
    (found,) = (one for one in model.graph if one.name == node)
    pair = found.inputs[place].producer()
    value = pair.inputs[part]
    return value, value.const_value.numpy().copy()


def put(value: ir.Value, array: np.ndarray) -> None:
    value.const_value = ir.tensor(array, name=value.name)


def examine(of: Target, feeds: list[Feeds]):
    """The numbers of the nodes of a target on some batches."""
    with Examination(of) as examination:
        for batch in feeds:
            examination.run(batch)
        return examination.examined()


def capture(of: Target, nodes, feeds: Feeds):
    """Inputs and results of nodes of a target, in their order."""
    with Capturing(of, Units.of(of), nodes, feeds) as capturing:
        return tuple(capturing.of(node) for node in nodes)
