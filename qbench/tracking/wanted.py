"""Which results of a history are asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which results: of this suite, model, …; None: of any."""

    suite: str | None = None
    model: str | None = None
    backend: str | None = None
    schema: str | None = None
    variant: str | None = None
    metric: str | None = None
    environment_class: str | None = None
