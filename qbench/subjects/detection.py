"""Detection: pictures fitted into a network's frame, boxes read from its outputs, labels out of
COCO's files.
"""

import enum
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.metrics import ArrayLabels, BoxAnswers, box_labels
from qbench.number_text import counted
from qbench.subjects.dataset import Array, ClassNames
from qbench.subjects.pictures import Interpolation, Layout, Pixels, Triple, require_pixels
from qbench.subjects.samples import BATCH, Samples
from qbench.subjects.subject import Runner
from qbench.subjects.tasks import GRAPH, runner_named

# How a whole picture becomes a feed of one size, so that boxes lead back to its own pixels.
#
#     place in the frame = scale · place in the picture + margin          for x and y
#
# LETTERBOX keeps the proportions, and fills what is left on both sides with grey; STRETCH fills the
# frame.


class Fit(enum.Enum):
    """How a picture fills the frame."""

    LETTERBOX = "letterbox"
    STRETCH = "stretch"


FRAME = "frame"
"""What is noted of every sample: scale of x and of y, left and upper margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedPicture:
    """The preprocessing of a detector; the defaults are those of the YOLO family.

    Args:
        width, height: pixels of the frame. fit, interpolation: how a picture is resized into it.
        fill: grey of margins.
        divisor, mean, std: y = (x / divisor − mean) / std, per channel, red first.
        layout: of the feed.
        blue_first: the order of its channels.
        input: the graph's input.
    """

    width: int = 640
    height: int = 640
    fit: Fit = Fit.LETTERBOX
    interpolation: Interpolation = Interpolation.BILINEAR
    fill: int = 114
    divisor: float = 255.0
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)
    layout: Layout = Layout.NCHW
    blue_first: bool = False
    input: str = "x"

    def __post_init__(self) -> None:
        numbers = (self.divisor, *self.mean, *self.std)
        if (
            min(self.width, self.height) < 1
            or not np.isfinite(numbers).all()
            or 0 in (self.divisor, *self.std)
        ):
            raise ValueError(
                "a frame has at least one pixel, mean and std are finite, and no divisor is 0"
            )

    @property
    def name(self) -> str:
        """Every setting in one line."""
        mean, std = (",".join(repr(float(v)) for v in values) for values in (self.mean, self.std))
        return (
            f"framed picture({self.width}x{self.height} {self.fit.value} "
            f"{self.interpolation.value} fill={self.fill} "
            f"divisor={float(self.divisor)!r} mean={mean} std={std} {self.layout.value}"
            f"{' blue first' if self.blue_first else ''} input={self.input})"
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Pictures."""
        return ("picture",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - pixels, as ``kinds`` says
        """(H, W, 3) uint8 → the input as (height, width, 3) uint8, and ``FRAME`` (4,) float64."""
        from PIL import Image

        high, wide = sample.shape[:2]
        size = (self.width, self.height)
        if self.fit is Fit.LETTERBOX:
            scale = min(self.width / wide, self.height / high)
            size = (max(1, round(wide * scale)), max(1, round(high * scale)))
        require_pixels(
            f"Resizing a picture of {wide} × {high} by resize={self.height}",
            self.width,
            self.height,
        )
        picture = Image.fromarray(sample)
        if size != picture.size:
            picture = picture.resize(size, Image.Resampling[self.interpolation.name])
        left, top = (self.width - size[0]) // 2, (self.height - size[1]) // 2
        frame: Pixels = np.full((self.height, self.width, 3), self.fill, np.uint8)
        frame[top : top + size[1], left : left + size[0]] = np.asarray(picture)
        return {self.input: frame, FRAME: np.array([size[0] / wide, size[1] / high, left, top])}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """(n, height, width, 3) uint8 → float32 in ``layout``."""
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        feed = (batch[self.input].astype(np.float32) / np.float32(self.divisor) - mean) / std
        feed = feed[..., ::-1] if self.blue_first else feed
        return {
            self.input: np.ascontiguousarray(
                feed.transpose(0, 3, 1, 2) if self.layout is Layout.NCHW else feed
            )
        }


def unframed(
    boxes: npt.NDArray[np.float64], frame: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Boxes (m, 4 or 8) of a frame, in pixels of the picture that it shows."""
    scale, margin = frame[:2], frame[2:]
    moved: npt.NDArray[np.float64] = (boxes - np.resize(margin, boxes.shape[1])) / np.resize(
        scale, boxes.shape[1]
    )
    return moved


# Outputs of a detector → the boxes of every picture.


class Corners(enum.Enum):
    """What the four numbers of a box are: two corners, a corner and the size, the centre and
    the size.
    """

    XYXY = "xyxy"
    XYWH = "xywh"
    CXCYWH = "cxcywh"


_FARTHEST = 1e6
"""Pixels that a box is cut at: a network may answer with any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """One graph with boxes as outputs, after its non-maximum suppression.

    Args:
        boxes: the output with (n, m, 4) boxes, or (m, 4) where a run has one sample. scores,
            classes: those with (n, m) or (m,); both None: ``boxes`` is (n, m, 6), with score and
            class after the corners.
        corners: the form of a box.
        relative: its numbers are shares of the frame, not pixels.
        least: score below which boxes are left out, among them those that fill an output.
        most: boxes of a picture, those of the highest scores.
        confident: score from which on a box counts in metrics that rank none.
        batch: samples of a run.
    """

    boxes: str
    scores: str | None = None
    classes: str | None = None
    corners: Corners = Corners.XYXY
    relative: bool = False
    least: float = 0.001
    most: int = 300
    confident: float = 0.5
    batch: int = BATCH

    def __post_init__(self) -> None:
        if (self.scores is None) != (self.classes is None) or self.least <= 0 or self.most < 1:
            raise ValueError(
                "a detection has scores and classes or neither, a least score above 0, and boxes"
            )

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """COCO's."""
        return ("box_map", "box_map50")

    @property
    def name(self) -> str:
        """Every setting in one word."""
        read = ", ".join(filter(None, (self.boxes, self.scores, self.classes)))
        share = " relative" if self.relative else ""
        return (
            f"detection({read}, {self.corners.value}{share}, least={self.least!r}, "
            f"most={self.most}, confident={self.confident!r}, batch={self.batch})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> BoxAnswers:
        """The boxes of every sample, in pixels of its picture where the preprocessing notes a
        ``FRAME``.

        Raises:
            InputError: an output is missing or has another shape; a sample, which is named, has
                numbers that are not a box; most boxes have a negative size; or a confident box has
                a class that the labels do not list.
        """
        run = runner_named(runners, GRAPH, self.name).run
        doing = f"Detecting in '{samples.data}'"
        frames = samples.noted(FRAME)
        found: list[tuple[Array, Array, Array]] = []
        for feeds in samples.batches(self.batch):
            count, size = _frame_size(feeds)
            outputs = self._read(run(feeds), count, doing)
            for rows in zip(*outputs, strict=True):
                index = len(found)
                found.append(
                    self._boxes(
                        rows, size, None if frames is None else frames[index], samples.ids[index]
                    )
                )
                self._refuse_unlisted(found[-1], samples, index)
        _refuse_negative([boxes for boxes, _, _ in found], doing)
        return BoxAnswers.of(*zip(*found, strict=True), confident=self.confident)

    def restored(self, arrays: Mapping[str, Array]) -> BoxAnswers:
        """The answers whose ``arrays()`` these are."""
        return restored_boxes(arrays, self.confident)

    def _refuse_unlisted(
        self, rows: tuple[Array, Array, Array], samples: Samples, index: int
    ) -> None:
        """Refuse a confident box of a class beyond those of the labels: the two are numbered
        differently.
        """
        confident = rows[2][rows[1] >= self.confident]
        count = (
            0 if samples.classes is None else samples.classes.listed or len(samples.classes.numbers)
        )
        if count and confident.size and confident.max() >= count:
            _refuse(
                f"Reading the boxes of sample '{samples.ids[index]}'",
                f"a confident box of class {confident.max()}",
                f"classes from 0 to {count - 1}, as the labels list "
                f"{counted(count, 'class', 'classes')}",
                "List all classes in the order of the outputs with ?classes=labels.txt, one in "
                "each line from 0 on.",
            )

    def _read(
        self, outputs: Mapping[str, Array], count: int, doing: str
    ) -> tuple[Array, Array, Array]:
        """Boxes (count, m, 4), scores (count, m) and classes (count, m) of a run."""
        named = [name for name in (self.boxes, self.scores, self.classes) if name is not None]
        if missing := [name for name in named if name not in outputs]:
            _refuse(
                doing,
                f"the outputs {sorted(outputs)}",
                f"'{missing[0]}' among them",
                "Name outputs of the graph.",
            )
        arrays = [np.asarray(outputs[name]) for name in named]
        if arrays[0].ndim == 2 and count == 1:
            arrays = [one[None] for one in arrays]
        shapes = [one.shape for one in arrays]
        boxes = arrays[0]
        width = 6 if self.scores is None else 4
        fits = boxes.ndim == 3 and boxes.shape[2] == width and len(boxes) == count
        if not fits or any(one.shape != boxes.shape[:2] for one in arrays[1:]):
            wanted = f"({count}, boxes, {width})" + (
                f", ({count}, boxes) twice" if self.scores else ""
            )
            _refuse(
                doing,
                f"outputs of the shapes {shapes}",
                wanted,
                "Read a detector's boxes after suppression.",
            )
        if self.scores is None:
            return boxes[..., :4], boxes[..., 4], boxes[..., 5]
        return boxes, arrays[1], arrays[2]

    def _boxes(
        self,
        rows: tuple[Array, Array, Array],
        size: tuple[int, int],
        frame: Array | None,
        sample: str,
    ) -> tuple[Array, Array, Array]:
        doing = f"Reading the boxes of sample '{sample}'"
        boxes, scores, classes = (np.asarray(one, np.float64) for one in rows)
        if np.isnan(scores).any() or not np.isfinite(boxes[scores >= self.least]).all():
            _refuse(
                doing,
                "NaN or Inf in boxes or scores",
                "finite numbers",
                "Look for a kernel that overflows.",
            )
        if (scores > 1).any():
            found = f"a score of {scores.max():g}"
            _refuse(
                doing,
                found,
                "scores from 0 to 1",
                "End the graph in a sigmoid or a softmax of its scores.",
            )
        chosen = np.flatnonzero(scores >= self.least)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")][: self.most]
        boxes, scores, classes = boxes[chosen], scores[chosen], np.rint(classes[chosen])
        if not np.isfinite(classes).all() or (classes < 0).any():
            _refuse(
                doing,
                "a class that is below 0 or no number",
                "classes from 0 on",
                "Name the output of classes.",
            )
        if self.relative:
            boxes = boxes * np.array([*size, *size])
        if self.corners is Corners.CXCYWH:
            boxes = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]], axis=1)
        if self.corners is not Corners.XYXY:
            boxes = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
        boxes = boxes if frame is None else unframed(boxes, frame)
        return np.clip(boxes, -_FARTHEST, _FARTHEST), scores, classes.astype(np.int64)


