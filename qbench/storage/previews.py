"""Previews of samples next to the reports: one small file for each sample, written once.

    <reports>/previews/<12 digits of the data's digest>/<16 digits of the id's digest>.json

They are apart from run files, which teams share: a run file has the names and the answers of
samples, and what the samples look like stays where they were measured.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from qbench.storage.atomic import write_bytes
from qbench.storage.sample_limits import MOST_PREVIEW_BYTES, MOST_PREVIEWS, MOST_TEXT

PREVIEWS = "previews"
"""The folder of previews in that of the reports."""
_FORMAT = "qbench-preview/1"
_MOST_FILE = 2 * MOST_PREVIEW_BYTES + 8 * MOST_TEXT
"""Bytes of such a file; a larger one is none of ours."""
_MEDIA = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""How the files of pictures begin that are drawn: no other is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A raw sample in small.

    Args:
        text: what it is, or what it says: ``640 × 480 pixels``, a sentence, some numbers.
        picture: the bytes of a PNG or JPEG file; empty: it is told by the text alone.
        is_enlarged: whether the picture has so few pixels that a page shows it larger.
    """

    text: str
    picture: bytes = b""
    is_enlarged: bool = False

    @property
    def media_type(self) -> str:
        """Of the picture; empty: it is none that is drawn."""
        return next((kind for start, kind in _MEDIA.items() if self.picture.startswith(start)), "")

    @property
    def address(self) -> str:
        """The picture as a ``data:`` address, which needs no other file; empty: there is none."""
        if not self.media_type:
            return ""
        return f"data:{self.media_type};base64,{base64.b64encode(self.picture).decode('ascii')}"


def preview_path(reports: Path, digest: str, sample: str) -> Path:
    """Where the preview of ``sample`` of the data with ``digest`` is kept."""
    name = hashlib.sha256(sample.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    folder = "".join(letter for letter in digest[:12] if letter.isalnum()) or "none"
    return reports / PREVIEWS / folder / f"{name}.json"


def has_preview(reports: Path, digest: str, sample: str) -> bool:
    """Whether the preview is there, or no more of this data are kept."""
    path = preview_path(reports, digest, sample)
    try:
        return path.is_file() or (
            path.parent.is_dir() and sum(1 for _ in path.parent.iterdir()) >= MOST_PREVIEWS
        )
    except OSError:  # who writes it is told why
        return False


def keep_preview(reports: Path, digest: str, sample: str, preview: Preview) -> None:
    """Write the preview.

    Raises:
        StoreError: the folder cannot be written.
    """
    path = preview_path(reports, digest, sample)
    table = {
        "format": _FORMAT,
        "text": preview.text,
        "picture": base64.b64encode(preview.picture).decode("ascii"),
        "is_enlarged": preview.is_enlarged,
    }
    write_bytes(path, f"{json.dumps(table)}\n".encode(), lasting=False)


def read_preview(reports: Path, digest: str, sample: str) -> Preview | None:
    """The preview; None: it was made nowhere, or elsewhere, or cannot be read."""
    path = preview_path(reports, digest, sample)
    try:
        if path.stat().st_size > _MOST_FILE:
            return None
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["format"] != _FORMAT:
            return None
        return Preview(
            text=str(table["text"]),
            picture=base64.b64decode(table["picture"], validate=True),
            is_enlarged=table["is_enlarged"] is True,
        )
    except (OSError, ValueError, KeyError, TypeError, binascii.Error, RecursionError):
        return None
