"""A check of a plain test (``qbench_check``) as a suite of one cell, built from files.

node id of the test → name of the model, of its baseline and of its course in the history
"""

import hashlib
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from qbench.errors import InputError, require_type
from qbench.evaluation import Subject, build_subject
from qbench.extension import Catalogue
from qbench.judging import CHECKS
from qbench.quantization import Schema, schema_in_file
from qbench.suite.catalogues import Catalogues
from qbench.suite.expansion import PlannedCell, expand
from qbench.suite.suite_file import CalibrationChoice, ModelTable, Suite, SuiteTable

_T = TypeVar("_T")
_LONGEST = 100
"""Characters of a name before its digest: a file name holds 255 bytes, and a suffix follows."""
_DIGITS = 8
"""Hexadecimal digits that keep apart the names of tests that look alike without them."""
_PLAIN = re.compile(r"(?:[a-z0-9_]+/)*[a-z0-9_]+\.py(?:::[a-z0-9_]+)+")
"""Node ids whose names cannot be those of others."""


def check_name(test: str) -> str:
    """The name of the test with the node id ``test``, made of a-z, 0-9, '_', '.' and '-'.

    ``tests/test_net.py::test_int8`` is ``tests.test_net--test_int8``. Where this drops something
    (capitals, brackets, other characters) or is too long, digits of a digest follow.
    """
    path, _, rest = test.partition("::")
    written = f"{path.removesuffix('.py').replace('/', '.')}--{rest.replace('::', '--')}"
    if _PLAIN.fullmatch(test) and len(written) <= _LONGEST:
        return written
    kept = re.sub(r"[^a-z0-9_.-]+", "-", written.lower())[:_LONGEST].strip("-.")
    return f"{kept}-{hashlib.sha256(test.encode()).hexdigest()[:_DIGITS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The arguments of one ``qbench_check``, checked.

    Args:
        test: node id. model: an ONNX file or a name, quantized already where ``fp32`` names its
            float model, else float and quantized by ``schema``.
        data, calibration: scored and calibration samples, each a path or a name. schema: a name or
        a ``.toml``. backend: a name. tolerance: allowed loss relative to the fp32 score; None: the
        default.

    Raises:
        InputError: values of another type, or that contradict each other.
    """

    test: str
    model: str
    data: str
    fp32: str | None = None
    schema: str | None = None
    calibration: str | None = None
    backend: str = "ort-cpu"
    tolerance: float | None = None

    def __post_init__(self) -> None:
        for name in ("model", "data", "backend"):
            self._require_text(name)
        for name in ("fp32", "schema", "calibration"):
            if getattr(self, name) is not None:
                self._require_text(name)
        self._require_tolerance()
        if self.fp32 is None and self.schema is None:
            raise self._refused(
                "neither 'fp32' nor 'schema'",
                "one of them: something that quantization costs",
                "Name the float model of a quantized file by fp32=…, or the schema by which a "
                "float one is quantized by schema=….",
            )
        if self.fp32 is not None and (self.schema or self.calibration):
            idle = "schema" if self.schema else "calibration"
            raise self._refused(
                f"'fp32' with '{idle}'",
                "only one of them: a model that is quantized already is measured as it is",
                f"Leave {idle}=… out, or leave fp32=… out to quantize a float model.",
            )

    @property
    def doing(self) -> str:
        """What its errors begin with."""
        return f"Checking '{self.model}' in '{self.test}'"

    @property
    def plain(self) -> dict[str, Any]:
        """The arguments as plain values, for a report of pytest."""
        return asdict(self)

    @property
    def measured(self) -> Mapping[str, Any]:
        """What says which cell is measured: two checks that are equal here measure one twice."""
        return {key: one for key, one in self.plain.items() if key not in ("test", "tolerance")}

    def search_command(self) -> str:
        """What to type for the nodes that cause its loss."""
        options = {
            "fp32": self.fp32,
            "schema": self.schema,
            "backend": self.backend,
            "data": self.data,
            "calib": self.calibration,
            "tolerance": None if self.tolerance is None else f"{self.tolerance:g}",
        }
        named = ((f"--{name}", value) for name, value in options.items() if value is not None)
        return shlex.join(("qbench", "localize", self.model, *chain.from_iterable(named)))

    def _require_text(self, name: str) -> None:
        require_type(
            f"Reading '{name}' of the check in '{self.test}'",
            getattr(self, name),
            str,
            expected="a name or a path, as a text",
            remedy=f"Give {name}='…'.",
        )

    def _require_tolerance(self) -> None:
        value: object = self.tolerance
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or (is_number and math.isfinite(value) and 0 <= value < 1):  # type: ignore[operator, arg-type]
            return
        raise InputError(
            f"Reading 'tolerance' of the check in '{self.test}'",
            found=repr(value),
            expected="a number from 0 to below 1: the allowed loss relative to the fp32 score",
            remedy="Write 0.01 for one per cent.",
        )

    def _refused(self, found: str, expected: str, remedy: str) -> InputError:
        return InputError(self.doing, found=found, expected=expected, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCheck:
    """A check with everything that it names.

    Args:
        suite: of this one cell, named ``checks``. catalogues: with its model and its data.
        planned: the cell. subject: its model, data and metrics.
    """

    check: Check
    suite: Suite
    catalogues: Catalogues
    planned: PlannedCell
    subject: Subject


def check_suite(**settings: Any) -> Suite:  # noqa: ANN401 - of ``SuiteTable``
    """The suite of all checks, without its cells: what a suite file has by default, but that no
    share in integers is asked for.
    """
    table = SuiteTable(integer_macs=0.0, fp32=False, **settings)
    return Suite(name=CHECKS, path=Path(CHECKS), table=table, models=(), quarantine=(), lines={})


def open_check(check: Check, known: Catalogues, *, limit: int | None = None) -> OpenCheck:
    """``check`` with its model, its data and its one cell; nothing is run.

    Args:
        known: the names of backends, schemas and metrics. limit: at most that many scored samples;
            None: all.

    Raises:
        InputError: a file or a name that does not exist, data that the model does not take, labels
            that it has no class for, or a schema without the samples that it needs.
    """
    if not known.backends.knows(check.backend):
        raise known.backends.unknown(check.backend, check.doing)
    known, schema = _with_schema(check, known)
    subject = build_subject(
        check.fp32 or check.model,
        check.data,
        check.calibration,
        (),
        None,
        given=None if check.fp32 is None else check.model,
    )
    if limit is not None:
        few = {name: one.take(min(limit, len(one))) for name, one in subject.data.items()}
        subject = replace(subject, data=few)
    name = check_name(check.test)
    float_name = f"{name}-fp32"
    scored = next(iter(subject.data))
    table = ModelTable(
        id=name,
        data=scored,
        calibration=_calibration(subject, scored),
        metrics=tuple(use.name for use in subject.metrics),
        fp32="" if check.fp32 is None else float_name,
    )
    suite = check_suite(backends=(check.backend,), **_settings(check, schema))
    suite = replace(suite, models=(table,), tolerance_from="argument 'tolerance'")
    data = {scored: subject.data[scored], table.calibration.data: subject.calibration}
    models = {name: subject.given or subject.model, float_name: subject.model}
    known = replace(
        known,
        models=_catalogue("model", models),
        datasets=_catalogue("data set", data),
    )
    (planned,) = expand(suite, known)
    # its reference is in its own baseline: it borrows that of no other model of the suite
    partner = None if check.fp32 is None else replace(table, id=float_name, fp32="")
    planned = replace(planned, test=check.test, partner=partner)
    return OpenCheck(check=check, suite=suite, catalogues=known, planned=planned, subject=subject)


def _settings(check: Check, schema: Schema | None) -> dict[str, Any]:
    """What ``check`` sets of its suite."""
    settings: dict[str, Any] = {}
    if check.tolerance is not None:
        settings["tolerance"] = float(check.tolerance)
    if schema is not None:
        settings["schemas"] = (schema.name,)
    return settings


def _catalogue(kind: str, values: Mapping[str, _T]) -> Catalogue[_T]:
    """The catalogue of exactly these ``values`` by name."""
    return Catalogue(kind, {name: partial(_same, one) for name, one in values.items()})


def _same(value: _T) -> _T:
    return value


def _calibration(subject: Subject, scored: str) -> CalibrationChoice:
    """The calibration samples by a name of their own; a count of 1 where there are none."""
    named = subject.calibration.id
    return CalibrationChoice(
        data=f"calibration-{named}" if named == scored else named,
        count=max(1, len(subject.calibration)),
    )


def _with_schema(check: Check, known: Catalogues) -> tuple[Catalogues, Schema | None]:
    """The schema of ``check`` and ``known`` with it, which may come from a file; None: it names
    none.

    Raises:
        InputError: no such schema, or no calibration samples for one that needs them.
    """
    if check.schema is None:
        return known, None
    if check.schema.endswith(".toml"):
        schema = schema_in_file(Path(check.schema))
        table = {schema.name: lambda: schema}
        schemas = replace(known.schemas, added=(*known.schemas.added, (check.schema, table)))
        known = replace(known, schemas=schemas)
    else:
        schema = known.schemas.get(check.schema, doing=check.doing)
    if schema.needs_samples and check.calibration is None:
        raise InputError(
            check.doing,
            found=f"the schema '{schema.name}' without 'calibration'",
            expected="samples to take ranges from, which are never scored",
            remedy="Name them: calibration='…'.",
        )
    return known, schema
