"""qbench import: logs of other tools as a file of answers."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import declare_data, names_of
from qbench.cli.printing import put, say
from qbench.errors import InputError
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.metrics import AnswerRecord, Header


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench import``."""
    parser.add_argument(
        "logs",
        metavar="FROM",
        nargs="+",
        help="lm-eval's samples (.jsonl of --log_samples), a log of Inspect (.eval, .json), or a "
        "table (.csv); of several, such as all subjects of MMLU, the ids begin with the task",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the file of answers to write (.jsonl)",
    )
    parser.add_argument(
        "--filter", metavar="F", default="", help="of lm-eval, the filter whose answers are taken"
    )
    parser.add_argument(
        "--source",
        metavar="KEY",
        default="",
        help=(
            "what tells which samples belong together: a column, or names between dots such as "
            "doc.article"
        ),
    )
    parser.add_argument(
        "--columns",
        metavar="K=C,…",
        action="joined",
        default="",
        help="of a table, the columns of id, answer, label and source",
    )
    declare_data(
        parser,
        "the data that was answered: its digest is written, so that another revision is refused",
    )
    for name, what in (
        ("device", "the device"),
        ("firmware", "its firmware"),
        ("tool", "the tool, such as 'qnn 2.31'"),
    ):
        parser.add_argument(f"--{name}", metavar="NAME", help=f"{what} that the answers come from")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write the records of a log as a file of answers, whole or not at all.

    Raises:
        QbenchError: the log cannot be read, or the file not be written.
    """
    from qbench.metrics import (
        LogChoices,
        answer_lines,
        join_foreign_logs,
        open_answers,
        open_foreign_log,
    )
    from qbench.storage import require_writable, staged_files

    output = Path(arguments.output)
    if output.suffix != ".jsonl":
        raise InputError(
            f"Importing '{arguments.logs[0]}'",
            found=f"-o {arguments.output}",
            expected="a name that ends in .jsonl",
            remedy="Name the file of answers: -o answers.jsonl.",
        )
    require_writable(output)
    columns = _columns(arguments.columns)
    choices = LogChoices(filter=arguments.filter, source=arguments.source, columns=columns)
    log = join_foreign_logs(
        [(text, open_foreign_log(Path(text), choices)) for text in arguments.logs]
    )
    header = _described(log.header, arguments)
    count = 0

    def counting() -> "Iterator[AnswerRecord]":
        nonlocal count
        for record in log.records:
            count += 1
            yield record

    with staged_files(output) as folder:
        staged = folder / output.name
        with staged.open("wb") as file:
            file.writelines(answer_lines(header, counting()))
        _check(staged, arguments.logs[0])
    for note in log.notes:
        say(note)
    first = next(open_answers(output).records())
    put(f"{arguments.output}: {counted(count, 'sample')}, {_facts(first)}")
    return ExitCode.FINE


def _check(path: Path, log: str) -> None:
    """Refuse what a comparison would refuse: no record, a sample twice, records of different
    keys.
    """
    from qbench.metrics import open_answers

    seen: set[str | int] = set()
    twice: str | int | None = None
    is_empty = False
    try:
        for record in open_answers(path).records():
            is_empty = record.answer is None and not record.metrics
            twice = record.id if record.id in seen else twice
            seen.add(record.id)
    except InputError as error:
        # the number is of a line of the file that is written, which has a header; the sample is
        # named, too
        doing = re.sub(
            r"^, line \d+", "", error.doing.removeprefix(f"Reading the answers '{path}'")
        )
        doing = f"Importing '{log}'{doing}"
        raise InputError(
            doing, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    if is_empty:
        raise InputError(
            f"Importing '{log}'",
            found="no answer, and no metric that is a number for each sample",
            expected="one of them, for samples to be compared",
            remedy="Import a task whose metric is a mean over samples, or a table with one.",
        )
    if twice is not None:
        raise InputError(
            f"Importing '{log}'",
            found=f"the sample '{twice}' twice",
            expected="every sample once",
            remedy="Keep one answer of each sample; keep repeated runs in files of their own.",
        )


def _columns(text: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in names_of(text)]
    wrong = next((key for key, _, column in pairs if not column), None)
    if wrong is not None:
        raise InputError(
            "Reading --columns",
            found=f"'{wrong}'",
            expected="KEY=COLUMN, with a key of id, answer, label and source",
            remedy="Write for instance --columns id=name,answer=predicted.",
        )
    return {key: column for key, _, column in pairs}


def _described(header: "Header", arguments: argparse.Namespace) -> "Header":
    """``header`` with what the command line says of the data and of where the answers come from."""
    import msgspec

    from qbench.metrics import DataMark

    given = {
        name: getattr(arguments, name)
        for name in ("device", "firmware", "tool")
        if getattr(arguments, name)
    }
    provenance = msgspec.structs.replace(header.provenance, **given)
    data = header.data
    if arguments.data:
        from qbench.subjects import dataset_from_text

        dataset, _ = dataset_from_text(arguments.data)
        data = DataMark(id=dataset.id, digest=dataset.digest)
    return msgspec.structs.replace(header, provenance=provenance, data=data)


def _facts(record: "AnswerRecord") -> str:
    parts = []
    if record.answer is not None:
        parts.append("an answer")
    if record.metrics:
        parts.append(f"the metrics {', '.join(record.metrics)}")
    if record.source is not None:
        parts.append("a source")
    return f"each with {' and '.join(parts) or 'its id alone'}"


COMMAND = Command(
    name="import",
    summary="turn a log of another tool into a file of answers",
    example="qbench import samples_gsm8k.jsonl --filter strict-match -o answers.jsonl",
    declare=declare,
    execute=execute,
)
