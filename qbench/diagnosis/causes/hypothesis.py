"""What every family of mistakes can be asked: how well it explains a scene."""

from typing import Protocol

from qbench.diagnosis.causes.explanation import Explanation
from qbench.diagnosis.causes.scene import Scene


class Hypothesis(Protocol):
    """One family of mistakes."""

    @property
    def name(self) -> str:
        """How notes call it."""

    @property
    def by_element(self) -> bool:
        """Whether it looks at each level by itself, so that a few of very many will do."""

    def explain(self, scene: Scene) -> Explanation | None:
        """The mistake of this family that explains most of ``scene``; None: it has none that could be."""
