"""The errors of engines: one that is not installed, a model that it does not load, a batch that
it does not compute.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from qbench.errors import InputError, NotFetchedError, QbenchError, UnsupportedError
from qbench.extension import install_command
from qbench.graph import LIBRARIES


@contextmanager
def importing_engine(*, extra: str, backend: str) -> Iterator[None]:
    """Import an engine in this block; ``extra``: of qbench, which installs it.

    Raises:
        NotFetchedError: it is not installed or does not load; cells of ``backend`` are skipped with
            the reason.
    """
    try:
        yield
    except Exception as error:
        # a wheel for another processor, system or numpy raises errors of any type
        raise not_installed(error, extra=extra, backend=backend) from error


def not_installed(error: Exception, *, extra: str, backend: str) -> NotFetchedError:
    """The error for an engine whose import failed with ``error``: skips cells of ``backend``.

    Args:
        error: an ImportError where it is absent.
        extra: of qbench, which installs the engine.
    """
    if not isinstance(error, ImportError):
        error = ImportError(f"{type(error).__name__}: {error}")
    return NotFetchedError(
        f"Preparing a model on '{backend}'",
        found=" ".join(str(error).split())[:300],
        expected="its engine to be installed",
        remedy=f"Install it: {install_command(extra)}.",
    )


# Messages of an engine that does not load a model: it is unsupported, or the graph is invalid. The
# difference matters: an unsupported cell is skipped, and a quantizer that writes an invalid graph
# must fail.

_LACKING = (
    "is not a registered function/op",
    "No Op registered for",
    "Could not find an implementation",
    "ONNX Runtime only *guarantees* support",
    "Unsupported model IR version",
)
"""Parts of general error messages that mean that the engine does not support the model."""


def refusal(kind: str, message: str, *, graph: str, backend: str, version: str) -> QbenchError:
    """The error for a model that onnxruntime ``version`` did not load.

    Args:
        kind, message: type and text of the engine's error. graph, backend: names of the graph and
            the backend.
    """
    doing, found = f"Preparing '{graph}' on '{backend}'", engine_sentence(message)
    if kind == "NotImplemented" or any(words in found for words in _LACKING):
        return UnsupportedError(
            doing,
            found=found,
            expected=f"operators and an opset that onnxruntime {version} has",
            remedy=_remedy(found),
        )
    return InputError(
        doing,
        found=found,
        expected="a valid graph",
        remedy="Export the model again, or report the pass or quantizer that wrote it.",
    )


def _remedy(found: str) -> str:
    """What to do about an operator that the engine does not have; of a known library, which."""
    named = re.search(r"([\w.]+):\w+\(-?\d+\) is not a registered", found)
    library = LIBRARIES.get(named[1]) if named else None
    if library is None or named is None:
        return "Choose another backend, or export the model with supported operators."
    return (
        f"'{named[1]}' needs {library}. Export the model with Q and DQ of ONNX; qbench loads no "
        "library of operators."
    )


def batch_refusal(message: str, *, graph: str, backend: str) -> InputError:
    """The error for a batch that the engine did not compute, with its ``message``."""
    return InputError(
        f"Running '{graph}' on '{backend}'",
        found=engine_sentence(message),
        expected="a batch that the graph can compute",
        remedy="Check that the data fits the model.",
    )


def engine_sentence(message: str) -> str:
    """An engine's message without its status number, source file and function signature."""
    text = " ".join(message.split())
    text = re.sub(r"^\[ONNXRuntimeError\] : (\d+ : )?", "", text)
    return re.sub(r"/onnxruntime_src/\S+:\d+ .*\) (?=[A-Z])", "", text)[:300]
