"""Answers of a baseline on disk: the ``.npz`` files next to its ``.json``, which names each by its digest.

An answer has a name in its file, ``<key>``, and the ``.json`` has its digest. While one is replaced, the file holds
both: the old one as ``<key>`` and the new one as ``<key> <digest>``, so that a reader of either ``.json`` finds what
that one names. ``baseline_file`` says in which order the files are written.
"""

import errno
import io
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import DamagedError, StoreError
from qbench.metrics import AnswerKind, Answers, kept_arrays, kept_digest, restored_answers
from qbench.storage import ArchiveError, TooLargeError, current_limits, read_archive, too_large

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An answer as the ``.json`` names it: ``samples`` 0 and ``kind`` None where it does not know them."""

    key: str
    digest: str
    samples: int = 0
    kind: AnswerKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of ``.npz`` file of a baseline.

    Args:
        suffix: of its name. what: it holds, for messages. ids, scores: names of the arrays of ``{}``; scores is empty
            where none are stored. digest: what the ``.json`` names an answer by.
    """

    suffix: str
    what: str
    ids: str
    scores: str
    digest: Callable[[Answers], str]

    def path(self, path: Path) -> Path:
        """Where the part of the baseline at ``path`` is."""
        return path.with_name(path.name.removesuffix(".json") + self.suffix)

    def arrays(self, name: str, answers: Answers) -> dict[str, npt.NDArray[Any]]:
        """``answers`` as arrays of the file: ``ids`` in the smallest integer type that holds them."""
        arrays = kept_arrays(answers)
        named = {self.ids.format(name): arrays["ids"]}
        return named | ({self.scores.format(name): arrays["scores"]} if self.scores and "scores" in arrays else {})

    def find(self, arrays: Arrays, named: Named, path: Path) -> Answers:
        """The answers that ``named`` is about, from the ``arrays`` of ``path``.

        Raises:
            DamagedError: they are not among them.
        """
        for name in (transit_name(named), named.key):
            found = self.at(arrays, name, named, path)
            if found is not None and self.digest(found) == named.digest:
                return found
        if self.ids.format(named.key) not in arrays:
            raise damaged(path, f"no answers for '{named.key}'", self.what)
        raise damaged(path, f"other answers for '{named.key}'", f"{self.what}, with the digest in the .json")

    def at(self, arrays: Arrays, name: str, named: Named, path: Path) -> Answers | None:
        """The answers that are called ``name``, of whatever digest; None: there are none.

        Raises:
            DamagedError: these arrays are not answers.
        """
        ids, scores = arrays.get(self.ids.format(name)), arrays.get(self.scores.format(name)) if self.scores else None
        if ids is None:
            return None
        if ids.ndim != 2 or ids.dtype.kind not in "iu" or (named.samples and len(ids) != named.samples):
            found, count = f"{ids.dtype} {ids.shape} for '{named.key}'", named.samples or "all"
            raise damaged(path, found, f"integers for {count} samples")
        kind = named.kind
        if kind is None:
            kind = AnswerKind.RANKING if ids.min(initial=0) >= 0 else AnswerKind.SEQUENCE
        try:
            return restored_answers(ids, scores, kind)
        except ValueError as error:
            raise damaged(path, str(error), "answers") from error

    def holds_exactly(self, arrays: Arrays, wanted: Iterable[Named], path: Path) -> bool:
        """Whether ``arrays`` are those of ``wanted`` under their own names, and no others."""
        known = set[str]()
        for named in wanted:
            try:
                found = self.at(arrays, named.key, named, path)
            except DamagedError:
                return False
            if found is None or self.digest(found) != named.digest:
                return False
            known |= self.arrays(named.key, found).keys()
        return known == arrays.keys()


FP32 = Part(
    suffix=".fp32.npz",
    what="the fp32 answers that the .json names",
    ids="ids-{}",
    scores="",
    digest=lambda answers: answers.digest,
)
"""The reference: ``ids-<data set>``."""

ACCEPTED = Part(
    suffix=".accepted.npz",
    what="the accepted answers that the .json names",
    ids="{} ids",
    scores="{} scores",
    digest=kept_digest,
)
"""Accepted answers, where a suite allows flips or holds probabilities: ``<slug> <environment class> <data set> ids``
and, where the answers have probabilities, ``… scores`` (float32)."""


def transit_name(named: Named) -> str:
    """What an answer is called while the file also holds the one that it replaces."""
    return f"{named.key} {named.digest}"


def read_arrays(path: Path, what: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays in ``path``, by name; ``what`` they are, for the message. None of them where the file does not exist.

    Raises:
        DamagedError: the file is damaged. StoreError: it cannot be read. InputError: it exceeds the limit.
    """
    data = read_bytes(path)
    if data is None:
        return {}
    try:
        return read_archive(data, most=current_limits().tensor_bytes)
    except TooLargeError as error:
        raise too_large(f"Reading the baseline '{path}'", "arrays", error.size, "tensor_bytes") from error
    except ArchiveError as error:
        raise damaged(path, str(error), what) from error


def packed_arrays(arrays: Arrays) -> bytes:
    """``arrays`` as the bytes of an ``.npz``, in the order of their names."""
    buffer = io.BytesIO()
    named: dict[str, Any] = {name: arrays[name] for name in sorted(arrays)}
    np.savez_compressed(buffer, **named)
    return buffer.getvalue()


def read_bytes(path: Path) -> bytes | None:
    """What is in ``path``; None: the file does not exist.

    Raises:
        StoreError: it cannot be read. Then it may be whole, and nothing may be made in its place.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        dangling = path.is_symlink()
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not dangling:
            return None
        raise StoreError(
            f"Reading the baseline '{path}'",
            found="a symbolic link to a file that does not exist" if dangling else error.strerror or str(error),
            expected="a file that can be read; nothing was changed",
            remedy="Make it readable or repair the link, and run this again.",
        ) from error


def damaged(path: Path, found: str, expected: str) -> DamagedError:
    """The file ``path`` of a baseline holds what it should not."""
    parts = [FP32.suffix, ACCEPTED.suffix]
    stem = next((path.name.removesuffix(end) for end in (*parts, ".json") if path.name.endswith(end)), path.name)
    names = [f"{stem}{end}" for end in (".json", *parts)]
    files = [name for name in names if name == path.name or not name.endswith(ACCEPTED.suffix) or _is_there(path, name)]
    command = shlex.join(["git", "-C", str(path.parent), "checkout", "HEAD", "--", *files])
    return DamagedError(
        f"Reading the baseline '{path}'",
        found=found,
        expected=expected,
        remedy=f"Restore all its files from version control ({command}), or accept the fp32 reference anew "
        "(--qbench-accept-fp32), which keeps the parts that are whole.",
    )


def _is_there(path: Path, name: str) -> bool:
    try:
        return path.with_name(name).exists()
    except OSError:
        return False
