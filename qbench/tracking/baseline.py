"""A model's baseline: stored fp32 answers and accepted results."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.judging import (
    Accepted,
    AcceptedHere,
    Cell,
    EnvironmentClass,
    Expectation,
    Repeats,
    State,
)
from qbench.tracking.calibrations import Calibrations

if TYPE_CHECKING:  # accepted results are read without arrays
    from qbench.metrics import Answers

FLOORS, CALIBRATION = "the floors", "the calibration"
"""What of a cell, or under a name, could not be read; else it is an environment class."""

KeptAnswers = Mapping[str, Mapping[str, Mapping[str, "Answers"]]]
"""Slug → environment class → data set → answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredData:
    """One data set of a baseline.

    Args:
        samples: how many.
        digest: of data and labels.
        reference: of the fp32 answers to it.
        kind: their form.
        sources: how many sources they were drawn from; None: each has its own, or the baseline is
            older. No result is judged by it; ``qbench doctor`` says by it what the data can tell.
    """

    samples: int
    digest: str
    reference: str
    kind: str = "ranking"
    sources: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedCell:
    """What was accepted for one cell: environment class → result; metric against the reference
    → least hits.

    ``former``: the classes whose result is of a former model or former data; no cell is judged by
    it. ``noise``: environment class → the runs by which the noise of the cell was measured there
    (``qbench stability``).
    """

    accepted: Mapping[str, Accepted]
    floors: Mapping[str, int] = field(default_factory=dict)
    former: tuple[str, ...] = ()
    noise: Mapping[str, Repeats] = field(default_factory=dict)

    @property
    def current(self) -> Mapping[str, Accepted]:
        """The results of today's model and data."""
        return {
            name: accepted for name, accepted in self.accepted.items() if name not in self.former
        }

    def here(
        self,
        environment: EnvironmentClass,
        equivalents: tuple[tuple[str, ...], ...],
        kept: Mapping[str, Mapping[str, "Answers"]] = MappingProxyType({}),
    ) -> AcceptedHere:
        """What results of ``environment`` are compared with; ``kept``: class → data set → the
        accepted answers.
        """
        known = Expectation(accepted=self.current, kept=kept, floors=self.floors, noise=self.noise)
        return known.here(environment, equivalents)

    def outdated(self) -> "AcceptedCell":
        """This cell after its model or its data changed."""
        return AcceptedCell(accepted=self.accepted, former=tuple(sorted(self.accepted)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline:
    """One model in one suite.

    Args:
        model: its id. model_digest, preprocessing: what the reference was made with.
        backend, environment_class: what ran the float model, and where.
        metrics: metric against labels → hits of the reference.
        data: data set → its identity.
        stored: data set → the fp32 answers, without scores.
        cells: ``backend+schema[+variant]`` → what was accepted.
        calibrations: key of a calibration → value → the accepted (low, high), for all computers.
        kept: slug → environment class → data set → the accepted answers, of the results that name
            their digests.
        test: the node id of the test whose check it is; empty: a model of a suite file.
        lost: what of it could not be read, a sentence each, where the rest is kept for a new
            reference; not stored.
        unread: of that, what a new reference does not make again, as (slug or calibration, what of
            it); not stored.
    """

    model: str
    model_digest: str
    preprocessing: str
    backend: str
    environment_class: str
    metrics: Mapping[str, int]
    data: Mapping[str, StoredData]
    stored: Mapping[str, "Answers"]
    cells: Mapping[str, AcceptedCell] = field(default_factory=dict)
    calibrations: Calibrations = field(default_factory=dict)
    kept: KeptAnswers = field(default_factory=dict)
    test: str = ""
    lost: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    def as_reference_of(self, model: str, own: "Baseline | None") -> "Baseline":
        """This reference for ``model``, a quantized form of this network, with the cells of its
        ``own`` baseline.
        """
        cells, kept, unread = ({}, {}, ()) if own is None else (own.cells, own.kept, own.unread)
        return replace(self, model=model, cells=cells, kept=kept, calibrations={}, unread=unread)

    def still_unread(self, written: Collection[str]) -> tuple[str, ...]:
        """What of ``unread`` is gone for good if this baseline is stored after ``written`` were
        accepted, in words.

        Args:
            written: the slugs whose results, and with them their floors, were made again.
        """
        gone = []
        for name, what in self.unread:
            cell = self.cells.get(name)
            is_made = (
                name in self.calibrations
                if what == CALIBRATION
                else cell is not None and what in cell.accepted
            )
            if not (is_made or (what == FLOORS and name in written)):
                gone.append(f"{what} of '{name}'")
        return tuple(gone)

    def stale(
        self, digests: Mapping[str, str], samples: Mapping[str, int] = MappingProxyType({})
    ) -> str:
        """What changed since the reference was made, in words; empty when nothing did.

        Args:
            digests: ``model``, ``preprocessing`` and ``data:D`` as of a measurement; those that are
                absent, and data the baseline has beyond them, are not compared.
            samples: data set → how many samples it has now, where that is known: only for the
                words.
        """
        found = []
        if digests.get("model", self.model_digest) != self.model_digest:
            found.append("another model")
        if digests.get("preprocessing", self.preprocessing) != self.preprocessing:
            found.append("another preprocessing")
        for key, digest in sorted(digests.items()):
            kind, _, data = key.partition(":")
            if kind != "data":
                continue
            if data not in self.data:
                found.append(f"no data set '{data}'")
            elif self.data[data].digest != digest:
                found.append(f"another data set '{data}'{self._counts(data, samples)}")
        return f"it is of {', '.join(found)}" if found else ""

    def is_of_another_model(self, digests: Mapping[str, str]) -> bool:
        """Whether the model or its preprocessing is another one than the reference was made
        with.
        """
        then = {"model": self.model_digest, "preprocessing": self.preprocessing}
        return any(digests.get(key, digest) != digest for key, digest in then.items())

    def _counts(self, data: str, samples: Mapping[str, int]) -> str:
        before, now = self.data[data].samples, samples.get(data)
        if now is None:
            return ""
        if now != before:
            return f" ({before} samples, today's has {now})"
        return f" (as many samples, {before}, but other contents, names or labels)"

    def expectation(
        self,
        cell: Cell,
        digests: Mapping[str, str],
        *,
        trusted: bool = False,
        samples: Mapping[str, int] = MappingProxyType({}),
    ) -> Expectation:
        """What ``cell`` is judged by.

        Args:
            cell: of this model.
            digests: of its measurement.
            trusted: take the baseline for fitting: the run at hand replaces its reference.
            samples: as in ``stale``.
        """
        known = self.cells.get(cell.slug, AcceptedCell(accepted={}))
        accepted = Expectation(
            state=State.KNOWN,
            accepted=known.current,
            kept=self.kept.get(cell.slug, {}),
            calibrations=self.calibrations,
            cell_known=cell.slug in self.cells,
        )
        if trusted:
            return accepted
        what = self.stale(digests, samples) or self._other_reference(digests)
        return replace(
            accepted,
            state=State.STALE if what else State.KNOWN,
            what=what,
            reference={name: data.reference for name, data in self.data.items()},
            floors=known.floors,
            noise=known.noise,
        )

    def here(
        self, cell: Cell, environment: EnvironmentClass, equivalents: tuple[tuple[str, ...], ...]
    ) -> AcceptedHere:
        """What results of ``cell`` in ``environment`` are compared with."""
        known = self.cells.get(cell.slug, AcceptedCell(accepted={}))
        return known.here(environment, equivalents, self.kept.get(cell.slug, {}))

    def _other_reference(self, digests: Mapping[str, str]) -> str:
        for name, data in sorted(self.data.items()):
            if digests.get(f"reference:{name}", data.reference) != data.reference:
                return (
                    f"losses on '{name}' were counted against other fp32 answers than the stored "
                    "ones"
                )
        return ""
