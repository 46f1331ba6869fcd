"""The errors of qbench: one sentence of four parts instead of a traceback."""

import numbers
from collections.abc import Iterable

_SHOWN = 40
"""Characters of a value that a message shows; of a longer one it names the type."""


class QbenchError(Exception):
    """What was being done with which named thing; what was found; what was expected; what to do.

    ``exit_code`` is the exit code of a command line that ends with this error.
    """

    exit_code = 2

    def __init__(self, doing: str, *, found: str, expected: str, remedy: str) -> None:
        super().__init__(doing, found, expected, remedy)
        self.doing = doing
        self.found = found
        self.expected = expected
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.doing}: found {self.found}; expected {self.expected}. {self.remedy}"


class InputError(QbenchError):
    """An input is wrong: a suite, a model, data, a name, a file.

    It is no ``ValueError``: parsers of arguments, TOML and JSON take a ``ValueError`` for "text of
    another form" and word it anew, so that its four parts would be lost. ``except
    qbench.errors.InputError`` catches it.
    """


class UnsupportedError(QbenchError):
    """A backend or a schema does not support a cell: the cell is skipped with this reason."""


class UnavailableError(QbenchError):
    """A package, an asset or an engine is not available on this machine now."""


class NotFetchedError(UnavailableError):
    """A package could not be downloaded, or is not installed: the cells that need it are
    skipped with this reason.
    """


class StoreError(QbenchError):
    """A file or folder of qbench could not be read or written: full disk, read-only, damaged."""


class DamagedError(StoreError):
    """A file that qbench wrote is damaged: incomplete, of another format, or its digest does
    not match.
    """


class IncomparableError(QbenchError):
    """Two results cannot be compared."""

    exit_code = 3


class IncompleteError(QbenchError):
    """A run ended early, so its results are not complete."""

    exit_code = 4


def require_count(doing: str, name: str, count: object) -> None:
    """Check that ``count``, of ``name`` such as ``threads``, is a whole number from 1.

    Raises:
        InputError: it is not.
    """
    if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
        raise InputError(
            doing,
            found=f"{name}={count!r}",
            expected="a whole number from 1",
            remedy=f"Give another number of {name}, or leave it out.",
        )


def require_type(
    doing: str, value: object, kind: type | tuple[type, ...], *, expected: str, remedy: str
) -> None:
    """Check that ``value``, an argument of a public function, is of ``kind``, which
    ``expected`` says in words.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, kind):
        shown = repr(value)
        found = shown if len(shown) <= _SHOWN else f"something of type {type(value).__name__}"
        raise InputError(doing, found=found, expected=expected, remedy=remedy)


def refused_by_system(doing: str, error: OSError | MemoryError | RecursionError) -> StoreError:
    """The error for a refusal of the operating system: a file, a descriptor, memory, the stack."""
    found = (
        error.strerror
        if isinstance(error, OSError) and error.strerror
        else f"{type(error).__name__}: {error}"
    )
    where = f" ('{error.filename}')" if isinstance(error, OSError) and error.filename else ""
    return StoreError(
        doing,
        found=f"{found}{where}",
        expected="readable files, room on the disk, and memory and open files enough",
        remedy="Check what is named, the disk and 'ulimit -a', then run the same command again.",
    )


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name closest in spelling to ``name``, or None when nothing is close: ``cutoff``
    in 0 … 1.
    """
    import difflib  # only a mistake needs it

    names = list(known)
    exchanged = [one for one in names if sorted(one) == sorted(name)]  # maxmin for minmax
    matches = difflib.get_close_matches(name, names, n=1, cutoff=cutoff) or exchanged
    return matches[0] if matches else None


def unknown_name(
    doing: str,
    kind: str,
    name: str,
    known: Iterable[str],
    preferred: Iterable[str] = (),
    *,
    first: Iterable[str] = (),
    meant: str | None = None,
) -> InputError:
    """An error for a name that is not in a catalogue, suggesting the nearest that is.

    Args:
        preferred: the user's own names among the ``known``: one of them is suggested unless another
            is nearly equal.
        first: those of the ``known`` that are listed before the others, in this order.
        meant: what people mean who call it ``name``; None: not known.
    """
    names, own = sorted(known), sorted(preferred)
    close = meant or nearest(name, names, cutoff=0.85) or nearest(name, own) or nearest(name, names)
    shown = list(dict.fromkeys((*own, *first, *names)))
    listed = ", ".join(shown[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
    remedy = (
        f"Did you mean '{close}'?" if close else f"Choose one of: {listed or 'none are known'}."
    )
    return InputError(
        doing,
        found=f"unknown {kind} '{name}'",
        expected=f"one of the {len(names)} that are known",
        remedy=remedy,
    )
