"""A run of a quantizer of other people: a float graph and samples in, a checked file out.

folder/model.onnx, folder/calibration.npz  ──command──→  folder/out.onnx  ──checked──→  entry
"""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import onnx_ir as ir

from qbench.backends import (
    LIMITS,
    EnvironmentMaker,
    ToolEnd,
    ToolLimits,
    program_in,
    run_tool,
)
from qbench.errors import QbenchError, UnavailableError, UnsupportedError
from qbench.evaluation.written_file import WrittenFile, check_in_child
from qbench.extension import extending_packages
from qbench.graph import format_of_path, load_model, save_model
from qbench.judging import QuantizerNote
from qbench.number_text import counted
from qbench.storage import Cache, digest_file
from qbench.working import working

if TYPE_CHECKING:
    from qbench.backends import Array, Feeds
    from qbench.quantization import Quantizer

RUN_VERSION = 2
"""Of the way in which a quantizer is run: entries of another one are not read."""
STACKED_VERSION = 2
"""Of how samples of one shape are chosen: digests of others are not read."""
NOTE = "note.json"
_WRITTEN = ("out.onnx", "out.tflite")
_UNWATCHED = (
    "this system has no /proc: the memory of quantizers is not watched, and a process that leaves "
    "the group of its quantizer is not killed"
)
_COMPANIONS = ("onnx", "onnxruntime", "torch", "numpy")
"""Packages whose versions a record has, next to that of the quantizer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizerTask:
    """What one run of a quantizer takes.

    Args:
        quantizer: which, and how.
        model: the float graph.
        samples: input → array, of samples along axis 0; empty where the quantizer takes none.
        what: the name of the model.
        identity: a digest of the float model: a file that it was written for once is never taken
            for another model.
        twice: whether it is run again to compare the bytes of the two files.
    """

    quantizer: "Quantizer"
    model: ir.Model
    samples: "Mapping[str, Array]"
    what: str
    identity: str
    twice: bool = False

    @property
    def doing(self) -> str:
        """For errors."""
        return f"Quantizing '{self.what}' by '{self.quantizer.name}'"


def run_quantizer(task: QuantizerTask, entry: Path, cache: Cache) -> None:
    """Run the quantizer of ``task``, and put the checked file and a note into the new folder
    ``entry``.

    Raises:
        NotFetchedError: its packages cannot be installed.
        UnsupportedError: it ends with an error, or does not take such a model.
        QbenchError: it reaches a limit, or its file is not accepted.
    """
    python = quantizer_python(task.quantizer, cache)
    with working(f"quantizing {task.what} by {task.quantizer.name}"):
        end, written, path = _run_once(task, python, entry.with_name("tool"))
        if not end.watched:
            cache.note(_UNWATCHED)
        _refuse_known(task, written, cache)
        is_same = None
        if task.twice:
            _, again, _ = _run_once(task, python, entry.with_name("tool-again"))
            is_same = again.digest == written.digest
    entry.mkdir()
    shutil.copyfile(path, entry / path.name)
    for one in written.parts:
        (entry / one).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.parent / one, entry / one)
    note = _note_of(task, end, written, is_same)
    (entry / NOTE).write_bytes(msgspec.json.encode(note))


def read_run(entry: Path) -> tuple[ir.Model, QuantizerNote]:
    """The model and the note in the folder ``entry``."""
    note = msgspec.json.decode((entry / NOTE).read_bytes(), type=QuantizerNote)
    path = next(one for one in map(entry.joinpath, _WRITTEN) if one.is_file())
    form = format_of_path(path, f"Reading '{path}'")
    return load_model(path) if form is None else form.read(path), note


def stacked(batches: "Sequence[Feeds]", doing: str, remedy: str) -> "dict[str, Array]":
    """Input → its samples of ``batches`` along axis 0; where samples have several shapes, those
    of the shape that most of them have.

    Args:
        batches: input → array, each.
        doing: for the error.
        remedy: what the caller of a graph without such an axis can do.

    Raises:
        UnsupportedError: an input has no sample axis that all others have, too.
    """
    groups: dict[tuple[object, ...], list[Feeds]] = {}
    for feeds in batches:
        sizes = {array.shape[0] if array.ndim else 0 for array in feeds.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise UnsupportedError(
                doing,
                found="inputs without one axis of samples",
                expected="samples along axis 0 of every input",
                remedy=remedy,
            )
        shape = tuple((name, array.shape[1:], str(array.dtype)) for name, array in feeds.items())
        groups.setdefault(shape, []).append(feeds)
    if not groups:
        return {}
    chosen = max(groups.values(), key=_count)
    return {name: np.concatenate([feeds[name] for feeds in chosen]) for name in chosen[0]}


def _count(group: "Sequence[Feeds]") -> int:
    """The samples of all batches in ``group``."""
    return sum(len(next(iter(feeds.values()))) for feeds in group)


def quantizer_python(quantizer: "Quantizer", cache: Cache) -> Path:
    """The Python of the environment of ``quantizer``, created from its lock if needed.

    Raises:
        UnavailableError: this computer has no Python of that version.
        NotFetchedError: pip cannot install the lock.
    """
    base = _base_python(quantizer)
    if quantizer.lock is None:
        return base
    from qbench.quantization import lock_lines

    lines = lock_lines(quantizer.lock)
    if not lines:
        return base
    doing = f"Making the environment of the quantizer '{quantizer.name}'"
    # Not the link in the environment of qbench: another checkout has another link, and an
    # environment of gigabytes is made once for all of them.
    maker = EnvironmentMaker(cache=cache, base=base.resolve())
    with working(f"installing {counted(len(lines), 'package')} of {quantizer.name}"):
        return maker.make_locked(lines, doing)


def _base_python(quantizer: "Quantizer") -> Path:
    asked = quantizer.manifest.python
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if asked in ("", here):
        return Path(sys.executable)
    if os.sep in asked:
        return program_in(quantizer.file.parent / Path(asked).expanduser())
    found = shutil.which(f"python{asked}")
    if found is None or not _starts(found):
        more = f": {found} does not start it" if found else ""
        raise UnavailableError(
            f"Running the quantizer '{quantizer.name}'",
            found=f"no Python {asked} on this computer{more}",
            expected=f"the program python{asked} in the search path",
            remedy="Install it, or write the path of one as 'python' in the TOML file.",
        )
    return Path(found)


def _starts(program: str) -> bool:
    """Whether ``program`` is a Python that runs: a launcher of versions may lack the one asked for,
    which would pass for an error of the quantizer.
    """
    try:
        done = subprocess.run(
            (program, "-I", "-c", ""),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def _run_once(task: QuantizerTask, python: Path, folder: Path) -> tuple[ToolEnd, WrittenFile, Path]:
    quantizer, table = task.quantizer, task.quantizer.manifest
    folder.mkdir()
    fp32 = _save_float(task, folder)
    calibration = folder / "calibration.npz"
    if quantizer.takes_samples:
        _save_samples(task.samples, calibration)
    out = folder / f"out.{table.gives}"
    command = quantizer.command(python=python, fp32=fp32, calibration=calibration, out=out)
    limits = ToolLimits(timeout_s=table.timeout_s, memory_mb=table.memory_mb, disk_mb=table.disk_mb)
    own = {"PATH": os.pathsep.join((os.fspath(python.parent), os.environ.get("PATH", "")))}
    if table.takes == "module":
        own["PYTHONPATH"] = os.fspath(_importable(folder / "importer"))
    end = run_tool(command, folder=folder, environment={**own, **table.environment}, limits=limits)
    if end.stopped:
        reached = LIMITS[end.stopped].format(
            timeout_s=limits.timeout_s, memory_mb=limits.memory_mb, disk_mb=limits.disk_mb
        )
        raise QbenchError(
            task.doing,
            found=f"{reached}, and all its processes were killed{end.last_words}",
            expected="a quantized model within the limits of its TOML file",
            remedy="Raise the limit there, take fewer samples, or leave this quantizer out.",
        )
    if end.code:
        raise UnsupportedError(
            task.doing,
            found=f"that it ended with code {end.code}{end.last_words}",
            expected="a quantized model",
            remedy="Its last lines say why; leave it out for this model, or report it to them.",
        )
    return end, check_in_child(out, fp32, task.doing), out


def _importable(folder: Path) -> Path:
    """The new ``folder`` from which a Python can import qbench and the packages that extend it,
    and nothing else: what makes a module of a graph is in one of these, and the environment of the
    tool has the other packages that it needs.
    """
    folder.mkdir()
    own = Path(__file__).parents[1]
    for name, package in {"qbench": own, **extending_packages()}.items():
        (folder / name).symlink_to(package, target_is_directory=True)
    return folder


def _save_samples(samples: "Mapping[str, Array]", path: Path) -> None:
    """The archive of ``numpy.savez``, which takes no arrays called ``file``."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in samples.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def _save_float(task: QuantizerTask, folder: Path) -> Path:
    """The float model in ``folder``, in the format that the quantizer takes."""
    takes = task.quantizer.manifest.takes
    if takes == "module":  # its script makes one of the graph
        takes = "onnx"
    path = folder / f"model.{takes}"
    form = None if takes == "onnx" else format_of_path(path, task.doing)
    if form is None:
        save_model(task.model, path)
    else:
        path.write_bytes(form.write(task.model).data)
    return path


