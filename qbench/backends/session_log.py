"""A process that makes one ONNX Runtime session and logs what its optimizers do."""

import sys
from pathlib import Path

from qbench.backends.ort import Level, Optimization, OrtBackend
from qbench.storage import limits_times


def main(arguments: list[str]) -> None:
    """Make the session that ``arguments`` describe, and no run of it."""
    model, level, precise, factor, *without = arguments
    optimization = Optimization(level=Level(level), without=frozenset(without), told=True)
    backend = OrtBackend(name="session-log", precise=precise == "True", optimization=optimization)
    with limits_times(int(factor)):
        backend.prepare(Path(model)).close()


if __name__ == "__main__":
    main(sys.argv[1:])
