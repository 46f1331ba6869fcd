"""Arguments that several verbs take."""

import argparse
import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import count_from_one, in_turn
from qbench.cli.printing import say
from qbench.errors import InputError, nearest
from qbench.extension import Extension, error_of_code
from qbench.number_text import counted
from qbench.storage import read_project, require_writable

if TYPE_CHECKING:
    from qbench.backends import Backend
    from qbench.evaluation import SubjectArtifacts
    from qbench.judging import ValueDistribution
    from qbench.numerics import Arithmetic
    from qbench.quantization import Schema
    from qbench.storage import Cache
    from qbench.subjects import Dataset, Samples, ZooModel


# Options that several verbs have: each is declared once, so that it has one form and one help text.


def declare_model(parser: argparse.ArgumentParser, what: str = "an ONNX file") -> None:
    """``MODEL``; ``what`` the verb takes besides the name of a model."""
    parser.add_argument(
        "model", metavar="MODEL", help=f"{what}, or the name of a model (qbench list models)"
    )


def declare_data(parser: argparse.ArgumentParser, what: str, *, is_required: bool = False) -> None:
    """``--data D``; ``what`` the samples are for."""
    _declare_data(parser, "--data", what=what, is_required=is_required)


def declare_calibration_data(parser: argparse.ArgumentParser, what: str) -> None:
    """``--data D`` of a verb whose only samples calibrate; ``--calib`` is the same."""
    _declare_data(parser, "--data", "--calib", what=what, is_required=True)


def _declare_data(
    parser: argparse.ArgumentParser, *names: str, what: str, is_required: bool
) -> None:
    parser.add_argument(
        *names,
        dest="data",
        metavar="D",
        required=is_required,
        help=f"{what}, written as for 'qbench eval'",
    )


def declare_count(parser: argparse.ArgumentParser, default: int | None = None) -> None:
    """``--samples N``, in ``count``: how many samples of ``--data``; ``--count`` and
    ``--calib-count`` are the same.
    """
    usual = "all" if default is None else default
    parser.add_argument(
        "--samples",
        "--count",
        "--calib-count",
        dest="count",
        metavar="N",
        type=count_from_one,
        default=None if default is None else AtMost(default),
        help=f"use N samples, spread evenly over the data (default: {usual})",
    )


class AtMost(int):
    """A number of samples that no user asked for: fewer will do where the data has fewer."""


def declare_calibration(parser: argparse.ArgumentParser) -> None:
    """``--calib D2`` and ``--calib-samples N``, in ``calib_count``; ``--calib-count`` is the
    same.
    """
    parser.add_argument(
        "--calib", metavar="D2", help="calibration data; must not hold scored samples"
    )
    parser.add_argument(
        "--calib-samples",
        "--calib-count",
        dest="calib_count",
        metavar="N",
        type=count_from_one,
        help="calibrate on N samples, spread evenly over the data (default: all)",
    )


def declare_output(parser: argparse.ArgumentParser, default: str) -> None:
    """``--output NAME``; ``default`` says what is compared without it."""
    parser.add_argument(
        "--output",
        metavar="NAME",
        help=f"of a model file, the output that is measured (default: {default})",
    )


def say_output(network: "ZooModel") -> None:
    """Say which output of several is compared, unless ``--output`` named it."""
    from qbench.subjects import WholeOutput, only_graph

    if isinstance(network.task, WholeOutput) and network.task.output is None:
        names = [str(value.name) for value in only_graph(network).graph.outputs]
        if len(names) > 1:
            say(
                f"compared: output '{names[0]}', the first of {', '.join(names)}; --output names "
                "another"
            )


def declare_metrics(parser: argparse.ArgumentParser) -> None:
    """``--metrics M,…``, which ``names_of`` reads."""
    parser.add_argument(
        "--metrics",
        metavar="M,…",
        action="joined",
        default="",
        help="metrics, such as top1,top5,agreement (default: those that fit the task)",
    )


