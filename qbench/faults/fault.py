"""A fault: a bug that really happened, as a value that can be put into a graph, a kernel, an arithmetic or a profile.

CALIBRATION   another profile; everything behind it is right
PASS          another QDQ graph; every engine runs it, and so does the search for the cause
ENGINE        the graph is right, one engine computes something else
"""

import enum
import zlib
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.calibration import Profile, Statistics
from qbench.faults.kernel_at_work import Kernel
from qbench.faults.operators import float_operators
from qbench.graph import node_key
from qbench.interpreter import KernelFunction
from qbench.judging import Cause
from qbench.numerics import Arithmetic

Random = np.random.Generator


class Stage(enum.Enum):
    """Where on the road a fault sits."""

    CALIBRATION = "calibration"
    PASS = "pass"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class GraphEdit:
    """Changes a QDQ graph in place at one of its float operators; what it draws, it draws from the generator."""

    edit: Callable[[ir.Node, Random], None]


@dataclass(frozen=True, slots=True)
class KernelFault:
    """Stands around the kernel of a node of the lowered graph: the kernel, a generator → the wrong run."""

    around: Callable[[Kernel, Random], KernelFunction]


@dataclass(frozen=True, slots=True)
class ArithmeticFault:
    """How a machine counts one node instead; its overrides are none."""

    counted: Callable[[Arithmetic], Arithmetic]


@dataclass(frozen=True, slots=True)
class ProfileFault:
    """Other statistics of a value: the right profile, the value's name, a generator → them."""

    profiled: Callable[[Profile, str, Random], Statistics]


Injection = GraphEdit | KernelFault | ArithmeticFault | ProfileFault


@dataclass(frozen=True, slots=True)
class Story:
    """The bug that a fault is modelled on.

    Args:
        thread: ``owner/repository#number``. sentence: what happened there, in our words.
    """

    thread: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of the catalogue.

    Args:
        name: in kebab case. summary: what it does, in one sentence. story: where it was seen.
        stage: where it sits. causes: what a right diagnosis may name, the likeliest first.
        fits: whether it can be put at an operator of a QDQ graph, and would change something there.
        injection: how it is put there.
        at_once: at how many operators; more than one of faults that are small.
    """

    name: str
    summary: str
    story: Story
    stage: Stage
    causes: tuple[Cause, ...]
    fits: Callable[[ir.Node], bool]
    injection: Injection
    at_once: int = 1

    def sites(self, quantized: ir.Model) -> tuple[str, ...]:
        """The float operators of ``quantized``, a QDQ graph, at which it can be put, in graph order."""
        return tuple(node_key(node) for node in float_operators(quantized) if self.fits(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A fault at some float operators, with the seed of what it draws there.

    Args:
        sites: as many as the fault stands at once, in graph order.
    """

    fault: Fault
    sites: tuple[str, ...]
    seed: int = 0

    @property
    def spelled(self) -> str:
        """``fault@site``; of several sites with commas between them."""
        return f"{self.fault.name}@{','.join(self.sites)}"

    def random(self, site: str) -> Random:
        """A generator for ``site``: the same in the whole graph and in any piece of it."""
        return np.random.default_rng((self.seed, zlib.crc32(site.encode())))

    def among(self, nodes: Container[str]) -> tuple[str, ...]:
        """Those of the sites that are names of ``nodes``."""
        return tuple(site for site in self.sites if site in nodes)


def draw_sites(fault: Fault, quantized: ir.Model, seed: int, count: int) -> tuple[Placed, ...]:
    """``fault`` at up to ``count`` places of ``quantized`` drawn by ``seed``, no two alike; none where it has no site.

    Args:
        quantized: in QDQ form. count: fewer come where there are fewer sites.
    """
    sites, width = fault.sites(quantized), fault.at_once
    if len(sites) < width:
        return ()
    random = np.random.default_rng((seed, zlib.crc32(fault.name.encode())))
    if width == 1:
        drawn = random.permutation(len(sites))[:count]
        return tuple(Placed(fault=fault, sites=(sites[index],), seed=seed) for index in drawn)
    chosen = {tuple(sorted(random.permutation(len(sites))[:width].tolist())): None for _ in range(count)}
    return tuple(Placed(fault=fault, sites=tuple(sites[i] for i in group), seed=seed) for group in chosen)
