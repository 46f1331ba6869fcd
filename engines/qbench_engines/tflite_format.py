"""TFLite as a format of model files: read as a graph of one node, written of a QDQ graph."""

from pathlib import Path

import onnx_ir as ir

from qbench.graph import WrittenFile
from qbench_engines.tflite_model import load_tflite
from qbench_engines.tflite_writer import write_tflite


class TfliteFormat:
    """The format of ``.tflite`` files, as ``qbench.graph.FileFormat`` describes one."""

    def read(self, path: Path) -> ir.Model:
        """The file at ``path`` as a graph of one node.

        Raises:
            InputError: no such file, or one that is no TFLite file. UnavailableError: what reads it
                is not installed.
        """
        return load_tflite(path)

    def write(self, model: ir.Model) -> WrittenFile:
        """``model``, QDQ or float, as a TFLite file.

        Raises:
            UnsupportedError: TFLite has no operator for a node. UnavailableError: what writes it is
                not installed.
        """
        written = write_tflite(model)
        return WrittenFile(written.data, len(written.nodes), len(written.in_float))
