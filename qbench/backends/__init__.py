"""What runs a graph: the protocol (Backend, Executor) and its implementations by name."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.backends.answers import ANSWERS_PREFIX as ANSWERS_PREFIX
    from qbench.backends.answers import AnswersBackend as AnswersBackend
    from qbench.backends.answers import answers_backend as answers_backend
    from qbench.backends.engine_process import EngineCrashError as EngineCrashError
    from qbench.backends.engine_process import Timeout as Timeout
    from qbench.backends.engine_process import contained as contained
    from qbench.backends.engine_process import engine_worker as engine_worker
    from qbench.backends.engine_process import isolated as isolated
    from qbench.backends.engine_process import no_timeout as no_timeout
    from qbench.backends.engine_process import run_where_prepared as run_where_prepared
    from qbench.backends.engine_process import take_unprotected as take_unprotected
    from qbench.backends.entry import BackendEntry as BackendEntry
    from qbench.backends.execution import executed_as_written as executed_as_written
    from qbench.backends.feeds import FeedCheck as FeedCheck
    from qbench.backends.feeds import loaded as loaded
    from qbench.backends.feeds import require_taps as require_taps
    from qbench.backends.feeds import with_taps as with_taps
    from qbench.backends.integer import IntegerBackend as IntegerBackend
    from qbench.backends.ort import Level as Level
    from qbench.backends.ort import Optimization as Optimization
    from qbench.backends.ort import OrtBackend as OrtBackend
    from qbench.backends.output_check import CheckedExecutor as CheckedExecutor
    from qbench.backends.output_check import OutputCheck as OutputCheck
    from qbench.backends.partitioned import PartitionedBackend as PartitionedBackend
    from qbench.backends.protocol import HANG_S as HANG_S
    from qbench.backends.protocol import Array as Array
    from qbench.backends.protocol import Backend as Backend
    from qbench.backends.protocol import Closing as Closing
    from qbench.backends.protocol import Counting as Counting
    from qbench.backends.protocol import CountsEvents as CountsEvents
    from qbench.backends.protocol import Executed as Executed
    from qbench.backends.protocol import Executor as Executor
    from qbench.backends.protocol import Feeds as Feeds
    from qbench.backends.protocol import HasLevels as HasLevels
    from qbench.backends.protocol import HasRuleDigests as HasRuleDigests
    from qbench.backends.protocol import KnowsMistakes as KnowsMistakes
    from qbench.backends.protocol import ManySessions as ManySessions
    from qbench.backends.protocol import MayCrash as MayCrash
    from qbench.backends.protocol import Miscomputed as Miscomputed
    from qbench.backends.protocol import Recorded as Recorded
    from qbench.backends.protocol import RemoteBackend as RemoteBackend
    from qbench.backends.protocol import Unoptimized as Unoptimized
    from qbench.backends.protocol import Watchable as Watchable
    from qbench.backends.protocol import arithmetic_of as arithmetic_of
    from qbench.backends.protocol import executed_by as executed_by
    from qbench.backends.protocol import for_many_sessions as for_many_sessions
    from qbench.backends.protocol import recording as recording
    from qbench.backends.protocol import runs_as_written as runs_as_written
    from qbench.backends.protocol import versions_of as versions_of
    from qbench.backends.refusals import batch_refusal as batch_refusal
    from qbench.backends.refusals import engine_sentence as engine_sentence
    from qbench.backends.refusals import importing_engine as importing_engine
    from qbench.backends.refusals import not_installed as not_installed
    from qbench.backends.registry import as_backend as as_backend
    from qbench.backends.registry import backends_of_format as backends_of_format
    from qbench.backends.registry import catalogue as catalogue
    from qbench.backends.registry import device_backend as device_backend
    from qbench.backends.registry import get_backend as get_backend
    from qbench.backends.registry import integer_backends as integer_backends
    from qbench.backends.registry import miscomputed as miscomputed
    from qbench.backends.slicing import in_slices as in_slices
    from qbench.backends.venv.another_python import AnotherPython as AnotherPython
    from qbench.backends.venv.another_python import installed_version as installed_version
    from qbench.backends.venv.another_python import load_provider as load_provider
    from qbench.backends.venv.another_python import load_python as load_python
    from qbench.backends.venv.another_python import offered_versions as offered_versions
    from qbench.backends.venv.another_python import program_in as program_in
    from qbench.backends.venv.another_python import python_backend as python_backend
    from qbench.backends.venv.another_python import under_python as under_python
    from qbench.backends.venv.another_python import with_batch as with_batch
    from qbench.backends.venv.client import FIRST_MESSAGE_S as FIRST_MESSAGE_S
    from qbench.backends.venv.client import Child as Child
    from qbench.backends.venv.client import ChildError as ChildError
    from qbench.backends.venv.client import EngineError as EngineError
    from qbench.backends.venv.client import Worker as Worker
    from qbench.backends.venv.client import own_environment as own_environment
    from qbench.backends.venv.client import own_python as own_python
    from qbench.backends.venv.creator import EnvironmentMaker as EnvironmentMaker
    from qbench.backends.venv.worker import serve as serve
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
