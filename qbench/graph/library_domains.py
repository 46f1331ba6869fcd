"""Operators that a library brings for itself: nodes of a domain that neither ONNX nor ONNX Runtime
nor an installed extension has.

Quantizers write such nodes where ONNX has no operator for what they simulate: block floating point,
bfloat16 and microscaling formats in AMD Quark, encodings in AIMET, float8 for TensorRT. A file with
them is no float model, and no engine runs it without the library.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import onnx_ir as ir

from qbench.graph.ops import ENGINE_DOMAIN, INTEGER_DOMAIN
from qbench.graph.outside_operators import outside_operator
from qbench.graph.qdq import held_format

_KNOWN = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", ENGINE_DOMAIN, INTEGER_DOMAIN}
)

_AIMET = "AIMET's library, which its QuantizationSimModel loads; to_onnx_qdq() writes Q and DQ"
_QUARK = (
    "AMD Quark's library (quark.onnx.get_library_path()); its integer specs write Q and DQ of ONNX"
)
LIBRARIES: Mapping[str, str] = MappingProxyType(
    {
        "com.amd.quark": _QUARK,
        "com.vai.quantize": "AMD Quark's library of earlier releases, and Vitis AI's before it",
        "aimet.customop.cpu": _AIMET,
        "aimet.customop.cuda": _AIMET,
        "qonnx.custom_op.general": "QONNX (Brevitas exports for it); export_onnx_qcdq writes Q, "
        "Clip and DQ of ONNX",
        "onnx.brevitas": "Brevitas; export_onnx_qcdq writes Q, Clip and DQ of ONNX",
        "trt": "TensorRT's plugins; ModelOpt's ONNX export writes them for float8",
        "ai.onnx.contrib": "onnxruntime-extensions (get_library_path())",
    }
)
"""Domain → what loads its operators."""


@dataclass(frozen=True, slots=True)
class LibraryOperators:
    """The nodes of one domain of a library.

    Args:
        domain: of the nodes.
        counts: operator → how many nodes, the most frequent first.
    """

    domain: str
    counts: Mapping[str, int]

    @property
    def library(self) -> str:
        """What loads them, in words; empty where that is not known."""
        return LIBRARIES.get(self.domain, "")

    def __str__(self) -> str:
        total = sum(self.counts.values())
        listed = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        nodes = "1 node" if total == 1 else f"{total} nodes"
        return f"{nodes} of the domain '{self.domain}' ({listed})"


def library_operators(model: ir.Model) -> tuple[LibraryOperators, ...]:
    """The nodes of ``model``, subgraphs included, that only a library can compute, by domain.

    Functions that the model itself defines are not among them.
    """
    found: dict[str, Counter[str]] = {}
    for graph in model.graphs():
        for node in graph:
            if _is_of_a_library(node, model):
                found.setdefault(node.domain, Counter())[node.op_type] += 1
    return tuple(
        LibraryOperators(domain, MappingProxyType(dict(counts.most_common())))
        for domain, counts in found.items()
    )


def _is_of_a_library(node: ir.Node, model: ir.Model) -> bool:
    if node.domain in _KNOWN or node.domain.startswith(f"{ENGINE_DOMAIN}."):
        return False
    if node.op_identifier() in model.functions or held_format(node) is not None:
        return False
    return outside_operator(node) is None


def library_remedy(operators: tuple[LibraryOperators, ...]) -> str:
    """What to do about ``operators``: which library loads them, or that this is not known."""
    known = [one for one in operators if one.library]
    if not known:
        return (
            "Export the model with Q and DQ of ONNX, or bring the operators in an extension "
            "(docs/extending.md)."
        )
    said = "; ".join(f"'{one.domain}' needs {one.library}" for one in known)
    return f"{said}. Export the model with Q and DQ of ONNX; qbench loads no library of operators."
