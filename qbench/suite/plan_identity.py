"""What a plan was made for: digests of suites and code, and the refusal of others."""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qbench.errors import InputError
from qbench.host import COUNTING_PACKAGES, current_commit, package_versions, run_git
from qbench.judging import RANGES_FILE
from qbench.storage import digest_bytes, digest_file, digest_plain, read_toml
from qbench.suite.catalogues import (
    ANSWERS_FOLDER,
    ARITHMETIC_FOLDER,
    DEVICE_FOLDER,
    ENGINE_FOLDER,
    PYTHON_FOLDER,
    QUANTIZER_FOLDER,
    SCHEMA_FOLDER,
)
from qbench.suite.job_plan import JobPlan, PlannedCode, PlannedSuite
from qbench.suite.suite_file import QUARANTINE_SUFFIX, SUFFIX

_FOLDERS = (SCHEMA_FOLDER, ARITHMETIC_FOLDER, DEVICE_FOLDER, PYTHON_FOLDER, ENGINE_FOLDER)
_AGAIN = "Make the plan again with 'qbench plan', or run what it was made for."


def suite_digest(path: Path) -> str:
    """The digest of all files that are read for the suite at ``path``: itself and its quarantine
    file, the files next to it that define schemas, backends, ranges, answers and quantizers, and
    the conftest.py of its folder and of those above it in its repository.

    Raises:
        InputError: the suite cannot be read.
    """
    folder = path.parent
    files = {os.path.relpath(one, folder).replace(os.sep, "/"): one for one in _files(path)}
    return digest_plain({name: digest_file(files[name]) for name in sorted(files)})


def describe_code(folder: Path) -> PlannedCode:
    """The code in ``folder`` and of qbench, as it is now."""
    import qbench

    commit = current_commit(folder)
    changes = "" if commit is None or not commit.dirty else run_git(folder, "diff", "HEAD")
    return PlannedCode(
        commit="" if commit is None else commit.sha,
        dirty=commit is not None and commit.dirty,
        changes=digest_bytes(changes.encode()) if changes else "",
        qbench=qbench.__version__,
        source=_source_digest(Path(qbench.__file__).parent),
        versions=dict(package_versions(COUNTING_PACKAGES)),
    )


def refuse_other_suite(plan: JobPlan, path: Path) -> PlannedSuite:
    """The suite of ``plan`` whose file is at ``path``.

    Raises:
        InputError: the plan does not name it, or was made for other content.
    """
    name = path.name.removesuffix(SUFFIX)
    doing = f"Reading suite '{name}' for plan {plan.short}"
    known = next((suite for suite in plan.suites if suite.name == name), None)
    if known is None:
        raise InputError(
            doing,
            found="a suite that the plan does not name",
            expected=f"one of: {', '.join(suite.name for suite in plan.suites)}",
            remedy="Leave it out of the command, or make a plan of it with 'qbench plan'.",
        )
    if (found := suite_digest(path)) != known.digest:
        raise InputError(
            doing,
            found=f"the suite, or a file that is read for it, with other content ({found[:12]})",
            expected=f"those that the plan was made for ({known.digest[:12]})",
            remedy=_AGAIN,
        )
    return known


def refuse_other_code(plan: JobPlan, folder: Path) -> None:
    """Check that the code in ``folder`` and of qbench is that of ``plan``.

    Raises:
        InputError: another commit, other changes, another qbench, or another package that counts.
    """
    wanted, found = plan.code, describe_code(folder)
    facts = (
        ("commit", wanted.commit or "none", found.commit or "none"),
        ("uncommitted changes", wanted.changes[:12] or "none", found.changes[:12] or "none"),
        ("qbench", wanted.qbench, found.qbench),
        ("source files of qbench", wanted.source[:12], found.source[:12]),
        *(
            (name, wanted.versions.get(name, "none"), found.versions.get(name, "none"))
            for name in sorted({*wanted.versions, *found.versions})
        ),
    )
    for what, planned, here in facts:
        if planned != here:
            raise InputError(
                f"Running a job of plan {plan.short}",
                found=f"{what}: {here}",
                expected=f"{what}: {planned}, as when the plan was made",
                remedy=_AGAIN,
            )


def refuse_other_class(plan: JobPlan, processor: str) -> None:
    """Check that ``processor`` is of the class that ``plan`` wants.

    Raises:
        InputError: it is another one.
    """
    if plan.environment_class not in (None, processor):
        raise InputError(
            f"Running a job of plan {plan.short}",
            found=f"a processor of class '{processor}'",
            expected=f"'{plan.environment_class}', the class that the plan wants",
            remedy="Run the job on such a machine, or make a plan for this class.",
        )


def _files(path: Path) -> Iterator[Path]:
    folder, name = path.parent, path.name.removesuffix(SUFFIX)
    yield path
    listed = folder / f"{name}{QUARANTINE_SUFFIX}"
    if listed.is_file():
        yield listed
    for kind in _FOLDERS:  # an editor has a link to nowhere next to the file that it edits
        yield from (one for one in (folder / kind).glob("*.toml") if one.is_file())
    for kind in (ANSWERS_FOLDER, QUANTIZER_FOLDER):  # with the scripts and locks of quantizers
        yield from (one for one in (folder / kind).rglob("*") if one.is_file())
    if RANGES_FILE.name.encode() in path.read_bytes():  # few suites have such files
        named = (folder / name for name in _ranges_files(read_toml(path)))
        yield from (one for one in named if one.is_file())
    for above in (folder, *folder.parents):
        if (above / "conftest.py").is_file():
            yield above / "conftest.py"
        if (above / ".git").exists() or above == Path.cwd():
            break


def _ranges_files(table: Mapping[str, Any]) -> Iterator[str]:
    """The names of all files of ranges by hand in ``table`` of a suite."""
    models = table.get("model")
    tables = [table.get("suite"), *(models if isinstance(models, list) else ())]
    for one in tables:
        value = one.get(RANGES_FILE.name) if isinstance(one, Mapping) else None
        names = value.values() if isinstance(value, Mapping) else (value,)
        yield from (name for name in names if isinstance(name, str) and name)


@functools.cache  # what this process runs does not change
def _source_digest(package: Path) -> str:
    """The digest of the files that qbench itself consists of."""
    files = sorted(one for one in package.rglob("*") if one.suffix in (".py", ".toml"))
    return digest_plain({one.relative_to(package).as_posix(): digest_file(one) for one in files})
