"""A subject: raw samples, how a sample becomes a feed, the network, and the task that turns
outputs into answers.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError, require_type, unknown_name
from qbench.host import package_versions
from qbench.metrics import Answers, ArrayLabels, Labels, StoredAnswers
from qbench.number_text import counted
from qbench.storage import Cache, FollowedCode, digest_arrays, digest_plain, followed_code
from qbench.working import working

# From a raw sample to a graph's feed, in two steps so that the first can be cached compactly.
#
# ``prepare`` does the slow part for one sample (decode, resize, crop) into small integers;
# ``finish`` does the cheap part for a batch (scale, normalize, layout). Both are pure, and ``name``
# has every setting; a change of their code is found by its source (``storage.followed_code``).

Array = npt.NDArray[Any]


class Preprocess(Protocol):
    """A frozen value; ``kinds`` are the kinds of raw sample it takes."""

    @property
    def name(self) -> str:
        """Every setting in one line: two of the same name give the same numbers."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of raw samples it takes, as in ``Dataset.kind``."""
        ...

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a raw sample is whatever its kind says
        """One raw sample → input name → compact array without a batch axis, of one shape for
        all samples.
        """
        ...

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """A stack of prepared samples (batch axis first) → the graph's feeds."""
        ...


# The classes of samples that have names, such as those of folders, and their numbers.

_LISTED = 12
"""Classes that a message lists; of more, it lists the first few and counts the others."""
_FIRST = 4


@dataclass(frozen=True, slots=True)
class ClassNames:
    """Which class of the model a name is.

    Args:
        numbers: name → class, in the order of the classes.
        listed: lines of the file that numbers the classes, one for each output of the model. None:
            a name that is a number is its own class, and other names are numbered in their order.
    """

    numbers: Mapping[str, int]
    listed: int | None = None

    @classmethod
    def of(cls, names: Sequence[str], listed: Sequence[str] | None = None) -> "ClassNames":
        """The classes of distinct ``names``: where ``listed`` is given, their places in it."""
        if listed is not None:
            return cls(
                {name: place for place, name in enumerate(listed) if name in names}, len(listed)
            )
        ordered = sorted(names)
        if all(name.isascii() and name.isdecimal() for name in ordered):
            return cls(
                dict(sorted(((name, int(name)) for name in ordered), key=lambda one: one[1]))
            )
        return cls({name: place for place, name in enumerate(ordered)})

    @property
    def is_counted(self) -> bool:
        """Whether classes are the places of the names in their order, so that a missing one
        moves those after it.
        """
        return self.listed is None and not all(name.isdecimal() for name in self.numbers)

    def __str__(self) -> str:
        """``10 classes: class0=0, …``."""
        shown = list(self.numbers.items())[
            : len(self.numbers) if len(self.numbers) <= _LISTED else _FIRST
        ]
        more = len(self.numbers) - len(shown)
        texts = [
            *(f"{name}={number}" for name, number in shown),
            *([f"… ({more} more)"] if more else []),
        ]
        return f"{counted(len(self.numbers), 'class', 'classes')}: {', '.join(texts)}"

    def warning(self, outputs: int) -> str:
        """What is doubtful about them for a model of ``outputs`` classes; empty: nothing."""
        if not self.is_counted or len(self.numbers) >= outputs:
            return ""
        return (
            f"{len(self.numbers)} classes are counted in the order of their names, and the model "
            f"has {outputs}: a name that is missing moves all after it; list all in the order of "
            "the outputs with ?classes=labels.txt"
        )

    def require(self, outputs: int, doing: str) -> None:
        """Check that a model of ``outputs`` classes has all of them.

        Raises:
            InputError: it has fewer, or another number than the file lists.
        """
        most, last = max(
            ((number, name) for name, number in self.numbers.items()), default=(-1, "")
        )
        if self.listed is not None and self.listed != outputs:
            raise InputError(
                doing,
                found=(
                    f"{counted(self.listed, 'class', 'classes')} in the file that ?classes= names"
                ),
                expected=f"{outputs}, as the model has {outputs} outputs",
                remedy="List every class once, in the order of the outputs.",
            )
        if most >= outputs:
            raise InputError(
                doing,
                found=counted(len(self.numbers), "class", "classes")
                if self.is_counted
                else f"class '{last}'",
                expected=f"classes from 0 to {outputs - 1}, as the model has {outputs} outputs",
                remedy="Take the folders or labels away that are no class, or list the classes in "
                "the order of the outputs with ?classes=labels.txt.",
            )