def names_of(text: str) -> list[str]:
    """The names in ``text``, between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def declare_backend(parser: argparse.ArgumentParser) -> None:
    """``--backend B``: what runs the model."""
    parser.add_argument(
        "--backend",
        metavar="B",
        default="ort-cpu",
        help=(
            "the backend that runs the model: a name, or a .toml with an arithmetic (default: "
            "ort-cpu)"
        ),
    )


def declare_backends(parser: argparse.ArgumentParser, more: str = "") -> None:
    """``--backend B,…``: what runs the model, which ``values_of`` reads; ``more``: what else it
    takes.
    """
    parser.add_argument(
        "--backend",
        metavar="B,…",
        action="joined",
        default="ort-cpu",
        help=(
            f"the backends that run the model: names, or .toml files with an arithmetic{more} "
            "(default: ort-cpu)"
        ),
    )


def values_of(option: str, text: str) -> tuple[str, ...]:
    """The values in ``text`` of ``option``, between commas, each once; a file whose name has a
    comma is one.

    Raises:
        InputError: there are none.
    """
    path = text.removeprefix("answers:")
    found = [text] if Path(path).is_file() else names_of(text)
    if not found:
        raise InputError(
            f"Reading --{option} '{text}'",
            found="no name",
            expected="one name, or several with commas between them",
            remedy=f"Name what 'qbench list {option}s' shows.",
        )
    return tuple(dict.fromkeys(found))


def declare_planned_backend(parser: argparse.ArgumentParser) -> None:
    """``--backend B``: what a plan is for."""
    parser.add_argument(
        "--backend",
        metavar="B",
        help="plan for the capabilities of this backend (default: all of ONNX)",
    )


def declare_threads(parser: argparse.ArgumentParser) -> None:
    """``--threads N``."""
    parser.add_argument(
        "--threads",
        metavar="N",
        type=count_from_one,
        default=1,
        help="threads of the engine (default: 1)",
    )


def declare_baselines(parser: argparse.ArgumentParser) -> None:
    """``--baselines DIR``."""
    parser.add_argument(
        "--baselines", metavar="DIR", default="baselines", help="folder of baselines"
    )


def declare_cache(parser: argparse.ArgumentParser) -> None:
    """``--cache DIR``."""
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="folder of the cache, or s3://, gs:// or file:// to share it (default: the user's)",
    )


def declare_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_UNITS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """The seconds of ``90s``, ``15m`` or ``2h``.

    Raises:
        ArgumentTypeError: it is not a time above 0.
    """
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"found '{text}'; expected a time above 0 such as 90s, 15m or 2h"
        )
    return seconds


def choose_cache(folder: str | None) -> "Cache":
    """The cache in ``folder``, or behind that URL; None: the user's."""
    from qbench.storage import Cache, place_of

    return Cache.at(place_of(folder)) if folder else Cache.default()


def read_samples(
    model: str, data: str, count: int | None, cache: "Cache"
) -> "tuple[ZooModel, Samples]":
    """The model and the samples that its graphs are fed: ``count`` of ``data``; None: all.

    Raises:
        InputError: no such model or data, fewer samples than asked for, or the model cannot read
            samples of this kind.
    """
    from qbench.subjects import dataset_from_text, prepare_samples, read_network

    dataset, preprocess = dataset_from_text(data)
    if count is not None:
        dataset = dataset.take(min(count, len(dataset)) if isinstance(count, AtMost) else count)
    network = read_network(model, dataset, preprocess)
    say_notes(network, dataset)
    return network, prepare_samples(dataset, network.preprocess, cache)


def say_notes(network: "ZooModel", data: "Dataset") -> None:
    """How names of classes are numbered, on standard error."""
    from qbench.subjects import data_notes

    for line in data_notes(network, data):
        say(line)


def say_content_notes(shared: "SubjectArtifacts") -> None:
    """Which samples are the same to the model under other names, on standard error."""
    for line in shared.content_notes():
        say(line)


# An arithmetic on the command line: a name, or a TOML file.


def choose_arithmetic(text: str) -> "Arithmetic":
    """The arithmetic called ``text``, or the one in the file ``text`` when that ends in ``.toml``.

    Raises:
        InputError: no such name or file, or a file that is not an arithmetic.
    """
    from qbench.interpreter import require_known_operators
    from qbench.numerics import get_arithmetic, load_arithmetic

    arithmetic = load_arithmetic(Path(text)) if text.endswith(".toml") else get_arithmetic(text)
    require_known_operators(arithmetic)
    return arithmetic


def choose_backend(text: str, python: str | None = None) -> "Backend":
    """The backend called ``text``, or the integer arithmetic in the file ``text`` when that
    ends in ``.toml``.

    Args:
        text: the name or the file.
        python: another Python, or the folder of its environment, that runs it.

    Raises:
        InputError: no such name, file or Python, a file that is not an arithmetic, or a backend
            that the packages of no Python run.
        UnavailableError: the other Python lacks onnxruntime.
    """
    if python is not None:
        from qbench.backends import python_backend

        return python_backend(python, text)
    if text.endswith(".toml"):
        from qbench.backends import IntegerBackend

        return IntegerBackend(arithmetic=choose_arithmetic(text))
    # alone: it loads no interpreter and no other Python's worker
    from qbench.backends import get_backend

    with _one_name("backend", text):
        return get_backend(text)


