"""What runs a graph: the protocol (Backend, Executor) and its implementations by name."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.backends.closing import Closing as Closing
    from qbench.backends.integer import IntegerBackend as IntegerBackend
    from qbench.backends.named import catalogue as catalogue
    from qbench.backends.named import device_backend as device_backend
    from qbench.backends.named import get_backend as get_backend
    from qbench.backends.named import integer_machines as integer_machines
    from qbench.backends.onnx_reference import OnnxReferenceBackend as OnnxReferenceBackend
    from qbench.backends.optimization import Level as Level
    from qbench.backends.optimization import Optimization as Optimization
    from qbench.backends.optimizer_listing import SessionOptimizer as SessionOptimizer
    from qbench.backends.optimizer_listing import session_optimizers as session_optimizers
    from qbench.backends.ort import OrtBackend as OrtBackend
    from qbench.backends.partitioned import PartitionedBackend as PartitionedBackend
    from qbench.backends.protocol import Array as Array
    from qbench.backends.protocol import Backend as Backend
    from qbench.backends.protocol import Counting as Counting
    from qbench.backends.protocol import Elsewhere as Elsewhere
    from qbench.backends.protocol import Executor as Executor
    from qbench.backends.protocol import Feeds as Feeds
    from qbench.backends.protocol import Ruled as Ruled
    from qbench.backends.slicing import in_slices as in_slices
    from qbench.backends.venv.another_python import AnotherPython as AnotherPython
    from qbench.backends.venv.another_python import program_in as program_in
    from qbench.backends.venv.another_python import python_backend as python_backend
    from qbench.backends.venv.creator import EnvironmentMaker as EnvironmentMaker
    from qbench.backends.venv.offered import installed_version as installed_version
    from qbench.backends.venv.offered import offered_versions as offered_versions
    from qbench.backends.venv.written import WrittenPython as WrittenPython
    from qbench.backends.venv.written import load_python as load_python
    from qbench.backends.versions import versions_of as versions_of
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "closing": ("Closing",),
            "integer": ("IntegerBackend",),
            "named": (
                "catalogue",
                "device_backend",
                "get_backend",
                "integer_machines",
            ),
            "onnx_reference": ("OnnxReferenceBackend",),
            "optimization": (
                "Level",
                "Optimization",
            ),
            "ort": ("OrtBackend",),
            "partitioned": ("PartitionedBackend",),
            "protocol": (
                "Array",
                "Backend",
                "Counting",
                "Elsewhere",
                "Executor",
                "Feeds",
                "Ruled",
            ),
            "optimizer_listing": (
                "SessionOptimizer",
                "session_optimizers",
            ),
            "slicing": ("in_slices",),
            "venv.another_python": (
                "AnotherPython",
                "program_in",
                "python_backend",
            ),
            "venv.creator": ("EnvironmentMaker",),
            "venv.offered": (
                "installed_version",
                "offered_versions",
            ),
            "venv.written": (
                "WrittenPython",
                "load_python",
            ),
            "versions": ("versions_of",),
        },
    )
