"""Prepared samples on disk, read batch by batch, so that memory does not grow with their number.

Each input is one raw file of fixed-size records in the cache. Its key has the data, the
preprocessing, the code of both and the version of the picture decoder. Slices are read, not
mapped: mapped pages would count as the process's memory.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import InputError
from qbench.host import package_versions
from qbench.metrics import ArrayLabels, Labels
from qbench.storage import Cache, FollowedCode, digest_plain, followed_code
from qbench.subjects.dataset import Array, ClassNames, Dataset, Preprocess, whole_labels
from qbench.working import working

BATCH = 8
"""Samples per run of a graph; fixed, as float kernels may differ in the last bit between batch
sizes.
"""

WHOLE = Fraction(1)
"""Batches of the size that a task asks for."""

_UNFOLLOWED = 3
"""How many of the things that no key can follow a notice names."""
SAMPLES_VERSION = 2
"""The version of the files of prepared samples; cache entries of other versions are not read."""

CONTENTS_FILE, CONTENT_BYTES = "contents", 16
"""The file with the digest of each prepared sample, and the bytes of one: equal ones are the
same to the model.
"""

_DECODERS = ("pillow",)
"""Packages whose version may change a prepared sample: JPEG decoders may differ in the last bit."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n prepared samples; ``folder`` holds ``<input>.raw`` files, ``layout.json`` and digests
    of the samples.

    ``unknown``: why no other process can use them, and what is made with them; empty: all can.
    ``read``: the digest of the files that code of users read while they were made; empty: none.
    ``rows``: where the samples are in the files; None: they are all of them, in order.
    ``split``: by how much batches are smaller than a task asks for.
    """

    data: str
    digest: str
    ids: tuple[str, ...]
    labels: Labels | ArrayLabels | None
    folder: Path
    preprocess: Preprocess
    classes: ClassNames | None = field(default=None, kw_only=True)
    unknown: str = field(default="", kw_only=True)
    read: str = field(default="", kw_only=True)
    rows: tuple[int, ...] | None = field(default=None, kw_only=True)
    split: Fraction = field(default=WHOLE, kw_only=True)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def whole_labels(self) -> Labels | None:
        """The labels, where they are whole numbers; None: unlabelled, or labels are arrays,
        which answering ignores.
        """
        return whole_labels(self.labels)

    @property
    def key(self) -> str:
        """The digest of all that the prepared samples were made from, part of the keys of what
        is made from them.
        """
        return str(self.folder) if self.unknown else f"{self.folder.name}{self.read}"

    def batches(self, size: int = BATCH) -> Iterator[dict[str, Array]]:
        """The graph's feeds, ``batch_size(size)`` samples at a time, the last batch shorter.

        Raises:
            InputError: a finished feed is not finite; the sample is named.
        """
        layout = json.loads((self.folder / "layout.json").read_text())
        size = self.batch_size(size)
        for start in self._starts(size):
            stack = {
                name: self._stored(index, spec, start, min(start + size, len(self)))
                for index, (name, spec) in enumerate(sorted(layout.items()))
            }
            feeds = self.preprocess.finish(stack)
            _require_feeds(f"Finishing samples of '{self.data}'", feeds)
            self._refuse_non_finite(feeds, start)
            yield feeds

    def _starts(self, size: int) -> Iterator[int]:
        """The first sample of every batch; the caller asks for one when it is done with those
        before.
        """
        with working("batches", len(self), "samples") as step:
            for start in range(0, len(self), size):
                step.done = start
                yield start

    def picked(self, rows: Sequence[int], *, split: Fraction = WHOLE) -> "Samples":
        """The samples at ``rows``, in that order, in batches of ``split`` times the size that a
        task asks for.
        """
        labels: Any = None if self.labels is None else tuple(self.labels[row] for row in rows)
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            labels=labels,
            rows=tuple(rows) if self.rows is None else tuple(self.rows[row] for row in rows),
            split=split,
        )

    def batch_size(self, size: int) -> int:
        """How many samples a batch has where a task asks for ``size``, at least one."""
        return max(1, int(size * self.split))

    def _stored(self, index: int, spec: Mapping[str, Any], start: int, stop: int) -> Array:
        """What file ``index`` holds for the samples ``start`` … ``stop`` − 1."""
        path, dtype = self.folder / f"{index}.raw", np.dtype(spec["dtype"])
        shape = tuple(spec["shape"])
        if self.rows is None:
            return _read(path, dtype, shape, start, stop - start)
        return np.concatenate([_read(path, dtype, shape, row, 1) for row in self.rows[start:stop]])

    def noted(self, name: str) -> Array | None:
        """What ``prepare`` gave under ``name`` for every sample, in addition to its feeds, with the
        samples as the first axis; None: nothing.
        """
        layout = json.loads((self.folder / "layout.json").read_text())
        if name not in layout:
            return None
        return self._stored(sorted(layout).index(name), layout[name], 0, len(self))

    def _refuse_non_finite(self, feeds: dict[str, Array], start: int) -> None:
        for name, feed in feeds.items():
            if feed.dtype.kind != "f" or np.isfinite(feed).all():
                continue
            bad = int(np.flatnonzero(~np.isfinite(feed.reshape(len(feed), -1)).all(axis=1))[0])
            raise InputError(
                f"Reading sample '{self.ids[start + bad]}' of '{self.data}'",
                found=f"NaN or Inf in input '{name}'",
                expected="finite numbers",
                remedy="Correct or remove the sample.",
            )


def prepare_samples(dataset: Dataset, preprocess: Preprocess, cache: Cache) -> Samples:
    """``dataset`` after ``preprocess.prepare``, computed once and kept in ``cache``.

    Raises:
        InputError: the model does not take samples of this kind, or two prepared samples differ in
            shape.
    """
    if dataset.kind not in preprocess.kinds:
        raise InputError(
            f"Preparing data set '{dataset.id}'",
            found=f"samples of kind '{dataset.kind}'",
            expected=f"one of: {', '.join(preprocess.kinds)}",
            remedy="Choose data that fits the model, or give the model the preprocessing of such "
            "samples: model_from_file(path, preprocess=…), as docs/own-models.md shows.",
        )
    steps, loader = followed_code(preprocess), followed_code(dataset.load)
    code = [steps.digest, loader.digest]
    key = digest_plain(
        [dataset.digest, preprocess.name, code, package_versions(_DECODERS), SAMPLES_VERSION]
    )
    unknown = unfollowed_text(
        f"the preprocessing '{preprocess.name:.60}'", steps
    ) or unfollowed_text(f"the loader of the data set '{dataset.id}'", loader)

    def make(path: Path) -> None:
        _write(dataset, preprocess, path)

    held = (preprocess, dataset.load)
    folder = (
        cache.passing_entry("samples", key, make, held=held, why=unknown)
        if unknown
        else cache.entry("samples", key, make)
    )
    labels, classes = dataset.labels, dataset.classes
    return Samples(
        dataset.id,
        dataset.digest,
        dataset.sample_ids,
        labels,
        folder,
        preprocess,
        classes=classes,
        unknown=unknown,
        read="" if unknown else cache.read_for(folder),
    )


def unfollowed_text(what: str, code: FollowedCode) -> str:
    """Why what is made with ``what`` cannot be used again; empty: it can."""
    listed = "; ".join(code.unfollowed[:_UNFOLLOWED]) + "; …" * (len(code.unfollowed) > _UNFOLLOWED)
    return f"{what} holds what no key can follow ({listed})" if code.unfollowed else ""


def _require_feeds(doing: str, feeds: object) -> None:
    """Check what a preprocessing of users gave: arrays by the names of inputs.

    Raises:
        InputError: it is something else.
    """
    wrong = f"something of type {type(feeds).__name__}"
    if isinstance(feeds, Mapping):
        others = [name for name, one in feeds.items() if not _is_feed(one)]
        if feeds and not others:
            return
        wrong = f"no numbers under '{others[0]}'" if others else "no input at all"
    raise InputError(
        doing,
        found=wrong,
        expected="input name → numpy array, with at least one",
        remedy="Return a dict such as {'x': array} from 'prepare' and 'finish'.",
    )


def _is_feed(one: object) -> bool:
    return isinstance(one, np.ndarray | np.generic) and not one.dtype.hasobject


def _write(dataset: Dataset, preprocess: Preprocess, folder: Path) -> None:
    folder.mkdir()
    layout: dict[str, dict[str, object]] = {}
    files = {}
    contents = []
    try:
        for index, sample_id in enumerate(dataset.sample_ids):
            prepared = preprocess.prepare(dataset.load(index))
            _require_feeds(f"Preparing sample '{sample_id}' of '{dataset.id}'", prepared)
            found: dict[str, dict[str, object]] = {
                n: {"dtype": a.dtype.str, "shape": list(a.shape)}
                for n, a in sorted(prepared.items())
            }
            if not layout:
                layout = dict(found)
                files = {name: (folder / f"{i}.raw").open("wb") for i, name in enumerate(layout)}
            elif found != layout:
                raise InputError(
                    f"Preparing sample '{sample_id}' of '{dataset.id}'",
                    found=f"inputs {found}",
                    expected=f"{layout}, as of the samples before it",
                    remedy="Give every sample the same shape.",
                )
            content = hashlib.sha256(json.dumps(found).encode())
            for name in found:
                data = np.ascontiguousarray(prepared[name]).tobytes()
                files[name].write(data)
                content.update(data)
            contents.append(content.digest()[:CONTENT_BYTES])
    finally:
        for file in files.values():
            file.close()
    (folder / "layout.json").write_text(json.dumps(layout))
    (folder / CONTENTS_FILE).write_bytes(b"".join(contents))


def _read(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], start: int, count: int
) -> Array:
    items = int(np.prod(shape, dtype=np.int64))
    flat = np.fromfile(
        path, dtype=dtype, count=count * items, offset=start * items * dtype.itemsize
    )
    return flat.reshape(count, *shape)
