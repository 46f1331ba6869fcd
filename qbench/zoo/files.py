"""Files taken out of pinned wheels, labelled by their names: what Magika is scored and calibrated on.

Of every wheel all files of 128 bytes to 1 MiB whose name tells what they hold, each content once, in the order of
(CRC-32, size); of each kind the first k. The CRC is the pinned wheel's own record of the content: an order that has
nothing to do with names, and known without unpacking anything. What a calibration wheel holds is never scored.
"""

import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.storage import digest_plain
from qbench.zoo.assets import Package, fetch_package
from qbench.zoo.dataset import Dataset
from qbench.zoo.file_kinds import content_types
from qbench.zoo.file_wheels import CALIBRATION, MORE, SCORED
from qbench.zoo.magika import magika_classes

SMALLEST, LARGEST = 128, 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One file in a wheel; ``crc`` and ``size`` stand for its content, ``kinds`` are the content types it may have."""

    package: str
    wheel: Path
    path: str
    crc: int
    size: int
    kinds: tuple[str, ...]

    @property
    def content(self) -> str:
        """The name of the content: equal contents have equal ones."""
        return f"crc32:{self.crc:08x}:{self.size}"


def magika_files() -> Dataset:
    """At most 6 files of a kind, 200 and some."""
    return _dataset("magika_files", choose(_scored(SCORED), 6))


def magika_files_all() -> Dataset:
    """At most 60 files of a kind, 1,000 and some, out of more wheels."""
    return _dataset("magika_files_all", choose(_scored((*SCORED, *MORE)), 60))


def magika_calibration() -> Dataset:
    """At most 8 files of a kind, 100 and some, out of other wheels."""
    return _dataset("magika_calibration", choose(members(CALIBRATION), 8))


def members(packages: Sequence[Package]) -> list[Member]:
    """The usable files of ``packages``, each content once, the first of equal ones."""
    found: dict[str, Member] = {}
    for package in packages:
        for member in _usable(package):
            found.setdefault(member.content, member)
    return list(found.values())


def choose(candidates: Sequence[Member], most: int) -> list[Member]:
    """The first ``most`` of every kind in the order of (CRC, size)."""
    taken: Counter[tuple[str, ...]] = Counter()
    chosen = []
    for member in sorted(candidates, key=lambda m: (m.crc, m.size)):
        if taken[member.kinds] < most:
            taken[member.kinds] += 1
            chosen.append(member)
    return chosen


def _scored(packages: Sequence[Package]) -> list[Member]:
    calibrated = {member.content for member in members(CALIBRATION)}
    return [member for member in members(packages) if member.content not in calibrated]


def _usable(package: Package) -> Iterator[Member]:
    path = fetch_package(package)
    with zipfile.ZipFile(path) as wheel:
        for info in sorted(wheel.infolist(), key=lambda i: i.filename):
            about_itself = info.filename.split("/")[0].endswith(".dist-info")  # the wheel's own papers
            kinds = () if about_itself else content_types(info.filename)
            if kinds and SMALLEST <= info.file_size <= LARGEST:
                yield Member(package.name, path, info.filename, info.CRC, info.file_size, kinds)


def _dataset(name: str, chosen: Sequence[Member]) -> Dataset:
    number = {kind: index for index, kind in enumerate(magika_classes())}
    contents = tuple(member.content for member in chosen)
    return Dataset(
        id=name,
        kind="bytes",
        sample_ids=tuple(f"{member.package}/{member.path}" for member in chosen),
        sources=contents,
        labels=tuple(tuple(number[kind] for kind in member.kinds) for member in chosen),
        content=digest_plain(contents),
        load=lambda index: _read(chosen[index]),
    )


def _read(member: Member) -> bytes:
    with zipfile.ZipFile(member.wheel) as wheel:
        return wheel.read(member.path)
