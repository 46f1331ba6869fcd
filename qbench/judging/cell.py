"""A cell of the matrix, and the environment class that its result belongs to."""

import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# A cell of the matrix: one model on one backend under one schema, in one variant.

FP32 = "fp32"
"""The schema of a cell that runs the float model as it is."""

GIVEN = "given"
BY_OTHERS = "by-"
"""Names of schemas that begin so are quantizers of other people."""
"""The schema of a cell that runs a model which came quantized, as it is."""

RECORDED = "recorded"
"""The schema of a cell that runs nothing: its answers were recorded elsewhere."""

CHECKS = "checks"
"""The suite of the cells that tests make by the fixture ``qbench_check``; no file has this name."""

_NAME = re.compile(r"[a-z0-9_.-]+")


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """The axes of a cell; ``variant`` is ``""`` or a name such as ``calib32``, ``passes=exact``."""

    suite: str
    model: str
    backend: str
    schema: str
    variant: str = ""

    def __post_init__(self) -> None:
        for axis in ("suite", "model", "backend", "schema"):
            if not _NAME.fullmatch(getattr(self, axis)):
                raise ValueError(
                    f"the {axis} '{getattr(self, axis)}' is not made of a-z, 0-9, '_', '.' and '-'"
                )
        if self.variant and not re.fullmatch(r"[a-z0-9_.=-]+", self.variant):
            raise ValueError(
                f"the variant '{self.variant}' is not made of a-z, 0-9, '_', '.', '=' and '-'"
            )

    @property
    def slug(self) -> str:
        """``backend+schema[+variant]``: the cell within its model."""
        return "+".join(part for part in (self.backend, self.schema, self.variant) if part)

    @property
    def column(self) -> str:
        """``schema[+variant]``: its column in the matrix of its backend."""
        return f"{self.schema}+{self.variant}" if self.variant else self.schema

    @classmethod
    def as_written(
        cls, suite: str, model: str, backend: str, schema: str, variant: str = ""
    ) -> "Cell":
        """The cell whose axes are these texts, of whatever form.

        Only for what is shown: a report shows every line of a run file, also one whose names no
        qbench would write.
        """
        cell = object.__new__(cls)
        axes = {"suite": suite, "model": model, "backend": backend, "schema": schema}
        for axis, text in {**axes, "variant": variant}.items():
            object.__setattr__(cell, axis, text)  # past __post_init__, which refuses other names
        return cell

    @property
    def is_fp32(self) -> bool:
        """Whether the float model itself is run."""
        return self.schema == FP32

    @property
    def is_given(self) -> bool:
        """Whether a model that came quantized is run."""
        return self.schema == GIVEN

    @property
    def is_by_others(self) -> bool:
        """Whether another quantizer decides what is quantized: the model came quantized, or one
        is run.
        """
        return self.is_given or self.schema.startswith(BY_OTHERS)

    @property
    def is_recorded(self) -> bool:
        """Whether its answers were recorded elsewhere."""
        return self.schema == RECORDED

    def is_named_by(self, pattern: str) -> bool:
        """Whether ``pattern`` is its schema, its backend, or matches its slug (``*`` matches
        anything).
        """
        return pattern in (self.schema, self.backend) or fnmatch.fnmatchcase(self.slug, pattern)

    def __str__(self) -> str:
        return f"{self.model}::{self.slug}"


# The environment class: one comparable word for everything that may legitimately change int8
# results.
#
# Two results are comparable for drift when their classes are equal: the same dot product
# instruction and float vector unit (by probe, not by name), the same versions of the packages that
# a backend computes with, with such packages the same number of threads where there are several,
# and the same device. The options of an engine are part of its backend's name, hence of the cell. A
# suite may declare classes of one device equivalent.
#
#     x64-avx2+onnxruntime-1.31.1                      on the CPU, which is not written
#     x64-avx2+onnxruntime-gpu-1.31.1+device=cuda      no package has "=" in its name or version

ANY = "any"
"""The class of an accepted result that every class without its own inherits."""

CPU = "cpu"
"""The device whose classes do not name it."""

_DEVICE = "device="
"""The beginning of the part of a class that names its device."""


