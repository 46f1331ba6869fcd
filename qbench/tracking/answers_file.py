"""Answers of a baseline on disk: the ``.npz`` files next to its ``.json``, which names each by its
digest.

An answer has a name in its file, ``<key>``, and the ``.json`` has its digest. While one is
replaced, the file holds both: the old one as ``<key>`` and the new one as ``<key> <digest>``, so
that a reader of either ``.json`` finds what that one names. The order in which the files are
written is given below.
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
from qbench.metrics import Answers, kept_arrays, kept_digest, restored_answers
from qbench.storage import (
    ArchiveError,
    TooLargeError,
    current_limits,
    read_archive,
    too_large,
)

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An answer as the ``.json`` names it: ``samples`` 0 and ``kind`` None where it does not
    know them.
    """

    key: str
    digest: str
    samples: int = 0
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersFile:
    """One kind of ``.npz`` file of a baseline.

    Args:
        suffix: of its name.
        what: it holds, for messages.
        pattern: how an ``array`` of the answer called ``name`` is called.
        probabilities: whether they are stored too.
        digest: what the ``.json`` names an answer by.
    """

    suffix: str
    what: str
    pattern: str
    probabilities: bool
    digest: Callable[[Answers], str]

    def path(self, path: Path) -> Path:
        """Where the part of the baseline at ``path`` is."""
        return path.with_name(path.name.removesuffix(".json") + self.suffix)

    def arrays(self, name: str, answers: Answers) -> dict[str, npt.NDArray[Any]]:
        """``answers`` as arrays of the file: ``ids`` in the smallest integer type that holds
        them.
        """
        own = kept_arrays(answers) if self.probabilities else answers.arrays()
        return {
            self.pattern.format(array=array, name=name): values for array, values in own.items()
        }

    def stored(self, arrays: Arrays, name: str) -> dict[str, npt.NDArray[Any]]:
        """Those of ``arrays`` that the answer called ``name`` has, by their own names."""
        before, after = (part.format(name=name) for part in self.pattern.split("{array}"))
        own = {
            key: key.removeprefix(before).removesuffix(after)
            for key in arrays
            if _is_between(key, before, after)
        }
        return {array: arrays[key] for key, array in own.items() if array.isidentifier()}

    def find(self, arrays: Arrays, named: Named, path: Path) -> Answers:
        """The answers that ``named`` is about, from the ``arrays`` of ``path``.

        Raises:
            DamagedError: they are not among them.
        """
        for name in (transit_name(named), named.key):
            found = self.at(arrays, name, named, path)
            if found is not None and self.digest(found) == named.digest:
                return found
        if not self.stored(arrays, named.key):
            raise damaged(path, f"no answers for '{named.key}'", self.what)
        raise damaged(
            path, f"other answers for '{named.key}'", f"{self.what}, with the digest in the .json"
        )

    def at(self, arrays: Arrays, name: str, named: Named, path: Path) -> Answers | None:
        """The answers that are called ``name``, whatever their digest is; None: there are none.

        Raises:
            DamagedError: these arrays are not answers.
        """
        own = self.stored(arrays, name)
        if not own:
            return None
        for array in own.values():
            if array.ndim == 0 or (named.samples and len(array) != named.samples):
                found = f"{array.dtype} {array.shape} for '{named.key}'"
                count = named.samples or "all"
                raise damaged(path, found, f"numbers for {count} samples")
        ids, kind = own.get("ids"), named.kind
        if ids is not None and (ids.ndim != 2 or ids.dtype.kind not in "iu"):
            raise damaged(
                path,
                f"{ids.dtype} {ids.shape} for '{named.key}'",
                f"integers for {len(ids)} samples",
            )
        if kind is None and ids is not None:
            kind = "ranking" if ids.min(initial=0) >= 0 else "sequence"
        try:
            return restored_answers(kind or "", own)
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


FP32 = AnswersFile(
    suffix=".fp32.npz",
    what="the fp32 answers that the .json names",
    pattern="{array}-{name}",
    probabilities=False,
    digest=lambda answers: answers.digest,
)
"""The reference: ``ids-<data set>``."""

ACCEPTED = AnswersFile(
    suffix=".accepted.npz",
    what="the accepted answers that the .json names",
    pattern="{name} {array}",
    probabilities=True,
    digest=kept_digest,
)
"""Accepted answers, where a suite allows flips or holds probabilities: ``<slug> <environment
class> <data set> ids`` and, where the answers have probabilities, ``… scores`` (float32).
"""


def _is_between(text: str, before: str, after: str) -> bool:
    return len(text) > len(before) + len(after) and text.startswith(before) and text.endswith(after)


def transit_name(named: Named) -> str:
    """What an answer is called while the file also holds the one that it replaces."""
    return f"{named.key} {named.digest}"


def read_arrays(path: Path, what: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays in ``path``, by name; ``what`` they are, for the message. None of them where
    the file does not exist.

    Raises:
        DamagedError: the file is damaged. StoreError: it cannot be read. InputError: it exceeds the
            limit.
    """
    data = read_bytes(path)
    if data is None:
        return {}
    try:
        return read_archive(data, most=current_limits().tensor_bytes)
    except TooLargeError as error:
        raise too_large(
            f"Reading the baseline '{path}'", "arrays", error.size, "tensor_bytes"
        ) from error
    except ArchiveError as error:
        raise damaged(path, str(error), what) from error


def packed_arrays(arrays: Arrays) -> bytes:
    """``arrays`` as the bytes of an ``.npz``, in the order of their names."""
    buffer = io.BytesIO()
    named: dict[str, Any] = {name: arrays[name] for name in sorted(arrays)}
    np.savez_compressed(buffer, **named)
    return buffer.getvalue()


def read_bytes(path: Path) -> bytes | None:
    """The content of ``path``; None: the file does not exist.

    Raises:
        StoreError: it cannot be read. It may still be whole, so it must not be replaced.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        dangling = path.is_symlink()
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not dangling:
            return None
        raise StoreError(
            f"Reading the baseline '{path}'",
            found="a symbolic link to a file that does not exist"
            if dangling
            else error.strerror or str(error),
            expected="a file that can be read; nothing was changed",
            remedy="Make it readable or repair the link, and run this again.",
        ) from error


def damaged(path: Path, found: str, expected: str) -> DamagedError:
    """The error of a file of a baseline whose content is damaged.

    The command keeps what is there: git stores it in a stash and takes the last committed files.
    """
    parts = [FP32.suffix, ACCEPTED.suffix]
    stem = next(
        (path.name.removesuffix(end) for end in (*parts, ".json") if path.name.endswith(end)),
        path.name,
    )
    names = [f"{stem}{end}" for end in (".json", *parts)]
    files = [
        name
        for name in names
        if name == path.name or not name.endswith(ACCEPTED.suffix) or _is_there(path, name)
    ]
    command = shlex.join(["git", "-C", str(path.parent), "stash", "push", "--", *files])
    is_json = path.name.endswith(".json")
    aside = shlex.join(["mv", str(path), f"{path}.damaged"])
    others = (
        f"correct the file, or move it aside ({aside}) before the fp32 reference is accepted anew."
        if is_json
        else (
            "accept the fp32 reference anew (--qbench-accept-fp32), which keeps the parts that are "
            "whole."
        )
    )
    return DamagedError(
        f"Reading the baseline '{path}'",
        found=found,
        expected=expected,
        remedy=(
            "Restore all its files from version control, with today's kept in a stash "
            f"({command}), or {others}"
        ),
    )


def _is_there(path: Path, name: str) -> bool:
    try:
        return path.with_name(name).exists()
    except OSError:
        return False
