"""A backend or a profile with a fault in it."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import onnx_ir as ir

from qbench.backends import (
    Backend,
    Executor,
    HasRuleDigests,
    IntegerBackend,
    device_of,
    isolated,
    kernels_of,
)
from qbench.calibration import Profile
from qbench.errors import UnsupportedError
from qbench.evaluation import Subject, SubjectArtifacts
from qbench.faults.fault import (
    ArithmeticFault,
    GraphEdit,
    Injection,
    Kernel,
    KernelFault,
    Placed,
    ProfileFault,
)
from qbench.graph import Capabilities, as_model, node_key, only_consumer, own_copy
from qbench.interpreter import (
    Counters,
    KernelContext,
    KernelFunction,
    KernelWrapper,
    best_means,
    float_operator,
    make_kernel,
)
from qbench.numerics import Arithmetic, Override
from qbench.passes import DEFAULT
from qbench.storage import Cache, digest_plain

# A backend with a fault in it: whatever holds the faulty operator is wrong there, a piece of a
# graph too.

MARK = "!"
"""Between the backend's name and the fault's, so that no result is taken for the healthy
backend's.
"""


def can_have(backend: Backend, injection: Injection) -> bool:
    """Whether ``backend`` can have a fault of this kind in it: the graph of any can be edited, and
    kernels and rules of an integer backend can be reached.
    """
    if isinstance(injection, KernelFault | ArithmeticFault):
        return isinstance(backend, IntegerBackend)
    return isinstance(injection, GraphEdit)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyBackend:
    """``inner`` with a fault at some operators.

    Args:
        inner: an integer backend for faults of kernels and arithmetics; anything for edits of the
            graph.
        placed: the fault, its sites and its seed. Calibration faults have no place in a backend.

    Raises:
        UnsupportedError: ``inner`` has no place for such a fault.
    """

    inner: Backend
    placed: Placed

    def __post_init__(self) -> None:
        injection = self.placed.fault.injection
        if not can_have(self.inner, injection):
            raise UnsupportedError(
                f"Putting the fault '{self.placed.fault.name}' into '{self.inner.name}'",
                found=f"a fault of kind {type(injection).__name__}",
                expected=(
                    "an edit of the graph, or an integer backend whose kernels and rules can be "
                    "reached"
                ),
                remedy="Choose a backend 'integer-…', or a fault that fits (docs/faults.md).",
            )

    @property
    def name(self) -> str:
        """That of ``inner``, the fault and its sites."""
        return f"{self.inner.name}{MARK}{self.placed.spelled}"

    @property
    def capabilities(self) -> Capabilities:
        """Those of ``inner``."""
        return self.inner.capabilities

    @property
    def arithmetic(self) -> Arithmetic | None:
        """None: with a fault in it, it computes by no arithmetic that has a name."""
        return None

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of ``inner``."""
        return self.inner.packages

    @property
    def device(self) -> str:
        """That of ``inner``."""
        return device_of(self.inner)

    @property
    def unusual_kernels(self) -> Mapping[str, str]:
        """Those of ``inner``."""
        return kernels_of(self.inner)

    @property
    def digests(self) -> Mapping[str, str]:
        """Those of ``inner``, and that of the fault with its sites and seed."""
        own = digest_plain([self.placed.fault.name, list(self.placed.sites), self.placed.seed])
        return {
            **(self.inner.digests if isinstance(self.inner, HasRuleDigests) else {}),
            "fault": own,
        }

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """``model`` on ``inner``, faulty where it has one of the sites.

        Raises:
            What ``inner`` raises, which may be the fault's doing.
        """
        graph = as_model(model)
        here = self.placed.among({node_key(node): node for node in graph.graph})
        if not here:
            return isolated(self.inner).prepare(model, taps=taps, threads=threads)
        injection = self.placed.fault.injection
        if isinstance(injection, GraphEdit):
            # an engine that may crash is as likely to on a wrong graph
            return isolated(self.inner).prepare(
                edited(graph, self.placed), taps=taps, threads=threads
            )
        assert isinstance(self.inner, IntegerBackend)
        return _faulty_integers(self.inner, self.placed).prepare(graph, taps=taps, threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyInterpreter(FaultyBackend):
    """An integer backend with a fault in it, which can be watched as any: taps of it change
    nothing.
    """

    def surrounded(self, around: KernelWrapper) -> Backend:
        """The same with ``around`` about every kernel, the faulty ones too."""
        assert isinstance(self.inner, IntegerBackend)
        return replace(self, inner=self.inner.surrounded(around))


def with_fault(inner: Backend, placed: Placed) -> FaultyBackend:
    """``inner`` with the fault ``placed`` in it.

    Raises:
        UnsupportedError: it has no place for such a fault.
    """
    made = FaultyInterpreter if isinstance(inner, IntegerBackend) else FaultyBackend
    return made(inner=inner, placed=placed)


def edited(model: ir.Model, placed: Placed) -> ir.Model:
    """A copy of ``model``, a QDQ graph or a piece of it, with the fault at the sites it has."""
    copy = own_copy(model)
    edit_at(copy, placed)
    return copy


def edit_at(model: ir.Model, placed: Placed) -> tuple[str, ...]:
    """Put the fault, an edit, into ``model`` itself; the sites that it was put at."""
    injection = placed.fault.injection
    assert isinstance(injection, GraphEdit)
    nodes = {node_key(node): node for node in model.graph}
    done = tuple(site for site in placed.among(nodes) if placed.fault.fits(nodes[site]))
    for site in done:
        injection.edit(nodes[site], placed.random(site))
    return done


def _faulty_integers(inner: IntegerBackend, placed: Placed) -> IntegerBackend:
    """``inner`` with the fault in its kernels or its rules."""
    injection = placed.fault.injection
    if isinstance(injection, ArithmeticFault):
        return replace(
            inner, arithmetic=_with_wrong_rules(inner.arithmetic, injection, placed.sites)
        )
    assert isinstance(injection, KernelFault)
    return replace(inner, around=_around(inner, injection, placed))


def _with_wrong_rules(
    arithmetic: Arithmetic, injection: ArithmeticFault, sites: Sequence[str]
) -> Arithmetic:
    """``arithmetic`` whose rules for ``sites`` are the fault's, on top of what it has for such
    operators already.
    """
    names = tuple(glob.escape(site) for site in sites)
    overrides = []
    for own in (*arithmetic.overrides, None):
        if own is not None and own.names:
            continue  # a schema has no rules for single nodes except ours
        base = replace(arithmetic, overrides=(), **({} if own is None else own.changes))  # type: ignore[arg-type]
        wrong = injection.counted(base)
        differ = {
            f.name: getattr(wrong, f.name)
            for f in fields(Override)
            if f.name not in ("operators", "names")
        }
        changes = {
            name: value for name, value in differ.items() if value != getattr(arithmetic, name)
        }
        if changes:
            operators = () if own is None else own.operators
            overrides.append(Override(operators=operators, names=names, **changes))
    return replace(arithmetic, overrides=(*overrides, *arithmetic.overrides))


def _around(inner: IntegerBackend, injection: KernelFault, placed: Placed) -> KernelWrapper:
    means = inner.means or best_means()

    def made(node: ir.Node) -> KernelFunction:
        here = inner.arithmetic.at(float_operator(node), node_key(node))
        return make_kernel(KernelContext(node, here, means, Counters()))

    def around(node: ir.Node, run: KernelFunction) -> KernelFunction:
        site = node_key(node)
        here = (
            injection.around(Kernel(node, run, made), placed.random(site))
            if site in placed.sites
            else run
        )
        return here if inner.around is None else inner.around(node, here)

    return around


# Shared work whose profile is wrong at some operators: a calibration fault, and all that is
# quantized by it.

_LIMITS = frozenset({"Relu", "Clip"})


class FaultyWork(SubjectArtifacts):
    """As ``SubjectArtifacts``, with a calibration fault.

    Profiles are taken, and kept on disk, as ever; the fault comes in between them and planning.

    Args:
        placed: the fault. The others as of ``SubjectArtifacts``.

    Raises:
        UnsupportedError: it is no fault of calibration.
    """

    def __init__(
        self,
        subject: Subject,
        cache: Cache,
        fp32_backend: Backend,
        environment_class: str,
        *,
        placed: Placed,
    ) -> None:
        if not isinstance(placed.fault.injection, ProfileFault):
            raise UnsupportedError(
                f"Calibrating '{subject.model.id}' with the fault '{placed.fault.name}'",
                found=f"a fault of kind {type(placed.fault.injection).__name__}",
                expected="one of calibration",
                remedy="Put it into a backend (with_fault) or make a pass of it (wrong_rewriting).",
            )
        super().__init__(subject, cache, fp32_backend, environment_class)
        self._placed = placed
        self._faulty: dict[tuple[str, bool], Mapping[str, Profile]] = {}

    @classmethod
    def of(cls, shared: SubjectArtifacts, placed: Placed) -> "FaultyWork":
        """That of the same subject as ``shared``, with the same cache behind it.

        Raises:
            UnsupportedError: it is not a fault of calibration.
        """
        return cls(shared.subject, *shared.made_with, placed=placed)

    def profiles(self, pipeline: str = DEFAULT, *, channels: bool = False) -> Mapping[str, Profile]:
        """Those of ``SubjectArtifacts``, with the fault."""
        key = (pipeline, channels)
        if key not in self._faulty:
            right = super().profiles(pipeline, channels=channels)
            graphs = self.planned(pipeline)
            self._faulty[key] = {
                name: faulty_profile(profile, graphs[name], self._placed)
                for name, profile in right.items()
            }
        return self._faulty[key]


def faulty_profile(profile: Profile, model: ir.Model, placed: Placed) -> Profile:
    """``profile`` with the fault at those of its sites that ``model``, the float graph, has.

    What an operator's qparams is taken from is its result, or that of the Relu or Clip behind; both
    get the fault.
    """
    injection = placed.fault.injection
    assert isinstance(injection, ProfileFault)
    values = dict(profile.values)
    nodes = {node_key(node): node for node in model.graph}
    for site in placed.among(nodes):
        for name in _results(nodes[site]):
            if name in values and values[name].count:
                values[name] = injection.profiled(profile, name, placed.random(site))
    return replace(profile, values=values)


def _results(node: ir.Node) -> tuple[str, ...]:
    own = node.outputs[0]
    reader = only_consumer(own)
    limited = reader.outputs[0] if reader is not None and reader.op_type in _LIMITS else None
    return tuple(value.name or "" for value in (own, limited) if value is not None)
