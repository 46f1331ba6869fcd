"""The cause of a suspect node: what an engine or a graph may have got wrong, each tried on the node's own levels."""

from qbench.diagnosis.hypotheses.catalogue import name_cause
from qbench.diagnosis.hypotheses.hypothesis import OF_GRIDS, Explanation, Hypothesis, NamedCause, remedy_of

__all__ = ["OF_GRIDS", "Explanation", "Hypothesis", "NamedCause", "name_cause", "remedy_of"]
