"""The fixture ``qbench_check``: one cell in a plain test, without a suite file.

The node id of the test names the cell. Its line, its baseline and its finding go where those of
suites go; the controller gets the arguments with the report, and opens the check again to accept.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import InputError, QbenchError, refused_by_system
from qbench.judging import CHECKS, UNACCEPTED
from qbench.plugin.item_state import ITEM_STATE, ItemState, SuiteFacts
from qbench.plugin.items import (
    detail_of,
    finding_of,
    item_location,
    judged_cell,
    keep_unmeasured,
    red_text,
    unmeasured_cell,
)
from qbench.plugin.opening import OpenSuite, open_test
from qbench.plugin.options import LEFT_OUT, OPTIONS

if TYPE_CHECKING:
    from qbench.plugin.recording import OpenRun
    from qbench.suite import Check, JudgedCell
    from qbench.tracking import Acceptance, BaselineOfTest

FIXTURE = "qbench_check"
_FACTS = pytest.StashKey[SuiteFacts]()
_FOLDER = "folder"
"""The key of the folder that the paths of a check are relative to, next to its arguments."""
_NAMED = 3
"""Tests that one sentence names."""


class QbenchCheck:
    """The value of the fixture: measures, judges and remembers one quantized model."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._is_done = False

    def __call__(
        self,
        model: str | os.PathLike[str],
        *,
        data: str | os.PathLike[str],
        fp32: str | os.PathLike[str] | None = None,
        schema: str | os.PathLike[str] | None = None,
        calibration: str | os.PathLike[str] | None = None,
        backend: str = "ort-cpu",
        tolerance: float | None = None,
    ) -> None:
        """Pass, or fail the test with the verdict; a backend that is not there skips it.

        Args:
            model: a quantized ONNX file next to its float model ``fp32``, or a float one that is
                quantized by ``schema`` (a name or a ``.toml``).
            data: scored samples: ``.npz``, ``.jsonl``, a folder or a name. calibration: the samples
                that the ranges of ``schema`` are taken from. backend: a name. tolerance: allowed
                loss, relative to the fp32 score; None: 0.005.

        Raises:
            pytest.fail.Exception: the verdict is red; or an argument is wrong, in one sentence.
        """
        __tracebackhide__ = True
        given = {
            "model": model,
            "fp32": fp32,
            "schema": schema,
            "data": data,
            "calibration": calibration,
        }
        texts = {key: _text(one) for key, one in given.items()}
        message, skips = self._run({**texts, "backend": backend, "tolerance": tolerance})
        if message:
            (pytest.skip if skips else _fail)(message)

    def _run(self, arguments: dict[str, Any]) -> tuple[str, bool]:
        """The message of a test that does not pass, and whether it is skipped; empty: it passes."""
        from qbench.suite import Check

        try:
            self._refuse_second()
            check = Check(test=self._item.nodeid, **arguments)
            opened = open_test(check, self._item.config, self._item.ihook)
        except QbenchError as error:
            return _with_folder(error), False
        except OSError as error:
            return str(refused_by_system(f"Opening the check '{self._item.nodeid}'", error)), False
        facts = _facts(self._item.config, self._item.session.items)
        state = ItemState(facts, is_cell=False, location=item_location(self._item))
        state.check = {**check.plain, _FOLDER: str(Path.cwd())}
        self._item.stash[ITEM_STATE] = state
        planned = opened.planned[0]
        try:
            _refuse_renamed(opened, self._item)
            judged = judged_cell(self._item, opened, planned)
        except QbenchError as error:
            judged = unmeasured_cell(opened, planned, error)
            keep_unmeasured(self._item, judged)
        return self._ended(check, opened, judged)

    def _ended(self, check: "Check", opened: OpenSuite, judged: "JudgedCell") -> tuple[str, bool]:
        from qbench.judging import Outcome

        verdict = judged.verdict
        if verdict.outcome is Outcome.UNSUPPORTED:
            return verdict.headline, True
        if judged.measurement is None:
            return verdict.headline, False
        if not verdict.outcome.is_red:
            return "", False
        config = self._item.config
        self._item.stash[ITEM_STATE].finding = finding_of(opened, judged, config)
        name = f"{self._item.nodeid} ({judged.planned.cell.slug})"
        return red_text(verdict, name, detail_of(config), check.search_command()), False

    def _refuse_second(self) -> None:
        """Refuse a second check in one test, which would have the same name.

        Raises:
            InputError: this is one.
        """
        if self._is_done:
            raise InputError(
                f"Checking in '{self._item.nodeid}'",
                found="a second qbench_check",
                expected="one for each test: the name of the test is that of its accepted result",
                remedy="Write a test for each check, or parametrize the test.",
            )
        self._is_done = True


