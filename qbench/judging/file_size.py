"""The size of the model file in bytes, next to that of fp32 and to the accepted one:
``max_file_bytes``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qbench.judging.context import Context
from qbench.judging.kinds import GateKind, Quantity, RememberedNumber
from qbench.judging.rules import Setting
from qbench.judging.suite_keys import RatioLimits, SuiteKey
from qbench.judging.verdict import Gate, GateState


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """The most that a file may have: ``bytes``, a multiple of that of ``fp32``, and of the
    ``accepted`` one.
    """

    bytes: int | None = None
    fp32: float | None = None
    accepted: float | None = None

    def __post_init__(self) -> None:
        if self.bytes is self.fp32 is self.accepted is None:
            raise ValueError("a limit without 'bytes', 'fp32' or 'accepted'")
        if self.fp32 is not None or self.accepted is not None:
            RatioLimits(fp32=self.fp32, accepted=self.accepted)  # refuses the impossible
        if self.bytes is not None and self.bytes < 1:
            raise ValueError(f"{self.bytes} bytes: it is a whole number from 1")


MAX_FILE_BYTES = SuiteKey(
    name="max_file_bytes",
    entry=FileLimits,
    default="none",
    sentence=(
        "the most bytes of the model file, also as a multiple of that of fp32, and of what was "
        "accepted"
    ),
    short="bytes",
    example="4_000_000, or { fp32 = 0.3, accepted = 1.05 }",
    of_recorded=False,
)


FILE_BYTES = Quantity(name="file_bytes", unit="bytes", is_exact=True)


def judge_file_size(context: Context) -> Iterable[Gate]:
    """One gate for each limit that the suite sets.

    The evidence is ``cell`` and ``fp32`` in bytes; None: such a file cannot be written, or there is
    no float model.
    """
    evidence = context.measurement.evidence.get(GateKind.FILE_SIZE)
    setting = context.rules.more.get(MAX_FILE_BYTES.name)
    if evidence is None or setting is None:
        return
    size, limits, accepted = evidence["cell"], setting.value, context.here.result
    if limits.bytes is not None:
        limit = f"{limits.bytes:,} ({setting.rule})"
        yield _gate(GateKind.FILE_SIZE, FILE_BYTES.name, size, limits.bytes, limit)
    if limits.fp32 is not None:
        most = None if evidence["fp32"] is None else evidence["fp32"] * limits.fp32
        limit = f"{limits.fp32:g} of fp32 ({setting.rule})"
        yield _gate(GateKind.FILE_SIZE, f"{FILE_BYTES.name} of fp32", size, most, limit)
    if limits.accepted is not None:
        before = accepted.remembered.get(GateKind.FILE_SIZE.value) if accepted is not None else None
        most = None if before is None else before * limits.accepted
        limit = f"{limits.accepted:g} of the accepted file ({setting.rule})"
        yield _gate(GateKind.FILE_SIZE_DRIFT, FILE_BYTES.name, size, most, limit)


def _gate(kind: GateKind, metric: str, size: int | None, most: float | None, limit: str) -> Gate:
    """Whether ``size`` is at most ``most``; None: it is not known."""
    rule = f"{MAX_FILE_BYTES.name} {limit}"
    if size is None:
        state = GateState.INCOMPARABLE
        detail = "the size of the file is not known: its graphs do not fit into one"
    elif most is None:
        state = GateState.INCOMPARABLE
        detail = f"the file has {size:,} bytes; no other is known here to compare with"
    else:
        state = GateState.HOLDS if size <= most else GateState.BROKEN
        detail = f"the file has {size:,} bytes, at most {int(most):,}"
    return Gate(
        kind=kind, metric=metric, state=state, detail=detail, rule=rule, limit=most, value=size
    )


def remembered_bytes(evidence: Mapping[str, Any], setting: Setting) -> RememberedNumber | None:
    """The bytes of the file; None: they are not known, or ``setting`` does not compare them with
    the accepted ones.
    """
    limits: FileLimits = setting.value
    if evidence["cell"] is None or limits.accepted is None:
        return None
    size = float(evidence["cell"])
    return RememberedNumber(size, size, size)


def make_smaller(_context: Context, _gate: Gate, _drifted: bool) -> str:
    """The next step where the file is too large."""
    return (
        "find what is stored in float ('qbench quantize --why' has the plan), or raise "
        "max_file_bytes"
    )
