"""What the standard pipeline costs: seconds for graphs of 5,000, 10,000 and 20,000 nodes, and
what doubling multiplies.

    python benchmarks/pass_cost.py [--policy exact] [--profile]

Blocks of a residual network with everything that rewrites look for: requantizes with other grids,
with the same, with limits; clips of levels, movers, sums of two branches; and one chain of 2,000
requantizes. Wanted: 10,000 nodes in under 10 s, and at most 2.3 times the time for twice the nodes.
Scales differ from block to block, so that nothing that was measured in one block is known in the
next.
"""

import argparse
import cProfile
import pstats
import time

import numpy as np
import onnx_ir as ir

from qbench.passes import Policy, Rewritten, run_pipeline, standard_pipeline

SIZES = (5_000, 10_000, 20_000)
LINKS = 2_000


class Builder:
    """A graph in the making."""

    def __init__(self, seed: int = 0) -> None:
        self.x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, 8]))
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self.random = np.random.default_rng(seed)

    def node(
        self, operator: str, inputs: list[ir.Value], dtype: ir.DataType = ir.DataType.FLOAT
    ) -> ir.Value:
        """The result of a new node."""
        node = ir.Node("", operator, inputs, num_outputs=1, name=f"n{len(self.nodes)}")
        value = node.outputs[0]
        value.name, value.dtype, value.shape = f"v{len(self.nodes)}", dtype, ir.Shape([1, 8])
        self.nodes.append(node)
        return value

    def constant(self, array: "np.typing.NDArray[np.generic]") -> ir.Value:
        """A new initializer."""
        tensor = ir.tensor(array, name=f"k{len(self.constants)}")
        value = ir.Value(
            name=tensor.name,
            type=ir.TensorType(tensor.dtype),
            shape=tensor.shape,
            const_value=tensor,
        )
        self.constants.append(value)
        return value

    def grid(self, scale: float | None = None) -> tuple[ir.Value, ir.Value]:
        """Scale and zero point, at random where none is given."""
        drawn = self.random.uniform(0.01, 0.2) if scale is None else scale
        return self.constant(np.float32(drawn)), self.constant(
            np.int8(self.random.integers(-20, 20))
        )

    def quantized(
        self, real: ir.Value, grid: tuple[ir.Value, ir.Value], *, limited: bool = False
    ) -> ir.Value:
        """Levels of ``real``."""
        levels = self.node("QuantizeLinear", [real, *grid], ir.DataType.INT8)
        if limited:
            ends = [self.constant(np.int8(end)) for end in (-self.random.integers(30, 90), 90)]
            levels = self.node("Clip", [levels, *ends], ir.DataType.INT8)
        return levels

    def requantized(self, real: ir.Value, *, limited: bool = False) -> ir.Value:
        """``real`` after a pair on a grid of its own."""
        grid = self.grid()
        return self.node("DequantizeLinear", [self.quantized(real, grid, limited=limited), *grid])

    def block(self, real: ir.Value) -> ir.Value:
        """14 nodes or more: two branches of the same levels, each requantized, one moved,
        summed and clipped.
        """
        grid = self.grid()
        levels = self.quantized(real, grid)
        left, right = (self.node("DequantizeLinear", [levels, *grid]) for _ in range(2))
        left = self.requantized(self.requantized(left, limited=True))
        shape = self.constant(np.array([1, 8], np.int64))
        right = self.node("Reshape", [self.requantized(right), shape])
        total = self.node("Relu", [self.node("Add", [left, right])])
        again = self.grid()
        once = self.node("DequantizeLinear", [self.quantized(total, again), *again])
        return self.node("DequantizeLinear", [self.quantized(once, again, limited=True), *again])

    def model(self, last: ir.Value) -> ir.Model:
        """What was built, with ``last`` as its output."""
        graph = ir.Graph(
            [self.x],
            [last],
            nodes=self.nodes,
            initializers=self.constants,
            opset_imports={"": 21},
            name="blocks",
        )
        return ir.Model(graph, ir_version=10)


def blocks(nodes: int) -> ir.Model:
    """At least that many nodes of blocks."""
    made = Builder()
    value = made.x
    while len(made.nodes) < nodes:
        value = made.block(value)
    return made.model(value)


def links(count: int) -> ir.Model:
    """A chain of requantizes, every other one of the same scale."""
    made = Builder()
    value = made.x
    for index in range(count):
        grid = made.grid(0.1 if index % 2 else None)
        value = made.node(
            "DequantizeLinear", [made.quantized(value, grid, limited=index % 5 == 0), *grid]
        )
    return made.model(value)


def seconds(model: ir.Model, policy: Policy) -> tuple[float, Rewritten]:
    """Seconds of a processor for the standard pipeline, whoever else wants one,
    and what it made.
    """
    pipeline, start = standard_pipeline(policy), time.process_time()
    found = run_pipeline(model, pipeline, policy)
    return time.process_time() - start, found


def main() -> None:
    """Print a line a graph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="exact", choices=[policy.value for policy in Policy])
    parser.add_argument(
        "--profile", action="store_true", help="what takes longest in the graph of 5,000 nodes"
    )
    given = parser.parse_args()
    policy = Policy(given.policy)
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(seconds, blocks(SIZES[0]), policy)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(35)
        return
    last = None
    for name, model in (
        *((f"{size:,} nodes", blocks(size)) for size in SIZES),
        (f"{LINKS:,} links", links(LINKS)),
    ):
        took, found = seconds(model, policy)
        ratio = f"{took / last:.2f} times" if last and "nodes" in name else ""
        left = len(found.model.graph)
        print(
            f"{name:>14}  {took:6.2f} s  {ratio:11}  {len(model.graph):,} nodes → {left:,}",
            flush=True,
        )
        last = took


if __name__ == "__main__":
    main()
