"""Made-up findings that look like real ones: a network of any number of nodes,
some of them suspected.
"""

import random
from dataclasses import replace

from reporting_histories import make_cell, make_run

from qbench.judging import (
    Cause,
    Cell,
    CountingErrors,
    Errors,
    Finding,
    NodeErrors,
    Outcome,
    Repair,
    Suspect,
    Unaligned,
)
from qbench.tracking import Run, finding_line

OVERRIDES = """# keeps one node in float

[[rules]]
names = ["features.3.project.conv"]
reason = "kept in float by qbench localize"
"""
HOSTILE = "</script><script>alert(5)</script>"


def errors(sqnr_db: float, steps: float | None = 0.29) -> Errors:
    """Errors of so many dB."""
    return Errors(sqnr_db=sqnr_db, relative=10 ** (-sqnr_db / 20), steps=steps)


def make_node(place: int, noise: random.Random, name: str = "") -> NodeErrors:
    """A healthy node: 30 dB alone, as its grids explain, and ever less in the run."""
    alone = noise.uniform(28, 36)
    kind = ("expand", "depthwise", "project")[place % 3]
    return NodeErrors(
        node=name or f"features.{place // 3}.{kind}.conv",
        operators=("Conv",) if place % 5 else ("Add", "Relu"),
        value=f"value_{place}",
        macs=1_234_567 * (place % 5),
        elements=1 << 20,
        cumulative=errors(30 - 20 * place / (place + 40)),
        isolated=errors(alone, 0.28 + noise.random() / 20),
        explained=errors(alone + noise.random() / 50),
        counting=CountingErrors(elements=1 << 20, differing=place, ties=place),
        claimed=CountingErrors(elements=1 << 20),
        clipped_high=1e-6 * (place % 7),
        ties=0.002,
        gain_db=noise.uniform(-0.3, 0.4),
    )


def make_finding(nodes: int = 66, suspects: tuple[int, ...] = (9,), seed: int = 3) -> Finding:
    """A finding on ``nodes`` nodes, those at ``suspects`` (places from 0) spoilt,
    the first one worst.
    """
    noise = random.Random(seed)
    made = [make_node(place, noise) for place in range(nodes)]
    causes = (Cause.RANGE_OUTLIER, Cause.CLIPPING, Cause.PAIR_SATURATION, Cause.COARSE)
    told = []
    for rank, place in enumerate(suspects):
        made[place] = replace(
            made[place],
            isolated=errors(9.8 + rank, 6.125),
            clipped_high=0.31,
            gain_db=12.5 - rank,
            claimed=CountingErrors(elements=1 << 20, differing=1 << 18, beyond=3),
        )
        told.append(
            Suspect(
                node=made[place].node,
                cause=causes[rank % len(causes)],
                evidence="the largest number is 41.2 × the 99.9th percentile",
                score=100.0 - rank,
                remedy=(
                    "Choose a range method that cuts outliers (percentile, mse), 16 bits, or float."
                ),
            )
        )
    made[0] = replace(made[0], explained=None, gain_db=None, counting=None, claimed=None, macs=0)
    return Finding(
        model="mobilenet_v2",
        backend="ort-cpu",
        schema="w8a8_sym_pc",
        samples=64,
        matched=(
            "'integer-ort-x64' is watched in place of 'ort-cpu': "
            "equal to it bit for bit in 64000 outputs"
        ),
        nodes=tuple(made),
        unaligned=(Unaligned(value="features.0.pad", reason="fp32 has no value of this name"),),
        suspects=tuple(told),
        repair=Repair(
            nodes=tuple(one.node for one in told[:1]),
            restores=True,
            smallest=True,
            macs_share=0.031,
            probes=7,
            overrides=OVERRIDES,
            verdict="top1 71.00 % → 76.40 %",
        )
        if told
        else None,
        notes=("the reference was counted anew",),
        seconds=61.25,
    )


def hostile_finding() -> Finding:
    """A finding whose every text is markup."""
    made = make_finding(12, (3, 4))
    spoilt = [
        replace(n, node=f"{HOSTILE}{i}", operators=(HOSTILE,), value=HOSTILE)
        for i, n in enumerate(made.nodes)
    ]
    told = [
        replace(s, node=f"{HOSTILE}{3 + i}", evidence=HOSTILE, remedy=HOSTILE)
        for i, s in enumerate(made.suspects)
    ]
    return replace(
        made,
        model="<b>net</b>",
        graph=HOSTILE,
        matched=HOSTILE,
        nodes=tuple(spoilt),
        suspects=tuple(told),
        unaligned=(Unaligned(value=HOSTILE, reason=HOSTILE),),
        notes=(HOSTILE,),
        testcase=HOSTILE,
        repair=Repair(nodes=(HOSTILE,), restores=True, overrides=HOSTILE, verdict=HOSTILE),
    )


def red_run(finding: Finding, index: int = 0, *, with_line: bool = True) -> Run:
    """Night ``index``: the cell of ``finding`` is red and has its line, and another cell holds."""
    cell = Cell("nightly", finding.model, finding.backend, finding.schema)
    lines = [
        make_cell(cell.model, cell.backend, cell.schema, 0.054, outcome=Outcome.FAILED),
        make_cell("digits_cnn", cell.backend, cell.schema, 0.001),
    ]
    run = make_run(lines, index)
    return replace(run, findings=(finding_line(cell, finding),)) if with_line else run