def suite_path(text: str) -> Path:
    """The suite file that ``text`` names: by its path, or ``suites/NAME.qbench.toml`` by ``NAME``.

    Raises:
        InputError: there is none; a suite of a name like it is suggested, or those here are named.
    """
    path = Path(text).absolute()
    if path.is_file():
        return path
    suites = {
        _suite_name(one): one
        for folder in (Path("suites"), path.parent)
        for one in sorted(folder.glob("*.qbench.toml"))
    }
    if text in suites:
        return suites[text].absolute()
    near = nearest(_suite_name(path), suites)
    remedy = f"Suites here: {', '.join(suites)}." if suites else "Write one: qbench init."
    if near:
        remedy = f"Did you mean '{os.path.relpath(suites[near])}'?"
    raise InputError(
        f"Reading suite '{os.path.relpath(path)}'",
        found="a folder" if path.is_dir() else "No such file",
        expected="a suite file, suites/<name>.qbench.toml, or its name",
        remedy=remedy,
    )


def _suite_name(path: Path) -> str:
    """``smoke`` of ``suites/smoke.qbench.toml``, of ``smoke.toml`` and of ``smoke``, as users
    call it.
    """
    return path.name.removesuffix(".toml").removesuffix(".qbench")


# A schema on the command line: a name, or a TOML file; and whether all of its rules found something
# to rule.


def choose_schema(text: str) -> "Schema":
    """The schema called ``text``, here or in the suites of this folder, or the one in the file
    ``text`` (``.toml``).

    Raises:
        InputError: no such name or file, or a file that is not a schema.
    """
    from qbench.quantization import get_schema, load_schema, schema_in_file

    if text.endswith(".toml"):
        return schema_in_file(Path(text))
    written = Path("suites", "schemas", f"{text}.toml")  # a suite there calls it by this name
    if Path(text).name == text and written.is_file():
        return load_schema(written)
    with _one_name("schema", text):
        return _schema_by_quantizer(text) if text.startswith(("by-", "by_")) else get_schema(text)


def choose_own_schema(text: str, doing: str) -> "Schema":
    """``choose_schema`` for what plans by rules.

    Raises:
        InputError: as ``choose_schema``, and a quantizer of other people, which has none.
    """
    schema = choose_schema(text)
    if schema.made_by is not None:
        raise InputError(
            doing,
            found=f"the schema '{text}', which another quantizer makes: it has no rules",
            expected="a schema of qbench ('qbench list schemas')",
            remedy="Measure what it makes with 'qbench eval', 'sweep' or a suite.",
        )
    return schema


def _schema_by_quantizer(text: str) -> "Schema":
    """The schema of the quantizer ``text``, ``by-…``, of the suites of this folder or installed.

    Raises:
        InputError: none of them is called so.
    """
    from qbench.extension import with_known
    from qbench.quantization import catalogue
    from qbench.suite import written_extensions

    here = [one for one in written_extensions(Path("suites")) if one.quantizers]
    return catalogue(with_known(here)).get(text)


def declare_ranges(parser: argparse.ArgumentParser) -> None:
    """``--ranges FILE``: ranges of single values by hand."""
    parser.add_argument(
        "--ranges",
        metavar="R.toml",
        help=(
            "take ranges of single values from this file: a table [values.NAME] for each, with "
            "low and high, or scale and zero_point"
        ),
    )


def with_ranges_by_hand(schema: "Schema", arguments: argparse.Namespace) -> "Schema":
    """``schema``, with the ranges of the file that ``--ranges`` names, if it names one.

    Raises:
        InputError: there is no such file, or it is not one of ranges.
    """
    from qbench.quantization import load_ranges

    return schema.with_ranges(load_ranges(arguments.ranges)) if arguments.ranges else schema


@contextlib.contextmanager
def _one_name(kind: str, text: str) -> Iterator[None]:
    """Inside the block, the error for a ``text`` that is not a name says so where it is
    several, between commas.
    """
    try:
        yield
    except InputError as error:
        if len(names_of(text)) < 2:
            raise
        found = f"the {len(names_of(text))} names '{text}'"
        raise InputError(
            f"Choosing the {kind}", found=found, expected="one", remedy=in_turn(kind)
        ) from error


