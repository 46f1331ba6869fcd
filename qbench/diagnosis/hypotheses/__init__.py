"""The cause of a suspect node: possible mistakes of engines and graphs, each tested on the
values of the node.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.diagnosis.hypotheses.catalogue import name_cause as name_cause
    from qbench.diagnosis.hypotheses.hypothesis import OF_QPARAMS as OF_QPARAMS
    from qbench.diagnosis.hypotheses.hypothesis import Explanation as Explanation
    from qbench.diagnosis.hypotheses.hypothesis import Hypothesis as Hypothesis
    from qbench.diagnosis.hypotheses.hypothesis import NamedCause as NamedCause
    from qbench.diagnosis.hypotheses.hypothesis import remedy_of as remedy_of
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
