"""The engines, the format TFLite and the quantizers of other people as one extension of qbench: the
entry point of the distribution ``qbench-engines``.

The tables name the module that makes an entry, so that listing names imports no engine.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.backends import BackendEntry
from qbench.errors import NotFetchedError
from qbench.extension import Extension, install_command

if TYPE_CHECKING:
    from qbench.graph import FileFormat, Fitter, ModuleExporter

_BACKENDS: Mapping[str, BackendEntry] = {
    "tvm": BackendEntry("qbench_engines.tvm", "TvmBackend"),
    "openvino": BackendEntry("qbench_engines.openvino", "OpenvinoBackend"),
    "openvino-bf16": BackendEntry(
        "qbench_engines.openvino", "OpenvinoBackend", {"name": "openvino-bf16", "precision": "bf16"}
    ),
    **{
        f"torch-{engine}": BackendEntry(
            "qbench_engines.torch_quantized", "TorchBackend", {"engine": engine}, runs_float=False
        )
        for engine in ("fbgemm", "onednn", "qnnpack")
    },
    **{
        f"litert-{kernels}": BackendEntry(
            "qbench_engines.litert", "LitertBackend", {"kernels": kernels}
        )
        for kernels in ("reference", "builtin", "xnnpack")
    },
}


def _tflite() -> "FileFormat":
    from qbench_engines.tflite_format import TfliteFormat

    return TfliteFormat()


_QUANTIZERS = Path(__file__).parent / "quantizers"


def _fitter(method: str) -> "Fitter":
    """The fitter ``method``, which needs torch.

    Raises:
        NotFetchedError: it is not installed.
    """
    try:
        from qbench_engines.torch_adaround import RoundingFitter
        from qbench_engines.torch_blocks import BlockFitter
        from qbench_engines.torch_fit import GradientFitter
    except ImportError as error:
        raise NotFetchedError(
            f"Fitting by '{method}'",
            found=" ".join(str(error).split())[:300],
            expected="torch to be installed",
            remedy=f"Install it: {install_command('train')}.",
        ) from error
    others: Mapping[str, Fitter] = {"adaround": RoundingFitter(), "blocks": BlockFitter()}
    return others.get(method) or GradientFitter(method=method)


def _torch_exporter() -> "ModuleExporter":
    """What exports modules of torch.

    Raises:
        NotFetchedError: torch or onnxscript is not installed.
    """
    try:
        import onnxscript  # noqa: F401 - torch imports it where it writes

        from qbench_engines.torch_export import TorchExporter
    except ImportError as error:
        raise NotFetchedError(
            "Exporting a module of torch",
            found=" ".join(str(error).split())[:300],
            expected="torch and onnxscript to be installed",
            remedy=f"Install them: {install_command('train')}.",
        ) from error
    return TorchExporter()


EXTENSION = Extension(
    name="engines",
    backends=_BACKENDS,
    formats={"tflite": _tflite},
    quantizers={path.stem: partial(Path, path) for path in sorted(_QUANTIZERS.glob("*.toml"))},
    exporters={"torch": _torch_exporter},
    fitters={name: partial(_fitter, name) for name in ("tqt", "lsq", "adaround", "blocks")},
)
