"""The range methods that can be named."""

import inspect
import re
from collections.abc import Callable, Iterable

from qbench.calibration.ranges.entropy import Entropy
from qbench.calibration.ranges.glow import GlowKl
from qbench.calibration.ranges.least_error import Lp, Mse
from qbench.calibration.ranges.method import RangeMethod
from qbench.calibration.ranges.minmax import Fixed, MinMax, MovingAverage, Percentile, Sigma
from qbench.calibration.ranges.onnxruntime import OrtEntropy, OrtPercentile
from qbench.calibration.ranges.torch import TorchHistogram
from qbench.calibration.ranges.tqt import Tqt3Sd, TqtKlJ
from qbench.calibration.ranges.tvm import TvmGlobal, TvmKl, TvmPercentile
from qbench.errors import InputError
from qbench.extension import Catalogue, Extension, known_extensions

_CALL = re.compile(r"([a-z][a-z0-9_.-]*)(?:\((.*)\))?")
_OWN: dict[str, Callable[..., RangeMethod]] = {
    "entropy": Entropy,
    "fixed": Fixed,
    "glow_kl": GlowKl,
    "lp": Lp,
    "minmax": MinMax,
    "moving_average": MovingAverage,
    "mse": Mse,
    "ort_entropy": OrtEntropy,
    "ort_percentile": OrtPercentile,
    "percentile": Percentile,
    "sigma": Sigma,
    "torch_histogram": TorchHistogram,
    "tqt_3sd": Tqt3Sd,
    "tqt_klj": TqtKlJ,
    "tvm_global": TvmGlobal,
    "tvm_kl": TvmKl,
    "tvm_percentile": TvmPercentile,
}


def range_method_catalogue(
    extensions: Iterable[Extension] = (),
) -> Catalogue[RangeMethod | Callable[..., RangeMethod]]:
    """Name → a method, or what makes one from its settings; our own and those of ``extensions``."""
    table = {name: _given(maker) for name, maker in _OWN.items()}
    own: Catalogue[RangeMethod | Callable[..., RangeMethod]] = Catalogue("range_method", table)
    return own.extended(extensions)


_BY_VALUES = (Fixed, MinMax, MovingAverage, OrtPercentile, Percentile, Sigma)


def counts_codes(method: RangeMethod) -> bool:
    """Whether ``method`` may look at the codes of the type, as those do that weigh errors; one of
    an extension may.
    """
    return not isinstance(method, _BY_VALUES)


def get_range_method(text: str, extensions: Iterable[Extension] | None = None) -> RangeMethod:
    """The range method that ``text`` spells; ``extensions`` are the installed ones unless given.

    Raises:
        InputError: no such method (the nearest name is suggested), or settings that it does not
            take.
    """
    doing = f"Reading the range method '{text}'"
    match = _CALL.fullmatch(text.strip())
    if match is None:
        raise InputError(
            doing,
            found="no name with settings in brackets",
            expected="as in 'minmax' or 'percentile(99.9)'",
            remedy="Spell it like this.",
        )
    known = range_method_catalogue(known_extensions() if extensions is None else extensions)
    made = known.get(match[1], doing=doing)
    positional, named = _settings(doing, match[2] or "")
    if isinstance(made, RangeMethod) and not isinstance(made, type):
        if positional or named:
            raise InputError(
                doing,
                found="settings",
                expected="none, for it takes none",
                remedy="Leave them out.",
            )
        return made
    signature = inspect.signature(made)
    takes = ", ".join(signature.parameters) or "none"
    expected = f"the settings that '{match[1]}' takes ({takes})"
    try:
        signature.bind(*positional, **named)
        method = made(*positional, **named)
    except TypeError as error:
        raise InputError(
            doing,
            found=f"settings that do not fit ({error})",
            expected=expected,
            remedy="Correct them.",
        ) from None
    except ValueError as error:
        raise InputError(
            doing, found=str(error), expected=expected, remedy="Correct its settings."
        ) from error
    if not isinstance(method, RangeMethod):
        raise InputError(
            doing,
            found=f"that '{known.owner(match[1])}' makes a {type(method).__name__} of it",
            expected="a range method",
            remedy="Let the extension give a value with of_distribution and of_rows.",
        )
    return method


def _given(maker: Callable[..., RangeMethod]) -> Callable[[], Callable[..., RangeMethod]]:
    return lambda: maker


def _settings(doing: str, text: str) -> tuple[list[int | float], dict[str, int | float]]:
    positional: list[int | float] = []
    named: dict[str, int | float] = {}
    for part in (piece.strip() for piece in text.split(",")) if text.strip() else ():
        name, equals, value = part.rpartition("=")
        try:
            number = int(value) if re.fullmatch(r"\s*[+-]?\d+\s*", value) else float(value)
        except ValueError:
            raise InputError(
                doing,
                found=f"the setting '{part}'",
                expected="numbers",
                remedy="Give numbers, as in 'sigma(k=2)'.",
            ) from None
        if not equals:
            positional.append(number)
        elif name.strip() in named:
            raise InputError(
                doing,
                found=f"'{name.strip()}' twice",
                expected="each once",
                remedy="Leave one out.",
            )
        else:
            named[name.strip()] = number
    return positional, named
