"""A plan whose file was edited by hand: what is derived is made again, contradictions are refused.

::

    chosen     static, fixed, given, dynamic and float: an edit of one is a decision
    derived    a bias at scale(input) · scale(weight), values that share the parameters of another:
               one that was left as it was saved follows; one that was edited, or may have been,
               must have the parameters that follow from the others

The checksums in the file tell which slots were edited (``plan.load_plan``). Where a clip is done
follows when the plan is written into its graph.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import numpy as np

from qbench.errors import InputError
from qbench.numerics import QParams
from qbench.quantization.decision import (
    Decision,
    Derived,
    Fixed,
    Given,
    KeptFloat,
    Shared,
    Static,
    numbers,
    qparams_of,
)
from qbench.quantization.spec import Role, Slot

_EDITED = "derived again, as its file was edited"
_SAME = 1e-6
"""Relative: how far scales that a person writes may be from the product in float32."""


def derived_again(
    written: Mapping[Slot, Decision], doing: str, *, follows: bool
) -> dict[Slot, Decision]:
    """``written``, the decisions of an edited file, with what is derived made again.

    Args:
        written: as the file has them.
        doing: for errors.
        follows: what is derived was left as it was saved, so that it may change; else it is
            compared.

    Raises:
        InputError: two parameters for one value, or a derived one that was edited and is not what
            it is derived from.
    """
    chosen = _one_each(written, doing, (Static, Fixed, Given))
    decisions: dict[Slot, Decision] = {}
    for slot, decision in written.items():
        made = decision
        if isinstance(decision, Shared) and decision.source in chosen:
            made = Shared(chosen[decision.source][1], decision.source)
        decisions[slot] = _compared(slot, decision, made, doing, follows=follows)
    for slot, decision in written.items():
        if isinstance(decision, Derived):
            lost = next((one for one in decision.sources if _is_float(one, written)), None)
            if lost is not None:
                decisions[slot] = KeptFloat(f"'{lost}', which it is derived from, stays in float")
                continue
            made = _made_again(slot, decision, decisions)
            decisions[slot] = _compared(slot, decision, made, doing, follows=follows)
    _one_each(decisions, doing, (Static, Fixed, Given, Shared, Derived))
    return decisions


def _one_each(
    decisions: Mapping[Slot, Decision], doing: str, kinds: tuple[type, ...]
) -> dict[str, tuple[Slot, QParams]]:
    """Value → one of its slots and its parameters, by the decisions of these ``kinds``; constants
    are left out.

    Raises:
        InputError: two slots of a value have different ones.
    """
    found: dict[str, tuple[Slot, QParams]] = {}
    for slot, decision in decisions.items():
        qparams = qparams_of(decision)
        # each reader has its own copy of a constant, so these may differ
        if qparams is None or not isinstance(decision, kinds) or slot.role in _CONSTANTS:
            continue
        first, known = found.setdefault(slot.value, (slot, qparams))
        if known != qparams:
            raise InputError(
                doing,
                found=f"two parameters for the value '{slot.value}': {numbers(known)} at {first}, "
                f"{numbers(qparams)} at {slot}",
                expected="the same ones for what makes it and for all that read it",
                remedy="Edit every slot of the value, or give it a range (--ranges).",
            )
    return found


_CONSTANTS = (Role.WEIGHT, Role.BIAS)


def _made_again(slot: Slot, decision: Derived, decisions: Mapping[Slot, Decision]) -> Decision:
    """``decision`` about ``slot`` with the parameters that follow from its sources now; unchanged
    where the plan lacks a source.
    """
    sources = [
        (other, qparams)
        for source in decision.sources
        for other, qparams in [_source_of(source, decisions)]
        if other is not None and qparams is not None
    ]
    if not sources or len(sources) != len(decision.sources):
        return decision
    along = decision.qparams.axis
    try:
        with np.errstate(over="ignore", under="ignore"):
            scale = reduce(np.multiply, (qparams.scale for _, qparams in sources))
        scale = np.asarray(scale)
        if along is not None and not scale.ndim:
            scale = np.full(decision.qparams.scale.shape, scale)
        qparams = QParams(scale, 0, decision.qparams.qtype, axis=along if scale.ndim else None)
    except ValueError as error:
        raise InputError(
            f"Deriving '{slot.value}' again ({slot})",
            found=str(error),
            expected="scales whose product float32 holds",
            remedy="Correct the scales of the plan.",
        ) from error
    return replace(decision, qparams=qparams)


def _is_float(name: str, written: Mapping[Slot, Decision]) -> bool:
    """Whether the slot called ``name`` was edited to stay in float."""
    return any(str(slot) == name and isinstance(one, KeptFloat) for slot, one in written.items())


def _source_of(name: str, decisions: Mapping[Slot, Decision]) -> tuple[Slot | None, QParams | None]:
    """The slot called ``name`` and its parameters; of an input, the first of its node that is
    quantized by one scale.
    """
    node = name.rpartition(".")[0]
    for slot, decision in decisions.items():
        qparams = qparams_of(decision)
        is_input = slot.role is Role.INPUT and name.endswith(f".{Role.INPUT.value}[0]")
        if qparams is None or not (str(slot) == name or (is_input and slot.node == node)):
            continue
        if not is_input or qparams.axis is None:
            return slot, qparams
    return None, None


def _compared(
    slot: Slot, written: Decision, made: Decision, doing: str, *, follows: bool
) -> Decision:
    """``made`` in place of ``written``, where that may follow its sources or has the same numbers.

    Raises:
        InputError: the two differ, and the slot itself was edited.
    """
    mine, theirs = qparams_of(written), qparams_of(made)
    if mine is None or theirs is None or mine == theirs:
        return written
    if not follows and not _alike(mine, theirs):
        sources = written.sources if isinstance(written, Derived) else (f"'{written.source}'",)  # type: ignore[union-attr]
        raise InputError(
            doing,
            found=f"{numbers(mine)} for '{slot.value}' at {slot}, which is {numbers(theirs)} by "
            f"{' and '.join(sources)}",
            expected="what it is derived from",
            remedy="Edit what it is derived from, and leave this slot as it was saved.",
        )
    return replace(made, note=_EDITED) if isinstance(made, Derived) else made


def _alike(one: QParams, other: QParams) -> bool:
    return (
        one.qtype == other.qtype
        and one.axis == other.axis
        and one.scale.shape == other.scale.shape
        and np.array_equal(one.zero_point, other.zero_point)
        and np.allclose(one.scale, other.scale, rtol=_SAME, atol=0.0)
    )
