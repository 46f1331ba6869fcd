"""The cause of a suspect node: what an engine or a graph may have got wrong, each tried on the node's own levels."""

from qbench.diagnosis.causes.explanation import OF_GRIDS, Explanation, NamedCause
from qbench.diagnosis.causes.hypothesis import Hypothesis
from qbench.diagnosis.causes.naming import name_cause
from qbench.diagnosis.causes.remedies import remedy_of

__all__ = ["OF_GRIDS", "Explanation", "Hypothesis", "NamedCause", "name_cause", "remedy_of"]
