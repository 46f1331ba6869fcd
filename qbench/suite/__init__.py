"""Many cells: the suite as written, what it can name, the matrix it expands to, and the bench that runs it."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.suite.approval import approve_run as approve_run
    from qbench.suite.beginning import Extent as Extent
    from qbench.suite.beginning import RunStart as RunStart
    from qbench.suite.beginning import describe_start as describe_start
    from qbench.suite.bisect_notes import Notes as Notes
    from qbench.suite.bisect_notes import Task as Task
    from qbench.suite.bisect_notes import Trial as Trial
    from qbench.suite.bisect_notes import open_notes as open_notes
    from qbench.suite.bisect_notes import reopened as reopened
    from qbench.suite.bisect_notes import save_notes as save_notes
    from qbench.suite.bisection import Mark as Mark
    from qbench.suite.bisection import Question as Question
    from qbench.suite.bisection import ask as ask
    from qbench.suite.bisection import next_commit as next_commit
    from qbench.suite.bisection import suspects as suspects
    from qbench.suite.catalogues import Catalogues as Catalogues
    from qbench.suite.catalogues import gather as gather
    from qbench.suite.catalogues import written_extensions as written_extensions
    from qbench.suite.expansion import PlannedCell as PlannedCell
    from qbench.suite.expansion import expand as expand
    from qbench.suite.expansion import expand_pruned as expand_pruned
    from qbench.suite.idle_rules import idle_rule_errors as idle_rule_errors
    from qbench.suite.judged_cell import JudgedCell as JudgedCell
    from qbench.suite.outgrown import outgrown_entry_errors as outgrown_entry_errors
    from qbench.suite.package_notes import PackageNotes as PackageNotes
    from qbench.suite.package_notes import PackageTask as PackageTask
    from qbench.suite.package_notes import PackageTrial as PackageTrial
    from qbench.suite.package_notes import versions_between as versions_between
    from qbench.suite.repeating import repeatable_cell as repeatable_cell
    from qbench.suite.selection import Selection as Selection
    from qbench.suite.session import Bench as Bench
    from qbench.suite.session import Settings as Settings
    from qbench.suite.sharding import Shard as Shard
    from qbench.suite.stored_baselines import StoredBaselines as StoredBaselines
    from qbench.suite.subjects import make_subject as make_subject
    from qbench.suite.suite import QUARANTINE_SUFFIX as QUARANTINE_SUFFIX
    from qbench.suite.suite import SUFFIX as SUFFIX
    from qbench.suite.suite import CalibrationChoice as CalibrationChoice
    from qbench.suite.suite import ModelTable as ModelTable
    from qbench.suite.suite import Suite as Suite
    from qbench.suite.suite import SuiteTable as SuiteTable
    from qbench.suite.suite import load_suite as load_suite
    from qbench.suite.trial import try_commit as try_commit
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "bisect_notes": (
                "Notes",
                "Task",
                "Trial",
                "open_notes",
                "reopened",
                "save_notes",
            ),
            "bisection": (
                "Mark",
                "Question",
                "ask",
                "next_commit",
                "suspects",
            ),
            "trial": ("try_commit",),
            "approval": ("approve_run",),
            "beginning": (
                "Extent",
                "RunStart",
                "describe_start",
            ),
            "catalogues": (
                "Catalogues",
                "gather",
                "written_extensions",
            ),
            "expansion": (
                "PlannedCell",
                "expand",
                "expand_pruned",
            ),
            "idle_rules": ("idle_rule_errors",),
            "repeating": ("repeatable_cell",),
            "judged_cell": ("JudgedCell",),
            "outgrown": ("outgrown_entry_errors",),
            "package_notes": (
                "PackageNotes",
                "PackageTask",
                "PackageTrial",
                "versions_between",
            ),
            "selection": ("Selection",),
            "session": (
                "Bench",
                "Settings",
            ),
            "sharding": ("Shard",),
            "stored_baselines": ("StoredBaselines",),
            "subjects": ("make_subject",),
            "suite": (
                "CalibrationChoice",
                "ModelTable",
                "QUARANTINE_SUFFIX",
                "SUFFIX",
                "Suite",
                "SuiteTable",
                "load_suite",
            ),
        },
    )
