"""``qbench quantize``: a float ONNX file, its profile and a schema in, a quantized model out."""

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from qbench.cli.chosen_schema import choose_schema, refuse_idle_rules
from qbench.cli.command import Command, ExitCode
from qbench.cli.correct_bias import corrected_on_samples, declare_correction, wants_correction
from qbench.cli.output_files import check_outputs
from qbench.cli.printing import print_json, put, terminal_width
from qbench.cli.read_quantized import read_given_plan
from qbench.cli.written_form import declare_form, declare_sizes, in_form, read_saved_plan, unknown_sizes
from qbench.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.quantization import Plan


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench quantize``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or a model of the zoo")
    parser.add_argument(
        "--profile", metavar="P.json", help="what 'qbench profile' wrote about it; none is needed for weights alone"
    )
    parser.add_argument("--schema", metavar="S", help="how to quantize: a name (qbench list schemas) or a .toml")
    parser.add_argument("-o", "--output", metavar="OUT.onnx", help="the model to write")
    parser.add_argument("--backend", metavar="B", help="plan for what this backend can do (default: whatever ONNX can)")
    parser.add_argument("--why", action="store_true", help="print every decision, and every reason to stay in float")
    parser.add_argument(
        "--read", action="store_true", help="MODEL is quantized already: say how; with -o, write it as our QDQ too"
    )
    declare_form(parser)
    declare_correction(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Plan (or read the plan), write, say what stayed float.

    Raises:
        QbenchError: the model, the profile or the schema is wrong or missing, or the file cannot be written.
    """
    from qbench.graph import save_model
    from qbench.quantization import bias_correction_of, quantize_model, save_plan

    by_schema = bool(arguments.schema) and choose_schema(arguments.schema).bias_correction
    corrects = wants_correction(arguments, by_schema=by_schema)
    check_outputs(
        f"Quantizing '{arguments.model}'",
        {"--output": arguments.output, "--save-plan": arguments.save_plan},
        (arguments.model, arguments.profile, arguments.plan, arguments.schema, arguments.data),
    )
    model, plan = _model_and_plan(arguments)
    correction, left = None, dict[str, str]()
    if arguments.output:
        quantized = quantize_model(model, plan)
        if corrects:
            quantized = corrected_on_samples(arguments, model, quantized, plan)
            correction = bias_correction_of(quantized)
        quantized, left = in_form(quantized, arguments.form)
        save_model(quantized, arguments.output)
    if arguments.save_plan:
        save_plan(plan, arguments.save_plan)
    width = None if arguments.json else terminal_width()
    lines, unknown = plan.lines(width), unknown_sizes(model)
    if arguments.json:
        facts = {"output": arguments.output, "integer_macs": plan.integer_macs, "macs": plan.macs}
        facts |= {"units": len(plan.requested), "units_on_grids": len(plan.quantized_units)}
        facts["bias_correction"] = None if correction is None else str(correction)
        facts |= {"form": arguments.form, "left_in_float": left, "unknown_sizes": unknown}
        print_json(facts | {"refusals": plan.refusals} | ({"decisions": lines[1:]} if arguments.why else {}))
        return ExitCode.FINE
    put(f"{arguments.output or arguments.model}: {lines[0]}")
    if correction is not None:
        put(f"  {correction}")
    if unknown:
        put(f"  the usual size of {', '.join(unknown)} is unknown and counts as 1: give it with --size {unknown[0]}=…")
    for line in lines[1:] if arguments.why else (f"  {refusal}" for refusal in plan.refusals):
        put(line)
    for name, reason in left.items():
        put(f"  {name} stays between Q and DQ: {reason}")
    return ExitCode.FINE


def _model_and_plan(arguments: argparse.Namespace) -> "tuple[ir.Model, Plan]":
    if arguments.plan:
        return read_saved_plan(arguments)
    return read_given_plan(arguments) if arguments.read else _planned(arguments)


def _planned(arguments: argparse.Namespace) -> "tuple[ir.Model, Plan]":
    from qbench.backends import get_backend
    from qbench.calibration import Profile
    from qbench.cli.own_subject import read_graph
    from qbench.quantization import make_plan

    schema = choose_schema(arguments.schema) if arguments.schema else None
    needs_profile = schema is None or schema.needs_profile
    for name, needed in (("profile", needs_profile), ("schema", True), ("output", not arguments.save_plan)):
        if needed and not getattr(arguments, name):
            raise InputError(
                f"Quantizing '{arguments.model}'",
                found=f"no --{name}",
                expected="--profile, --schema and --output, or --read for a model that is quantized already",
                remedy=f"Add --{name}.",
            )
    assert schema is not None
    capabilities = get_backend(arguments.backend).capabilities if arguments.backend else None
    model = read_graph(arguments.model)
    declare_sizes(model, arguments)
    profile = Profile.load(arguments.profile) if arguments.profile else None
    plan = make_plan(model, profile, schema, capabilities=capabilities)
    refuse_idle_rules(schema.name, arguments.model, plan.idle_rules)
    _refuse_all_float(arguments, plan)
    return model, plan


def _refuse_all_float(arguments: argparse.Namespace, plan: "Plan") -> None:
    """Check that something is quantized where the schema asks for it.

    Raises:
        UnsupportedError: everything it asks for is refused.
    """
    refused = Counter(found.reason for found in plan.floats.values() if found.refused)
    if plan.quantized_units or not refused:
        return
    if arguments.why and not arguments.json:
        for line in plan.lines(terminal_width()):
            put(line)
    ((reason, count),) = refused.most_common(1)
    raise UnsupportedError(
        f"Quantizing '{arguments.model}' under '{plan.schema}'",
        found=f"nothing that can go on a grid: {refused.total()} units are refused, {count} of them because {reason}",
        expected="at least one unit on a grid",
        remedy="Choose another schema or backend; --why says it of every unit.",
    )


COMMAND = Command(
    name="quantize",
    summary="write a float ONNX file as a quantized model",
    example="qbench quantize net.onnx --profile p.json --schema w8a8_asym_pc -o q.onnx",
    declare=declare,
    execute=execute,
)
