"""``qbench bisect package by-NAME``: a quantizer of other people with each release of its
package.
"""

import argparse
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.options import choose_schema
from qbench.errors import InputError

if TYPE_CHECKING:
    from qbench.quantization import Quantizer, Schema

PREFIX = "by-"
"""What a name of a quantizer begins with, where a package is named."""
_LOCKS = "quantizer-locks"


@dataclass(frozen=True, kw_only=True)
class QuantizerReleases:
    """A quantizer whose environment has another release of its package.

    Args:
        quantizer: with its own lock.
        arguments: those of the command.
        there: version → the environment that has it; empty: environments are created from the lock.
    """

    quantizer: "Quantizer"
    arguments: argparse.Namespace
    there: Mapping[str, Path]

    def schema(self, version: str) -> "Schema":
        """What quantizes with the release ``version``.

        Raises:
            InputError: the lock cannot be read, or has lines that are no requirements.
            StoreError: the cache cannot be written.
        """
        from qbench.quantization import quantizer_schema

        return quantizer_schema(self._released(version))

    def python(self, version: str) -> Path:
        """The program of the environment with the release ``version``.

        Raises:
            NotFetchedError: pip cannot install it with the other pins of the lock.
            InputError, StoreError: as ``schema``.
        """
        from qbench.evaluation import quantizer_python
        from qbench.storage import Cache

        return quantizer_python(self._released(version), Cache.default())

    def _released(self, version: str) -> "Quantizer":
        from qbench.quantization import lock_lines, lock_with

        quantizer, table = self.quantizer, self.quantizer.manifest
        release, python = f"{table.package}=={version}", self.arguments.base_python
        if self.there:
            # A lock that pins nothing leaves the environment as it is. It is part of the key of
            # results: the same folder may have another release the next time.
            lines, python = [f"# {release}"], os.fspath(self.there[version].absolute())
        else:
            own = [] if quantizer.lock is None else lock_lines(quantizer.lock)
            doing = f"Changing the lock of the quantizer '{quantizer.name}'"
            lines = lock_with(own, [release, *self.arguments.requirements], doing)
        changed = replace(table, lock=os.fspath(_lock_file(lines)), python=python)
        return replace(quantizer, manifest=changed)


def _lock_file(lines: list[str]) -> Path:
    """A file of the cache with ``lines``: equal ones are the same file."""
    from qbench.storage import Cache, digest_plain

    text = "".join(f"{line}\n" for line in lines)

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return Cache.default().entry(_LOCKS, f"{digest_plain(text)[:32]}.txt", write)


def quantizer_asked(arguments: argparse.Namespace) -> "Quantizer | None":
    """The quantizer that is named in the place of a package; None: a package is.

    Raises:
        InputError: there is no such quantizer, its TOML file names no package, or what is asked
            cannot be told by releases of a quantizer.
    """
    if not arguments.package.startswith(PREFIX):
        return None
    quantizer = choose_schema(arguments.package).made_by
    doing = f"Bisecting the releases of '{arguments.package}'"
    if quantizer is None or not quantizer.manifest.package:
        raise InputError(
            doing,
            found="no package in its TOML file",
            expected='package = "NAME" in the table [quantizer]',
            remedy="Name the package whose releases are tried.",
        )
    if arguments.schema:
        raise InputError(
            doing,
            found=f"--schema {arguments.schema}",
            expected="a quantizer, which is the schema",
            remedy="Leave out --schema.",
        )
    if not (arguments.command or arguments.metric):
        # files of two releases are two models: no difference of outputs is a fault by itself
        raise InputError(
            doing,
            found="no --metric",
            expected="a metric that tells good files from bad ones, or a command after '--'",
            remedy="Name one, such as --metric top1.",
        )
    return quantizer


def with_package(arguments: argparse.Namespace, quantizer: "Quantizer") -> argparse.Namespace:
    """``arguments`` as of the package of ``quantizer``, with its Python, and it as the schema.

    Raises:
        UnavailableError: this computer has no Python of the version that it asks for.
    """
    from qbench.evaluation import quantizer_python
    from qbench.storage import Cache

    table = quantizer.manifest
    base = arguments.base_python
    if base is None:
        unlocked = replace(quantizer, manifest=replace(table, lock=""))
        base = os.fspath(quantizer_python(unlocked, Cache.default()))
    python = os.path.abspath(shutil.which(base) or base)
    known = vars(arguments) | {"package": table.package, "base_python": python}
    return argparse.Namespace(**known | {"schema": arguments.package})
