"""A decoder that was trained here on WordNet's definitions, and windows of definitions that it has
not read.

A sample is a window of 256 tokens of one document, its first or its second. Every second of the
scored documents is taken, so that 81 documents give 162 windows; windows of one document are not
independent of each other, and intervals draw whole documents.
"""

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.errors import InputError
from qbench.storage import current_limits, read_archive
from qbench.subjects import (
    Array,
    CausalLanguageModel,
    Dataset,
    DecoderForm,
    GreedyText,
    ZooModel,
    decoder_form,
)
from qbench_zoo.byte_pairs import BytePairMerges
from qbench_zoo.gloss_texts import calibration_documents, documents, scored_documents
from qbench_zoo.networks.decoder import DecoderSize, build_decoder
from qbench_zoo.packages import WORDNET

WINDOW = 256
"""Tokens of a sample."""
_WINDOWS = (0, 1)
"""Windows of a document."""
_WEIGHTS = "gloss_decoder.npz"
DIGEST = "a01d131e1f4cd5d3cc270c81981628ac2238566ff88ae144d15a54eb50685081"
"""Of the file of weights."""
_MERGES = "merges"
_CALIBRATION = 24
_RUN_TOKENS = 64
_WRITTEN = 64
"""Tokens that are written behind a window."""


def read_decoder(stored: bytes) -> tuple[BytePairMerges, dict[str, Array]]:
    """The tokenizer and the parameters of a decoder's file.

    Raises:
        InputError: the file has no tokenizer.
    """
    arrays = dict(read_archive(stored, most=current_limits().tensor_bytes))
    merges = arrays.pop(_MERGES, None)
    if merges is None:
        raise InputError(
            "Reading the tokenizer of 'gloss_decoder'",
            found=f"no array '{_MERGES}' in the file of its weights",
            expected="the pairs of its vocabulary, (pairs, 2)",
            remedy="Train it again: python -m qbench_zoo.training.decoder OUT.npz.",
        )
    return BytePairMerges(tuple((int(a), int(b)) for a, b in merges)), arrays


@functools.cache
def read_weights() -> tuple[BytePairMerges, dict[str, Array]]:
    """What was trained, out of the file that is part of the package.

    Raises:
        InputError: it is another file.
    """
    stored = files("qbench_zoo").joinpath("weights", _WEIGHTS).read_bytes()
    found = hashlib.sha256(stored).hexdigest()
    if found != DIGEST:
        raise InputError(
            "Reading the weights of 'gloss_decoder'",
            found=f"a file with the digest {found[:12]}…",
            expected=f"{DIGEST[:12]}…, the file that was trained",
            remedy="Install qbench-zoo again.",
        )
    return read_decoder(stored)


@functools.cache
def _tokens(text: str) -> tuple[int, ...]:
    return tuple(read_weights()[0].encode(text))


@dataclass(frozen=True, slots=True)
class WindowOfText:
    """A document and the number of a window → ``input_ids`` (256,) uint16."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"byte pairs of gloss_decoder, windows of {WINDOW}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """A text with a number."""
        return ("text window",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a text and a number
        """The tokens of the window.

        Raises:
            InputError: the document has fewer.
        """
        text, number = sample
        tokens = _tokens(text)[WINDOW * number : WINDOW * (number + 1)]
        if len(tokens) < WINDOW:
            raise InputError(
                f"Cutting window {number} out of a document",
                found=f"{len(_tokens(text))} tokens",
                expected=f"{WINDOW * (number + 1)} at least",
                remedy="Take a longer document, or an earlier window.",
            )
        return {"input_ids": np.array(tokens, np.uint16)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """int64, as the graph takes them."""
        return {name: array.astype(np.int64) for name, array in batch.items()}


def gloss_decoder() -> ZooModel:
    """The next token of a definition: 1,024 tokens, four layers, a cache."""
    return ZooModel(
        id="gloss_decoder",
        graphs={"model": _graph},
        preprocess=WindowOfText(),
        task=CausalLanguageModel(form=_form(), run_tokens=_RUN_TOKENS),
        origin="trained here on WordNet 3.0",
    )


def gloss_writer() -> ZooModel:
    """The same network, which writes on greedily behind the first half of each window."""
    return ZooModel(
        id="gloss_writer",
        graphs={"model": _graph},
        preprocess=WindowOfText(),
        task=GreedyText(form=_form(), limit=_WRITTEN),
        origin="trained here on WordNet 3.0",
    )


def gloss_windows() -> Dataset:
    """162 windows of 81 documents that did not train the decoder."""
    return _windows("gloss_windows", list(scored_documents())[::2])


def gloss_windows_few() -> Dataset:
    """54 of those, of 27 documents: what a baseline stores of a window takes 20 KB."""
    return _windows("gloss_windows_few", list(scored_documents())[::6])


def gloss_windows_calibration() -> Dataset:
    """48 windows of 24 others."""
    return _windows("gloss_windows_calibration", list(calibration_documents())[:_CALIBRATION])


def _windows(name: str, numbers: Iterable[int]) -> Dataset:
    places = [(number, window) for number in numbers for window in _WINDOWS]
    return Dataset(
        id=name,
        kind="text window",
        sample_ids=tuple(f"d{number}.{window}" for number, window in places),
        sources=tuple(f"wordnet:d{number}" for number, _ in places),
        labels=None,
        content=WORDNET.sha256,
        load=lambda index: (documents()[places[index][0]], places[index][1]),
    )


def _graph() -> ir.Model:
    return build_decoder(read_weights()[1])


@functools.cache
def _form() -> DecoderForm:
    """That of a network of the same layers and heads, whose parameters are all zero."""
    from qbench_zoo.networks.decoder import parameter_shapes

    size = DecoderSize(words=2, places=2, width=128)
    zeros = {name: np.zeros(shape, np.float32) for name, shape in parameter_shapes(size).items()}
    form = decoder_form(build_decoder(zeros, size), "gloss_decoder")
    return replace(form, words=DecoderSize().words)
