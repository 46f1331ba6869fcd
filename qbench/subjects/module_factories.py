"""Models that a function of the user makes, written ``module:factory``: a module of a library such
as PyTorch, with example inputs, exported as a graph.
"""

import functools
import importlib
import importlib.machinery
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import onnx_ir as ir

from qbench.errors import InputError, NotFetchedError, QbenchError
from qbench.extension import error_of_code, install_command, known_extensions, place_of
from qbench.graph import exporter_catalogue, own_copy

_EXPECTED = "a pair of a module and its example inputs, such as (net, (torch.zeros(2, 3, 32, 32),))"
_PAIR = 2


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
            found = importlib.import_module(module)
            _require_of(folder, module.partition(".")[0], doing)
            return getattr(found, factory)()
    except QbenchError:
        raise
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == module.partition(".")[0]:
            raise _error_of(doing, error, folder) from error
        # no fault of the code: 'Correct that code' would send the user to the wrong place
        raise NotFetchedError(
            doing,
            found=f"no package '{missing}'{place_of(error, folder)}",
            expected=f"'{missing}', which the code imports, to be installed",
            remedy=_installing(missing),
        ) from error
    except Exception as error:  # it is code of the user: whatever it raises is about that
        raise _error_of(doing, error, folder) from error


def _error_of(doing: str, error: Exception, folder: Path) -> InputError:
    return error_of_code(
        doing, error, folder=folder, expected=_EXPECTED, remedy="Correct that code."
    )


def _installing(package: str) -> str:
    """How a ``package`` is installed that code of users imports: an exporter's, by the extra."""
    if package in exporter_catalogue(known_extensions()).names():
        return f"Install it: {install_command('train')}."
    return f"Install it for '{sys.executable}'."


def _require_of(folder: Path, name: str, doing: str) -> None:
    """Refuse a module that was loaded from another place before, where ``folder`` has one of its
    name: its function would make another model.
    """
    there = importlib.machinery.PathFinder.find_spec(name, [str(folder)])
    loaded = getattr(sys.modules[name], "__file__", None)
    if there is None or not there.origin or not loaded or Path(loaded).samefile(there.origin):
        return
    raise InputError(
        doing,
        found=f"that '{loaded}' was loaded as '{name}' before",
        expected=f"'{there.origin}'",
        remedy="Give one of the two another name.",
    )


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):  # that code may have changed the list
            sys.path.remove(str(folder))