def check_of(request: pytest.FixtureRequest) -> QbenchCheck:
    """The fixture's value for the test of ``request``."""
    item: pytest.Item = request.node
    if ITEM_STATE in item.stash:  # an earlier run of the same item
        del item.stash[ITEM_STATE]
    return QbenchCheck(item)


def _with_folder(error: QbenchError) -> str:
    """The sentence of ``error``; where a file is missing, with the folder that paths start from."""
    is_missing = os.strerror(errno.ENOENT) in error.found
    return f"{error} Paths start from '{Path.cwd()}'." if is_missing else str(error)


def _fail(message: str) -> None:
    __tracebackhide__ = True
    pytest.fail(message, pytrace=False)


def _text(value: Any) -> Any:  # noqa: ANN401 - what a user wrote; a check of types follows
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _facts(config: pytest.Config, items: Iterable[pytest.Item]) -> SuiteFacts:
    """The facts of all checks of this process.

    ``planned`` is 0 in a run of every test with a check, as far as that is known, else how many
    there are: so that readers of the history do not take the others for lost.
    """
    if _FACTS not in config.stash:
        items = list(items)
        chosen = {one.nodeid for one in items if FIXTURE in getattr(one, "fixturenames", ())}
        known = {one.test for one in _stored(config) if is_there(config, one.test, items)}
        others = (config.stash.get(LEFT_OUT, set()) | known) - chosen
        least = max(len(others), int(_is_part(config)))
        count = least + len(chosen) if least else 0
        file = config.rootpath / "suites" / CHECKS
        config.stash[_FACTS] = SuiteFacts(CHECKS, CHECKS, count, file, ())
    return config.stash[_FACTS]


# Tests that were renamed: their baselines are still called as before.


