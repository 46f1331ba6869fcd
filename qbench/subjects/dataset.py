"""Raw samples with stable names and labels, and how one becomes a feed of a graph."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NoReturn, Protocol, cast

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError, unknown_name
from qbench.metrics import ArrayLabels, Labels
from qbench.number_text import counted
from qbench.storage import digest_arrays, digest_plain

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
        private: whether its samples may not be shown: reports then have their ids alone.

    Raises:
        InputError: the name of a sample is no text, the labels are not one sequence of whole
            numbers or array per sample, two samples share a name, there are more or fewer sources,
            clusters or labels than samples, a cluster has no name, or a column of labelled samples
            is called ``class``, as their classes are.
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
    private: bool = False

    def __post_init__(self) -> None:
        if self.whole is None:  # what is picked was checked in the whole
            self._require_types()
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
            key: _feed(np.asarray(one), key, f"{doing}, its array '{key}'")
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
        return tuple(map(class_namer(self), (right[0] for right in labels)))

    @property
    def drawn_from(self) -> tuple[str, ...]:
        """What the samples were drawn from, n names of clusters, as intervals count them."""
        return self.sources if self.clusters is None else self.clusters

    def _require_types(self) -> None:
        """Check names and labels by the types that occur, which costs no loop over samples."""
        if others := _types_but(self.sample_ids, str):
            self._refuse(f"names of samples of type {others}", "texts, such as '3' for 3")
        if self.labels is None:
            return
        expected = (
            "None, or for every sample its label: a tuple of whole numbers, such as (3,) for "
            "class 3, or an array"
        )
        labels: object = self.labels
        if not isinstance(labels, tuple | list):
            self._refuse(f"labels of type {type(labels).__name__}", expected)
        if others := _types_but(self.labels, tuple, list, np.ndarray):
            self._refuse(f"labels of samples of type {others}", expected)
        if len({isinstance(one, np.ndarray) for one in self.labels}) > 1:
            self._refuse("arrays next to tuples as labels of samples", expected)
        whole = whole_labels(self.labels)
        if whole is not None and (
            others := _types_but(chain.from_iterable(whole), int, np.integer)
        ):
            self._refuse(f"numbers of type {others} in labels of samples", expected)

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
        return whole_labels(self.labels)

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


def _types_but(values: Iterable[object], *kinds: type) -> str:
    """The types of ``values`` that are none of ``kinds``, by name; empty: there is none."""
    found = set(map(type, values))
    return ", ".join(sorted(one.__name__ for one in found if not issubclass(one, kinds)))


def class_namer(data: Dataset) -> Callable[[int], str]:
    """The name of a class of ``data``; ``class 3`` where it has none."""
    numbers = {} if data.classes is None else data.classes.numbers
    names = {number: name for name, number in numbers.items()}
    return lambda number: names.get(number, f"class {number}")


def _feed(array: Array, name: str, doing: str) -> Array:
    """``array`` (n, …) as it is fed: float64 as float32, which is what networks take."""
    if array.ndim == 0 or not len(array) or array.dtype.kind not in "fiub":
        remedy = "Save the feeds stacked along the first axis."
        if array.ndim == 1 and array.dtype.kind == "U":
            remedy = f"Where they say what each sample comes from, append '?sources={name}'."
        raise InputError(
            doing,
            found=f"shape {array.shape} of {array.dtype}",
            expected="(n, …) numbers, one row per sample, n at least 1",
            remedy=remedy,
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


def whole_labels(labels: Labels | ArrayLabels | None) -> Labels | None:
    """``labels`` where they are whole numbers, else None."""
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
