"""What a schema asks of one unit, in words, of the slots that the unit has."""

from qbench.calibration import Unit
from qbench.graph import is_constant, operator_facts
from qbench.quantization.candidates import is_recurrent
from qbench.quantization.schema import Wishes


def requested_of(unit: Unit, wishes: Wishes) -> str:
    """``wishes`` without those for slots that ``unit`` lacks; ``float`` when nothing is left."""
    index = operator_facts(unit.head).weight
    weight = None if index is None or index >= len(unit.head.inputs) else unit.head.inputs[index]
    weighs = is_recurrent(unit.head) or is_constant(weight)
    output = None if wishes.output is not None and wishes.output.dynamic else wishes.output
    named = (
        ("input", wishes.input),
        ("weight", wishes.weight if weighs else None),
        ("correlation", None if index is None else wishes.correlation),
        ("bias", wishes.bias if weighs and wishes.weight is not None and unit.bias_operand is not None else None),
        ("sum", None if index is None else wishes.sum),
        ("output", output),
    )
    words = [f"{name} {spec}" for name, spec in named if spec is not None]
    if any(spec is not None for _, spec in named):
        words += [f"one grid for its {share.value}" for share in sorted(wishes.share, key=lambda share: share.value)]
    return "; ".join(words) or "float"