@dataclass(frozen=True, slots=True)
class EnvironmentClass:
    """``processor``, as ``x64-avx512-vnni``, ``packages`` that compute, and the ``device``.

    ``packages``: (name, version). ``device``: ``cpu``, or a word such as ``cuda``.
    """

    processor: str
    packages: tuple[tuple[str, str], ...] = ()
    device: str = CPU

    def __str__(self) -> str:
        parts = [self.processor, *(f"{name}-{version}" for name, version in self.packages)]
        return "+".join([*parts, *self._device_parts])

    @property
    def hardware(self) -> str:
        """The class without its packages: ``x64-avx2``, or ``x64-avx2+device=cuda``."""
        return "+".join([self.processor, *self._device_parts])

    @property
    def _device_parts(self) -> list[str]:
        return [] if self.device == CPU else [f"{_DEVICE}{self.device}"]

    @classmethod
    def of(
        cls, processor: str, packages: Mapping[str, str], *, threads: int = 1, device: str = CPU
    ) -> "EnvironmentClass":
        """The class of results that ``packages`` (name → version) computed with so many threads on
        ``device``.

        An engine may share out a sum among threads and add in another order; a backend without
        packages, our own interpreter, gives the same bits with any number of threads.
        """
        several = {"threads": str(threads)} if packages and threads > 1 else {}
        return cls(processor, (*sorted(packages.items()), *several.items()), device)

    @classmethod
    @functools.lru_cache(maxsize=1024)  # a history names few classes, again and again
    def parse(cls, text: str) -> "EnvironmentClass":
        """The class that ``str`` wrote as ``text``."""
        processor, *parts = text.split("+")
        packages: list[tuple[str, str]] = []
        device = CPU
        for part in parts:
            if part.startswith(_DEVICE):
                device = part.removeprefix(_DEVICE)
                continue
            # no version holds a dash (PEP 440, normalized)
            name, dash, version = part.rpartition("-")
            if dash:
                packages.append((name, version))
            elif packages:  # the local part of a version, 2.9.0+cpu
                packages[-1] = (packages[-1][0], f"{packages[-1][1]}+{part}")
        return cls(processor, tuple(packages), device)

    def matches(self, condition: str | tuple[str, ...] | None) -> bool:
        """Whether a ``when`` condition holds here: None always; else where it names this hardware
        or this whole class.
        """
        if condition is None:
            return True
        named = (condition,) if isinstance(condition, str) else condition
        return self.hardware in named or str(self) in named


def recorded_class(device: str, versions: Mapping[str, str]) -> EnvironmentClass:
    """The class of answers that were recorded on ``device``, by software of these versions.

    Names keep letters, digits, dots and underscores; a device also dashes: the others separate the
    parts of a class.
    """
    named = {_word(name, "-"): _word(version) for name, version in versions.items() if version}
    return EnvironmentClass(_word(device, "-") or "elsewhere", tuple(sorted(named.items())))


def _word(text: str, more: str = "") -> str:
    return re.sub(rf"[^\w.{more}]+", "_", text.strip(), flags=re.ASCII).strip("_")


def class_change(old: EnvironmentClass, new: EnvironmentClass) -> str:
    """What differs between two classes, ``onnxruntime 1.31.1 → 1.24.1``; empty: nothing."""
    found = [] if old.processor == new.processor else [f"{old.processor} → {new.processor}"]
    if old.device != new.device:
        found.append(f"device {old.device} → {new.device}")
    before, after = dict(old.packages), dict(new.packages)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            absent = "1" if name == "threads" else "none"
            found.append(f"{name} {before.get(name, absent)} → {after.get(name, absent)}")
    return ", ".join(found)


def are_equivalent(
    one: EnvironmentClass, other: EnvironmentClass, groups: Iterable[tuple[str, ...]]
) -> bool:
    """Whether one of ``groups`` declares the results of both classes comparable.

    A group lists processors, whose classes are then equivalent with equal packages, or patterns of
    whole classes (``x64-*+onnxruntime-1.31.*``), all of which are. Two devices never are: the ``*``
    of a pattern that was written for the CPU matches the classes of accelerators too.
    """
    if one.device != other.device:
        return False
    for group in groups:
        if one.packages == other.packages and one.processor in group and other.processor in group:
            return True
        if all(
            any(fnmatch.fnmatchcase(str(each), pattern) for pattern in group)
            for each in (one, other)
        ):
            return True
    return False
