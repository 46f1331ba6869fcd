"""Files of many types, and the network that classifies their content."""

import functools
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.graph import load_model
from qbench.storage import Cache, digest_plain, write_bytes
from qbench.subjects import (
    Array,
    Classification,
    Dataset,
    Package,
    ZooModel,
    fetch_package,
    open_member,
)
from qbench_zoo.packages import CALIBRATION, MAGIKA, MORE, SCORED

# Magika: one network that classifies a file's content by its first and last bytes.
#
#     bytes → [first 4,096, blanks stripped on the left, first 1,024; padding behind]
#           ⧺ [last 4,096, blanks stripped on the right, last 1,024; padding before]
#     tokens 0 … 255, padding 256
#
# The network and its classes are the package's own (``standard_v3_3``). The package's thresholds,
# which overrule the network, are not used, as the network is what is scored.

_FOLDER = "magika/models/standard_v3_3"

BLOCK, END, PADDING = 4096, 1024, 256
"""Bytes looked at on each side, tokens kept of them, and the token where there are fewer."""


@dataclass(frozen=True, slots=True)
class FileEnds:
    """A file's bytes → ``bytes`` (2048,) int32."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"file ends(block={BLOCK}, end={END}, padding={PADDING})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Whole files."""
        return ("bytes",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - bytes, as ``kinds`` says
        """The tokens as int16."""
        data = bytes(sample)
        head = np.frombuffer(data[:BLOCK].lstrip()[:END], np.uint8)
        tail = np.frombuffer(data[-BLOCK:].rstrip()[-END:], np.uint8)
        tokens = np.full(2 * END, PADDING, np.int16)
        tokens[: len(head)] = head
        tokens[2 * END - len(tail) :] = tail
        return {"bytes": tokens}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """int32, as the graph takes them."""
        return {"bytes": batch["bytes"].astype(np.int32)}


def magika_model() -> ZooModel:
    """The model; nothing is downloaded before its graph is asked for."""
    return ZooModel(
        id="magika",
        graphs={"model": _graph},
        preprocess=FileEnds(),
        task=Classification(output="target_label"),
        origin="PyPI magika 1.0.3 (standard_v3_3), Apache-2.0",
    )


@functools.cache
def magika_classes() -> tuple[str, ...]:
    """The 214 content types; a class id is a place in it."""
    return tuple(
        json.loads(open_member(MAGIKA, f"{_FOLDER}/config.min.json"))["target_labels_space"]
    )


def _graph() -> ir.Model:
    model = open_member(MAGIKA, f"{_FOLDER}/model.onnx")
    path = Cache.default().entry(
        "unpacked", f"{MAGIKA.sha256}-model.onnx", lambda path: write_bytes(path, model)
    )
    return load_model(path)


# Magika's content types by file name: a table made by hand from names alone, never from an answer
# of the network.
#
# The last ending decides. A template in the Jinja language is a template of something: for
# ``page.html.j2`` right are what ``page.html`` is, ``jinja``, and ``twig``, which has the same
# syntax. ``.txt`` is not listed, as such files have many kinds of content (requirements, stop
# words, reStructuredText).

ENDINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        ".bat": ("batch",),
        ".bmp": ("bmp",),
        ".bz2": ("bzip",),
        ".c": ("c",),
        ".cfg": ("ini",),
        ".cls": ("latex",),
        ".cmake": ("cmake",),
        ".cpp": ("cpp",),
        ".cs": ("cs",),
        ".css": ("css",),
        ".csv": ("csv",),
        ".dcm": ("dicom",),
        ".docx": ("docx",),
        ".emf": ("emf",),
        ".exe": ("pebin",),
        ".gif": ("gif",),
        ".gz": ("gzip",),
        ".h": ("c", "cpp"),
        ".html": ("html",),
        ".ico": ("ico",),
        ".ini": ("ini",),
        ".ipynb": ("ipynb",),
        ".jpeg": ("jpeg",),
        ".jpg": ("jpeg",),
        ".js": ("javascript",),
        ".json": ("json",),
        ".map": ("json",),
        ".md": ("markdown",),
        ".mp3": ("mp3",),
        ".odt": ("odt",),
        ".ogg": ("ogg",),
        ".otf": ("otf",),
        ".pdf": ("pdf",),
        ".png": ("png",),
        ".po": ("po",),
        ".pot": ("po",),
        ".pptx": ("pptx",),
        ".proto": ("proto",),
        ".ps1": ("powershell",),
        ".psm1": ("powershell",),
        ".py": ("python",),
        ".pyi": ("python",),
        ".rst": ("rst",),
        ".scss": ("scss",),
        ".sh": ("shell",),
        ".so": ("elf",),
        ".sty": ("latex",),
        ".svg": ("svg",),
        ".tex": ("latex",),
        ".toml": ("toml",),
        ".ttf": ("ttf",),
        ".woff": ("woff",),
        ".woff2": ("woff2",),
        ".xml": ("xml",),
        ".xsd": ("xml",),
        ".xsl": ("xml",),
        ".yaml": ("yaml",),
        ".yml": ("yaml",),
    }
)

NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"CMakeLists.txt": ("cmake",), "Dockerfile": ("dockerfile",), "Makefile": ("makefile",)}
)

TEMPLATE_ENDINGS = (".j2", ".jinja")
TEMPLATE_FOLDERS = ("layouts", "templates", "themes")
"""Folders of the wheels in which pages and texts are templates too, whatever their ending."""

_TEMPLATE = ("jinja", "twig")
_TEMPLATED_THERE = (".html", ".rst", ".xml")


def content_types(path: str) -> tuple[str, ...]:
    """The content types that are right for a file at ``path``; none where the name is ambiguous."""
    folder, _, name = path.rpartition("/")
    for ending in TEMPLATE_ENDINGS:
        if name.endswith(ending):
            return (*content_types(name.removesuffix(ending)), *_TEMPLATE)
    found = NAMES.get(name) or ENDINGS.get(name[name.rfind(".") :], ())
    if name.endswith(_TEMPLATED_THERE) and not set(TEMPLATE_FOLDERS).isdisjoint(folder.split("/")):
        return (*found, *_TEMPLATE)
    return found


# Files from pinned wheels, labelled by their names, for scoring and calibration.
#
# Of every wheel all files of 128 bytes to 1 MiB whose name determines their type, each content
# once, in the order of (CRC-32, size); of each kind the first k. The CRC is the pinned wheel's own
# record of the content: an order that is independent of names and known without unpacking. Content
# of a calibration wheel is never scored.

SMALLEST, LARGEST = 128, 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One file in a wheel; ``crc`` and ``size`` stand for its content, ``kinds`` are the
    content types it may have.
    """

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
            # the wheel's own metadata
            about_itself = info.filename.split("/")[0].endswith(".dist-info")
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
        # 51 are translations of one
        clusters=tuple(f"{member.package}/*/{Path(member.path).name}" for member in chosen),
        labels=tuple(tuple(number[kind] for kind in member.kinds) for member in chosen),
        content=digest_plain(contents),
        load=lambda index: _read(chosen[index]),
    )


def _read(member: Member) -> bytes:
    with zipfile.ZipFile(member.wheel) as wheel:
        return wheel.read(member.path)
