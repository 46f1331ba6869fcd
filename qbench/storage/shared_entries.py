"""Entries of a cache behind a URL, made by one computer and used by others.

    objects/<sha256>        the content of one file, named by its digest
    <kind>/<key>.sha256     the files of an entry by their digests, and the digest of this list

What is fetched is compared with its digest, so that a damaged object is never used. Nothing is
written over: of two computers that make the same entry at once, the list of one is used.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qbench.errors import DamagedError
from qbench.storage.places import ObjectFolder, OtherContentError
from qbench.storage.seals import NOT_USED

_OBJECTS, _LIST, _WHOLE = "objects", ".sha256", "/list"
_OTHER = "content of another digest"
_LINE = re.compile(r"([0-9a-f]{64})  (.*)")


@dataclass(frozen=True, slots=True)
class SharedEntries:
    """The entries in ``folder``."""

    folder: ObjectFolder

    def fetch(self, kind: str, key: str, target: Path) -> dict[str, str] | None:
        """Write the files of an entry to ``target``, a new file or folder; their digests by their
        names in it. None: there is no such entry.

        Raises:
            DamagedError: an object is not what its name says; nothing of the entry is to be used.
            PlaceError: the store does not answer, or refuses.
        """
        listed = self.folder.read(f"{kind}/{key}{_LIST}")
        if listed is None:
            return None
        digests = self._digests(listed, f"{kind}/{key}{_LIST}")
        for name, digest in digests.items():
            path = target / name if name else target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._content(digest))
        return digests

    def store(self, kind: str, key: str, source: Path, digests: Mapping[str, str]) -> None:
        """Store the entry at ``source``, whose files have these ``digests``, unless it is there.

        Raises:
            DamagedError: an object of this digest has other content.
            PlaceError: the store does not answer, or refuses.
        """
        for name, digest in digests.items():
            content = (source / name if name else source).read_bytes()
            try:
                self.folder.keep(f"{_OBJECTS}/{digest}", content)
            except OtherContentError:  # the name is the digest of what it should be
                raise self._damaged(f"{_OBJECTS}/{digest}", _OTHER) from None
        lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
        whole = f"{lines}{_sha256(lines.encode())}  {_WHOLE}\n"
        try:
            self.folder.create(f"{kind}/{key}{_LIST}", whole.encode())
        except FileExistsError:  # another computer was faster: its files are as good
            return

    def _content(self, digest: str) -> bytes:
        content = self.folder.read(f"{_OBJECTS}/{digest}")
        if content is None or _sha256(content) != digest:
            raise self._damaged(
                f"{_OBJECTS}/{digest}",
                "no such object" if content is None else _OTHER,
            )
        return content

    def _digests(self, listed: bytes, name: str) -> dict[str, str]:
        """Name of a file → digest; names stay inside the entry."""
        text = listed.decode("utf-8", "replace")
        *lines, last = text.splitlines(keepends=True) or [""]
        found = [_LINE.fullmatch(line.removesuffix("\n")) for line in lines]
        digests = {one[2]: one[1] for one in found if one is not None}
        is_whole = last == f"{_sha256(''.join(lines).encode())}  {_WHOLE}\n" and all(found)
        if not (is_whole and digests and all(map(_is_inside, digests))):
            raise self._damaged(name, "another text than qbench writes")
        return digests

    def _damaged(self, name: str, found: str) -> DamagedError:
        return DamagedError(
            f"Reading '{name}' of the cache in '{self.folder}'",
            found=found,
            expected=f"what its digest says; {NOT_USED}",
            remedy="Remove that object.",
        )


def _is_inside(name: str) -> bool:
    """Whether a file of that name is in its entry: an empty name is the entry itself."""
    parts = PurePosixPath(name).parts
    return not (name.startswith("/") or "\\" in name or ":" in name or ".." in parts)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
