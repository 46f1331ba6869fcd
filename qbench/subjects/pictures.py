"""How a picture becomes a feed: resize the shorter side, cut out the centre, scale, normalize.

    y = (x / divisor − mean) / std        in float32, x the RGB bytes 0 … 255

Resizing is Pillow's, which widens its filter when shrinking (antialiasing) and computes in fixed
point, so that the bytes are the same on every processor. The long side is ⌊resize · long / short⌋
and the crop begins at round((side − crop) / 2), as in torchvision's ``Resize`` and ``CenterCrop``.
JPEG decoders, though, may differ in the last bit: bytes agree where the libjpeg is the same, as in
all Pillow wheels of one version.
"""

import enum
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.storage import current_limits, too_large
from qbench.subjects.dataset import Array

if TYPE_CHECKING:
    from PIL import Image

Pixels = npt.NDArray[np.uint8]
Triple = tuple[float, float, float]


class Interpolation(enum.Enum):
    """The filter that resizing uses, by Pillow's names."""

    NEAREST = "nearest"
    BOX = "box"
    BILINEAR = "bilinear"
    HAMMING = "hamming"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Layout(enum.Enum):
    """The axis of the channels in the feed."""

    NCHW = "nchw"
    NHWC = "nhwc"


class Channels(enum.Enum):
    """The order of the colours in the feed."""

    RED_FIRST = "rgb"
    BLUE_FIRST = "bgr"


@dataclass(frozen=True, slots=True, eq=False)
class Crop:
    """A square that a fully convolutional network takes as it is: (side, side, 3) uint8,
    neither resized nor cut.
    """

    pixels: Pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The preprocessing of a picture network; the defaults are torchvision's for ImageNet.

    Args:
        resize: pixels of the shorter side after resizing.
        crop: pixels of the square that is cut from the centre.
        divisor, mean, std: see the formula; mean and std per channel, red first.
        layout, channels: of the feed.
        input: the graph's input.
    """

    resize: int = 256
    crop: int = 224
    interpolation: Interpolation = Interpolation.BILINEAR
    divisor: float = 255.0
    mean: Triple = (0.485, 0.456, 0.406)
    std: Triple = (0.229, 0.224, 0.225)
    layout: Layout = Layout.NCHW
    channels: Channels = Channels.RED_FIRST
    input: str = "x"

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise ValueError(f"a crop of {self.crop} pixels out of {self.resize}")
        numbers = (self.divisor, *self.mean, *self.std)
        if (
            not np.isfinite(numbers).all()
            or 0 in (self.divisor, *self.std)
            or (len(self.mean), len(self.std)) != (3, 3)
        ):
            raise ValueError(
                "mean and std have to be three finite numbers each, and no divisor may be 0"
            )

    @property
    def name(self) -> str:
        """Every setting in one line."""
        mean, std = (",".join(repr(float(v)) for v in values) for values in (self.mean, self.std))
        order = "" if self.channels is Channels.RED_FIRST else f" {self.channels.value}"
        return (
            f"picture(resize={self.resize} {self.interpolation.value} crop={self.crop} "
            f"divisor={float(self.divisor)!r} mean={mean} std={std} {self.layout.value}{order} "
            f"input={self.input})"
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Pictures, and crops that are used as they are."""
        return ("picture", "crop")

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - pixels or a Crop, by the data's kind
        """(H, W, 3) uint8 → the input as (crop, crop, 3) uint8; a ``Crop`` → its own pixels."""
        from PIL import Image

        if isinstance(sample, Crop):
            return {self.input: sample.pixels}
        return {
            self.input: self._square(
                Image.fromarray(sample), Image.Resampling[self.interpolation.name]
            )
        }

    def mask(self, classes: Array) -> Array:
        """The mask (H, W) uint8 or uint16 of a picture → that of the square that the picture
        becomes, (crop, crop).
        """
        from PIL import Image

        # 32-bit integers: Pillow resizes those of 16 bits by some versions only
        square = self._square(Image.fromarray(classes.astype(np.int32)), Image.Resampling.NEAREST)
        return square.astype(classes.dtype)

    def _square(self, picture: "Image.Image", resampling: "Image.Resampling") -> Array:
        """The picture resized and cut."""
        width, height = picture.size
        short = min(width, height)
        size = (max(1, width * self.resize // short), max(1, height * self.resize // short))
        require_pixels(f"Resizing a picture of {width} × {height} by resize={self.resize}", *size)
        if size != picture.size:
            picture = picture.resize(size, resampling)
        left, top = (round((side - self.crop) / 2) for side in size)
        return np.asarray(picture.crop((left, top, left + self.crop, top + self.crop)))

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """(n, crop, crop, 3) uint8 → float32 in ``layout``."""
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        feed = (batch[self.input].astype(np.float32) / np.float32(self.divisor) - mean) / std
        if self.channels is Channels.BLUE_FIRST:
            feed = feed[..., ::-1]
        return {
            self.input: np.ascontiguousarray(feed.transpose(0, 3, 1, 2))
            if self.layout is Layout.NCHW
            else np.ascontiguousarray(feed)
        }


def require_pixels(doing: str, width: int, height: int) -> None:
    """Check that a picture of ``width`` × ``height`` is small enough to be made, before it is.

    Raises:
        InputError: it has more pixels than ``SizeLimits.pixels``.
    """
    if width * height > current_limits().pixels:
        raise too_large(doing, f"a picture ({width} × {height})", width * height, "pixels")


def decode_picture(data: bytes, name: str) -> Pixels:
    """The picture in a file's bytes as (H, W, 3) uint8 RGB; transparency is dropped, the EXIF
    orientation ignored.

    Raises:
        InputError: it is not a picture that Pillow reads, or it is incomplete; ``name`` is its name
            in the error.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as picture:
            require_pixels(f"Decoding the picture '{name}'", *picture.size)
            return np.asarray(picture.convert("RGB"))
    except (
        UnidentifiedImageError,
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
    ) as error:
        found = "an unknown format" if isinstance(error, UnidentifiedImageError) else str(error)
        raise InputError(
            f"Decoding the picture '{name}'",
            found=found,
            expected="a complete picture in a format that Pillow reads",
            remedy="Repair the file or remove it.",
        ) from error