_BY_CLASS = "class"
"""The slices that the labels make."""

# Raw samples with stable names, before any model's preprocessing.


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """n raw samples, to score or to calibrate on.

    Args:
        id: name in suites.
        kind: what one sample is; a model's preprocessing says which kinds it takes: ``picture``
            ((H, W, 3) uint8 RGB), ``bytes``, ``word`` (str), ``speech_8k`` ((12800,) int16),
            ``speech_8k_pair`` (two of those), ``array`` (a ready feed, or input name → feed).
        sample_ids: n distinct names.
        sources: n names of what each sample was cut from; data sets with a common source overlap.
        clusters: n names of what was drawn at once: samples with one name belong together, and
            intervals count them so. They may be coarser than sources (a speaker, not the
            recording), and two data sets may share them; None: the sources. They are not a part of
            ``digest``: what is stored of a data set holds for any clusters.
        labels: of each sample the ids of the right classes, or the right sequence, or an array,
            such as its right boxes or mask; None: unlabelled.
        content: digest of the raw content (the package's or the files'), known without decoding
            anything.
        load: the raw sample at an index.
        classes: the names that the labels come from; None: labels came as numbers.
        whole: the data set that these samples were picked from; None: it is whole.
        columns: other facts of samples: name → n texts, such as the device that took each: names of
            parts of the data (``slices``). They are not a part of ``digest``.

    Raises:
        InputError: two samples share a name, there are more or fewer sources, clusters or labels
            than samples, a cluster has no name, or a column of labelled samples is called
            ``class``, as their classes are.
    """

    id: str
    kind: str
    sample_ids: tuple[str, ...]
    sources: tuple[str, ...]
    labels: Labels | ArrayLabels | None
    content: str
    load: Callable[[int], Any]
    classes: ClassNames | None = None
    clusters: tuple[str, ...] | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    whole: "Dataset | None" = None

    def __post_init__(self) -> None:
        count = len(self.sample_ids)
        if (distinct := len(set(self.sample_ids))) != count:
            self._refuse(
                f"{distinct} different names for {count} samples", "different names for all samples"
            )
        if len(self.sources) != count:
            self._refuse(
                f"{len(self.sources)} sources for {count} samples", "one source for every sample"
            )
        if self.clusters is not None and len(self.clusters) != count:
            self._refuse(
                f"{len(self.clusters)} sources for {count} samples", "one source for every sample"
            )
        if self.clusters is not None and "" in self.clusters:
            sample = self.sample_ids[self.clusters.index("")]
            self._refuse(f"no source of sample '{sample}'", "the name of one for every sample")
        for column, values in self.columns.items():
            if len(values) != count:
                self._refuse(
                    f"{len(values)} values of the column '{column}' for {count} samples",
                    "one for each",
                )
        if self.labels is not None and _BY_CLASS in self.columns:
            self._refuse(
                f"a column '{_BY_CLASS}' of labelled samples",
                "another name: slices by it are the classes",
            )
        if self.labels is not None and len(self.labels) != count:
            self._refuse(
                f"{len(self.labels)} labels for {count} samples", "labels for every sample"
            )

    @classmethod
    def from_arrays(
        cls,
        name: str,
        feeds: "Mapping[str, npt.ArrayLike] | npt.ArrayLike",
        labels: "npt.ArrayLike | None" = None,
        *,
        sources: "Sequence[object] | npt.ArrayLike | None" = None,
    ) -> "Dataset":
        """Ready feeds in memory as a data set.

        Args:
            name: its id.
            feeds: input name → (n, …) numbers, one row per sample; or one such array, for a graph
                of one input. float64 becomes float32.
            labels: (n,) integers from 0, the right classes; (n, …) uint8 or uint16 masks or
                pictures, or floats; None: unlabelled.
            sources: n texts or whole numbers, what each sample comes from (see ``with_sources``);
                None: each row is its own.

        A row's source is the digest of its numbers: two data sets with a common row overlap
        whatever their names are.

        Raises:
            InputError: no rows, inputs of different length, objects, NaN (the sample is named),
                labels or sources that do not fit.
        """
        doing = f"Making the data set '{name}'"
        is_lone = not isinstance(feeds, Mapping)
        arrays = {
            key: _feed(np.asarray(one), f"{doing}, its array '{key}'")
            for key, one in ({"x": feeds} if is_lone else feeds).items()  # type: ignore[union-attr]
        }
        lengths = {key: len(one) for key, one in arrays.items()}
        if len(set(lengths.values())) != 1:
            found = (
                ", ".join(f"{count} rows in '{key}'" for key, count in lengths.items())
                or "no arrays"
            )
            remedy = "Save one row per sample in every array."
            raise InputError(
                doing, found=found, expected="equally many rows in each", remedy=remedy
            )
        first, count = next(iter(lengths.items()))
        _refuse_non_finite(arrays, first, doing)

        def load(index: int) -> Any:  # noqa: ANN401 - a feed, or several by name
            return (
                arrays["x"][index] if is_lone else {key: one[index] for key, one in arrays.items()}
            )

        ids = tuple(f"{first}[{index}]" for index in range(count))
        made = cls(
            id=name,
            kind="array",
            sample_ids=ids,
            sources=tuple(
                digest_arrays({key: one[i] for key, one in arrays.items()}) for i in range(count)
            ),
            clusters=ids,
            labels=None if labels is None else _given_labels(np.asarray(labels), count, doing),
            content=digest_arrays(arrays),
            load=load,
        )
        return made if sources is None else made.with_sources(np.asarray(sources).tolist())

    def with_sources(self, sources: "Sequence[object] | Callable[[str], object]") -> "Dataset":
        """The same samples, of which those with one source belong together: crops of a
        photograph, a speaker's words.

        Args:
            sources: n texts or whole numbers; or a function that gives one for the id of a sample.

        Raises:
            InputError: more or fewer than samples, or one that is empty or neither text nor a whole
                number.
        """
        names = [sources(one) for one in self.sample_ids] if callable(sources) else list(sources)
        for sample, name in zip(self.sample_ids, names, strict=False):
            if isinstance(name, bool) or not isinstance(name, str | int) or not str(name).strip():
                self._refuse(
                    f"the source {name!r:.40} of sample '{sample}'", "a text or a whole number"
                )
        return replace(self, clusters=tuple(str(name) for name in names))

    def with_columns(self, **columns: "Sequence[object]") -> "Dataset":
        """The same samples with more facts of them: a name and n texts or numbers each.

        Raises:
            InputError: more or fewer values than samples.
        """
        texts = {name: tuple(str(value) for value in values) for name, values in columns.items()}
        return replace(self, columns={**self.columns, **texts})

    def slices(self, by: str) -> tuple[str, ...]:
        """The part of the data that each sample belongs to, n names: its class where ``by`` is
        ``class``, else its value in that column.

        Raises:
            InputError: no such column, or samples that have not one class each.
        """
        if by in self.columns:
            return self.columns[by]
        if by != _BY_CLASS:
            raise unknown_name(
                f"Looking for slices of the data set '{self.id}'",
                "column",
                by,
                (_BY_CLASS, *self.columns),
            )
        labels = self.whole_labels
        if labels is None or any(len(right) != 1 for right in labels):
            raise InputError(
                f"Looking for slices of the data set '{self.id}'",
                found="samples without a label, or with several",
                expected="one class for every sample, because of slices = 'class'",
                remedy="Name a column of the data instead.",
            )
        names = (
            {}
            if self.classes is None
            else {number: name for name, number in self.classes.numbers.items()}
        )
        return tuple(names.get(right[0], f"class {right[0]}") for right in labels)

    @property
    def drawn_from(self) -> tuple[str, ...]:
        """What the samples were drawn from, n names of clusters, as intervals count them."""
        return self.sources if self.clusters is None else self.clusters

    def _refuse(self, found: str, expected: str) -> NoReturn:
        remedy = "Correct the file or the function that the data set comes from."
        raise InputError(
            f"Making the data set '{self.id}'", found=found, expected=expected, remedy=remedy
        )

    def __len__(self) -> int:
        return len(self.sample_ids)

    @property
    def whole_labels(self) -> Labels | None:
        """The labels, where they are whole numbers; None: unlabelled, or labels are arrays."""
        return _whole(self.labels)

    @cached_property
    def digest(self) -> str:
        """The identity of the data: content, sample names in order, labels.

        Computed once: a cell uses it about ten times, and it reads every name and label.
        """
        labels: object = self.labels
        if (arrays := _arrays_of(self.labels)) is not None:
            labels = digest_arrays({f"{index:09}": array for index, array in enumerate(arrays)})
        return digest_plain([self.content, list(self.sample_ids), labels])

    def take(self, count: int) -> "Dataset":
        """``count`` samples spread evenly over the whole, in order.

        Raises:
            InputError: there are fewer samples.
        """
        if not 0 < count <= len(self):
            raise InputError(
                f"Taking {count} samples of the data set '{self.id}'",
                found=f"{len(self)} samples in it",
                expected=f"a number from 1 to {len(self)}",
                remedy="Take fewer samples, or add more to the data set.",
            )
        return self.pick([i * len(self) // count for i in range(count)])

    def without_samples(self) -> "Dataset":
        """A data set of the same kind without samples, for models that need no calibration."""
        return replace(
            self,
            id="none",
            sample_ids=(),
            sources=(),
            clusters=None,
            columns={},
            labels=None,
            classes=None,
            content="",
        )

    def pick(self, chosen: Sequence[int]) -> "Dataset":
        """The samples with the indices ``chosen``, in that order."""
        load = self.load
        return replace(
            self,
            whole=self if self.whole is None else self.whole,
            sample_ids=tuple(self.sample_ids[i] for i in chosen),
            sources=tuple(self.sources[i] for i in chosen),
            clusters=None if self.clusters is None else tuple(self.clusters[i] for i in chosen),
            columns={
                name: tuple(values[i] for i in chosen) for name, values in self.columns.items()
            },
            labels=cast(
                Labels | ArrayLabels | None, self.labels and tuple(self.labels[i] for i in chosen)
            ),
            load=lambda index: load(chosen[index]),
        )


def _feed(array: Array, doing: str) -> Array:
    """``array`` (n, …) as it is fed: float64 as float32, which is what networks take."""
    if array.ndim == 0 or not len(array) or array.dtype.kind not in "fiub":
        raise InputError(
            doing,
            found=f"shape {array.shape} of {array.dtype}",
            expected="(n, …) numbers, one row per sample, n at least 1",
            remedy="Save the feeds stacked along the first axis.",
        )
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):
        # what is too large for float32 becomes Inf, which is refused by the caller
        return array.astype(np.float32)


def _refuse_non_finite(arrays: Mapping[str, Array], first: str, doing: str) -> None:
    for key, array in arrays.items():
        finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        if not finite.all():
            raise InputError(
                f"{doing}, sample '{first}[{int(np.argmin(finite))}]'",
                found=f"NaN or Inf (in {int((~finite).sum())} of {len(array)} samples)"
                + (f" of '{key}'" if len(arrays) > 1 else ""),
                expected="numbers that float32 holds",
                remedy="Correct or remove the sample.",
            )


def _arrays_of(labels: Labels | ArrayLabels | None) -> ArrayLabels | None:
    """``labels``, where they are arrays."""
    return labels if labels and isinstance(labels[0], np.ndarray) else None


def _whole(labels: Labels | ArrayLabels | None) -> Labels | None:
    return None if labels is None or _arrays_of(labels) is not None else cast(Labels, labels)


def _given_labels(y: Array, count: int, doing: str) -> Labels | ArrayLabels:
    """``y`` as labels: whole numbers (count,) are classes; masks, pictures (uint8 or uint16)
    and floats are arrays.
    """
    is_map = y.ndim >= 3 and y.dtype in (np.uint8, np.uint16)
    # one whole number per sample is a class, though its type may be a float
    is_value = y.ndim > 0 and y.dtype.kind == "f" and not (y.ndim == 1 and (y == np.rint(y)).all())
    if y.ndim and len(y) == count and (is_map or is_value):
        if not np.isfinite(y).all():
            first = int(np.argmin(np.isfinite(y.reshape(count, -1)).all(axis=1)))
            remedy = "Correct or remove the sample."
            raise InputError(
                f"{doing}, its labels 'y'",
                found=f"NaN or Inf in row {first}",
                expected="finite numbers",
                remedy=remedy,
            )
        return tuple(np.atleast_1d(row) for row in y)
    if is_one_hot(y) and len(y) == count:
        raise one_hot_error(f"{doing}, its labels 'y'", y.shape[1])
    if y.shape != (count,) or y.dtype.kind not in "iu" or (y < 0).any():
        least = (
            f" with a class {int(y.min())}"
            if y.dtype.kind == "i" and y.size and y.min() < 0
            else ""
        )
        raise InputError(
            f"{doing}, its labels 'y'",
            found=f"shape {y.shape} of {y.dtype}{least}",
            expected=f"shape ({count},) of integers from 0, one class for each of the {count} "
            "samples; or masks of uint8, or floats",
            remedy=_label_remedy(y, count),
        )
    return tuple((int(label),) for label in y)


def _label_remedy(y: Array, count: int) -> str:
    """How to save ``y``, which cannot be the labels of ``count`` samples, so that it can."""
    if y.dtype.kind in "US":
        return (
            "Save the number of each class, as in names, y = numpy.unique(y, return_inverse=True)."
        )
    is_class = (
        y.size == count
        and y.dtype.kind in "biuf"
        and bool((y >= 0).all())
        and bool((y == np.rint(y)).all())
    )
    if is_class and y.shape != (count,):
        return (
            "Save y.reshape(-1).astype('int64') for classes, or floats (n, 1) with a fraction for "
            "values."
        )
    if is_class:
        return "Save y.astype('int64') for classes, or y.reshape(-1, 1) for values."
    return (
        "Save one class number, one mask or one row of values, (n, 1) where they are whole, per "
        "sample."
    )


def is_one_hot(y: Array) -> bool:
    """Whether each row of ``y`` (n, k) holds a single 1 and is 0 elsewhere, as classes are
    written for training.

    Smoothed classes are too: each row sums to 1, with one large value, which is the same in all
    rows, and equal small ones. One sample alone, or one column, says nothing.
    """
    if y.ndim != 2 or min(y.shape) < 2 or y.dtype.kind not in "biuf":
        return False
    values = y.astype(np.float64)
    low, high = values.min(), values.max()
    is_high = np.isclose(values, high, rtol=0, atol=_SMOOTHING)
    is_low = np.isclose(values, low, rtol=0, atol=_SMOOTHING)
    is_one = (is_high.sum(axis=1) == 1).all() and (is_low.sum(axis=1) == y.shape[1] - 1).all()
    return bool(
        is_one
        and low >= 0
        and np.allclose(values.sum(axis=1), 1, rtol=0, atol=_SMOOTHING * y.shape[1])
    )


_SMOOTHING = 1e-3
"""How far smoothed classes may be from their two values: they are often stored as float16."""


def one_hot_error(doing: str, classes: int) -> InputError:
    """The error for labels that ``is_one_hot`` recognizes, where class numbers are expected."""
    return InputError(
        doing,
        found=(
            f"rows of {classes} values, of which one is 1 and the others 0, or nearly so (one-hot)"
        ),
        expected=f"the number of the class of each sample, from 0 to {classes - 1}",
        remedy="Save y.argmax(axis=1) instead.",
    )


# Prepared samples on disk, read batch by batch, so that memory does not grow with their number.
#
# Each input is one raw file of fixed-size records in the cache. Its key has the data, the
# preprocessing, the code of both and the version of the picture decoder. Slices are read, not
# mapped: mapped pages would count as the process's memory.

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

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def whole_labels(self) -> Labels | None:
        """The labels, where they are whole numbers; None: unlabelled, or labels are arrays,
        which answering ignores.
        """
        return _whole(self.labels)

    @property
    def key(self) -> str:
        """The digest of all that the prepared samples were made from, part of the keys of what
        is made from them.
        """
        return str(self.folder) if self.unknown else f"{self.folder.name}{self.read}"

    def batches(self, size: int = BATCH) -> Iterator[dict[str, Array]]:
        """The graph's feeds, ``size`` samples at a time, the last batch shorter.

        Raises:
            InputError: a finished feed is not finite; the sample is named.
        """
        layout = json.loads((self.folder / "layout.json").read_text())
        for start in self._starts(size):
            count = min(size, len(self) - start)
            stack = {
                name: _read(
                    self.folder / f"{index}.raw",
                    np.dtype(spec["dtype"]),
                    tuple(spec["shape"]),
                    start,
                    count,
                )
                for index, (name, spec) in enumerate(sorted(layout.items()))
            }
            feeds = self.preprocess.finish(stack)
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
        values = {each.name: getattr(self, each.name) for each in fields(Samples)}
        labels = None if self.labels is None else tuple(self.labels[row] for row in rows)
        values |= {"ids": tuple(self.ids[row] for row in rows), "labels": labels}
        return _PickedSamples(**values, rows=tuple(rows), split=split)

    def noted(self, name: str) -> Array | None:
        """What ``prepare`` gave under ``name`` for every sample, in addition to its feeds, with the
        samples as the first axis; None: nothing.
        """
        layout = json.loads((self.folder / "layout.json").read_text())
        if name not in layout:
            return None
        path = self.folder / f"{sorted(layout).index(name)}.raw"
        return _read(
            path, np.dtype(layout[name]["dtype"]), tuple(layout[name]["shape"]), 0, len(self)
        )

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _PickedSamples(Samples):
    """What ``Samples.picked`` gives; ``rows``: where the samples are in the files."""

    rows: tuple[int, ...]
    split: Fraction

    def batches(self, size: int = BATCH) -> Iterator[dict[str, Array]]:
        """The feeds, ``split`` times ``size`` samples at a time, at least one."""
        layout = json.loads((self.folder / "layout.json").read_text())
        size = max(1, int(size * self.split))
        for start in self._starts(size):
            chosen = self.rows[start : start + size]
            stack = {}
            for index, (name, spec) in enumerate(sorted(layout.items())):
                path = self.folder / f"{index}.raw"
                dtype = np.dtype(spec["dtype"])
                shape = tuple(spec["shape"])
                stack[name] = np.concatenate([_read(path, dtype, shape, row, 1) for row in chosen])
            feeds = self.preprocess.finish(stack)
            self._refuse_non_finite(feeds, start)
            yield feeds


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


def _write(dataset: Dataset, preprocess: Preprocess, folder: Path) -> None:
    folder.mkdir()
    layout: dict[str, dict[str, object]] = {}
    files = {}
    contents = []
    try:
        for index, sample_id in enumerate(dataset.sample_ids):
            prepared = preprocess.prepare(dataset.load(index))
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


# A task turns samples into answers. It owns the loop, so that an encoder and a decoder step can be
# one model.
#
# It takes executors by the names of the model's graphs and does not know their kind: run with fp32
# executors it gives a reference, run with observing executors it calibrates.


class Runner(Protocol):
    """What a task needs of an executor."""

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """One batch: input name → array, to output name → array."""
        ...


class Task(Protocol):
    """A frozen value. ``graphs`` are the names that it expects, ``("model",)`` for most.

    A task may have ``usual_metrics``, the names of the metrics that count its answers against
    labels where a user names none; of other tasks equal answers are counted (``exact``). It may
    have ``usual_comparisons``, those against the fp32 run (else ``agreement``). A task whose answer
    to a sample depends on the others has a true ``is_joint``: its samples keep their order when a
    cell is repeated.
    """

    @property
    def name(self) -> str:
        """Every setting in one line: two tasks of the same name read outputs alike."""
        ...

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs it runs."""
        ...

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The answers to all samples, in their order.

        Raises:
            InputError: an output is not finite (the sample is named), or an executor lacks an
                expected output.
        """
        ...


@runtime_checkable
class RestoresAnswers(Protocol):
    """A task whose answers are of a form of its own, which it restores from stored arrays."""

    def restored(self, arrays: Mapping[str, Array]) -> Answers:
        """The answers whose ``arrays()`` these are."""
        ...


def task_answers(task: Task, answers: Answers) -> Answers:
    """``answers``; where they were read from a file, in the form that ``task`` gives.

    Raises:
        InputError: the task does not restore answers of their form.
    """
    if not isinstance(answers, StoredAnswers):
        return answers
    task = getattr(task, "__wrapped__", task)  # the task itself, without a wrapper around it
    if not isinstance(task, RestoresAnswers):
        raise InputError(
            f"Reading stored answers of task '{task.name}'",
            found=f"answers of the form '{answers.form}'",
            expected="a form that qbench has, or a task that restores its own form",
            remedy=(
                "Give the task a method restored(arrays), or accept the fp32 reference anew "
                "(--qbench-accept-fp32)."
            ),
        )
    found = task.restored(answers.arrays())
    return found.with_run(
        outputs=answers.outputs, tied=answers.tied, likelihoods=answers.likelihoods
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZooModel:
    """A trained network, loaded when it is used, with its preprocessing and its task.

    Args:
        id: name in suites.
        graphs: name → loader of an ONNX graph, float unless a suite names its ``fp32`` partner;
            names as ``task.graphs`` has them.
        preprocess, task: how a raw sample becomes a feed, and outputs become an answer.
        origin: where the weights come from and under which licence, for lists.

    Raises:
        InputError: the id is not text, a loader is not a function, or the preprocessing or the task
            is none.
    """

    id: str
    graphs: Mapping[str, Callable[[], ir.Model]]
    preprocess: Preprocess
    task: Task
    origin: str

    def __post_init__(self) -> None:
        doing = f"Making the model '{self.id}'"
        require_type(doing, self.id, str, expected="its id as a text", remedy="Give another name.")
        loaders = (
            "a table of names and functions without arguments, each of which loads a graph, as "
            "graphs"
        )
        remedy = (
            "Write graphs={'model': lambda: qbench.load_model(path)}, or call "
            "model_from_file(path)."
        )
        require_type(doing, self.graphs, Mapping, expected=loaders, remedy=remedy)
        for load in self.graphs.values():
            require_type(doing, load, Callable, expected=loaders, remedy=remedy)  # type: ignore[arg-type]
        _require_parts(
            doing, "task", self.task, ("name", "graphs", "answer"), "Classification(k=5)"
        )
        _require_parts(
            doing,
            "preprocess",
            self.preprocess,
            ("name", "kinds", "prepare", "finish"),
            "Picture(resize=256)",
        )


def _require_parts(
    doing: str, name: str, value: object, parts: tuple[str, ...], example: str
) -> None:
    """Check that ``value``, given as ``name``, has the attributes ``parts`` and is not a class
    that has them.

    Raises:
        InputError: it lacks one.
    """
    if isinstance(value, type) or not all(hasattr(value, part) for part in parts):
        found = (
            f"the class {value.__name__}"
            if isinstance(value, type)
            else f"a {type(value).__name__}"
        )
        raise InputError(
            f"{doing} with {name}={repr(value)[:60]}",
            found=found,
            expected=f"a value with {', '.join(parts)}",
            remedy=(
                f"Write {name}={example} or the like, from qbench.subjects, or leave {name} out of "
                "model_from_file."
            ),
        )
