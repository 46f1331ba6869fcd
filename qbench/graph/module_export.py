"""Modules of other libraries as graphs: what an exporter is given and gives.

A guest knows the library (``Extension.exporters``, by the name of its package); qbench itself
imports none.
"""

from collections.abc import Iterable
from typing import Protocol

import onnx_ir as ir

from qbench.extension import Catalogue, Extension


class ModuleExporter(Protocol):
    """Writes modules of one library as ONNX graphs."""

    def export(self, module: object, example: object, doing: str) -> ir.Model:
        """The graph of ``module`` for inference, float or with Q and DQ.

        Args:
            example: its inputs for one call: a tensor, a sequence of them in the order of its
                arguments, or a table by their names. Axis 0 of each is that of the samples.
            doing: for errors.

        Raises:
            InputError: the example is not one.
            UnsupportedError: the library does not write the module; the sentence names the
                operator.
        """
        ...


def exporter_catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[ModuleExporter]:
    """The exporters of ``extensions``, by the package of the modules; qbench itself has none."""
    own: Catalogue[ModuleExporter] = Catalogue("exporter", {})
    return own.extended(extensions)
