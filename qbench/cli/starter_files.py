"""The files of a bench in a folder: templates that are filled, paths relative to the folder, and
writing that leaves all files or none.
"""

import contextlib
import keyword
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.errors import InputError, refused_by_system
from qbench.storage import read_toml

if TYPE_CHECKING:
    from qbench.subjects import Dataset

TEMPLATES = Path(__file__).parent / "starter"
_SPLIT = 4
"""Without --calib every fourth sample calibrates, and the others are scored."""

NETWORK = """\
def {function}() -> ZooModel:
    return {made}


"""
SAMPLES = """\
def my_data() -> Dataset:
    return replace(dataset_from_text(DATA)[0], id="my_data")


def my_calibration() -> Dataset:
    return replace(dataset_from_text(f"@CALIB@")[0], id="my_calibration")"""
PARTS = '''\
def my_data() -> Dataset:
    """Three samples of four are scored."""
    every = dataset_from_text(DATA)[0]
    return replace(every.pick([i for i in range(len(every)) if i % 4]), id="my_data")


def my_calibration() -> Dataset:
    """The others give the activations their ranges."""
    every = dataset_from_text(DATA)[0]
    return replace(every.pick(range(0, len(every), 4)), id="my_calibration")'''


def settings_words(data: "Dataset") -> str:
    """What ``model_from_file`` is given: how samples are prepared, and the data where its
    labels choose the task.
    """
    prepared = "" if data.kind == "array" else ", preprocess=dataset_from_text(DATA)[1]"
    return prepared + (
        ", data=dataset_from_text(DATA)[0]" if data.labels and data.whole_labels is None else ""
    )


def fourth_of(data: "Dataset", doing: str) -> "Dataset":
    """The samples of ``data`` that calibrate, as ``PARTS`` chooses them.

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
        found=f"{len(data)} samples"
        if again is None
        else f"sample '{data.sample_ids[again]}' twice",
        expected=f"at least {_SPLIT} samples, each of them once",
        remedy="Give calibration samples of their own: --calib D2.",
    )


def placed(text: str, folder: Path) -> str:
    """``text``, as --data takes it, with its paths relative to ``HERE``, the folder of the
    conftest.py.
    """
    form = "folder:" if text.startswith("folder:") else ""
    path, *query = text.removeprefix(form).partition("?")
    settings = [setting.partition("=") for setting in query[1].split("&")]
    written = [
        name + mark + (_here(value, folder) if _is_path(name, value) else value)
        for name, mark, value in settings
    ]
    return f"{form}{_here(path, folder)}{query[0]}{'&'.join(written)}"


def _is_path(setting: str, value: str) -> bool:
    return setting in ("classes", "labels") or (
        setting == "sources" and value.lower().endswith(".csv")
    )


def _here(path: str, folder: Path) -> str:
    inside = quoted(relative(Path(path), folder)).replace("{", "{{").replace("}", "}}")
    return f"{{HERE}}/{inside}"


def quoted(text: str) -> str:
    """``text`` as it is written between the quotes of a string of Python."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def identifier(name: str) -> str:
    """``name`` as the name of a function of Python."""
    plain = re.sub(r"\W", "_", name)
    return plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"model_{plain}"


def relative(path: Path, folder: Path) -> str:
    """``path`` as seen from ``folder``, with slashes."""
    return Path(os.path.relpath(path, folder)).as_posix()


def filled(template: str, **words: str) -> str:
    """The text of ``template`` with a word for each ``@WORD@``."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for name, word in words.items():
        text = text.replace(f"@{name}@", word)
    return text


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


def settings_files(folder: Path) -> tuple[dict[Path, str | bytes], list[str]]:
    """The files of settings that ``folder`` lacks, path → text, and sentences about what is
    kept.
    """
    files: dict[Path, str | bytes] = {}
    notes = []
    if settings := _pytest_settings(folder):
        notes.append(
            f"kept {settings}: it has settings of pytest, which a new pytest.ini would replace"
        )
    else:
        files[folder / "pytest.ini"] = filled("pytest.ini")
    ignored, ignore = filled("gitignore"), folder / ".gitignore"
    if not ignore.exists():
        files[ignore] = ignored
    else:
        known = ignore.read_text(encoding="utf-8", errors="replace").splitlines()
        if lacking := [
            line for line in ignored.splitlines() if not line.startswith("#") and line not in known
        ]:
            notes.append(f"kept {ignore}: add {' '.join(lacking)}")
    return files, notes


def write_all(files: Mapping[Path, str | bytes], doing: str) -> None:
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
                with path.open("xb") as file:
                    undo.callback(_removed, path.unlink)
                    file.write(text if isinstance(text, bytes) else text.encode())
        except OSError as error:
            raise refused_by_system(doing, error) from error
        undo.pop_all()


def _removed(remove: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        remove()
