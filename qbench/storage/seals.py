"""The seal of an entry of the cache: a file next to it that says what is in it, and from what."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from qbench.storage.source_digest import digest_plain

SEAL = ".sha256"
"""What the name of a seal ends with, after that of its entry."""
_FROM, ALL_READ = "from ", "/read"
"""In front of a file that was read, and the name of the digest of all of these."""


@dataclass(frozen=True, slots=True)
class Seal:
    """What is next to an entry: the digests of its files by their names, and the states of the
    files that code of users read while it was made (``files_read``).
    """

    digests: dict[str, str]
    read: dict[str, str]

    @classmethod
    def of(cls, path: Path) -> "Seal":
        """The seal of the entry at ``path``; a line that is no JSON names a file of the entry.

        Raises:
            OSError: it cannot be read.
        """
        text = path.with_name(path.name + SEAL).read_bytes().decode("ascii", errors="replace")
        seal = cls({}, {})
        for line in text.splitlines():
            if line.startswith(_FROM):
                with contextlib.suppress(ValueError, TypeError):
                    path_read, state = json.loads(line.removeprefix(_FROM))
                    seal.read[path_read] = state
                    continue
            digest, _, name = line.partition("  ")
            seal.digests[name] = digest
        return seal

    def text(self) -> str:
        """As it is written."""
        lines = [f"{digest}  {name}\n" for name, digest in self.digests.items()]
        lines += [f"{_FROM}{json.dumps(read)}\n" for read in self.read.items()]
        if self.read:
            lines.append(f"{digest_plain(self.read)}  {ALL_READ}\n")
        return "".join(lines)

    @property
    def is_whole(self) -> bool:
        """Whether its lines on files that were read are as they were written."""
        return self.digests.get(ALL_READ) == (digest_plain(self.read) if self.read else None)


# What notices of cells say of damage; ``tells_damage`` finds them again among others.

WAS_DAMAGED = "in the cache was damaged"
NOT_USED = "it is not used, and the entry is made here"
"""Of an object that a shared cache holds."""


def tells_damage(notice: str) -> bool:
    """Whether ``notice``, of ``Cache.take_notices``, is of a damaged entry or object."""
    return WAS_DAMAGED in notice or NOT_USED in notice
