"""This computer in plain values: processor, how its engine sums, versions; the one place that
reads a clock.
"""

import datetime
import enum
import functools
import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# How the engine on this computer sums u8×s8 products: exactly, or saturating each pair to 16 bits.
#
# [255, 255] · [127, 127] = 64770    exact (VNNI, or kernels that widen first)
#                         → 32767    ``vpmaddubsw`` saturated the pair (x64 without VNNI)

_EXACT = 2 * 255 * 127
_SATURATED = 2**15 - 1


class DotProduct(enum.Enum):
    """The result of the probe; unknown without an engine, or if it gives another number."""

    EXACT = "exact"
    SATURATING = "saturating"
    UNKNOWN = "unknown"


@functools.cache
def probe_dot_product() -> DotProduct:
    """Run one 1×2 · 2×1 MatMulInteger on ONNX Runtime, once per process."""
    try:
        import numpy as np
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return DotProduct.UNKNOWN
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "probe",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
        [helper.make_tensor("b", TensorProto.INT8, [2, 1], [127, 127])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, {"a": np.full((1, 2), 255, np.uint8)})
    return {_EXACT: DotProduct.EXACT, _SATURATED: DotProduct.SATURATING}.get(
        int(result[0, 0]), DotProduct.UNKNOWN
    )


# The processor as one comparable word and as a list of features.
#
# The word joins the architecture, the widest float vector unit and whether the u8×s8 dot product is
# exact:
#
#     x64-avx512-vnni, x64-avx512, x64-avx2-vnni, x64-avx2, x64-sse
#     arm64-dotprod, arm64
#     else platform.machine()
#
# ``vnni`` is decided by a probe (``DotProduct``): int8 results depend on what the engine
# does, not on what the processor could do; float results depend on the vector unit, because it
# decides the order of sums.

_CPUINFO = Path("/proc/cpuinfo")
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_VNNI_FLAGS = {"avx512_vnni", "avx512vnni", "avx_vnni", "avxvnni"}
_DOTPROD_FLAGS = {"asimddp", "feat_dotprod"}


@functools.cache
def processor_class() -> str:
    """The word for this computer; probed once per process, in some 100 ms."""
    return classify(architecture(), processor_features(), probe_dot_product())


def classify(machine: str, features: Collection[str], dot_product: DotProduct) -> str:
    """The word for a processor of ``machine`` (``x64``, ``arm64``, …) with ``features`` and the
    probed ``dot_product``.

    An unknown probe (no engine here) falls back to the flags.
    """
    if machine == "arm64":
        return "arm64-dotprod" if _DOTPROD_FLAGS & set(features) else "arm64"
    if machine != "x64":
        return machine
    if "avx512f" in features:
        level = "avx512"
    elif "avx2" in features:
        level = "avx2"
    else:
        return "x64-sse"  # its kernels widen to 16 bits first, or saturate; one old class is enough
    exact = (
        bool(_VNNI_FLAGS & set(features))
        if dot_product is DotProduct.UNKNOWN
        else dot_product is DotProduct.EXACT
    )
    return f"x64-{level}-vnni" if exact else f"x64-{level}"


def architecture() -> str:
    """``x64``, ``arm64``, or what the platform calls itself, in lower case without blanks."""
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, re.sub(r"[^a-z0-9]+", "_", machine) or "unknown")


@functools.cache
def processor_features() -> tuple[str, ...]:
    """The instruction-set flags that the system reports, in lower case, sorted."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _sysctl_features()
    return features_of_cpuinfo(text)


def features_of_cpuinfo(text: str) -> tuple[str, ...]:
    """The flags of the first processor in a ``/proc/cpuinfo`` (``flags`` on x86, ``Features``
    on ARM).
    """
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return tuple(sorted(found.group(1).lower().split())) if found else ()


_AMX_FLAGS = {"amx_tile", "amx_int8", "amx_bf16"}


def has_amx() -> bool:
    """Whether the processor multiplies matrices of 8 bits by tiles (AMX).

    The word of the class does not say so: integer sums are exact with and without it. But engines
    choose kernels by it, and what these do with a sum may differ.
    """
    return _AMX_FLAGS.issubset(processor_features())


def processor_name() -> str:
    """The model name the system reports, or an empty text."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _sysctl("-n", "machdep.cpu.brand_string").strip()
    found = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _sysctl_features() -> tuple[str, ...]:
    """macOS: ``hw.optional.*: 1`` and Intel's feature lists."""
    optional = re.findall(
        r"^hw\.optional\.(?:arm\.)?(\w+): 1$", _sysctl("hw.optional"), re.MULTILINE
    )
    lists = _sysctl("-n", "machdep.cpu.features", "machdep.cpu.leaf7_features").split()
    return tuple(sorted({word.lower() for word in (*optional, *lists)}))


def _sysctl(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["sysctl", *arguments], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


# Versions of installed packages, without importing them.


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Distribution name → installed version; a name that is not installed is left out."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# The library that sums numpy's matrix products. Its kernels add in an order of their own, so
# float32 results that are near a tie depend on them: two processors of one class (AVX-512 of two
# makers) may give two results.

_USUAL_KERNELS = {"x64-avx2": ("openblas-Haswell", "openblas-Zen")}


@functools.cache
def blas_kernels() -> str:
    """The library behind numpy and its kernels here, ``openblas-SkylakeX``; empty: unknown."""
    try:
        import numpy as np  # noqa: F401 - loads the library that is asked about
        from threadpoolctl import threadpool_info
    except ImportError:
        return ""
    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    if not found:
        return ""
    kernels = found[0].get("architecture") or found[0]["version"] or "unknown"
    return f"{found[0]['internal_api']}-{re.sub('[^A-Za-z0-9.]+', '_', str(kernels))}"


def unusual_blas_kernels(processor: str) -> dict[str, str]:
    """Library → kernels, where they are not those of most computers of ``processor``.

    Usual kernels are left out, so that results accepted before kernels were recorded keep their
    class.
    """
    kernels = blas_kernels()
    if not kernels or kernels in _USUAL_KERNELS.get(processor, ()):
        return {}
    library, _, chosen = kernels.partition("-")
    return {library: chosen}


def python_version() -> str:
    """``3.11.9``."""
    return platform.python_version()


# This computer in plain values, for the environment line of a run file; nothing that names a person
# or a place.

Fact = str | int | list[str] | dict[str, str]
COUNTING_PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "pillow", "pytest-qbench")
"""The packages whose version every run records."""


def describe_host(packages: Iterable[str] = COUNTING_PACKAGES) -> dict[str, Fact]:
    """Processor, features, system, Python and packages. No host name, user name or path."""
    return {
        "processor_class": processor_class(),
        "processor_name": processor_name(),
        "architecture": architecture(),
        "dot_product": probe_dot_product().value,
        "blas": blas_kernels(),
        "features": list(processor_features()),
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "python": python_version(),
        "packages": package_versions(packages),
    }


# The one place that reads a clock; all other code gets a time as an argument.


def utc_now() -> datetime.datetime:
    """Now, in UTC."""
    return datetime.datetime.now(datetime.UTC)


def utc_today() -> datetime.date:
    """Today's date in UTC: what expiry dates are compared with."""
    return utc_now().date()
