"""The size of the model file in bytes, next to that of fp32 and to the accepted one: ``max_file_bytes``."""

from collections.abc import Iterable
from dataclasses import dataclass

from qbench.judging.context import Context
from qbench.judging.kinds import GateKind
from qbench.judging.suite_keys import RatioLimits, SuiteKey
from qbench.judging.verdict import Gate, GateState


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """The most that a file may have: ``bytes``, a multiple of that of ``fp32``, and of the ``accepted`` one."""

    bytes: int | None = None
    fp32: float | None = None
    accepted: float | None = None

    def __post_init__(self) -> None:
        if self.bytes is None or self.fp32 is not None or self.accepted is not None:
            RatioLimits(fp32=self.fp32, accepted=self.accepted)  # refuses the impossible
        if self.bytes is not None and self.bytes < 1:
            raise ValueError(f"max_file_bytes = {self.bytes} is impossible: it is a whole number from 1")


MAX_FILE_BYTES = SuiteKey(
    name="max_file_bytes",
    entry=FileLimits,
    default="none",
    sentence="the most bytes of the model file, also as a multiple of that of fp32, and of what was accepted",
    short="bytes",
    example="4_000_000, or { fp32 = 0.3, accepted = 1.05 }",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSize:
    """Bytes of the files of a cell and of its float model; fp32 is 0 where there is none."""

    cell: int
    fp32: int


def judge_file_size(context: Context) -> Iterable[Gate]:
    """One gate for each limit that the suite sets."""
    evidence = context.measurement.evidence.get(GateKind.FILE_SIZE)
    setting = context.rules.more.get(MAX_FILE_BYTES.name)
    if evidence is None or setting is None:
        return
    size, limits = FileSize(**evidence), setting.value
    if limits.bytes is not None:
        yield _gate(size.cell, limits.bytes, f"{limits.bytes:,}", setting.rule)
    if limits.fp32 is not None:
        yield _ratio_gate(size.cell, size.fp32, limits.fp32, "fp32", setting.rule)
    if limits.accepted is not None:
        accepted = context.here.result
        before = accepted.remembered.get(GateKind.FILE_SIZE.value, 0) if accepted is not None else 0
        yield _ratio_gate(size.cell, int(before), limits.accepted, "the accepted file", setting.rule)


def _ratio_gate(size: int, of: int, ratio: float, name: str, rule: str) -> Gate:
    limit = f"{ratio:g} of {name}"
    if of:
        return _gate(size, of * ratio, limit, rule)
    detail = f"the file has {size:,} bytes; the size of {name} is not known here"
    return _gate_of(GateState.INCOMPARABLE, detail, limit, rule)


def _gate(size: int, most: float, limit: str, rule: str) -> Gate:
    state = GateState.HOLDS if size <= most else GateState.BROKEN
    return _gate_of(state, f"the file has {size:,} bytes, at most {int(most):,}", limit, rule)


def _gate_of(state: GateState, detail: str, limit: str, rule: str) -> Gate:
    rule = f"{MAX_FILE_BYTES.name} {limit} ({rule})"
    return Gate(kind=GateKind.FILE_SIZE, metric="file_bytes", state=state, detail=detail, rule=rule)


def make_smaller(_context: Context, _gate: Gate, _drifted: bool) -> str:
    """The next step where the file is too large."""
    return "find what is stored in float ('qbench quantize --why' has the plan), or raise max_file_bytes"
