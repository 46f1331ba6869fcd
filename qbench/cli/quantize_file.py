"""``qbench quantize``: a float ONNX file, its profile and a schema in, a QDQ model out."""

import argparse

from qbench.cli.command import Command, ExitCode
from qbench.cli.printing import print_json


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench quantize``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--profile", metavar="P.json", required=True, help="what 'qbench profile' wrote about it")
    parser.add_argument("--schema", metavar="S", required=True, help="how to quantize (qbench list schemas)")
    parser.add_argument("-o", "--output", metavar="OUT.onnx", required=True, help="the model to write")
    parser.add_argument("--backend", metavar="B", help="plan for what this backend can do (default: whatever ONNX can)")
    parser.add_argument("--why", action="store_true", help="print every decision, and every reason to stay in float")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Plan, write, say what stayed float.

    Raises:
        QbenchError: the model, the profile or the schema is wrong, or the file cannot be written.
    """
    from qbench.backends import get_backend
    from qbench.calibration import Profile
    from qbench.graph import load_model, save_model
    from qbench.quantization import get_schema, make_plan, quantize_model

    schema = get_schema(arguments.schema)
    capabilities = get_backend(arguments.backend).capabilities if arguments.backend else None
    model = load_model(arguments.model)
    plan = make_plan(model, Profile.load(arguments.profile), schema, capabilities=capabilities)
    save_model(quantize_model(model, plan), arguments.output)
    lines = plan.lines()
    if arguments.json:
        facts = {"output": arguments.output, "integer_macs": plan.integer_macs, "macs": plan.macs}
        print_json(facts | {"refusals": plan.refusals} | ({"decisions": lines[1:]} if arguments.why else {}))
        return ExitCode.FINE
    print(f"{arguments.output}: {lines[0]}")
    for line in lines[1:] if arguments.why else (f"  {refusal}" for refusal in plan.refusals):
        print(line)
    return ExitCode.FINE


COMMAND = Command(
    name="quantize",
    summary="write a float ONNX file as a QDQ model",
    example="qbench quantize net.onnx --profile p.json --schema w8a8_asym_pc -o q.onnx",
    declare=declare,
    execute=execute,
)
