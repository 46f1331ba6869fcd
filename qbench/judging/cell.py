"""A cell of the matrix: one model on one backend under one schema, in one variant."""

import fnmatch
import re
from dataclasses import dataclass

FP32 = "fp32"
"""The schema of a cell that runs the float model as it is."""

GIVEN = "given"
"""The schema of a cell that runs a model which came quantized, as it is."""

_NAME = re.compile(r"[a-z0-9_.-]+")


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """The axes of a cell. ``variant`` is ``""`` or a name such as ``calib32`` or ``passes=exact``."""

    suite: str
    model: str
    backend: str
    schema: str
    variant: str = ""

    def __post_init__(self) -> None:
        for axis in ("suite", "model", "backend", "schema"):
            if not _NAME.fullmatch(getattr(self, axis)):
                raise ValueError(f"the {axis} '{getattr(self, axis)}' is not made of a-z, 0-9, '_', '.' and '-'")
        if self.variant and not re.fullmatch(r"[a-z0-9_.=-]+", self.variant):
            raise ValueError(f"the variant '{self.variant}' is not made of a-z, 0-9, '_', '.', '=' and '-'")

    @property
    def slug(self) -> str:
        """``backend+schema[+variant]``: the cell within its model."""
        return "+".join(part for part in (self.backend, self.schema, self.variant) if part)

    @property
    def is_fp32(self) -> bool:
        """Whether the float model itself is run."""
        return self.schema == FP32

    @property
    def is_given(self) -> bool:
        """Whether a model that came quantized is run."""
        return self.schema == GIVEN

    def is_named_by(self, pattern: str) -> bool:
        """Whether ``pattern`` is its schema, its backend, or matches its slug (``*`` stands for anything)."""
        return pattern in (self.schema, self.backend) or fnmatch.fnmatchcase(self.slug, pattern)

    def __str__(self) -> str:
        return f"{self.model}::{self.slug}"
