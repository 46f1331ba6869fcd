"""What an engine's own words about a model it did not load mean: not supported, or a graph that is wrong.

The difference matters: an unsupported cell is skipped, and a quantizer that writes nonsense must not be.
"""

import re

from qbench.errors import InputError, QbenchError, UnsupportedError

_LACKING = (
    "is not a registered function/op",
    "No Op registered for",
    "Could not find an implementation",
    "ONNX Runtime only *guarantees* support",
    "Unsupported model IR version",
)
"""How messages of a general failure say that the engine, not the graph, is at fault."""


def refusal(kind: str, message: str, *, graph: str, backend: str, version: str) -> QbenchError:
    """The error for a model that onnxruntime ``version`` did not load.

    Args:
        kind, message: type and text of what the engine raised. graph, backend: what was loaded into what.
    """
    doing, found = f"Preparing '{graph}' on '{backend}'", engine_sentence(message)
    if kind == "NotImplemented" or any(words in found for words in _LACKING):
        return UnsupportedError(
            doing,
            found=found,
            expected=f"operators and an opset that onnxruntime {version} has",
            remedy="Choose another backend, or export the model with operators it has.",
        )
    return InputError(
        doing, found=found, expected="a valid graph", remedy="Export the model again, or report what rewrote it."
    )


def batch_refusal(message: str, *, graph: str, backend: str) -> InputError:
    """The error for a batch that the engine did not compute, by its ``message``."""
    return InputError(
        f"Running '{graph}' on '{backend}'",
        found=engine_sentence(message),
        expected="a batch that the graph can compute",
        remedy="Check that the data fits the model.",
    )


def engine_sentence(message: str) -> str:
    """The telling part of an engine's message, without its status number, source file and function signature."""
    text = " ".join(message.split())
    text = re.sub(r"^\[ONNXRuntimeError\] : (\d+ : )?", "", text)
    return re.sub(r"/onnxruntime_src/\S+:\d+ .*\) (?=[A-Z])", "", text)[:300]
