"""``qbench prove --cluster`` and ``--executor``: the shares of a proof as jobs elsewhere."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import ExitCode
from qbench.cli.options import hinted, suite_path
from qbench.cli.printing import say
from qbench.errors import InputError
from qbench.number_text import counted
from qbench.storage import current_factor

if TYPE_CHECKING:
    from qbench.suite import JobEnd, ProofOptions, ProofShares
    from qbench.tracking import ProofEnd, ProofLine


def prove_on_workers(
    arguments: argparse.Namespace, options: "ProofOptions"
) -> "tuple[tuple[ProofLine, ...], tuple[str, ...]]":
    """The lines of all shares, and what is lacking of them (``lacking_of_proof``).

    Raises:
        QbenchError: the suite, an option or the workers are wrong, or files of an earlier proof are
            there without --resume.
    """
    from qbench.suite import ProofNight, ProvenSuite, workers_at
    from qbench.tracking import lacking_of_proof, lines_of_one, proof_file

    _refuse_with_workers(arguments)
    path = suite_path(arguments.suite)
    with hinted(arguments.extension):
        proven = ProvenSuite(path, options)
    doing = f"Proving '{arguments.suite}'"
    with workers_at(arguments.cluster, arguments.executor) as workers:
        shares = _shares(arguments, proven.suite.name, proven.plan.made, workers.slots)
        shares.folder.mkdir(parents=True, exist_ok=True)
        kept = [(one, proof_file(one).read()) for one in shares.files]
        lines_of_one(kept, shares.made, doing)  # refuses those of another proof here, once
        say(f"{counted(shares.count, 'share')}, {workers.name}; trials: {shares.folder}")
        order = _order(arguments, path, shares)
        night = ProofNight(shares, workers, shares.folder, order, lambda _: (), say)
        ends = night.run()
    found = [(one, proof_file(one).read()) for one in shares.files]
    lines = lines_of_one(found, shares.made, doing)
    lacking = lacking_of_proof(_ended(lines, ends), shares.count)
    if lacking:
        say("--resume goes on with the shares that are lacking")
    return lines or (proven.plan.start,), lacking


def _ended(lines: "Sequence[ProofLine]", ends: "Sequence[JobEnd]") -> "dict[str, ProofEnd | None]":
    """Share → its end (``shares_ended``); None, too: its job failed, and the end is of an earlier
    run that left something.
    """
    from qbench.tracking import shares_ended

    failed = {f"{end.index}/{len(ends)}" for end in ends if not end.is_done}
    ended = shares_ended(lines)
    return ended | dict.fromkeys(failed & ended.keys())


def _refuse_with_workers(arguments: argparse.Namespace) -> None:
    given = {"--shard": arguments.shard, "--trials": arguments.trials}
    if wrong := next((name for name, value in given.items() if value), ""):
        raise InputError(
            f"Proving '{arguments.suite}' on workers",
            found=wrong,
            expected="all trials, in shares that are made here; --budget holds for each share",
            remedy="Leave it out.",
        )


def _shares(
    arguments: argparse.Namespace, suite: str, made: "Mapping[str, str]", slots: int
) -> "ProofShares":
    """Those of the files that are there, or new ones.

    Raises:
        InputError: files are there without --resume, or of another number of shares.
    """
    from qbench.suite import ProofShares, count_of_shares

    file = Path(arguments.output or f"prove-{suite}.jsonl")
    folder = file.with_suffix(".shares")
    known = count_of_shares(folder)
    wanted = arguments.jobs or known or slots
    if known is not None and (known != wanted or not arguments.resume):
        raise InputError(
            f"Proving '{arguments.suite}'",
            found=f"an earlier proof in {counted(known, 'share')} in '{folder}'",
            expected=f"a new folder, or --resume with {counted(known, 'share')}",
            remedy="Go on with --resume and without --jobs, or name another file: -o FILE.",
        )
    return ProofShares(suite=suite, made=made, folder=folder, count=wanted)


def _order(arguments: argparse.Namespace, path: Path, shares: "ProofShares") -> "dict[str, object]":
    """What ``run_job`` takes, for all shares."""
    from qbench.suite import MEASURED, REFUSED, own_source, own_version

    given = {
        "select": arguments.select,
        "faults": arguments.faults,
        "seed": arguments.seed,
        "places": arguments.places,
        "baselines": arguments.baselines,
        "cache": arguments.cache,
        "budget": f"{arguments.budget}s" if arguments.budget is not None else "",
    }
    limits = ("--size-limits", str(current_factor())) if current_factor() > 1 else ()
    options = (f"--{name}={value}" for name, value in given.items() if value not in (None, ""))
    extensions = (f"--extension={name}" for name in arguments.extension)
    new_class = ("--new-class",) if arguments.new_class else ()
    codes = {
        ExitCode.FINE: MEASURED,
        ExitCode.INCOMPLETE: MEASURED,  # of its budget
        ExitCode.USAGE: REFUSED,
    }
    return {
        "plan": "",
        "short": shares.short,
        "of": f"the proof of '{shares.suite}'",
        "folder": arguments.worker_folder or str(Path.cwd()),
        "words": [
            *("-P", "-m", "qbench", *limits, "prove", os.path.relpath(path), "--resume"),
            *(*options, *extensions, *new_class),
        ],
        "options": [
            f"--shard={{job}}/{shares.count}",
            f"--output={shares.folder / shares.name('{job}')}",
        ],
        "codes": {str(int(code)): how for code, how in codes.items()},
        "variables": {},
        "version": own_version(),
        "source": own_source(),
    }
