"""qbench init: the files of a bench of your own, ready to run."""

import argparse
import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import declare_json
from qbench.cli.printing import print_json, put
from qbench.errors import InputError, refused_by_system
from qbench.storage import read_toml

if TYPE_CHECKING:
    from qbench.subjects import Dataset, ZooModel

TEMPLATES = Path(__file__).parent / "starter"
_COUNT = 64
_SPLIT = 4
"""Without --calib every fourth sample calibrates, and the others are scored."""
_NAME = re.compile(r"[a-z0-9_.-]+")
_SAMPLES = """\
def my_data() -> Dataset:
    return replace(dataset_from_text(DATA)[0], id="my_data")


def my_calibration() -> Dataset:
    return replace(dataset_from_text(f"@CALIB@")[0], id="my_calibration")"""
_PARTS = '''\
def my_data() -> Dataset:
    """Three samples of four are scored."""
    every = dataset_from_text(DATA)[0]
    return replace(every.pick([i for i in range(len(every)) if i % 4]), id="my_data")


def my_calibration() -> Dataset:
    """The others give the activations their ranges."""
    every = dataset_from_text(DATA)[0]
    return replace(every.pick(range(0, len(every), 4)), id="my_calibration")'''


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench init``."""
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="where to write (default: this folder)")
    parser.add_argument("--model", metavar="FILE.onnx", help="your model (default: a network for digits)")
    parser.add_argument("--data", metavar="D", help="your samples, written as for 'qbench eval'")
    parser.add_argument(
        "--calib", metavar="D2", help="calibration samples (default: every fourth of --data, which is not scored then)"
    )
    parser.add_argument("--suite", metavar="NAME", default="mine", help="name of the suite (default: mine)")
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write all files, or none.

    Raises:
        InputError: a file is there already; a model or data that cannot be read, or that do not fit together.
        StoreError: the folder cannot be written.
    """
    folder = Path(arguments.folder)
    doing = f"Starting a bench in '{folder}'"
    if not _NAME.fullmatch(arguments.suite):
        expected = "lower-case letters, digits, '_', '.' and '-'"
        raise InputError(doing, found=f"--suite '{arguments.suite}'", expected=expected, remedy="Choose another name.")
    is_own = arguments.model or arguments.data or arguments.calib
    subject = _own(arguments, folder, doing) if is_own else _digits()
    files, notes = _files(folder, arguments.suite, subject)
    if there := [path for path in files if path.exists()]:
        raise InputError(
            doing,
            found=" and ".join(f"'{path}'" for path in there),
            expected="no file of a name that is written here",
            remedy="Nothing was written. Name another folder, or move what is there.",
        )
    _write(files, doing)
    suite = f"suites/{arguments.suite}.qbench.toml"
    into = [] if folder.resolve() == Path.cwd() else [f"cd {folder}"]
    steps = [*into, f"pytest {suite} --qbench-accept-fp32 --qbench-accept=new", f"pytest {suite}"]
    if arguments.json:
        print_json({"written": [str(path) for path in files], "notes": notes, "next": steps})
        return ExitCode.FINE
    for path in files:
        put(f"wrote {path}")
    for note in notes:
        put(note)
    put("next: the first run stores the references, later ones are compared with them")
    for step in steps:
        put(f"  {step}")
    return ExitCode.FINE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What the suite names, and the text of the conftest.py that makes it."""

    model: str
    data: str
    calibration: str
    count: int
    metrics: tuple[str, ...]
    conftest: str


def _digits() -> _Subject:
    """The network for digits that comes with qbench."""
    return _Subject(
        model="digits_cnn",
        data="digits_test",
        calibration="digits_train",
        count=_COUNT,
        metrics=("top1", "agreement"),
        conftest=_filled("digits.conftest"),
    )


def _own(arguments: argparse.Namespace, folder: Path, doing: str) -> _Subject:
    """The user's model and data, which are read here once, so that what is written can run.

    Raises:
        InputError: one of the two is missing or cannot be read, or they do not fit together.
    """
    from qbench.evaluation import refuse_overlap
    from qbench.extension import known_extensions
    from qbench.subjects import dataset_catalogue, dataset_from_text, read_network

    if not (arguments.model and arguments.data):
        raise InputError(
            doing,
            found="--model without --data" if arguments.model else "no --model",
            expected="both, or neither for the digits",
            remedy="Give both: --model net.onnx --data val.npz.",
        )
    if arguments.data in dataset_catalogue(known_extensions()).names():
        remedy = "Give a file or a folder, or write the suite by hand."
        raise InputError(doing, found=f"the name '{arguments.data}'", expected="samples of your own", remedy=remedy)
    data, preprocess = dataset_from_text(arguments.data)
    network = read_network(str(Path(arguments.model)), data, preprocess)
    if arguments.calib:
        calibration = dataset_from_text(arguments.calib)[0]
        samples = _SAMPLES.replace("@CALIB@", _placed(arguments.calib, folder))
        refuse_overlap(network.id, calibration, data)
    else:
        calibration = _fourth(data, doing)
        samples = _PARTS
    return _Subject(
        model=network.id,
        data="my_data",
        calibration="my_calibration",
        count=min(_COUNT, len(calibration)),
        metrics=_metrics(network, data),
        conftest=_filled(
            "own.conftest",
            DATA=_placed(arguments.data, folder),
            FILE=_quoted(_relative(Path(arguments.model), folder)),
            MODEL_NAME=network.id,
            MODEL=re.sub(r"\W", "_", f"model_{network.id}" if network.id[0].isdigit() else network.id),
            PREPROCESS=_settings(data),
            SAMPLES=samples,
        ),
    )


def _settings(data: "Dataset") -> str:
    """What ``model_from_file`` is given: how samples are prepared, and the data where its labels choose the task."""
    prepared = "" if data.kind == "array" else ", preprocess=dataset_from_text(DATA)[1]"
    return prepared + (", data=dataset_from_text(DATA)[0]" if data.labels and data.whole_labels is None else "")


def _fourth(data: "Dataset", doing: str) -> "Dataset":
    """The samples of ``data`` that calibrate, as ``_PARTS`` chooses them.

    Raises:
        InputError: too few samples, or one that is also among the others.
    """
    chosen = range(0, len(data), _SPLIT)
    sources = {data.sources[i] for i in chosen}
    again = next((i for i in range(len(data)) if i % _SPLIT and data.sources[i] in sources), None)
    if len(data) >= _SPLIT and again is None:
        return data.pick(chosen)
    raise InputError(
        f"{doing}, taking calibration samples from '{data.id}'",
        found=f"{len(data)} samples" if again is None else f"sample '{data.sample_ids[again]}' twice",
        expected=f"at least {_SPLIT} samples, each of them once",
        remedy="Give calibration samples of their own: --calib D2.",
    )


def _metrics(network: "ZooModel", data: "Dataset") -> tuple[str, ...]:
    """Those of 'qbench eval' without top5, which the first suite need not have."""
    usual = () if data.labels is None else getattr(network.task, "usual_metrics", ("exact",))
    return tuple(
        name for name in (*usual, *getattr(network.task, "usual_comparisons", ("agreement",))) if name != "top5"
    )


def _placed(text: str, folder: Path) -> str:
    """``text``, as --data takes it, with its paths relative to ``HERE``, the folder of the conftest.py."""
    form = "folder:" if text.startswith("folder:") else ""
    path, *query = text.removeprefix(form).partition("?")
    settings = [setting.partition("=") for setting in query[1].split("&")]
    written = [
        name + mark + (_here(value, folder) if _is_path(name, value) else value) for name, mark, value in settings
    ]
    return f"{form}{_here(path, folder)}{query[0]}{'&'.join(written)}"


def _is_path(setting: str, value: str) -> bool:
    return setting in ("classes", "labels") or (setting == "sources" and value.lower().endswith(".csv"))


def _here(path: str, folder: Path) -> str:
    inside = _quoted(_relative(Path(path), folder)).replace("{", "{{").replace("}", "}}")
    return f"{{HERE}}/{inside}"


def _quoted(text: str) -> str:
    """``text`` as it is written between the quotes of a string of Python."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _filled(template: str, **words: str) -> str:
    """The text of ``template`` with a word for each ``@WORD@``."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for name, word in words.items():
        text = text.replace(f"@{name}@", word)
    return text


def _files(folder: Path, suite: str, subject: _Subject) -> tuple[dict[Path, str], list[str]]:
    """What is written, path → text, and sentences about what is not."""
    metrics = ", ".join(f'"{name}"' for name in subject.metrics)
    files = {
        folder / "conftest.py": subject.conftest,
        folder / "suites" / f"{suite}.qbench.toml": _filled(
            "suite.toml",
            SUITE=suite,
            MODEL_NAME=subject.model,
            SCORED=subject.data,
            CALIBRATION=subject.calibration,
            COUNT=str(subject.count),
            METRICS=metrics,
        ),
    }
    notes = []
    if settings := _pytest_settings(folder):
        notes.append(f"kept {settings}: it has settings of pytest, which a new pytest.ini would replace")
    else:
        files[folder / "pytest.ini"] = _filled("pytest.ini")
    ignored, ignore = _filled("gitignore"), folder / ".gitignore"
    if not ignore.exists():
        files[ignore] = ignored
    else:
        known = ignore.read_text(encoding="utf-8", errors="replace").splitlines()
        if lacking := [line for line in ignored.splitlines() if not line.startswith("#") and line not in known]:
            notes.append(f"kept {ignore}: add {' '.join(lacking)}")
    workflows = sorted(TEMPLATES.glob("*.yml"))
    if workflows and _is_below_repository(folder):
        notes.append("no workflows: GitHub reads them in the root of a repository only")
    else:
        for path in workflows:
            files[folder / ".github" / "workflows" / path.name] = path.read_text(encoding="utf-8")
    return files, notes


def _pytest_settings(folder: Path) -> str:
    """The file in ``folder`` that has settings of pytest; empty: none has."""
    project = folder / "pyproject.toml"
    if project.is_file() and "pytest" in read_toml(project).get("tool", {}):
        return str(project)
    sections = {
        "pytest.ini": "",
        "tox.ini": "[pytest]",
        "setup.cfg": "[tool:pytest]",
        ".pytest.ini": "",
        "pytest.toml": "",
    }
    for name, section in sections.items():
        path = folder / name
        if path.is_file() and section in path.read_text(encoding="utf-8", errors="replace"):
            return str(path)
    return ""


def _is_below_repository(folder: Path) -> bool:
    """Whether a folder above ``folder`` is the root of a git repository, and ``folder`` is not."""
    return not (folder / ".git").exists() and any((one / ".git").exists() for one in folder.resolve().parents)


def _write(files: Mapping[Path, str], doing: str) -> None:
    """Write all files where none are; after an error what was written is removed again.

    Raises:
        StoreError: the folder cannot be written, or another process has written one of the files.
    """
    with contextlib.ExitStack() as undo:
        try:
            for path, text in files.items():
                for parent in reversed([one for one in path.parents if not one.exists()]):
                    parent.mkdir()
                    undo.callback(_removed, parent.rmdir)
                with path.open("x", encoding="utf-8", newline="\n") as file:
                    undo.callback(_removed, path.unlink)
                    file.write(text)
        except OSError as error:
            raise refused_by_system(doing, error) from error
        undo.pop_all()


def _removed(remove: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        remove()


COMMAND = Command(
    name="init",
    summary="write the files of a bench of your own: conftest, suite, settings, workflows",
    example="qbench init --model net.onnx --data val.npz",
    declare=declare,
    execute=execute,
)