def _refuse_negative(boxes: Sequence[Array], doing: str) -> None:
    """Refuse corners (m, 4) of each sample that are mostly in the wrong order, which a few of a
    bad network may be.
    """
    every = np.concatenate(boxes)
    negative = int(((every[:, 2:] < every[:, :2]).any(axis=1)).sum())
    if 2 * negative > len(every):
        _refuse(
            doing,
            f"{negative} of {counted(len(every), 'box', 'boxes')} with a negative size",
            "corners in the order left, top, right, bottom",
            "Set the form of the boxes (Detection's corners), or correct the end of the graph.",
        )


def restored_boxes(arrays: Mapping[str, Array], confident: float) -> BoxAnswers:
    """Boxes as a baseline stores them."""
    corners, scores, classes = (
        arrays[name].astype(np.int32) for name in ("corners", "scores", "classes")
    )
    return BoxAnswers(
        corners, scores, classes, BoxAnswers.of([], [], [], confident=confident).confident
    )


def _frame_size(feeds: Mapping[str, Array]) -> tuple[int, tuple[int, int]]:
    """How many samples a batch has, and width and height of its pictures, the two longest axes
    after the first.
    """
    feed = next(iter(feeds.values()))
    high, wide = feed.shape[1:3] if feed.shape[-1] in (1, 3) else feed.shape[-2:]
    return len(feed), (int(wide), int(high))


