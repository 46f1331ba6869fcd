"""With which versions a backend counts: those of this Python, unless it says that its packages are elsewhere."""

from qbench.backends.protocol import Backend, Elsewhere
from qbench.host import package_versions


def versions_of(backend: Backend) -> dict[str, str]:
    """Package → version of what ``backend`` counts with, for the environment class of its results."""
    if isinstance(backend, Elsewhere):
        return dict(backend.package_versions())
    return package_versions(backend.packages)
