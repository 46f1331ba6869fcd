"""This computer: words for processors, the probe, versions, commits, the clock; and nothing
that names a person.
"""

import datetime
import getpass
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from qbench.host import (
    DotProduct,
    architecture,
    blas_kernels,
    classify,
    computer,
    current_commit,
    describe_host,
    has_amx,
    package_versions,
    probe_dot_product,
    processor_class,
    processor_features,
    unusual_blas_kernels,
    utc_now,
    utc_today,
)
from qbench.host.computer import features_of_cpuinfo
from qbench.storage import json_line


@pytest.mark.parametrize(
    ("machine", "features", "dot_product", "word"),
    [
        ("x64", "avx2 avx512f avx512_vnni", "exact", "x64-avx512-vnni"),
        (
            "x64",
            "avx2 avx512f avx512_vnni",
            "saturating",
            "x64-avx512",
        ),  # the probe outranks the flags
        ("x64", "avx2 avx512f", "saturating", "x64-avx512"),
        ("x64", "avx2 avx_vnni", "exact", "x64-avx2-vnni"),
        ("x64", "avx2", "saturating", "x64-avx2"),
        ("x64", "sse4_1", "saturating", "x64-sse"),
        ("x64", "avx2 avx512f avx512_vnni", "unknown", "x64-avx512-vnni"),
        ("x64", "avx2", "unknown", "x64-avx2"),
        ("arm64", "asimd asimddp", "exact", "arm64-dotprod"),
        ("arm64", "feat_dotprod neon", "exact", "arm64-dotprod"),
        ("arm64", "asimd", "exact", "arm64"),
        ("riscv64", "", "unknown", "riscv64"),
    ],
)
def test_words(machine, features, dot_product, word):
    assert classify(machine, features.split(), DotProduct(dot_product)) == word


def test_this_machine():
    assert re.fullmatch(r"[a-z0-9_]+(-[a-z0-9]+)*", processor_class())
    assert processor_class().startswith(architecture())
    assert processor_class() == classify(architecture(), processor_features(), probe_dot_product())
    assert probe_dot_product() is not DotProduct.UNKNOWN


def test_the_probe_speaks_for_larger_products():
    """What it saw on one pair holds for a 64×64×64 product at the extremes, column by column."""
    import onnxruntime
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [64, 64])],
        [helper.make_tensor("b", TensorProto.INT8, [64, 64], [127] * 64 * 64)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, {"a": np.full((64, 64), 255, np.uint8)})
    pair = {DotProduct.EXACT: 2 * 255 * 127, DotProduct.SATURATING: 2**15 - 1}[probe_dot_product()]
    assert (result == 32 * pair).all()


def test_features_of_other_systems():
    x86 = (
        "processor\t: 0\nmodel name\t: X\nflags\t\t: sse avx2 SSE4_1\nbugs\t: none\n\n"
        "processor\t: 1\nflags\t\t: fpu\n"
    )
    assert features_of_cpuinfo(x86) == ("avx2", "sse", "sse4_1")
    assert features_of_cpuinfo("processor : 0\nFeatures\t: fp asimd asimddp\n") == (
        "asimd",
        "asimddp",
        "fp",
    )
    assert features_of_cpuinfo("nothing here") == ()


def test_macos_reports_features_through_sysctl(monkeypatch):
    from qbench.host import computer

    answers = {
        (
            "hw.optional",
        ): "hw.optional.arm.FEAT_DotProd: 1\nhw.optional.arm.FEAT_BF16: 0\nhw.optional.neon: 1\n"
    }
    monkeypatch.setattr(computer, "_CPUINFO", Path("/nowhere/cpuinfo"))
    monkeypatch.setattr(computer, "_sysctl", lambda *arguments: answers.get(arguments, ""))
    computer.processor_features.cache_clear()
    try:
        assert processor_features() == ("feat_dotprod", "neon")
        assert classify("arm64", processor_features(), DotProduct.EXACT) == "arm64-dotprod"
    finally:
        computer.processor_features.cache_clear()


def test_versions():
    assert package_versions(["numpy", "no-such-package"]) == {"numpy": np.__version__}


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_commits(tmp_path):
    assert current_commit(tmp_path / "nowhere") is None
    git(tmp_path, "init", "--quiet", "--initial-branch=trunk")
    assert current_commit(tmp_path) is None
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "--quiet", "--message=first")
    found = current_commit(tmp_path)
    assert found.sha == git(tmp_path, "rev-parse", "HEAD")
    assert found.sha.startswith(found.short)
    assert (found.branch, found.dirty) == ("trunk", False)
    assert datetime.datetime.fromisoformat(found.committed).tzinfo is not None
    (tmp_path / "untracked").write_text("")
    assert not current_commit(tmp_path).dirty
    (tmp_path / "a").write_text("2")
    assert current_commit(tmp_path).dirty
    git(tmp_path, "checkout", "--quiet", "--detach")
    assert not current_commit(tmp_path).branch


def test_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert current_commit(".") is None


def test_clock():
    now = datetime.datetime.now(datetime.UTC)
    assert abs((utc_now() - now).total_seconds()) < 60
    assert abs((utc_today() - now.date()).days) <= 1


def test_the_description_is_plain_and_names_nobody():
    described = describe_host()
    text = json_line(described)
    assert described["packages"]["numpy"] == np.__version__
    assert "pillow" in described["packages"]  # it decodes the pictures
    assert described["processor_class"] == processor_class()
    for name in (socket.gethostname(), getpass.getuser(), str(Path.home()), str(Path.cwd())):
        assert not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name


IN_A_CLASS = """
from qbench import get_backend
from qbench.evaluation import environment_of
print(environment_of(get_backend("onnx-reference"), "x64-avx2"))
print(environment_of(get_backend("ort-cpu"), "x64-avx2"))
"""


@pytest.mark.slow
@pytest.mark.skipif(architecture() != "x64", reason="names kernels of x64")
@pytest.mark.parametrize(("kernels", "named"), [("Nehalem", "+openblas-Nehalem"), ("Haswell", "")])
def test_kernels_of_another_processor_make_a_class_of_their_own_where_numpy_sums(kernels, named):
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernels}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CLASS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    reference, engine = done.stdout.split()
    assert reference == f"x64-avx2+numpy-{np.__version__}+onnx-{onnx.__version__}{named}"
    assert "openblas" not in engine


@pytest.mark.parametrize(
    "library", [[], [{"user_api": "openmp", "internal_api": "openmp", "version": None}]]
)
def test_an_unknown_blas_is_left_unsaid(monkeypatch, library):
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: library)
    blas_kernels.cache_clear()
    assert blas_kernels() == ""
    assert unusual_blas_kernels("x64-avx512") == {}
    blas_kernels.cache_clear()


def test_a_blas_that_names_no_kernels_is_known_by_its_version(monkeypatch):
    library = {"user_api": "blas", "internal_api": "mkl", "version": "2026.1-Product"}
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [library])
    blas_kernels.cache_clear()
    assert unusual_blas_kernels("x64-avx2") == {"mkl": "2026.1_Product"}
    blas_kernels.cache_clear()


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ("amx_tile amx_int8 amx_bf16", True),
        ("amx_tile amx_bf16", False),
        ("avx512f avx512_vnni", False),
    ],
)
def test_amx_is_known_by_its_flags(monkeypatch, flags, has):
    monkeypatch.setattr(computer, "processor_features", lambda: tuple(flags.split()))
    assert has_amx() is has