def refuse_idle_rules(schema: str, model: str, idle: "Sequence[str]") -> None:
    """Check that every rule matched an operator of the model, and that it keeps what the schema
    quantizes of a decoder.

    Raises:
        InputError: some did not, or it keeps nothing.
    """
    from qbench.quantization import IDLE_CACHE, remedy_without_cache

    if IDLE_CACHE in idle:
        raise InputError(
            f"Planning '{model}' under '{schema}'",
            found="a model that keeps no keys and values",
            expected="a decoder, as the schema quantizes its keys and values",
            remedy=remedy_without_cache(schema),
        )
    if idle:
        raise InputError(
            f"Planning '{model}' under '{schema}'",
            found=f"{' and '.join(idle)} matching no operator of it",
            expected="every rule to match at least one operator",
            remedy="Correct the rule, or remove it.",
        )


# Settings of planning that have no effect, because the plan or the quantized model has them
# already.


def refuse_idle_settings(
    arguments: argparse.Namespace, names: tuple[str, ...], *, with_option: str, doing: str
) -> None:
    """Refuse the options ``names`` together with ``with_option``: ``plan``, or ``read`` from
    the model.

    Raises:
        InputError: one of them is given; ``doing`` says what was being done.
    """
    if idle := [name for name in names if getattr(arguments, name)]:
        raise InputError(
            doing,
            found=f"--{idle[0]} with --{with_option}",
            expected=(
                f"no settings of planning: the {'plan' if with_option == 'plan' else 'model'} has "
                "them"
            ),
            remedy=f"Leave --{idle[0]} out, or --{with_option}.",
        )


# ``--plot``: pictures of values, for the verbs that know ranges.

_PLOTS = 40


def declare_plot(parser: argparse.ArgumentParser, what: str) -> None:
    """``--plot`` and ``--plots``; ``what`` is drawn."""
    parser.add_argument(
        "--plot",
        metavar="DIR|FILE",
        help=(
            f"also draw {what}: a folder with one PNG for a value and an index page, or one .png "
            "or .pdf"
        ),
    )
    parser.add_argument(
        "--plots",
        metavar="N",
        type=count_from_one,
        default=_PLOTS,
        help=f"draw at most N values, those that lose most (default: {_PLOTS})",
    )


def check_plot_of(arguments: argparse.Namespace, doing: str) -> None:
    """Check ``--plot`` before the work.

    Raises:
        InputError: pictures cannot be written there.
    """
    from qbench.reporting import check_plot

    if arguments.plot:
        check_plot(Path(arguments.plot), doing)


def draw_values(arguments: argparse.Namespace, ones: "Iterable[ValueDistribution]") -> str:
    """Draw ``ones`` where ``--plot`` says, and the line to print; empty without the option.

    Raises:
        StoreError: a file cannot be written.
    """
    from qbench.reporting import write_distributions

    if not arguments.plot:
        return ""
    values = tuple(ones)
    title = f"{arguments.verb} {Path(arguments.model).name}"
    path, left = write_distributions(values, Path(arguments.plot), title, arguments.plots)
    rest = f", {left} left out (--plots)" if left else ""
    return f"{path}: pictures of {counted(len(values) - left, 'value')}{rest}"


# The outputs of a command, checked before it starts: no output is an input, another output, or
# unwritable.


def check_outputs(
    doing: str, outputs: Mapping[str, str | None], inputs: Iterable[str | None]
) -> None:
    """Check the files that are to be written, so that all of them are or none.

    Args:
        doing: the command's work, for errors.
        outputs: flag → path; None: not asked for.
        inputs: paths (or names, which are not paths) of what is read.

    Raises:
        InputError: an output would overwrite an input, or another output.
        StoreError: one cannot be written.
    """
    read = {Path(path).resolve() for path in inputs if path}
    taken: dict[Path, str] = {}
    for flag, path in outputs.items():
        if not path:
            continue
        target = Path(path).resolve()
        if target in read or target in taken:
            found = "which is read here" if target in read else f"which {taken[target]} writes"
            raise InputError(
                doing,
                found=f"{flag} '{path}', {found}",
                expected="a different file for each output",
                remedy=f"Give {flag} another path.",
            )
        taken[target] = flag
    for path in filter(None, outputs.values()):
        require_writable(Path(path))


