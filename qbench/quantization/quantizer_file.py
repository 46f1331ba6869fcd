"""Quantizers of other people: the TOML file that describes one, and its variants as schemas.

A quantizer is named where a schema is: ``by-NAME`` or ``by-NAME.VARIANT``, by the name of its file.
It receives the float model and calibration samples, and writes a quantized model.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.errors import InputError, unknown_name
from qbench.extension import Catalogue, Extension, extending_packages
from qbench.storage import digest_file, digest_plain, read_toml, value_from_table

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PREFIX = "by-"
"""Names of schemas that begin so are quantizers."""
_TAKES = ("onnx", "tflite", "module")
_GIVES = ("onnx", "tflite")
_PLACES = ("{python}", "{here}", "{fp32}", "{calibration}", "{out}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The table ``[quantizer]`` of such a file.

    Args:
        title: what people call it.
        package: whose releases ``qbench bisect package`` walks; empty: it has none.
        takes, gives: the format of the float model, and of the quantized one. ``module``: the
            float model is ONNX, and packages that make a module of it can be imported.
        python: a version or a path; empty: the Python that runs qbench.
        lock: the file of its packages, relative to the TOML file; empty: it needs none, and runs
            under ``python`` as it is.
        command: its words, with ``{python} {here} {fp32} {calibration} {out}`` in place of paths;
            the arguments of a variant are appended.
        timeout_s: seconds after which it is killed.
        memory_mb, disk_mb: megabytes of memory, and of files that it writes, beyond which it is
            killed.
        environment: variables of its process.

    Raises:
        ValueError: an unknown format, a command without the output file, or a limit below 1.
    """

    title: str
    command: tuple[str, ...]
    package: str = ""
    takes: str = "onnx"
    gives: str = "onnx"
    python: str = ""
    lock: str = ""
    timeout_s: float = 1800.0
    memory_mb: float = 8000.0
    disk_mb: float = 8000.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, known in (("takes", _TAKES), ("gives", _GIVES)):
            if getattr(self, key) not in known:
                raise ValueError(
                    f"the format '{getattr(self, key)}' of '{key}' is impossible: it is one of "
                    f"{', '.join(known)}"
                )
        if not any("{out}" in word for word in self.command):
            raise ValueError(
                f"a command without the file that it writes is impossible: it is a list of words "
                f"with {', '.join(_PLACES)}"
            )
        for key in ("timeout_s", "memory_mb", "disk_mb"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} = {getattr(self, key):g} is impossible: it is at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The table ``[variant.NAME]``: ``arguments`` are appended to the command; None: as the
    quantizer has it.
    """

    arguments: tuple[str, ...] = ()
    timeout_s: float | None = None
    memory_mb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizer:
    """A quantizer in one variant.

    Args:
        name: ``NAME`` or ``NAME.VARIANT``.
        file: the TOML file.
        manifest: its table, with the limits of the variant.
        arguments: of the variant.
    """

    name: str
    file: Path
    manifest: Manifest = field(hash=False)
    arguments: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    @property
    def lock(self) -> Path | None:
        """The file of its packages; None: it needs none."""
        return self.file.parent / self.manifest.lock if self.manifest.lock else None

    @property
    def requirements(self) -> dict[str, str]:
        """Package → version, as the lock pins them; without those that it does not pin.

        Raises:
            InputError: the lock cannot be read.
        """
        return {} if self.lock is None else pinned_versions(self.lock)

    @property
    def version(self) -> str:
        """That of its package in the lock; empty where that does not pin it."""
        return self.requirements.get(normalized(self.manifest.package), "")

    @property
    def takes_samples(self) -> bool:
        """Whether its command names the calibration samples."""
        return any("{calibration}" in word for word in self.manifest.command)

    @property
    def summary(self) -> str:
        """``NNCF (nncf 3.4.0), onnx to onnx, --accuracy-control``."""
        table = self.manifest
        package = f" ({table.package} {self.version})" if self.version else ""
        words = [f"{table.title}{package}", f"{table.takes} to {table.gives}", *self.arguments]
        return ", ".join(words)

    def command(self, **places: Path) -> list[str]:
        """The words of its command; ``places``: python, fp32, calibration and out."""
        known = {"here": self.file.parent, **places}
        words = [*self.manifest.command, *self.arguments]
        for name, path in known.items():
            words = [word.replace(f"{{{name}}}", os.fspath(path)) for word in words]
        return words

    @property
    def digest(self) -> str:
        """What its result depends on beyond the model and the samples: its settings, its lock,
        the files in its folder that the command names, and what these import there; where it
        takes a module, also of the packages that extend qbench, the importer among them, and the
        packages of qbench that any of these import, such as that of the canonical passes.

        Raises:
            InputError: one of the files cannot be read.
        """
        words = [word.replace("{here}", os.fspath(self.file.parent)) for word in self._words]
        named = [Path(word) for word in words if Path(word).is_absolute() and Path(word).is_file()]
        importable = extending_packages() if self.manifest.takes == "module" else {}
        files = _with_imports(named, importable)
        if importable:
            files += _own_code(files)
        if self.lock is not None:
            files.append(self.lock)
        table = self.manifest
        settings = [table.takes, table.gives, table.python, dict(table.environment), self._words]
        return digest_plain([settings, [self._file_digest(one) for one in files]])

    @property
    def _words(self) -> list[str]:
        return [*self.manifest.command, *self.arguments]

    def _file_digest(self, path: Path) -> str:
        try:
            return digest_file(path)
        except OSError as error:
            raise InputError(
                f"Reading '{path}' of the quantizer '{self.name}'",
                found=error.strerror or str(error),
                expected="a readable file",
                remedy="Correct the name in its TOML file.",
            ) from error


_IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)
_FOLDER = Path(__file__).parents[1]
"""Of qbench."""


def _with_imports(files: Iterable[Path], packages: Mapping[str, Path]) -> list[Path]:
    """``files`` and the modules that they import next to them or from ``packages``, also through
    one another.
    """
    found = list(files)
    for path in found:  # it grows
        for name in _imported(path):
            first, _, rest = name.partition(".")
            inside = packages[first] / rest.replace(".", "/") if first in packages else None
            one = path.with_name(first) if inside is None else inside
            module = one.with_name(f"{one.name}.py")
            if module.is_file() and module not in found:
                found.append(module)
    return found


def _imported(path: Path) -> list[str]:
    """The names of the modules that the file at ``path`` imports; none if it is not Python."""
    if path.suffix != ".py":
        return []
    return _IMPORT.findall(path.read_bytes().decode("utf-8", errors="replace"))


def _own_code(files: Iterable[Path]) -> list[Path]:
    """The source of the packages of qbench that ``files`` import.

    A package counts as a whole, since its door opens modules by the names in them; ``import
    qbench`` alone opens all. What these packages import in turn does not count.
    """
    names = (name.split(".") for path in files for name in _imported(path))
    wanted = {"".join(name[1:2]) for name in names if name[0] == _FOLDER.name}
    return sorted(
        path
        for name in wanted
        for path in (*(_FOLDER / name).rglob("*.py"), _FOLDER / f"{name}.py")
        if path.is_file()
    )


def normalized(package: str) -> str:
    """The name of ``package`` as indexes compare names (PEP 503)."""
    return package.lower().replace("_", "-").replace(".", "-").partition("[")[0]


def lock_lines(path: Path) -> list[str]:
    """The requirements in the lock at ``path``, each in one line with its hashes.

    Raises:
        InputError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"Reading the lock '{path}'",
            found=(error.strerror if isinstance(error, OSError) else None) or str(error),
            expected="a text file with a requirement in each line",
            remedy="Correct the name in the TOML file of the quantizer.",
        ) from error
    lines = (line.partition(" #")[0].strip() for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def lock_with(lines: Iterable[str], pins: Iterable[str], doing: str) -> list[str]:
    """The requirements ``lines`` of a lock without hashes, which fit no other release, and with the
    versions of ``pins``; a package that they do not name is put behind them.

    Args:
        lines: as ``lock_lines`` gives them.
        pins: such as ``nncf==2.19.0`` and ``numpy<2``.
        doing: for errors.

    Raises:
        InputError: a line or a pin is not a requirement.
    """
    found = [_requirement(line.partition(" --")[0].strip(), doing) for line in lines]
    for pin in pins:
        wanted = _requirement(pin, doing)
        same = [one for one in found if normalized(one.name) == normalized(wanted.name)]
        for one in same:
            one.specifier = wanted.specifier
        if not same:
            found.append(wanted)
    return [str(one) for one in found]


def _requirement(text: str, doing: str) -> "Requirement":
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise InputError(
            doing,
            found=f"the requirement '{text[:80]}'",
            expected="the name of a package and its versions",
            remedy="Write it as 'onnxruntime==1.17.3'.",
        ) from error


def pinned_versions(path: Path) -> dict[str, str]:
    """Package → version, of the lines ``package==version`` of the lock at ``path``.

    Raises:
        InputError: it cannot be read.
    """
    found = {}
    for line in lock_lines(path):
        name, pinned, rest = line.partition("==")
        if pinned:
            found[normalized(name.strip())] = rest.split(";")[0].split()[0]
    return found


def load_quantizer(path: Path, variant: str = "") -> Quantizer:
    """The quantizer in the TOML file at ``path``, in the ``variant`` that is named; empty: as
    it is.

    Raises:
        InputError: the file cannot be read, has an unknown key, a wrong value or no such variant.
    """
    where = f"the quantizer '{path.name}'"
    table = read_toml(path)
    for key, value in table.items():
        if key not in ("quantizer", "variant") or not isinstance(value, dict):
            raise InputError(
                f"Reading {where}",
                found=f"'{key}' outside of a table",
                expected="the tables [quantizer] and [variant.NAME]",
                remedy="Put it into one of them, or remove it.",
            )
    manifest = value_from_table(Manifest, table.get("quantizer", {}), where)
    tables: Mapping[str, Any] = table.get("variant", {})
    variants = {
        name: value_from_table(Variant, one, f"variant '{name}' of {where}")
        for name, one in tables.items()
        if isinstance(one, dict)
    }
    if variant and variant not in variants:
        raise unknown_name(f"Looking up a variant of {where}", "variant", variant, variants)
    chosen = variants.get(variant, Variant())
    limited = replace(
        manifest,
        timeout_s=chosen.timeout_s or manifest.timeout_s,
        memory_mb=chosen.memory_mb or manifest.memory_mb,
    )
    return Quantizer(
        name=f"{path.stem}.{variant}" if variant else path.stem,
        file=path.absolute(),
        manifest=limited,
        arguments=chosen.arguments,
        variants=tuple(variants),
    )


def quantizer_catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Path]":
    """The files of the quantizers that ``extensions`` bring, by name."""
    own: Catalogue[Path] = Catalogue("quantizer", {})
    return own.extended(extensions)


def quantizer_of(name: str, known: "Catalogue[Path]") -> Quantizer:
    """The quantizer ``name``, ``NAME`` or ``NAME.VARIANT``, among those ``known``.

    Raises:
        InputError: no such quantizer or variant, or a wrong file.
    """
    if known.knows(name):  # a file may have a dot in its name
        return load_quantizer(Path(known.get(name)))
    base, _, variant = name.rpartition(".")
    file = Path(known.get(base or name))
    if base and not variant:
        raise variant_error(
            f"Looking up a variant of '{file}'", f"{PREFIX}{name}", f"{PREFIX}{base}"
        )
    return load_quantizer(file, variant if base else "")


def variant_error(doing: str, name: str, quantizer: str) -> InputError:
    """The error for a ``name`` in which no variant follows that of the ``quantizer``."""
    return InputError(
        doing,
        found=f"no variant after the dot in '{name}'",
        expected=f"'{quantizer}', or '{quantizer}.VARIANT' of one dot",
        remedy="Leave the variant out, or name one ('qbench list schemas').",
    )
