"""y = Conv(x, w, b)  →  y = Conv(x, w) + b', b' of shape [C, 1, …]: for a device whose
convolutions add no bias.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.passes import Effect, apply_rules, rewrite_rule, within


def pattern(op, x, w, b):
    return op.Conv(x, w, b, _outputs=["y"])


def replacement(op, x, w, b, y):
    axes = op.initializer(ir.tensor(list(range(1, len(w.shape) - 1))), name=f"{y.name}.axes")
    return op.Add(op.Conv(x, w, **y.producer().attributes), op.Unsqueeze(b, axes))


def refusal(x, w, b, y):
    return "nothing says how many axes it has" if w.shape is None else None


@dataclass(frozen=True, slots=True)
class SplitBias:
    """The bias of a Conv becomes an Add behind it;
    what was one sum of integers is rounded twice.
    """

    name: str = "own-split-bias"
    before: tuple[str, ...] = ("remove-dead",)
    after: tuple[str, ...] = ()
    effect: ClassVar[Effect] = within(1)

    def run(self, model):
        return apply_rules(model, [rewrite_rule(pattern, replacement, refusal)], by=self.name)
