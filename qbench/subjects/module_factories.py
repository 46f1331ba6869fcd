"""Models that a function of the user makes, written ``module:factory``: a module of a library such
as PyTorch, with example inputs, exported as a graph.
"""

import functools
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import onnx_ir as ir

from qbench.errors import InputError, QbenchError
from qbench.extension import error_of_code, known_extensions
from qbench.graph import exporter_catalogue, own_copy

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_EXPECTED = "a pair of a module and its example inputs, such as (net, (torch.zeros(2, 3, 32, 32),))"
_PAIR = 2


def is_factory(text: str) -> bool:
    """Whether ``text`` is ``module:factory`` and no file."""
    return _FACTORY.fullmatch(text) is not None and not Path(text).exists()


def graph_of_factory(text: str) -> ir.Model:
    """The graph of the module that the function ``text`` returns, ``module:factory`` as Python
    finds it from the current folder; exported once in a process.

    Raises:
        InputError: no such module or function, it raises, or it returns something else.
        UnsupportedError: the module cannot be exported; the sentence names the operator.
        NotFetchedError: what exports it is not installed.
    """
    return own_copy(_exported(text, Path.cwd()))


@functools.cache
def _exported(text: str, folder: Path) -> ir.Model:
    doing = f"Exporting '{text}'"
    made: Any = _returned(text, folder, doing)
    if not isinstance(made, tuple) or len(made) != _PAIR:
        raise InputError(
            doing,
            found=f"that it returns a {type(made).__name__}",
            expected=_EXPECTED,
            remedy="Let the function return both.",
        )
    module, example = made
    known = exporter_catalogue(known_extensions())
    packages = {kind.__module__.partition(".")[0] for kind in type(module).__mro__}
    name = next((one for one in known.names() if one in packages), None)
    if name is None:
        raise InputError(
            doing,
            found=f"a {type(module).__name__}",
            expected=f"a module of {' or '.join(known.names()) or 'a library with an exporter'}",
            remedy="Return such a module, or export it yourself and name the ONNX file.",
        )
    return known.get(name).export(module, example, doing)


def _returned(text: str, folder: Path, doing: str) -> object:
    module, _, factory = text.partition(":")
    try:
        with _importing_from(folder):
            return getattr(importlib.import_module(module), factory)()
    except QbenchError:
        raise
    except Exception as error:  # it is code of the user: whatever it raises is about that
        raise error_of_code(
            doing, error, folder=folder, expected=_EXPECTED, remedy="Correct that code."
        ) from error


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):  # that code may have changed the list
            sys.path.remove(str(folder))