def _refuse(doing: str, found: str, expected: str, remedy: str) -> NoReturn:
    raise InputError(doing, found=found, expected=expected, remedy=remedy)


# COCO's file of labels: {"images": [{"id", "file_name", "width", "height"}], "categories": [{"id",
# "name"}], "annotations": [{"image_id", "category_id", "bbox": [x, y, width, height], "area",
# "iscrowd"}]}
#
# Classes are the categories in the order of their ids, from 0 on, as most detectors number them;
# with a list of names, the lines of that. Pictures that the file does not list are not samples.

_OUTSIDE = 1.0
"""Pixels that a box may reach beyond its picture: COCO's own are rounded."""


@dataclass(frozen=True, slots=True)
class CocoLabels:
    """The pictures of a COCO file: ``names`` of their files, and the boxes and the classes of
    each.
    """

    names: tuple[str, ...]
    labels: ArrayLabels
    classes: ClassNames


def read_coco(path: Path, folder: Path, listed: Sequence[str] | None = None) -> CocoLabels:
    """The labels in the COCO file ``path``, of pictures in ``folder``.

    Raises:
        InputError: the file is not of that form; it names a picture that is not in the folder or
            has another size, or a picture, category or class that does not exist, or an annotation
            twice; a box is outside its picture or has a negative size.
    """
    doing = f"Reading the labels '{path}'"
    table = _json(path, doing)
    images, categories, annotations = (
        _rows(table, key, doing) for key in ("images", "categories", "annotations")
    )
    classes, numbers = _classes(categories, listed, doing)
    sizes = {
        key: _size(image, folder, doing) for key, image in _by_id(images, "picture", doing).items()
    }
    names = tuple(str(image["file_name"]) for image in images)
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        _refuse(doing, f"'{twice}' twice", "every picture once", "Remove one of the two.")
    _refuse_repeated(
        [one["id"] for one in annotations if isinstance(one.get("id"), int | str)], doing
    )
    found: dict[Any, list[tuple[Any, ...]]] = {key: [] for key in sizes}
    for place, annotation in enumerate(annotations):
        where = f"{doing}, annotation {annotation.get('id', place)}"
        key, category = annotation.get("image_id"), annotation.get("category_id")
        if not isinstance(key, int | str) or key not in sizes:
            _refuse(
                where,
                f"the picture {key}",
                "one that 'images' lists",
                "Add it there, or remove the annotation.",
            )
        if not isinstance(category, int | str) or category not in numbers:
            remedy = "Add it there, or remove the annotation."
            _refuse(where, f"the category {category}", "one that 'categories' lists", remedy)
        box = _box(annotation.get("bbox"), sizes[key], where)
        area = annotation.get("area")
        area = float(area) if _is_finite(area) else box[2] * box[3]
        found[key].append((box, numbers[category], area, bool(annotation.get("iscrowd", 0))))
    labels = []
    for rows in found.values():
        boxes = np.array([row[0] for row in rows], np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels.append(box_labels(boxes, *([row[i] for row in rows] for i in (1, 2, 3))))
    listed_lines = None if listed is None else len(listed)
    return CocoLabels(names, tuple(labels), ClassNames(classes, listed_lines))


def _json(path: Path, doing: str) -> dict[str, Any]:
    remedy = "Give a COCO file of instances."
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        found = (
            (error.strerror or str(error))
            if isinstance(error, OSError)
            else f"broken JSON ({error})"
        )
        raise InputError(doing, found=found, expected="a file of JSON", remedy=remedy) from error
    return (
        table
        if isinstance(table, dict)
        else _refuse(doing, f"a {type(table).__name__}", "an object", remedy)
    )


def _rows(table: Mapping[str, Any], key: str, doing: str) -> list[dict[str, Any]]:
    rows = table.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        expected = "'images', 'categories' and 'annotations', each a list of objects"
        _refuse(doing, f"no list of objects '{key}'", expected, "Give a COCO file of instances.")
    return rows


def _by_id(rows: Sequence[dict[str, Any]], kind: str, doing: str) -> dict[Any, dict[str, Any]]:
    found = {row.get("id"): row for row in rows if isinstance(row.get("id"), int | str)}
    if len(found) != len(rows) or not rows:
        kinds = f"{len(rows)} of them with {len(found)} different ids"
        _refuse(
            f"{doing}, each {kind}",
            kinds,
            "one or more, each with an id of its own",
            "Correct the file.",
        )
    return found


def _refuse_repeated(ids: Sequence[int | str], doing: str) -> None:
    seen: set[int | str] = set()
    for one in ids:
        if one in seen:
            _refuse(
                doing,
                f"the annotation {one} twice",
                "every annotation once",
                "Remove one, or number them anew.",
            )
        seen.add(one)


def _classes(
    rows: Sequence[dict[str, Any]], listed: Sequence[str] | None, doing: str
) -> tuple[dict[str, int], dict[Any, int]]:
    """The class of every name, and of every id of a category."""
    by_id = _by_id(rows, "category", doing)
    ordered = sorted(by_id, key=lambda key: (isinstance(key, str), key))
    names = {key: str(by_id[key].get("name", key)) for key in ordered}
    if listed is None:
        return {names[key]: place for place, key in enumerate(ordered)}, {
            key: i for i, key in enumerate(ordered)
        }
    for name in names.values():
        if name not in listed:
            remedy = "Add the line, at the place of its output."
            _refuse(
                doing,
                f"the category '{name}'",
                "a line of the file that ?classes= names for each",
                remedy,
            )
    places = {key: list(listed).index(name) for key, name in names.items()}
    return {names[key]: place for key, place in places.items()}, places


def _size(image: Mapping[str, Any], folder: Path, doing: str) -> tuple[int, int]:
    """Width and height of a picture, as the file says and the picture has."""
    from PIL import Image, UnidentifiedImageError

    name, size = image.get("file_name"), (image.get("width"), image.get("height"))
    where = f"{doing}, picture '{name}'"
    if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
        _refuse(
            where,
            "no name of a file in the folder",
            "'file_name', a path below it",
            "Correct the file.",
        )
    try:
        with Image.open(folder / name) as picture:
            real = picture.size
    except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        found = (
            "no such picture"
            if isinstance(error, FileNotFoundError)
            else "a file that is no picture"
        )
        raise InputError(
            where,
            found=found,
            expected=f"one in '{folder}'",
            remedy="Check the folder in front of '?labels='.",
        ) from error
    if None not in size and size != real:
        remedy = "Label the pictures as they are, or take those that were labelled."
        _refuse(
            where,
            f"{real[0]} × {real[1]} pixels",
            f"{size[0]} × {size[1]}, as the labels say",
            remedy,
        )
    return real


def _is_finite(value: object) -> TypeGuard[int | float]:
    """Whether ``value`` is a number that a float can hold."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _box(box: Any, size: tuple[int, int], where: str) -> list[float]:  # noqa: ANN401 - what the JSON has
    """The four numbers of a box in a picture of ``size``."""
    remedy = "Correct the box: x, y, width, height, in pixels."
    if (
        not isinstance(box, list)
        or len(box) != 4
        or not all(isinstance(one, int | float) for one in box)
    ):
        _refuse(where, f"the box {str(box)[:60]}", "four numbers", remedy)
    if not all(map(_is_finite, box)):
        _refuse(where, f"NaN or Inf in the box {str(box)[:60]}", "finite numbers", remedy)
    x, y, width, height = map(float, box)
    if width < 0 or height < 0:
        _refuse(where, f"a box of {width:g} × {height:g} pixels", "no negative size", remedy)
    if min(x, y) < -_OUTSIDE or x + width > size[0] + _OUTSIDE or y + height > size[1] + _OUTSIDE:
        found = f"a box from ({x:g}, {y:g}) to ({x + width:g}, {y + height:g})"
        _refuse(where, found, f"one inside its picture of {size[0]} × {size[1]} pixels", remedy)
    return [float(one) for one in box]