def is_there(config: pytest.Config, test: str, items: Iterable[pytest.Item]) -> bool:
    """Whether there is a test with the node id ``test``: it is collected, or its file has a
    function of its name and no other parameters of it were collected.
    """
    ids = {item.nodeid for item in items}
    if test in ids or test in config.stash.get(LEFT_OUT, set()):
        return True
    stem = test.partition("[")[0]
    path, _, rest = stem.partition("::")
    function = rest.rpartition("::")[2]
    try:
        text = (config.rootpath / path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    if re.search(rf"\bdef\s+{re.escape(function)}\b", text) is None:
        return False
    return _is_part(config) or not any(one.partition("[")[0] == stem for one in ids)


def _is_part(config: pytest.Config) -> bool:
    """Whether the command line leaves out tests of the files that are collected."""
    by_name = any("::" in str(one) for one in config.args)
    return by_name or LEFT_OUT in config.stash or bool(config.getoption("lf", False))


def _stored(config: pytest.Config) -> "tuple[BaselineOfTest, ...]":
    from qbench.tracking import baselines_of_tests

    return baselines_of_tests(config.stash[OPTIONS].baselines / CHECKS)


def _refuse_renamed(opened: OpenSuite, item: pytest.Item) -> None:
    """Refuse to judge a test without an accepted result by its loss alone, where a test that is
    gone has one of the same cell.

    Raises:
        InputError: there is one. StoreError: a baseline cannot be read.
    """
    from qbench.tracking import Scope, baseline_path

    config, planned = item.config, opened.planned[0]
    options = config.stash[OPTIONS]
    own = baseline_path(options.baselines, CHECKS, planned.model.id)
    is_new = options.accept in (Scope.NEW.value, Scope.ALL.value)
    if is_new or options.limit is not None or own.exists():
        return
    fitting = [one for one in _stored(config) if planned.cell.slug in one.slugs]
    if not fitting:
        return
    digests = opened.bench.shared(planned).identity()
    for one in fitting:
        if one.is_of(digests) and not is_there(config, one.test, item.session.items):
            raise InputError(
                f"Checking '{planned.test}'",
                found=(
                    f"no accepted result, and one of the same model and data for '{one.test}', a "
                    f"test that is gone ({os.path.relpath(one.path, config.rootpath)})"
                ),
                expected="the accepted result to be moved when a test is renamed",
                remedy=(
                    f'Move it: qbench accept --rename "{one.test}" "{planned.test}"; or accept '
                    f'this one as new: pytest "{planned.test}" --qbench-accept=new.'
                ),
            )


# The end of the session, in the controller.


def accept_checks(
    run: "OpenRun", session: pytest.Session
) -> "Iterator[tuple[str, Acceptance | QbenchError]]":
    """(node id, what changed or why nothing did) of each check of ``run``.

    The paths of a check are relative to the folder that its test ran in.
    """
    from qbench.suite import Check, approve_run

    for record in run.cells:
        arguments = dict(run.checks.get(record.model, {}))
        try:
            measurement = record.measurement()
            if measurement is None or not arguments:
                continue
            with chdir(arguments.pop(_FOLDER)):
                check = Check(**arguments)
                hook = session.gethookproxy(session.config.rootpath / check.test.partition("::")[0])
                opened = open_test(check, session.config, hook)
                done = approve_run(opened.bench, [(opened.planned[0], measurement)])
        except QbenchError as error:
            yield record.test, error
        except OSError as error:
            yield record.test, refused_by_system(f"Accepting '{record.test}'", error)
        else:
            yield from ((record.test, acceptance) for _, acceptance in done)


def check_sentences(run: "OpenRun", config: pytest.Config) -> Iterator[str]:
    """What a user should know of the checks of ``run``: what was never accepted, and which tests
    measure the same.
    """
    alone = [
        record.test
        for record in run.cells
        if not record.is_red and any(gate.detail == UNACCEPTED for gate in record.gates)
    ]
    if alone and not config.stash[OPTIONS].accepts:
        target = f'"{alone[0]}"' if len(alone) == 1 else "…"
        yield (
            f"nothing is accepted yet for {_listed(alone)}: judged by the loss against fp32 alone; "
            f"accept with: pytest {target} --qbench-accept=new"
        )
    by_file: dict[str, list[str]] = {}
    for arguments in run.checks.values():
        from qbench.suite import Check

        plain = {key: one for key, one in arguments.items() if key != _FOLDER}
        key = repr((arguments[_FOLDER], Check(**plain).measured))
        by_file.setdefault(key, []).append(arguments["test"])
    for tests in by_file.values():
        if len(tests) > 1:
            yield (
                f"{_listed(sorted(tests))} check the same file on the same data: it is measured "
                f"{len(tests)} times, and each has an accepted result of its own"
            )


def left_over_sentences(config: pytest.Config, items: Iterable[pytest.Item]) -> Iterator[str]:
    """Which baselines are of tests that are gone."""
    items = list(items)
    for one in _stored(config):
        if not is_there(config, one.test, items):
            yield (
                f"'{os.path.relpath(one.path, config.rootpath)}' is of '{one.test}', a test that "
                "is gone; it is kept"
            )


def _listed(tests: "list[str]") -> str:
    named = [f"'{one}'" for one in tests[:_NAMED]]
    if len(tests) > _NAMED:
        named.append(f"{len(tests) - _NAMED} more")
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