def _refuse_known(task: QuantizerTask, written: WrittenFile, cache: Cache) -> None:
    """Check that no other float model was quantized to the very same bytes."""

    def note_model(path: Path) -> None:
        path.write_text(task.identity, encoding="utf-8")

    known = cache.entry("quantized-of", written.digest, note_model)
    if known.read_text(encoding="utf-8") != task.identity:
        raise QbenchError(
            task.doing,
            found="a file that is equal, byte for byte, to one of another model",
            expected="this model, quantized",
            remedy="Report it to its authors; it may read a file that it wrote before.",
        )


def _note_of(
    task: QuantizerTask, end: ToolEnd, written: WrittenFile, is_same: bool | None
) -> QuantizerNote:
    quantizer, pins = task.quantizer, task.quantizer.requirements
    names = (quantizer.manifest.package, *_COMPANIONS)
    return QuantizerNote(
        title=quantizer.manifest.title,
        versions={name: pins[name] for name in names if name in pins},
        lock="" if quantizer.lock is None else digest_file(quantizer.lock)[:12],
        arguments=quantizer.arguments,
        samples=max((len(array) for array in task.samples.values()), default=0),
        seconds=round(end.seconds, 1),
        peak_mb=round(end.peak_mb),
        size=written.size,
        same_bytes=is_same,
        offline=end.offline,
        left=end.left,
        weights=written.weights,
        near=written.near,
    )


def joined_note(notes: Sequence[QuantizerNote]) -> QuantizerNote:
    """The note on a model of several graphs: times and sizes of all together, the most memory."""
    first, known = notes[0], [one.same_bytes for one in notes]
    return replace(
        first,
        samples=max(one.samples for one in notes),
        seconds=round(sum(one.seconds for one in notes), 1),
        peak_mb=max(one.peak_mb for one in notes),
        size=sum(one.size for one in notes),
        same_bytes=None if None in known else all(known),
        offline=all(one.offline for one in notes),
        left=sum(one.left for one in notes),
        weights=sum(one.weights for one in notes),
        near=sum(one.near for one in notes),
    )
