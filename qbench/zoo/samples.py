"""Prepared samples on disk, read back batch by batch: memory does not grow with their number.

Each input is one raw file of fixed-size records in the cache, keyed by data, preprocessing, their code and what decodes
pictures.
Slices are read, not mapped: mapped pages would count as the process's memory.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import InputError
from qbench.host import package_versions
from qbench.metrics import Labels
from qbench.storage import Cache, digest_code, digest_plain
from qbench.zoo.dataset import Dataset
from qbench.zoo.preprocess import Array, Preprocess

BATCH = 8
"""Samples in one run of a graph: fixed, because float kernels may differ in the last bit between batch sizes."""

_DECODERS = ("pillow",)
"""Packages whose version may change a prepared sample: a JPEG file leaves its decoder a last bit of freedom."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n prepared samples; ``folder`` holds ``<input>.raw`` files and ``layout.json``."""

    data: str
    digest: str
    ids: tuple[str, ...]
    labels: Labels | None
    folder: Path
    preprocess: Preprocess

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def key(self) -> str:
        """The digest of everything these numbers were made from: part of the key of whatever is made from them."""
        return self.folder.name

    def batches(self, size: int = BATCH) -> Iterator[dict[str, Array]]:
        """The graph's feeds, ``size`` samples at a time, the last batch shorter.

        Raises:
            InputError: a finished feed is not finite; the sample is named.
        """
        layout = json.loads((self.folder / "layout.json").read_text())
        for start in range(0, len(self), size):
            count = min(size, len(self) - start)
            stack = {
                name: _read(self.folder / f"{index}.raw", np.dtype(spec["dtype"]), tuple(spec["shape"]), start, count)
                for index, (name, spec) in enumerate(sorted(layout.items()))
            }
            feeds = self.preprocess.finish(stack)
            self._refuse_non_finite(feeds, start)
            yield feeds

    def _refuse_non_finite(self, feeds: dict[str, Array], start: int) -> None:
        for name, feed in feeds.items():
            if feed.dtype.kind != "f" or np.isfinite(feed).all():
                continue
            bad = int(np.flatnonzero(~np.isfinite(feed.reshape(len(feed), -1)).all(axis=1))[0])
            raise InputError(
                f"Reading sample '{self.ids[start + bad]}' of '{self.data}'",
                found=f"NaN or Inf in input '{name}'",
                expected="finite numbers",
                remedy="Mend or remove the sample.",
            )


def prepare_samples(dataset: Dataset, preprocess: Preprocess, cache: Cache) -> Samples:
    """``dataset`` through the slow half of ``preprocess``, made once and kept in ``cache``.

    Raises:
        InputError: the model does not take samples of this kind, or two samples come out in different shapes.
    """
    if dataset.kind not in preprocess.kinds:
        raise InputError(
            f"Preparing data set '{dataset.id}'",
            found=f"samples of kind '{dataset.kind}'",
            expected=f"one of: {', '.join(preprocess.kinds)}",
            remedy="Choose data that fits the model.",
        )
    code = [digest_code(preprocess), digest_code(dataset.load)]
    key = digest_plain([dataset.digest, preprocess.name, code, package_versions(_DECODERS)])
    folder = cache.entry("samples", key, lambda path: _write(dataset, preprocess, path))
    return Samples(dataset.id, dataset.digest, dataset.sample_ids, dataset.labels, folder, preprocess)


def _write(dataset: Dataset, preprocess: Preprocess, folder: Path) -> None:
    folder.mkdir()
    layout: dict[str, dict[str, object]] = {}
    files = {}
    try:
        for index, sample_id in enumerate(dataset.sample_ids):
            prepared = preprocess.prepare(dataset.load(index))
            found: dict[str, dict[str, object]] = {
                n: {"dtype": a.dtype.str, "shape": list(a.shape)} for n, a in sorted(prepared.items())
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
            for name, array in prepared.items():
                files[name].write(np.ascontiguousarray(array).tobytes())
    finally:
        for file in files.values():
            file.close()
    (folder / "layout.json").write_text(json.dumps(layout))


def _read(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], start: int, count: int) -> Array:
    items = int(np.prod(shape, dtype=np.int64))
    flat = np.fromfile(path, dtype=dtype, count=count * items, offset=start * items * dtype.itemsize)
    return flat.reshape(count, *shape)
