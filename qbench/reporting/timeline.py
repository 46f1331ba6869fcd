"""A cell over its runs: series, steps, and what changed under them."""

from dataclasses import dataclass

from qbench.reporting.view import CellKey, MetricView, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A new level of a series, first seen in run ``position``; means before and after, fractions.

    ``since`` is the last run of the level before: on one of several machines that take turns not the one before.
    ``provisional``: too few runs since to be sure. ``causes``: what else is new since the last run of the level before.
    """

    position: int
    before: float
    after: float
    since: int = -1
    provisional: bool = False
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The values of one metric of one cell in one environment class: run positions, ascending, and fractions.

    ``band``: the ends of the 95 % interval of each value; empty where the metric is no share of samples.
    ``flips``: losses and gains of each run against fp32.
    """

    environment_class: str
    positions: tuple[int, ...]
    values: tuple[float, ...]
    steps: tuple[Step, ...] = ()
    band: tuple[tuple[float, float], ...] = ()
    flips: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """From run ``position`` on, another environment class or other samples: ``label`` says what is new."""

    position: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The reference and the limit (None: no gate) as they were in runs ``first`` … ``last``, fractions."""

    first: int
    last: int
    reference: float
    limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The history of one metric of one cell: one series a class, with the reference and limit of each time.

    ``accepted``: what people approved for the newest class, a fraction; None where that is not known.
    """

    key: CellKey
    metric: MetricView
    series: tuple[Series, ...]
    switches: tuple[Switch, ...] = ()
    marks: tuple[Mark, ...] = ()
    accepted: float | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step of every series, oldest first."""
        return tuple(sorted((s for line in self.series for s in line.steps), key=lambda s: s.position))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup:
    """Every step that was first seen in one run, or on another machine's first run after it: most likely one cause."""

    position: int
    run: RunView
    steps: tuple[tuple[CellKey, MetricView, Step], ...]
