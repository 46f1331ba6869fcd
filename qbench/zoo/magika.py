"""Magika: what a file holds, told by one network from its first and last bytes.

    bytes → [first 4,096, blanks stripped on the left, first 1,024; padding behind]
          ⧺ [last 4,096, blanks stripped on the right, last 1,024; padding before]      tokens 0 … 255, padding 256

The network and its classes are the package's own (``standard_v3_3``); its rules that overrule the network by
thresholds are left out: what is judged is the network.
"""

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.graph import load_model
from qbench.storage import Cache, write_bytes
from qbench.zoo.assets import open_member
from qbench.zoo.model import ZooModel
from qbench.zoo.packages import MAGIKA
from qbench.zoo.preprocess import Array
from qbench.zoo.tasks import Classification

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
    return tuple(json.loads(open_member(MAGIKA, f"{_FOLDER}/config.min.json"))["target_labels_space"])


def _graph() -> ir.Model:
    model = open_member(MAGIKA, f"{_FOLDER}/model.onnx")
    path = Cache.default().entry("unpacked", f"{MAGIKA.sha256}-model.onnx", lambda path: write_bytes(path, model))
    return load_model(path)
