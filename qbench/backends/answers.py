"""``answers:PATH``: a backend that runs nothing and gives the answers that were recorded
elsewhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from qbench.backends.protocol import Executor
from qbench.errors import UnsupportedError
from qbench.graph import Capabilities
from qbench.metrics import AnswerFile, open_answers

ANSWERS_PREFIX = "answers:"
"""In front of a path, where a backend is named on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersBackend:
    """The answers in the file or folder at ``path``.

    Args:
        path: of the answers (``metrics.open_answers``).
        name: in results: ``answers-`` and a name.
    """

    path: Path
    name: str

    @property
    def capabilities(self) -> Capabilities:
        """It takes no graph."""
        return Capabilities(forms=frozenset(), taps=False)

    @property
    def arithmetic(self) -> None:
        """Not known."""
        return

    @property
    def packages(self) -> tuple[str, ...]:
        """None here: what its numbers depend on is in the provenance of the answers."""
        return ()

    def recorded(self) -> AnswerFile:
        """The answers, opened.

        Raises:
            InputError: they cannot be read.
        """
        return open_answers(self.path)

    def prepare(
        self,
        model: ir.Model | Path | str,  # noqa: ARG002
        *,
        taps: Sequence[str] = (),  # noqa: ARG002
        threads: int = 1,  # noqa: ARG002
    ) -> Executor:
        """Nothing can be prepared.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"Preparing a model on '{self.name}'",
            found="answers that were recorded elsewhere, which run no model",
            expected="a backend that runs models",
            remedy="Measure or compare these answers ('qbench eval', 'qbench compare'); for "
            "anything else choose a backend that 'qbench list backends' shows.",
        )


def answers_backend(path: Path) -> AnswersBackend:
    """The backend of the answers at ``path``, which ``answers-STEM`` names in results."""
    stem = path.stem if path.suffix in (".jsonl", ".npz") else path.name
    return AnswersBackend(
        path=path, name=f"answers-{re.sub(r'[^a-z0-9_.-]', '_', stem.lower()) or 'file'}"
    )
