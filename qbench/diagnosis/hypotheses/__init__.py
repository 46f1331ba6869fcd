"""The cause of a suspect node: possible mistakes of engines and graphs, each tested on the values of the node."""

from qbench.diagnosis.hypotheses.catalogue import name_cause
from qbench.diagnosis.hypotheses.hypothesis import OF_GRIDS, Explanation, Hypothesis, NamedCause, remedy_of

__all__ = ["OF_GRIDS", "Explanation", "Hypothesis", "NamedCause", "name_cause", "remedy_of"]
