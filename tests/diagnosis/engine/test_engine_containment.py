"""An engine that ends its process: whatever runs it for a diagnosis reports that,
and this process goes on.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from engine_graphs import batches, quantized, target

from qbench.backends import Backend, EngineCrashError, Executor
from qbench.diagnosis import capture, localize_graph
from qbench.diagnosis.engine import departure, shrink
from qbench.diagnosis.examine import Examination
from qbench.diagnosis.operators.kernels import Trial
from qbench.diagnosis.target import Target
from qbench.diagnosis.unit_runs import Units
from qbench.faults.trial import is_equivalent
from qbench.graph import Capabilities
from qbench.quantization.bias_correction import PartialRun, channel_means
from qbench.subjects import get_operator


@dataclass(frozen=True)
class Ending:
    """A backend whose process ends without a word, as in a segmentation fault."""

    name: str = "ending"
    hang_s: float = 60.0
    packages: tuple[str, ...] = ()
    capabilities: Capabilities = field(default_factory=Capabilities)

    def prepare(self, model: Any, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        os._exit(11)

    def unoptimized(self) -> Backend:
        return self


FEEDS = batches()[0]


def ending() -> Target:
    return target(Ending(), watched=Ending())


def captured() -> None:
    capture.Capturing(ending(), Units.of(ending()), (), FEEDS)


def both() -> None:
    with ExitStack() as stack:
        capture._both(ending(), stack)


def trial() -> None:
    Trial.of(get_operator("op.conv.pointwise.u8s8.ties")).on_backend(Ending())


WORK = {
    "examine": lambda: Examination(ending()),
    "capture": captured,
    "samples that moved": both,
    "departure": lambda: departure.first_departure(ending(), (), FEEDS),
    "departure of the whole": lambda: departure._in_whole(ending(), (), FEEDS, {}),
    "passes that keep": lambda: localize_graph._agree(ending(), quantized()[1], FEEDS),
    "values that are seen": lambda: localize_graph._seen(ending(), quantized()[1], FEEDS, ()),
    "shrinking": lambda: shrink._answers(Ending(), quantized()[1], FEEDS, 1),
    "operators": trial,
    "means": lambda: channel_means(quantized()[0], {}, [FEEDS], Ending(), threads=1),
    "partial run": lambda: PartialRun(quantized()[0], [FEEDS], Ending(), threads=1).means(
        next(iter(quantized()[0].graph)), 1
    ),
    "fault": lambda: is_equivalent((Ending(), quantized()[1]), (Ending(), quantized()[1]), [FEEDS]),
}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("work", WORK)
def test_an_engine_that_ends_is_an_error_with_a_sentence(work):
    with pytest.raises(EngineCrashError) as error:
        WORK[work]()
    assert "ended" in error.value.found
    assert np.isfinite(next(iter(FEEDS.values()))).all()  # and this process goes on
