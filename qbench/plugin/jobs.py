"""``--qbench-job``: the job of a plan that this session runs, and what it may not be run with."""

import os
from argparse import Namespace
from typing import TYPE_CHECKING

import pytest

from qbench.errors import QbenchError

if TYPE_CHECKING:
    from qbench.suite import JobChoice

JOB: "pytest.StashKey[JobChoice]" = pytest.StashKey()


def choose_session_job(config: pytest.Config, args: list[str]) -> None:
    """Read the plan that the option names, and add the suites of the job to ``args`` where these
    name none.

    Raises:
        pytest.UsageError: the plan or the job is wrong, or it was made for other code or another
            class of processor.
    """
    given: Namespace = config.known_args_namespace
    texts = [text.strip() for text in given.qbench_job]
    folder = config.invocation_params.dir
    try:
        from qbench.suite import choose_job

        _refuse_two(texts, str(given.qbench_shard))
        choice = config.stash[JOB] = choose_job(texts[0], folder, os.environ)
        if not given.file_or_dir:
            files = [str(path) for path in choice.suites(folder)]
            args += files
            given.file_or_dir = files  # whose conftest files are loaded next
    except QbenchError as error:
        raise pytest.UsageError(str(error)) from error


def check_session_job(config: pytest.Config) -> None:
    """Refuse a plan that was made for other code, or for another class of processor.

    Raises:
        pytest.UsageError: as the name says.
    """
    from qbench.host import processor_class
    from qbench.suite import refuse_other_class, refuse_other_code

    choice = config.stash[JOB]
    config.option.qbench_job = [choice.text]  # workers need no variable of the scheduler
    plan = choice.plan
    folder = config.invocation_params.dir
    first = folder / plan.suites[0].path
    try:
        refuse_other_code(plan, first.parent if first.parent.is_dir() else config.rootpath)
        if plan.environment_class is not None:
            named = config.hook.pytest_qbench_processor(config=config)
            refuse_other_class(plan, named or processor_class())
    except QbenchError as error:
        raise pytest.UsageError(str(error)) from error


def _refuse_two(texts: list[str], shard: str) -> None:
    found = ""
    if len(texts) > 1:
        found = f"--qbench-job twice, '{texts[0]}' and '{texts[1]}'"
    elif shard.strip():
        found = f"--qbench-shard={shard} next to --qbench-job"
    if found:
        raise pytest.UsageError(
            f"Choosing the cells to run: found {found}; expected one division of the suites. "
            "Leave one of them out."
        )
