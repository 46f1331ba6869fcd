"""The operands of QLinear operators: quantized value, scale and zero point of each."""

from dataclasses import dataclass

from qbench.interpreter.arrays import Array
from qbench.interpreter.kernel import KernelContext
from qbench.numerics import QParams, dequantize

_OF_RESULT = 2
_EACH = 3


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """One operand.

    Args:
        place: of its values among the inputs.
        qparams: of its codes; None: it is real.
        known: its values, or codes, where they are constant.
    """

    place: int
    qparams: QParams | None
    known: Array | None

    @property
    def varies(self) -> bool:
        """Whether it has more than one value: it is computed, or a constant array of several."""
        return self.known is None or self.known.size > 1

    @property
    def real(self) -> Array:
        """The real values of a constant.

        Raises:
            ValueError: it is computed.
        """
        if self.known is None:
            raise ValueError("an operand that is computed where a constant has to be")
        return self.known if self.qparams is None else dequantize(self.known, self.qparams)


def given_operands(making: KernelContext) -> tuple[list[Given], QParams]:
    """The operands of a node in order, those left out not among them, and the qparams of its
    result.

    Raises:
        ValueError: a scale that is computed, or a real operand that is.
    """
    end = len(making.node.inputs) - _OF_RESULT
    found = []
    for place in range(0, end, _EACH):
        if making.absent(place):
            continue
        qparams = None if making.absent(place + 1) else making.qparams(place + 1, place + 2)
        known = making.constant(place)
        if known is None and qparams is None:
            raise ValueError(f"input {place} of {making.node.op_type} is real and computed")
        found.append(Given(place, qparams, known))
    return found, making.qparams(end, end + 1)
