"""Random trees of grids for tests of rewrites: levels and reals that are requantized,
combined, moved and read.
"""

import numpy as np
import onnx_ir as ir
from chains import Grid, run_machine, run_qdq, text
from hypothesis import strategies as st

from qbench.numerics import QParams
from qbench.passes import Pipeline, Policy, run_pipeline
from qbench.passes.requantization.tables import critical_reals

SCALES = (0.25, 0.5, 0.75, 1.0, 0.1, 0.2, 0.3)
SIZE = 4096
OLDER = 40
"""Of 100 steps, how many read any levels; the others read those made last."""
UNARY = ("Relu", "Softsign", "Neg", "Abs", "Tanh")
BINARY = ("Add", "Sub", "Max", "Mul")

GRIDS = st.builds(
    Grid,
    scale=st.sampled_from(SCALES),
    zero=st.sampled_from([0, 0, -7, 3, 100]),
    low=st.sampled_from([None, None, None, 0, 1]),
    high=st.sampled_from([None, None, 2, 50, 90]),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["requantize", "again", "near", "near", "near", "unary", "binary", "moved", "real"]
        ),
        st.integers(0, 99),
        st.integers(0, 99),
        GRIDS,
    ),
    min_size=2,
    max_size=9,
)


def tree(first: Grid, steps: list[tuple[str, int, int, Grid]]) -> ir.Model:
    """Levels u and reals x; every step reads what is there and puts its result on a grid;
    leaves are outputs.
    """
    made = _Making(first)
    for kind, one, other, grid in steps:
        made.step(kind, one, other, grid)
    return made.model()


def feeds(seed: int = 0) -> dict[str, np.ndarray]:
    """Every level, and both sides of every step of every scale; the rest at random."""
    generator = np.random.default_rng(seed)
    reals = steps_of(*SCALES)
    reals = np.concatenate([reals, generator.normal(scale=20, size=SIZE - len(reals))]).astype(
        np.float32
    )
    return {
        "x": generator.permutation(reals),
        "u": np.resize(np.arange(-128, 128), SIZE).astype(np.int8),
    }


def steps_of(*scales: float) -> np.ndarray:
    """Both sides of every step of int8 grids; no infinities,
    which ONNX's evaluator wraps round a zero point.
    """
    found = np.concatenate([critical_reals(QParams(scale, 0, "int8")) for scale in scales])
    return found[np.isfinite(found)]


def rewritten(model: ir.Model, *passes: object, policy: Policy = Policy.EXACT) -> ir.Model:
    """``model`` after ``passes``, until nothing changes."""
    return run_pipeline(model, Pipeline(passes), policy).model  # type: ignore[arg-type]


def assert_same(before: ir.Model, after: ir.Model, **given: np.ndarray) -> None:
    """Every output bit is the same in floats and on the ideal machine."""
    for run in (run_qdq, run_machine):
        wanted, found = run(before, **given), run(after, **given)
        assert wanted.keys() == found.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(
                found[name].view(np.uint8), array.view(np.uint8), err_msg=name
            )


def _near(grid: Grid, which: int) -> Grid:
    """A grid that has every level of ``grid``, or has them but for some that saturate."""
    middle = {"int8": 0, "uint8": 128, "int16": 0}
    zero = grid.zero - middle[grid.qtype]
    return (
        Grid(grid.scale, zero + 128, qtype="uint8"),
        Grid(grid.scale / 2, zero, qtype="int16"),
        Grid(grid.scale, zero // 2),
        Grid(grid.scale / 2, zero, low=-90),
    )[which % 4]


class _Making:
    def __init__(self, first: Grid) -> None:
        self.constants = [
            f"float su = {{{first.scale!r}}}",
            f"int8 zu = {{{first.zero}}}",
            "int64[1] flat = {-1}",
        ]
        self.lines: list[str] = []
        self.levels: list[tuple[str, str]] = [("u", "u")]  # the value, and the name of its grid
        self.grids = {"u": first}
        self.count = 0
        self._quantized("x", first)

    def step(self, kind: str, one: int, other: int, grid: Grid) -> None:
        value = self._real(one)
        if kind == "requantize":
            self._quantized(value, grid)
        elif kind == "again":  # the grid it is on, with other limits, all of which any type has
            before = self.grids[self._at(one)[1]]
            self._quantized(
                value, Grid(before.scale, before.zero, grid.low, grid.high, before.qtype)
            )
        elif kind == "near":
            self._quantized(value, _near(self.grids[self._at(one)[1]], other))
        elif kind == "unary":
            self._quantized(self._made(f"{UNARY[other % len(UNARY)]}({value})"), grid)
        elif kind == "binary":
            self._quantized(
                self._made(f"{BINARY[one % len(BINARY)]}({value}, {self._real(other)})"), grid
            )
        elif kind == "moved":
            self._quantized(self._made(f"Reshape({value}, flat)"), grid)
        else:
            self._made(f"Cos({value})")

    def model(self) -> ir.Model:
        read = " ".join(line.split(" = ", 1)[1] for line in self.lines)
        names = [line.split(" = ", 1)[0] for line in self.lines]
        words = set(read.replace("(", " ").replace(")", " ").replace(",", " ").split())
        outputs = [name for name in names if name not in words and not name.startswith(("q", "c"))]
        for name in [one for one in names if one not in words and one.startswith(("q", "c"))]:
            grid = next(grid for value, grid in self.levels if value == name)
            outputs.append(self._made(f"DequantizeLinear({name}, s{grid}, z{grid})"))
        body = ", ".join(f"float[{SIZE}] {name}" for name in outputs)
        return text(f"float[{SIZE}] x, int8[{SIZE}] u", body, self.constants, self.lines)

    def _real(self, index: int) -> str:
        value, grid = self._at(index)
        return self._made(f"DequantizeLinear({value}, s{grid}, z{grid})")

    def _at(self, index: int) -> tuple[str, str]:
        return self.levels[-1 if index > OLDER else index % len(self.levels)]

    def _made(self, call: str) -> str:
        self.count += 1
        self.lines.append(f"r{self.count} = {call}")
        return f"r{self.count}"

    def _quantized(self, value: str, grid: Grid) -> None:
        self.count += 1
        name = str(self.count)
        self.grids[name] = grid
        self.constants += [
            f"float s{name} = {{{grid.scale!r}}}",
            f"{grid.qtype} z{name} = {{{grid.zero}}}",
        ]
        self.lines.append(f"q{name} = QuantizeLinear({value}, s{name}, z{name})")
        ends = [("l", grid.low), ("h", grid.high)]
        if any(end is not None for _, end in ends):
            self.constants += [
                f"{grid.qtype} {word}{name} = {{{end}}}" for word, end in ends if end is not None
            ]
            given = ", ".join("" if end is None else f"{word}{name}" for word, end in ends).rstrip(
                ", "
            )
            self.lines.append(f"c{name} = Clip(q{name}, {given})")
            self.levels.append((f"c{name}", name))
        else:
            self.levels.append((f"q{name}", name))
