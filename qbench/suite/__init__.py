"""Many cells: the suite as written, what it can name, the matrix it expands to, and the bench that runs it."""

from qbench.suite.approval import approve_run
from qbench.suite.catalogues import Catalogues, gather
from qbench.suite.expansion import PlannedCell, expand
from qbench.suite.selection import Selection
from qbench.suite.session import Bench, JudgedCell, Settings
from qbench.suite.suite import SUFFIX, CalibrationChoice, ModelTable, Suite, SuiteTable, load_suite

__all__ = [
    "SUFFIX",
    "Bench",
    "CalibrationChoice",
    "Catalogues",
    "JudgedCell",
    "ModelTable",
    "PlannedCell",
    "Selection",
    "Settings",
    "Suite",
    "SuiteTable",
    "approve_run",
    "expand",
    "gather",
    "load_suite",
]
