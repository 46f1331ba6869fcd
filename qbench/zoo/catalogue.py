"""The zoo by name: models and data sets, ours and those of extensions; nothing is loaded until a name is used.

A factory here imports the file that makes its entry, so that listing names costs no import of a network.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.zoo.file_wheels import CALIBRATION, MORE, SCORED
from qbench.zoo.packages import (
    CMUDICT,
    EFFICIENTNET_LITE0,
    FASHION_MNIST,
    FOOLBOX,
    G2P_EN,
    IMGAUG,
    MAGIKA,
    MATPLOTLIB,
    MOBILENET_WEIGHTS,
    RESEMBLYZER,
    SCIKIT_IMAGE,
    SCIKIT_LEARN,
    VOICES,
)
from qbench.zoo.pinned import Pinned

if TYPE_CHECKING:
    from qbench.zoo.dataset import Dataset
    from qbench.zoo.model import ZooModel


def _mobilenet_v2() -> "ZooModel":
    from qbench.zoo.image_models import mobilenet_v2

    return mobilenet_v2()


def _efficientnet_lite0() -> "ZooModel":
    from qbench.zoo.image_models import efficientnet_lite0

    return efficientnet_lite0()


def _digits_cnn() -> "ZooModel":
    from qbench.zoo.digits import digits_cnn

    return digits_cnn()


def _fashion_preact() -> "ZooModel":
    from qbench.zoo.fashion import fashion_preact

    return fashion_preact()


def _fashion_mobile() -> "ZooModel":
    from qbench.zoo.fashion import fashion_mobile

    return fashion_mobile()


def _g2p_en() -> "ZooModel":
    from qbench.zoo.pronunciation import g2p_en

    return g2p_en()


def _magika() -> "ZooModel":
    from qbench.zoo.magika import magika_model

    return magika_model()


def _resemblyzer() -> "ZooModel":
    from qbench.zoo.voices import resemblyzer

    return resemblyzer()


def _imagenet_photos() -> "Dataset":
    from qbench.zoo.photos import imagenet_photos

    return imagenet_photos()


def _photo_crops() -> "Dataset":
    from qbench.zoo.photos import photo_crops

    return photo_crops()


def _photo_crops_128() -> "Dataset":
    from qbench.zoo.photos import photo_crops_128

    return photo_crops_128()


def _calibration_photos() -> "Dataset":
    from qbench.zoo.photos import calibration_photos

    return calibration_photos()


def _calibration_crops() -> "Dataset":
    from qbench.zoo.photos import calibration_crops

    return calibration_crops()


def _digits_test() -> "Dataset":
    from qbench.zoo.digits import digits_test

    return digits_test()


def _digits_train() -> "Dataset":
    from qbench.zoo.digits import digits_train

    return digits_train()


def _fashion_test() -> "Dataset":
    from qbench.zoo.fashion import fashion_test

    return fashion_test()


def _fashion_calibration() -> "Dataset":
    from qbench.zoo.fashion import fashion_calibration

    return fashion_calibration()


def _magika_files() -> "Dataset":
    from qbench.zoo.files import magika_files

    return magika_files()


def _magika_files_all() -> "Dataset":
    from qbench.zoo.files import magika_files_all

    return magika_files_all()


def _magika_calibration() -> "Dataset":
    from qbench.zoo.files import magika_calibration

    return magika_calibration()


def _cmudict_words() -> "Dataset":
    from qbench.zoo.words import cmudict_words

    return cmudict_words()


def _cmudict_words_all() -> "Dataset":
    from qbench.zoo.words import cmudict_words_all

    return cmudict_words_all()


def _cmudict_calibration() -> "Dataset":
    from qbench.zoo.words import cmudict_calibration

    return cmudict_calibration()


def _voices() -> "Dataset":
    from qbench.zoo.voices import voices

    return voices()


def _voices_calibration() -> "Dataset":
    from qbench.zoo.voices import voices_calibration

    return voices_calibration()


_MODELS: Mapping[str, Callable[[], "ZooModel"]] = {
    "mobilenet_v2": _mobilenet_v2,
    "efficientnet_lite0": _efficientnet_lite0,
    "digits_cnn": _digits_cnn,
    "fashion_preact": _fashion_preact,
    "fashion_mobile": _fashion_mobile,
    "g2p_en": _g2p_en,
    "magika": _magika,
    "resemblyzer": _resemblyzer,
}
_DATASETS: Mapping[str, Callable[[], "Dataset"]] = {
    "imagenet_photos": _imagenet_photos,
    "photo_crops": _photo_crops,
    "photo_crops_128": _photo_crops_128,
    "calibration_photos": _calibration_photos,
    "calibration_crops": _calibration_crops,
    "digits_test": _digits_test,
    "digits_train": _digits_train,
    "fashion_test": _fashion_test,
    "fashion_calibration": _fashion_calibration,
    "magika_files": _magika_files,
    "magika_files_all": _magika_files_all,
    "magika_calibration": _magika_calibration,
    "cmudict_words": _cmudict_words,
    "cmudict_words_all": _cmudict_words_all,
    "cmudict_calibration": _cmudict_calibration,
    "voices": _voices,
    "voices_calibration": _voices_calibration,
}
_CALIBRATION_PICTURES = (IMGAUG, SCIKIT_IMAGE, SCIKIT_LEARN, MATPLOTLIB)
_PACKAGES: Mapping[str, tuple[Pinned, ...]] = {
    "mobilenet_v2": (MOBILENET_WEIGHTS,),
    "efficientnet_lite0": (EFFICIENTNET_LITE0,),
    "imagenet_photos": (FOOLBOX,),
    "photo_crops": (FOOLBOX,),
    "photo_crops_128": (FOOLBOX,),
    "calibration_photos": _CALIBRATION_PICTURES,
    "calibration_crops": _CALIBRATION_PICTURES,
    "g2p_en": (G2P_EN,),
    "magika": (MAGIKA,),
    "digits_test": (SCIKIT_LEARN,),
    "digits_train": (SCIKIT_LEARN,),
    "fashion_test": (FASHION_MNIST,),
    "fashion_calibration": (FASHION_MNIST,),
    "magika_files": (MAGIKA, *SCORED, *CALIBRATION),
    "magika_files_all": (MAGIKA, *SCORED, *MORE, *CALIBRATION),
    "magika_calibration": (MAGIKA, *CALIBRATION),
    "cmudict_words": (CMUDICT,),
    "cmudict_words_all": (CMUDICT,),
    "cmudict_calibration": (CMUDICT,),
    "resemblyzer": (RESEMBLYZER,),
    "voices": VOICES,
    "voices_calibration": VOICES,
}


def model_catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[ZooModel]":
    """The zoo's models and those of ``extensions``."""
    return Catalogue("model", _MODELS).extended(extensions)


def dataset_catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Dataset]":
    """The zoo's data sets and those of ``extensions``."""
    return Catalogue("dataset", _DATASETS).extended(extensions)


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
    return tuple(dict.fromkeys(package for name in names for package in _PACKAGES.get(name, ())))
