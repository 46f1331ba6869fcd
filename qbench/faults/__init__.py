"""Bugs that really happened, as seeded faults to be found: in graphs, kernels, arithmetics and
calibration.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.faults.catalogue import CATALOGUE as CATALOGUE
    from qbench.faults.catalogue import fault_rows as fault_rows
    from qbench.faults.catalogue import get_fault as get_fault
    from qbench.faults.fault import Fault as Fault
    from qbench.faults.fault import GraphEdit as GraphEdit
    from qbench.faults.fault import Placed as Placed
    from qbench.faults.fault import ProfileFault as ProfileFault
    from qbench.faults.fault import Stage as Stage
    from qbench.faults.fault import draw_sites as draw_sites
    from qbench.faults.faulty_backend import FaultyWork as FaultyWork
    from qbench.faults.faulty_backend import edited as edited
    from qbench.faults.faulty_backend import with_fault as with_fault
    from qbench.faults.operator_network import many_operators as many_operators
    from qbench.faults.proof import DOES_NOT_RUN as DOES_NOT_RUN
    from qbench.faults.proof import ProofPlan as ProofPlan
    from qbench.faults.proof import ProofRun as ProofRun
    from qbench.faults.proven_cell import Gating as Gating
    from qbench.faults.proven_cell import ProvenCell as ProvenCell
    from qbench.faults.proven_cell import fits as fits
    from qbench.faults.trial import WrongPass as WrongPass
    from qbench.faults.trial import is_equivalent as is_equivalent
    from qbench.faults.trial import wrong_rewriting as wrong_rewriting
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
