"""The backends that can be named."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.errors import QbenchError
from qbench.extension import Catalogue, Extension, known_extensions

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends.protocol import Backend, EngineNote, Miscomputed
    from qbench.graph import Capabilities
    from qbench.numerics import Arithmetic


def _ort(name: str) -> "Backend":
    from qbench.backends.ort import ORT_BACKENDS

    return ORT_BACKENDS[name]


def _integer(name: str, make: Callable[[], "Arithmetic"] | None = None) -> "Backend":
    from qbench.backends.integer import IntegerBackend
    from qbench.numerics import get_arithmetic

    return IntegerBackend(arithmetic=get_arithmetic(name) if make is None else make())


def _onnx_reference() -> "Backend":
    from qbench.backends.onnx_reference import OnnxReferenceBackend

    return OnnxReferenceBackend()


def device_backend(
    path: Path, arithmetics: "Callable[[str], Arithmetic] | None" = None
) -> "Backend":
    """The backend of the device that the TOML file at ``path`` describes.

    Args:
        path: of the file, whose name is that of the device.
        arithmetics: finds the arithmetic that it names; None: among the installed ones.

    Raises:
        InputError: the file does not describe a device.
    """
    from qbench.backends.partitioned import PartitionedBackend
    from qbench.numerics import get_arithmetic
    from qbench.passes import load_device

    return PartitionedBackend(accelerator=load_device(path, arithmetics or get_arithmetic))


_PRESETS = Path(__file__).parents[1] / "numerics" / "presets"
_ARITHMETICS = tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))
"""Names of the built-in arithmetics, by their files: listing backends imports no numerics."""
_DEVICES = Path(__file__).parents[1] / "passes" / "partition" / "devices"
_PARTITIONED = "partitioned-"
_ORT = ("ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "ort-cpu-default", "ort-cpu-qoperator")

_OWN: Mapping[str, Callable[[], "Backend"]] = MappingProxyType(
    {
        **{name: partial(_ort, name) for name in _ORT},
        "onnx-reference": _onnx_reference,
        **{f"integer-{name}": partial(_integer, name) for name in _ARITHMETICS},
        **{
            f"{_PARTITIONED}{path.stem}": partial(device_backend, path)
            for path in sorted(_DEVICES.glob("*.toml"))
        },
    }
)


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Backend]":
    """The built-in backends, those of ``extensions``, and an interpreter for each arithmetic.

    Raises:
        InputError: two owners define one name.
    """
    given = tuple(extensions)
    interpreters = tuple(
        (
            one.name,
            {
                f"integer-{name}": partial(_integer, name, make)
                for name, make in one.arithmetics.items()
            },
        )
        for one in given
        if one.arithmetics
    )
    plain = Catalogue("backend", _OWN).extended(given)
    return Catalogue("backend", _OWN, plain.added + interpreters)


def integer_backends(extensions: Iterable[Extension] = ()) -> frozenset[str]:
    """Names of the backends that run no float graph: integer interpreters, devices, and those
    whose entry says so.

    No backend is constructed: a device is recognized by its name, ``partitioned-…``, one of an
    extension by ``runs_float`` of its factory (``BackendEntry``).
    """
    given = tuple(extensions)
    names = (*_ARITHMETICS, *(name for one in given for name in one.arithmetics))
    backends = (*_OWN, *(name for one in given for name in one.backends))
    devices = (name for name in backends if name.startswith(_PARTITIONED))
    declared = (
        name
        for one in given
        for name, factory in one.backends.items()
        if not getattr(factory, "runs_float", True)
    )
    return frozenset((*(f"integer-{name}" for name in names), *declared, *devices))


def backends_of_format(suffix: str) -> tuple[str, ...]:
    """Names of the known backends that run model files with this suffix as they are."""
    return tuple(name for name, one in _known_backends() if suffix in one.capabilities.file_formats)


def backends_that(can: "Callable[[Capabilities], bool]") -> tuple[str, ...]:
    """Names of the known backends whose capabilities satisfy ``can``: the exact interpreter, ONNX
    Runtime, then those of extensions.
    """
    own = ((name, _OWN[name]()) for name in ("integer-ideal", "ort-cpu"))
    known = dict((*own, *_known_backends()))
    return tuple(name for name, one in known.items() if can(one.capabilities))


def miscomputed(model: "ir.Model") -> "tuple[Miscomputed, ...]":
    """The nodes of ``model`` that an engine of known extensions computes wrong, and why.

    Each is listed once, though several backends may run the same engine.

    Raises:
        InputError: an invalid Q or DQ.
    """
    from qbench.backends.protocol import KnowsMistakes

    knowing = [one for one in _engines() if isinstance(one, KnowsMistakes)]
    return tuple(dict.fromkeys(wrong for one in knowing for wrong in one.miscomputed(model)))


def engine_notes(model: "ir.Model") -> "tuple[EngineNote, ...]":
    """What engines of known backends do with ``model`` that its file does not say, each once.

    Raises:
        InputError: an invalid Q or DQ.
    """
    from qbench.backends.protocol import NotesGraphs

    knowing = [one for one in _engines() if isinstance(one, NotesGraphs)]
    return tuple(dict.fromkeys(note for one in knowing for note in one.notes(model)))


def _engines() -> "Iterator[Backend]":
    """ONNX Runtime as users have it, and the backends of extensions that can be made."""
    yield _ort("ort-cpu-default")
    yield from (one for _, one in _known_backends())


def _known_backends() -> "Iterator[tuple[str, Backend]]":
    """The backends of extensions that can be made, by name."""
    known = catalogue(known_extensions())
    for name in sorted(name for _, table in known.added for name in table):
        with suppress(QbenchError):  # one that cannot be made here has nothing to say
            yield name, known.get(name)


def as_backend(backend: "Backend | str") -> "Backend":
    """``backend``, or the one of that name.

    Raises:
        InputError: there is none, or it is neither.
    """
    # not isinstance: a third-party backend may omit optional parts of the protocol
    return (
        backend
        if hasattr(backend, "prepare") and not isinstance(backend, str)
        else get_backend(backend)
    )


def get_backend(name: str) -> "Backend":
    """The backend called ``name``, of installed extensions too; ``answers:PATH``: recorded answers.

    Raises:
        InputError: the backend does not exist; the nearest name is suggested.
    """
    if str(name).startswith("answers:"):
        from qbench.backends.answers import ANSWERS_PREFIX, answers_backend

        return answers_backend(Path(name.removeprefix(ANSWERS_PREFIX)))
    return catalogue(known_extensions()).get(name)
