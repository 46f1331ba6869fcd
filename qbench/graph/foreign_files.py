"""Model files that are not ONNX: each is a graph of one node that holds the file, which the
engine of its format runs.

An extension brings a format (``FileFormat``) under the suffix of its files. The products of a file
and their types are read when it is loaded, so that planned and executed shares are known for it as
for an ONNX file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx_ir as ir

from qbench.errors import NotFetchedError
from qbench.extension import (
    Catalogue,
    Extension,
    install_command,
    known_extensions,
    missing_extra,
)
from qbench.graph.capabilities import Form
from qbench.graph.qdq import form_of, held_format


@dataclass(frozen=True, slots=True)
class FileProduct:
    """A product of a file.

    Args:
        name: of its result, by which the file names its operators.
        macs: multiply-accumulates of one sample.
        in_integers: whether its data are integers.
    """

    name: str
    macs: int
    in_integers: bool


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The bytes of a written file, its operators, and how many of them compute in float32."""

    data: bytes
    operators: int
    in_float: int


class FileFormat(Protocol):
    """A format of model files that are not ONNX."""

    def read(self, path: Path) -> ir.Model:
        """The file at ``path`` as a graph of one node, made by ``graph_of_file``.

        Raises:
            InputError: no such file, or a wrong one. UnavailableError: what reads it is not
                installed.
        """
        ...

    def write(self, model: ir.Model) -> WrittenFile:
        """``model``, QDQ or float, as a file of this format, with the same numbers.

        Raises:
            UnsupportedError: the format has no operator for a node. UnavailableError: what writes
                it is not installed.
        """
        ...


def graph_of_file(
    suffix: str,
    data: bytes,
    *,
    name: str,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    products: Sequence[FileProduct],
) -> ir.Model:
    """The graph of one node that holds the file ``data``.

    Args:
        suffix: of such files, in lower case and without the dot.
        inputs, outputs: of the graph, real where the file quantizes them.
        products: in the order of the file.
    """
    domain = f"qbench.{suffix}"
    node = ir.Node(
        domain,
        f"{suffix.capitalize()}File",
        inputs,
        [
            ir.AttrTensor("file", ir.tensor(np.frombuffer(data, np.uint8))),
            ir.AttrStrings("names", [one.name for one in products]),
            ir.AttrInt64s("macs", [one.macs for one in products]),
            ir.AttrInt64s("in_integers", [int(one.in_integers) for one in products]),
        ],
        outputs=outputs,
        name=name,
    )
    return ir.Model(
        ir.Graph(inputs, outputs, nodes=[node], name=name, opset_imports={"": 21, domain: 1}),
        ir_version=10,
    )


def _node(model: ir.Model) -> ir.Node | None:
    return next((node for node in model.graph if held_format(node)), None)


def format_held_by(model: ir.Model) -> str | None:
    """The suffix of the format of the file that ``model`` holds; None: it is an ONNX model."""
    node = _node(model)
    return None if node is None else held_format(node)


def file_held_by(model: ir.Model) -> bytes | None:
    """The file that ``model`` holds; None: it is an ONNX model."""
    node = _node(model)
    return None if node is None else node.attributes["file"].as_tensor().numpy().tobytes()


def file_products(model: ir.Model) -> tuple[FileProduct, ...]:
    """The products of the file that ``model`` holds, in the file's order; none of an ONNX model."""
    node = _node(model)
    if node is None:
        return ()
    names, macs, integer = (node.attributes[key] for key in ("names", "macs", "in_integers"))
    return tuple(
        FileProduct(name, count, bool(is_integer))
        for name, count, is_integer in zip(
            names.as_strings(), macs.as_ints(), integer.as_ints(), strict=True
        )
    )


def form_text(model: ir.Model) -> str:
    """The form of ``model`` for people; of one that holds a file, the format of that."""
    form = form_of(model)
    return format_held_by(model) or form.value if form is Form.FILE else form.value


def format_catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[FileFormat]:
    """The formats of ``extensions``, by the suffix of their files.

    Raises:
        InputError: two owners define one name.
    """
    none: Catalogue[FileFormat] = Catalogue("format", {})
    return none.extended(extensions)


def format_of_path(path: Path | str, doing: str) -> FileFormat | None:
    """The format that the suffix of ``path`` names; None: the file is read as ONNX.

    Raises:
        NotFetchedError: an extra of qbench brings this format, and is not installed.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    known = format_catalogue(known_extensions())
    if suffix in known.names():
        return known.get(suffix, doing=doing)
    if suffix not in ("", "onnx") and (extra := missing_extra(suffix)):
        raise NotFetchedError(
            doing,
            found=f"no reader or writer of '.{suffix}' files",
            expected="the extra that brings it to be installed",
            remedy=f"Install it: {install_command(extra)}.",
        )
    return None
