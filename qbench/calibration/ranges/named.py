"""The range methods that can be asked for by name: one file each in this room, and those of extensions."""

from collections.abc import Iterable

from qbench.calibration.ranges.method import RangeMethod
from qbench.calibration.ranges.minmax import MinMax
from qbench.extension import Catalogue, Extension, installed_extensions


def catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[RangeMethod]:
    """Our own methods and those of ``extensions``."""
    own: Catalogue[RangeMethod] = Catalogue("range_method", {"minmax": MinMax})
    return own.extended(extensions)


def get_range_method(name: str) -> RangeMethod:
    """The range method called ``name``, installed extensions included.

    Raises:
        InputError: no such method; the nearest name is suggested.
    """
    return catalogue(installed_extensions()).get(name)
