"""Labelled pictures of two Debian packages: photographs cut out of their background, and
photographs of a game.
"""

import functools
import io
from typing import TYPE_CHECKING

from qbench.subjects import DebianPackage, open_member
from qbench_zoo.readers.qt_resources import read_qt_resources

if TYPE_CHECKING:
    from qbench.subjects import Pixels


# Photographs cut out of their background, of a drawing program for children, labelled with
# ImageNet's classes.
#
# Each is laid on a white square with a margin of 15 %: side = round(longer side · 1.3). Labels were
# given by the file names and one look at all of them, so that a few can be argued about; the first
# is the best, any counts as right.

_FOLDER = "usr/share/tuxpaint/stamps/"
_MARGIN = 0.15
_TABLE = """
    animals/amphibians/frog-1 30/31/32; animals/amphibians/frog 30/31/32;
    animals/birds/albino_peahen 84; animals/birds/chicken_profile 8/7; animals/birds/drake 97;
    animals/birds/duck 97; animals/birds/gander 99; animals/birds/hen 8; animals/birds/rooster 7;
    animals/birds/magpie 18; animals/birds/ostrich 9; animals/birds/owl 24;
    animals/birds/peacock 84; animals/birds/pelican 144; animals/birds/penguin 145;
    animals/birds/little-penguin 145; animals/birds/magellanic_penguin 145;
    animals/birds/pink_flamingo 130; animals/birds/rainbow-lorikeet 90; animals/birds/tucan 96;
    animals/birds/vulture 23; animals/birds/heron_greatblue 131; animals/birds/crowned_crane 134;
    animals/fish/clownfish 393; animals/fish/lionfish 396; animals/fish/lobster 122/123;
    animals/insects/Brown_slug 114; animals/insects/Woodlouse 126; animals/insects/bee 309;
    animals/insects/fly 308; animals/insects/hoverfly 308; animals/insects/grasshopper 311;
    animals/insects/mantis 315; animals/lizards/iguana 39; animals/mammals/apes/chimp 367;
    animals/mammals/apes/gorilla 366; animals/mammals/apes/tamarin_emperor 377;
    animals/mammals/aquatic/orca 148; animals/mammals/aquatic/otter 360;
    animals/mammals/aquatic/sea_lion 150; animals/mammals/aquatic/whale 147;
    animals/mammals/badger 362; animals/mammals/bears/bear 294;
    animals/mammals/bears/european-bear 294; animals/mammals/bears/toys/edward_bear 850;
    animals/mammals/bovines/bison 347; animals/mammals/bovines/bull 345;
    animals/mammals/bovines/cow 345; animals/mammals/bovines/cow_white 345;
    animals/mammals/bovines/mountaingoat 350; animals/mammals/bovines/ram 348/349;
    animals/mammals/bovines/indian_blackbuck 353/352; animals/mammals/bovines/zebu 345;
    animals/mammals/camel/camel 354; animals/mammals/camel/dromedary 354;
    animals/mammals/cats/lion-2 291; animals/mammals/cats/lion 291; animals/mammals/cats/tiger 292;
    animals/mammals/cats/tiger_sumatran 292; animals/mammals/dogs/dingo 273;
    animals/mammals/dogs/fox 277; animals/mammals/echidna 102; animals/mammals/elephant 386/385/101;
    animals/mammals/equines/horse 339; animals/mammals/equines/zebra 340;
    animals/mammals/ferret 359/358; animals/mammals/hippopotamus 344; animals/mammals/pig 341;
    animals/mammals/pig_golden 719; animals/mammals/pig_golden2 719;
    animals/mammals/rodents/beaver 337; animals/mammals/rodents/marmot 336;
    animals/mammals/rodents/rabbit 331/330; animals/mammals/rodents/rabbit-2 331/330;
    animals/mammals/rabbit_little 331/330; animals/mammals/rodents/squirrel 335;
    animals/mammals/wildboar 342; animals/marsupials/kangaroo 104; animals/marsupials/koala 105;
    animals/marsupials/wombat 106; food/fruit/apple_granny_smith 948; food/fruit/apple_green 948;
    food/fruit/Strawberry2 949; food/fruit/strawberry 949; food/fruit/banana 954;
    food/fruit/cherimoya 956; food/fruit/lemon 951; food/fruit/orange 950;
    food/fruit/orange_seville 950; food/fruit/sliced_orange 950; food/fruit/mandarine 950;
    food/fruit/pineapple 953; food/fruit/pomegranate 957; food/pizza 963;
    food/vegetables/broccoli 937; food/vegetables/corn 987/998; food/vegetables/mushroom 947;
    food/vegetables/pepper 945; food/vegetables/yellowpepper 945; vehicles/auto/sportscar2 817;
    vehicles/cycle/pink_tricycle 870; vehicles/emergency/firetruck 555;
    vehicles/emergency/sedan_police 734; vehicles/flight/balloon360 417;
    vehicles/flight/planes/747 404; vehicles/garbagetruck 569;
    vehicles/masstransit/green_korean_bus 874/654/779; vehicles/race/indycar 751;
    vehicles/ship/chineseJunk 724/780; vehicles/wheel_tractor 866; vehicles/7spoke256 479;
    household/dishes/mug 504; household/dishes/pitcher_small 725; household/dishes/teapot 849;
    household/garbagecan 412; household/wheelie_bin 412; household/home_compost_bin 412;
    household/toilet 861; household/tools/hammer 587; household/tools/mallet_metal 587;
    household/tools/spade 792; household/tools/paintbrush_large 696; household/tools/toolbox 477;
    hobbies/binoculars 447; hobbies/camera_35mm 759; hobbies/music/brass/trumpet 513;
    hobbies/music/percussion/drum_tomtom_floor 541; hobbies/music/percussion/drumkit 541;
    hobbies/music/string/cello 486; hobbies/music/string/guitar2 402;
    hobbies/music/string/guitar_classical 402; hobbies/music/string/guitar_electric 546;
    hobbies/music/string/guitar_electric_bass 546; hobbies/music/string/violin 889;
    hobbies/music/wind/bassoon 432; clothes/hats/blue_fedora 515; clothes/hats/green_fedora 515;
    clothes/hats/sombrero 808; clothes/t_pants 608; clothes/t_sock 806; clothes/t_tshirt 610;
    clothes/t_shirt 610; plants/mushrooms/cep-1 997; plants/mushrooms/cep-2 997;
    plants/mushrooms/cep 997; sports/basketball 430; sports/soccer 805; sports/tennis_ball 852;
    sports/tennis_racket 752;
"""
STAMP_LABELS: dict[str, tuple[int, ...]] = {
    path: tuple(int(label) for label in labels.split("/"))
    for path, _, labels in (
        entry.strip().rpartition(" ") for entry in _TABLE.split(";") if entry.strip()
    )
}
"""Path in the package without folder and ending → classes."""

