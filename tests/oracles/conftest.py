"""The engines that judge, each by a fixture: they are an extra, and a test that asks for a
missing one skips.

The fixtures import; a test file here must not, or collecting the quick tests would load every
engine.
"""

from types import ModuleType

import pytest


def engine(module: str) -> ModuleType:
    """The module ``module`` of an engine; skips the test where it cannot be imported."""
    reason = (
        f"{module} cannot be imported here; `make test-oracles` installs it with the extra 'oracle'"
    )
    return pytest.importorskip(module, reason=reason, exc_type=ImportError)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch."""
    return engine("torch")


@pytest.fixture(scope="session")
def openvino() -> ModuleType:
    """OpenVINO."""
    return engine("openvino")


@pytest.fixture(scope="session")
def tokenizers() -> ModuleType:
    """The library of word pieces."""
    return engine("tokenizers")


@pytest.fixture(scope="session")
def litert() -> ModuleType:
    """LiteRT's interpreter module."""
    engine("flatbuffers")
    return engine("ai_edge_litert.interpreter")
