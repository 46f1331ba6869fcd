"""Many cells: the suite as written, what it can name, the matrix it expands to, and the bench
that runs it.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.suite.bisection import Mark as Mark
    from qbench.suite.bisection import Notes as Notes
    from qbench.suite.bisection import PackageNotes as PackageNotes
    from qbench.suite.bisection import PackageTask as PackageTask
    from qbench.suite.bisection import PackageTrial as PackageTrial
    from qbench.suite.bisection import Question as Question
    from qbench.suite.bisection import Task as Task
    from qbench.suite.bisection import Trial as Trial
    from qbench.suite.bisection import ask as ask
    from qbench.suite.bisection import next_commit as next_commit
    from qbench.suite.bisection import open_notes as open_notes
    from qbench.suite.bisection import reopened as reopened
    from qbench.suite.bisection import save_notes as save_notes
    from qbench.suite.bisection import suspects as suspects
    from qbench.suite.bisection import try_commit as try_commit
    from qbench.suite.bisection import versions_between as versions_between
    from qbench.suite.bisection import versions_from as versions_from
    from qbench.suite.carrying import Carrying as Carrying
    from qbench.suite.catalogues import Catalogues as Catalogues
    from qbench.suite.catalogues import gather as gather
    from qbench.suite.catalogues import meanings as meanings
    from qbench.suite.catalogues import with_python as with_python
    from qbench.suite.catalogues import written_extensions as written_extensions
    from qbench.suite.check import Check as Check
    from qbench.suite.check import OpenCheck as OpenCheck
    from qbench.suite.check import check_name as check_name
    from qbench.suite.check import check_suite as check_suite
    from qbench.suite.check import open_check as open_check
    from qbench.suite.division import MOST_JOBS as MOST_JOBS
    from qbench.suite.division import TimedModel as TimedModel
    from qbench.suite.division import divide_among as divide_among
    from qbench.suite.division import divide_by_time as divide_by_time
    from qbench.suite.division import imbalance as imbalance
    from qbench.suite.durations import Durations as Durations
    from qbench.suite.durations import Source as Source
    from qbench.suite.durations import read_durations as read_durations
    from qbench.suite.expansion import PlannedCell as PlannedCell
    from qbench.suite.expansion import Selection as Selection
    from qbench.suite.expansion import Shard as Shard
    from qbench.suite.expansion import expand as expand
    from qbench.suite.expansion import expand_pruned as expand_pruned
    from qbench.suite.expansion import expand_units as expand_units
    from qbench.suite.job_choice import COUNTERS as COUNTERS
    from qbench.suite.job_choice import JobChoice as JobChoice
    from qbench.suite.job_choice import choose_job as choose_job
    from qbench.suite.job_choice import choose_share as choose_share
    from qbench.suite.job_executors import Workers as Workers
    from qbench.suite.job_executors import workers_at as workers_at
    from qbench.suite.job_night import JobEnd as JobEnd
    from qbench.suite.job_night import JobState as JobState
    from qbench.suite.job_night import Night as Night
    from qbench.suite.job_night import is_night_of as is_night_of
    from qbench.suite.job_night import runs_of_job as runs_of_job
    from qbench.suite.job_plan import Job as Job
    from qbench.suite.job_plan import JobPlan as JobPlan
    from qbench.suite.job_plan import PlannedCode as PlannedCode
    from qbench.suite.job_plan import PlannedSuite as PlannedSuite
    from qbench.suite.job_plan import Unit as Unit
    from qbench.suite.job_plan import load_job_plan as load_job_plan
    from qbench.suite.job_plan import make_job_plan as make_job_plan
    from qbench.suite.job_plan import save_job_plan as save_job_plan
    from qbench.suite.job_planning import Planning as Planning
    from qbench.suite.job_planning import plan_jobs as plan_jobs
    from qbench.suite.job_process import DIED as DIED
    from qbench.suite.job_process import LAST_OUTPUT as LAST_OUTPUT
    from qbench.suite.job_process import MEASURED as MEASURED
    from qbench.suite.job_process import REFUSED as REFUSED
    from qbench.suite.job_process import own_source as own_source
    from qbench.suite.job_process import own_version as own_version
    from qbench.suite.plan_cells import cells_by_job as cells_by_job
    from qbench.suite.plan_identity import describe_code as describe_code
    from qbench.suite.plan_identity import refuse_other_class as refuse_other_class
    from qbench.suite.plan_identity import refuse_other_code as refuse_other_code
    from qbench.suite.plan_identity import refuse_other_suite as refuse_other_suite
    from qbench.suite.plan_identity import suite_digest as suite_digest
    from qbench.suite.proof import ProofOptions as ProofOptions
    from qbench.suite.proof import ProvenSuite as ProvenSuite
    from qbench.suite.run_start import describe_start as describe_start
    from qbench.suite.session import Bench as Bench
    from qbench.suite.session import JudgedCell as JudgedCell
    from qbench.suite.session import Settings as Settings
    from qbench.suite.session import StoredBaselines as StoredBaselines
    from qbench.suite.session import approve_run as approve_run
    from qbench.suite.session import make_subject as make_subject
    from qbench.suite.session import repeatable_cell as repeatable_cell
    from qbench.suite.settings import ranges_file_of as ranges_file_of
    from qbench.suite.stale import idle_rule_errors as idle_rule_errors
    from qbench.suite.stale import unneeded_entry_errors as unneeded_entry_errors
    from qbench.suite.suite_file import QUARANTINE_SUFFIX as QUARANTINE_SUFFIX
    from qbench.suite.suite_file import SUFFIX as SUFFIX
    from qbench.suite.suite_file import ModelTable as ModelTable
    from qbench.suite.suite_file import QuarantineText as QuarantineText
    from qbench.suite.suite_file import Suite as Suite
    from qbench.suite.suite_file import SuiteTable as SuiteTable
    from qbench.suite.suite_file import load_suite as load_suite
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