STAMPS = DebianPackage(
    name="tuxpaint-stamps-default",
    version="2022.06.04-1",
    sha256="901bbc1b1ab43b3446ab0bc99532e8b93b1865c239fd7ddd829d31acd87b800b",
    size=160_880_444,
    wanted=tuple(f"{_FOLDER}{path}.png" for path in STAMP_LABELS),
)
"""GPL-2."""


def stamp_pixels(path: str) -> "Pixels":
    """The stamp called ``path`` on white: (side, side, 3) uint8."""
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(open_member(STAMPS, f"{_FOLDER}{path}.png"))) as picture:
        cut = picture.convert("RGBA")
    longer = max(cut.size)
    side = round(longer * (1 + 2 * _MARGIN))
    white = Image.new("RGBA", (side, side), (255, 255, 255, 255))
    white.alpha_composite(cut, ((side - cut.width) // 2, (side - cut.height) // 2))
    return np.asarray(white.convert("RGB"), dtype=np.uint8)


# Photographs out of a children's game, labelled with ImageNet's classes by the names of their
# files.
#
# They lie in Qt resource files; a file that starts with a word of the table has the labels of that
# word, the best first, any counts as right. Drawings, and photographs of what ImageNet has no class
# for, are left out by the table.

_GAME_PHOTOS_FOLDER = "usr/share/gcompris-qt/rcc/"
GAME_LABELS: dict[str, dict[str, tuple[int, ...]]] = {
    "categorization.rcc": {
        "hammer": (587,),
        "screwDriver": (784,),
        "dam": (525,),
        "solar": (807,),
        "baseball": (429,),
        "volleyball": (890,),
        "pillow": (721,),
        "pan": (567,),
        "plate": (923,),
        "cup": (968, 504),
        "bucket": (463,),
        "erasers": (767,),
    },
    "explore_farm_animals.rcc": {
        "cow": (345,),
        "cat": (281, 282, 285),
        "chicken": (8, 7),
        "horse": (339,),
        "duck": (97,),
        "pig": (341,),
        "sheep": (348,),
    },
    "explore_world_animals.rcc": {
        "crocodile": (49, 50),
        "koala": (105,),
        "bison": (347,),
        "dragon": (48,),
        "jaguar": (290,),
        "kangaroo": (104,),
        "panda": (388,),
        "chameleon": (47,),
        "lemur": (383,),
        "polar_bear": (296,),
        "scarlet_macaw": (88,),
    },
}
"""Resource file → first word of a picture's name → classes."""

GAME_PHOTOS = DebianPackage(
    name="gcompris-qt-data",
    version="3.1-2",
    sha256="2c1a5f65a1eb46b227a15ae49c2e090844f9954e2c4ba786d8848435df9c1489",
    size=44_196_292,
    wanted=tuple(f"{_GAME_PHOTOS_FOLDER}{name}" for name in GAME_LABELS),
)
"""One by one CC-BY, CC-BY-SA, CC0, public domain or GPL-3."""


def labelled_paths() -> dict[tuple[str, str], tuple[int, ...]]:
    """(resource file, path in it) of every labelled photograph, in order → classes."""
    return {
        (file, path): labels
        for file, words in GAME_LABELS.items()
        for path in sorted(_resources(file))
        if path.endswith(".webp") and (labels := _labels(path, words)) is not None
    }


def game_photo_pixels(file: str, path: str) -> "Pixels":
    """(H, W, 3) uint8."""
    from qbench.subjects import decode_picture

    return decode_picture(_resources(file)[path], f"{file}:{path}")


def _labels(path: str, words: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    name = path.rpartition("/")[2]
    return next((labels for word, labels in words.items() if name.startswith(word)), None)


@functools.cache
def _resources(file: str) -> dict[str, bytes]:
    return read_qt_resources(open_member(GAME_PHOTOS, f"{_GAME_PHOTOS_FOLDER}{file}"), file)