# Extensions of the folder that a command runs in, and those of ``--extension MODULE:NAME``.
#
# A folder names its own in pyproject.toml, [tool.qbench] extensions = ["MODULE:NAME", …]; without
# that key the hook of its conftest.py is one, as it is for pytest. They are loaded when a name is
# looked up.

_FORM = re.compile(r"[\w.-]+:\w+")
_UNKNOWN = re.compile(r"unknown (model|dataset|backend|schema|metric) ")
_HOOK = "pytest_qbench_extension"
HINT = (
    "A conftest.py of another folder is read with --extension MODULE:NAME; that of this folder is "
    "read anyway."
)


def declare_extensions(parser: argparse.ArgumentParser) -> None:
    """``--extension MODULE:NAME``, repeatable."""
    parser.add_argument(
        "--extension",
        metavar="MODULE:NAME",
        action="append",
        default=[],
        help="an Extension, or a function that returns one, of a module in the current folder; "
        "repeatable (those of pyproject.toml, [tool.qbench] extensions, and of conftest.py there "
        "are read without it)",
    )


def extensions_of_command(texts: Sequence[str], folder: Path) -> tuple[Extension, ...]:
    """The extensions of ``folder``, the current one, and those that ``texts`` name beyond them.

    Raises:
        InputError: one of them cannot be loaded, or pyproject.toml is wrong.
    """
    written = _folder_texts(folder)
    own = tuple(_named(text, where) for text, where in written)
    others = (_named(text) for text in texts if text not in dict(written))
    return (*own, *(one for one in others if one not in own))


def _folder_texts(folder: Path) -> list[tuple[str, str]]:
    """``MODULE:NAME`` of each extension of ``folder``, and the file that names it."""
    table = read_project(folder)
    if "extensions" in table:
        texts = table["extensions"]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(
                "Reading [tool.qbench] of 'pyproject.toml'",
                found=f"extensions = {texts!r}",
                expected='a list such as ["conftest:pytest_qbench_extension"]',
                remedy="Correct it; an empty list reads none.",
            )
        return [(text, "pyproject.toml") for text in texts]
    conftest = folder / "conftest.py"
    if conftest.is_file() and _HOOK in conftest.read_text(encoding="utf-8", errors="replace"):
        return [(f"conftest:{_HOOK}", conftest.name)]
    return []


@contextlib.contextmanager
def hinted(texts: Sequence[str]) -> Iterator[None]:
    """Add ``HINT`` to the error of an unknown name, unless ``texts`` show that the option was
    used.
    """
    try:
        yield
    except InputError as error:
        if texts or not _UNKNOWN.match(error.found):
            raise
        remedy = f"{error.remedy} {HINT}"
        raise InputError(
            error.doing, found=error.found, expected=error.expected, remedy=remedy
        ) from error


def with_hint(sentence: str, texts: Sequence[str]) -> str:
    """``sentence`` of an error, with the hint that ``hinted`` adds."""
    return (
        f"{sentence} {HINT}"
        if not texts and re.search(f"found {_UNKNOWN.pattern}", sentence)
        else sentence
    )


def _named(text: str, where: str = "--extension") -> Extension:
    doing = f"Reading --extension '{text}'"
    if where != "--extension":
        doing = f"Reading the extension '{text}' of {where}"
    if not _FORM.fullmatch(text):
        raise InputError(
            doing,
            found="a different form",
            expected="MODULE:NAME",
            remedy="Write it as in conftest:pytest_qbench_extension.",
        )
    module, _, name = text.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        # and left there: factories import their parts when a name is used
        sys.path.insert(0, folder)
    try:
        loaded = importlib.import_module(module)
        value = getattr(loaded, name, None)
        if inspect.isroutine(value):
            value = value(None) if inspect.signature(value).parameters else value()
    except Exception as error:  # it is their code: whatever it raises is about their file
        expected = f"a module '{module}' that can be imported from '{folder}'"
        remedy = "Run the command in the module's folder, or correct the module."
        raise error_of_code(
            doing, error, folder=folder, expected=expected, remedy=remedy
        ) from error
    if isinstance(value, Extension):
        return value
    found = f"a {type(value).__name__}" if hasattr(loaded, name) else f"no name '{name}'"
    remedy = f"Correct the name, or its value in '{module}'."
    if name == _HOOK and value is None and hasattr(loaded, name):
        remedy = "End the function with 'return Extension(…)'."
    raise InputError(
        doing,
        found=found,
        expected="a qbench.Extension, or a function that returns one",
        remedy=remedy,
    )
