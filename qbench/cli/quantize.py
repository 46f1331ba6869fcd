"""qbench quantize: a float model, its profile and a schema in, a quantized model out."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    check_outputs,
    check_plot_of,
    choose_cache,
    choose_own_schema,
    declare_cache,
    declare_count,
    declare_json,
    declare_model,
    declare_planned_backend,
    declare_plot,
    declare_ranges,
    draw_values,
    read_samples,
    refuse_idle_rules,
    refuse_idle_settings,
    with_ranges_by_hand,
)
from qbench.cli.printing import print_json, put, say, terminal_width
from qbench.errors import InputError, nearest
from qbench.number_text import counted

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.calibration import Profile
    from qbench.quantization import BiasCorrection, Plan, Schema, Stub, WeightFit


# ``qbench quantize --calib``: samples that ranges are taken from where there is no profile, and
# that biases are corrected on.


def declare_samples(parser: argparse.ArgumentParser) -> None:
    """The arguments that are about them."""
    parser.add_argument(
        "--correct-bias",
        action="store_true",
        help=(
            "move every bias by the mean error that quantization leaves on --calib (implied by "
            "some schemas)"
        ),
    )
    parser.add_argument(
        "--calib",
        "--data",
        dest="data",
        metavar="D",
        help=(
            "calibration samples, written as for 'qbench eval': without --profile the ranges are "
            "of these"
        ),
    )
    declare_count(parser)
    declare_cache(parser)


def takes_ranges(arguments: argparse.Namespace, schema: "Schema | None") -> bool:
    """Whether the ranges are those of the samples: ``schema`` needs ranges, and no other option
    has them.
    """
    has_others = arguments.profile or arguments.plan or arguments.read
    return bool(arguments.data) and not has_others and schema is not None and schema.needs_profile


_OF_SAMPLES = "a schema that fits weights or corrects biases"


def wants_correction(
    arguments: argparse.Namespace, *, by_schema: bool, has_use: bool, of_weights: bool
) -> bool:
    """Whether biases are to be corrected; ``by_schema``: the schema requires it; ``has_use``:
    ranges need the samples; ``of_weights``: the schema needs none, which a note says, so that one
    command line serves every schema.

    Raises:
        InputError: there are no samples to do it with, or samples and nothing to do with them; or
            the model came quantized, with no float graph to compare it with.
    """
    doing = f"Quantizing '{arguments.model}'"
    wanted = bool(arguments.correct_bias) or by_schema
    if wanted and arguments.read:
        raise InputError(
            doing,
            found="--correct-bias with --read",
            expected="a float model, whose means the quantized one is corrected to",
            remedy="Leave --correct-bias out, or quantize the float model.",
        )
    if wanted and not arguments.data:
        raise InputError(
            doing,
            found=f"{_OF_SAMPLES if by_schema else '--correct-bias'} without --calib",
            expected="samples to take means from",
            remedy="Add --calib, the samples that the profile is of.",
        )
    if arguments.data and not wanted and not has_use and not of_weights:
        raise InputError(
            doing,
            found="--calib that nothing reads",
            expected="samples only where ranges are taken from them, or biases corrected",
            remedy=(
                "Add --correct-bias, or leave --calib out; ranges come from it only without "
                "--profile."
            ),
        )
    if arguments.data and not wanted and not has_use:
        say("note: --calib is not needed: the schema takes no ranges from samples")
    return wanted


def corrected_on_samples(
    arguments: argparse.Namespace, model: "ir.Model", quantized: "ir.Model", plan: "Plan"
) -> "ir.Model":
    """``quantized`` with weights fitted and biases corrected, as ``plan`` and ``arguments`` ask, on
    the samples that ``arguments`` name.

    Raises:
        QbenchError: the data is wrong or does not fit the model.
    """
    from qbench.evaluation import fed_batches
    from qbench.quantization import adjusted_on_samples, correct_biases

    network, samples = read_samples(
        arguments.model, arguments.data, arguments.count, choose_cache(arguments.cache)
    )
    feeds = list(fed_batches(network, samples))
    quantized = adjusted_on_samples(model, quantized, plan, feeds)
    if arguments.correct_bias and not plan.corrects_biases:
        quantized = correct_biases(model, quantized, plan, feeds)
    return quantized


# ``qbench quantize --read``: the plan of a model that is quantized already.

_OF_PLANNING = ("profile", "schema", "backend", "ranges", "complete")


def read_given_plan(arguments: argparse.Namespace) -> "tuple[ir.Model, Plan]":
    """The model and the plan read out of it.

    Raises:
        InputError: settings of planning are given too, the file is not a model, or the model is
            float.
    """
    from qbench.graph import Form, form_of
    from qbench.quantization import read_plan
    from qbench.subjects import read_graph

    doing = f"Reading the quantized model '{arguments.model}'"
    refuse_idle_settings(arguments, _OF_PLANNING, with_option="read", doing=doing)
    model = read_graph(arguments.model)
    if form_of(model) is Form.FLOAT:
        raise InputError(
            doing,
            found="a float model",
            expected="a model with Q/DQ pairs or integer operators",
            remedy="Quantize it first: --profile, --schema and -o.",
        )
    return model, read_plan(model)


# ``qbench quantize``: the form that is written, plans from and into files, and the sizes of free
# dimensions.

_PLANNING_OPTIONS = ("profile", "schema", "backend", "read", "ranges", "complete")
_FORMS = ("qdq", "qoperator", "nbits", "gqa")


def declare_form(parser: argparse.ArgumentParser) -> None:
    """The arguments that are about it."""
    parser.add_argument(
        "--form",
        choices=_FORMS,
        default="qdq",
        help=(
            "Q/DQ pairs (default); QLinearConv and similar operators where they exist; nbits: "
            "MatMulNBits for weights in blocks, and GatherBlockQuantized for tables that the model "
            "has in blocks already; gqa: GroupQueryAttention for quantized keys and values"
        ),
    )
    parser.add_argument(
        "--plan",
        metavar="P.json",
        help="use this plan, written by --save-plan, instead of making one",
    )
    parser.add_argument("--save-plan", metavar="P.json", help="also save the plan")
    parser.add_argument(
        "--size",
        metavar="DIM=N",
        action="listed",
        default=[],
        item=_size,
        help=(
            "the usual size of a free dimension, as in H=224, to count multiply-accumulates; "
            "repeatable"
        ),
    )


def read_saved_plan(arguments: argparse.Namespace) -> "tuple[ir.Model, Plan]":
    """The float model, and the plan in the file that ``--plan`` names.

    Raises:
        InputError: settings of planning are given too, or a file is not a model or not a plan.
    """
    from qbench.passes import plannable
    from qbench.quantization import load_plan, with_clips_of, with_integers_of
    from qbench.subjects import read_graph

    refuse_idle_settings(
        arguments,
        _PLANNING_OPTIONS,
        with_option="plan",
        doing=f"Writing the plan '{arguments.plan}'",
    )
    model, plan = read_graph(arguments.model), load_plan(arguments.plan)
    graph = plannable(model, plan.canonical)
    return model, with_integers_of(graph, with_clips_of(graph, plan))


def declare_sizes(model: "ir.Model", arguments: argparse.Namespace) -> None:
    """Write the sizes that ``--size`` gives into ``model``.

    Raises:
        InputError: a name that no free dimension of an input has.
    """
    from qbench.graph import declare_dims, declared_dims

    sizes, free = dict(arguments.size), _free_dims(model)
    for name in sizes:
        if name not in free:
            close = nearest(name, free)
            raise InputError(
                f"Reading --size for '{arguments.model}'",
                found=f"a dimension '{name}'",
                expected=f"a free dimension of an input: {', '.join(free) or 'it has none'}",
                remedy=f"Did you mean '{close}'?" if close else "Leave it out.",
            )
    if sizes:
        declare_dims(model, declared_dims(model) | sizes)


def unknown_sizes(model: "ir.Model") -> tuple[str, ...]:
    """The free dimensions, after the batch, that count as 1 because their usual size is unknown."""
    from qbench.graph import declared_dims

    known = declared_dims(model)
    return tuple(
        name for name, axes in _free_dims(model).items() if max(axes) > 0 and name not in known
    )


def in_form(model: "ir.Model", form: str) -> "tuple[ir.Model, dict[str, str]]":
    """The QDQ ``model`` in ``form``, and the nodes that stay float in it though they read
    integers, with the reason.
    """
    from qbench.passes import (
        declined,
        lower_attention,
        lower_blocks,
        lower_to_qoperator,
        require_codes_inside,
    )

    if form == "gqa":
        return lower_attention(model), {}
    require_codes_inside(model)
    if form == "qdq":
        return model, {}
    if form == "nbits":
        return lower_blocks(model)
    lowered = lower_to_qoperator(model)
    return lowered, declined(lowered)


def _free_dims(model: "ir.Model") -> dict[str, set[int]]:
    """Name of a free dimension of an input → the axes that have it."""
    found: dict[str, set[int]] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and dim.value:
                found.setdefault(str(dim.value), set()).add(axis)
    return found


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not (name and size.isdecimal() and int(size)):
        raise argparse.ArgumentTypeError(
            f"found '{text}'; expected a dimension and its size, as in H=224"
        )
    return name, int(size)


# ``qbench quantize`` of a model with Q/DQ pairs that were placed by hand.

_STUBS_NAMED = 8


def _goes_by_stubs(
    arguments: argparse.Namespace, schema: "Schema | None", stubs: "Sequence[Stub]"
) -> bool:
    """Whether nothing is quantized but what the pairs of the model stand in front of.

    Raises:
        InputError: ``--complete`` has nothing to complete.
    """
    found = ""
    if arguments.complete and not stubs:
        found = "--complete for a model without a Q/DQ pair on a value"
    elif arguments.complete and schema is not None and schema.weights_only:
        found = f"--complete with '{schema.name}', which quantizes weights alone"
    if found:
        raise InputError(
            f"Quantizing '{arguments.model}'",
            found=found,
            expected="pairs placed by hand, and a schema with activations to quantize the rest",
            remedy="Leave --complete out.",
        )
    is_whole = schema is None or schema.weights_only
    return bool(stubs) and not arguments.complete and not is_whole


def _stub_lines(done: "_Quantized") -> list[str]:
    """What was found, and what stays float for want of a pair."""
    stubs = done.stubs
    if not stubs:
        return []
    more = f"    and {counted(len(stubs) - _STUBS_NAMED, 'more pair')}"
    lines = [
        f"  {counted(len(stubs), 'Q/DQ pair')} placed by hand, kept:",
        *(f"    {stub}" for stub in stubs[:_STUBS_NAMED]),
        *[more][: len(stubs) > _STUBS_NAMED],
    ]
    waiting = _without_stubs(done.plan)
    if waiting:
        lines.append(
            f"  {len(waiting)} of {counted(len(done.plan.requested), 'unit')} read a value without "
            "a pair and stay in float; --complete quantizes these, too"
        )
    return lines


def _without_stubs(plan: "Plan") -> list[str]:
    from qbench.quantization import NO_STUB

    return [name for name, found in plan.floats.items() if NO_STUB in found.reason]


# ``qbench quantize``: a float ONNX file, its profile and a schema in, a quantized model out.


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench quantize``."""
    parser.description = f"{parser.description}{_FORMS_OF_USE}"
    declare_model(parser)
    parser.add_argument(
        "--profile",
        metavar="P.json",
        help=(
            "profile of the model, written by 'qbench profile'; not needed with --calib, or for "
            "weights alone"
        ),
    )
    parser.add_argument(
        "--schema", metavar="S", help="how to quantize: a name (qbench list schemas) or a .toml"
    )
    parser.add_argument("-o", "--output", metavar="OUT.onnx", help="the model to write")
    declare_planned_backend(parser)
    parser.add_argument(
        "--why",
        action="store_true",
        help="print every decision, and the reason for every unit that stays in float",
    )
    parser.add_argument(
        "--read",
        action="store_true",
        help="MODEL is quantized already: print its plan; with -o, also write it in our QDQ form",
    )
    parser.add_argument(
        "--complete",
        action="store_true",
        help=(
            "MODEL has Q/DQ pairs placed by hand: also quantize what none of them is in front of"
        ),
    )
    declare_ranges(parser)
    declare_form(parser)
    declare_samples(parser)
    declare_plot(
        parser, "every quantized value and weight: its histogram, range, clipping and codes"
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Plan (or read the plan), write, say what stayed float.

    Raises:
        QbenchError: the model, the profile or the schema is wrong or missing, or the file cannot be
            written.
    """
    from qbench.graph import save_model
    from qbench.quantization import (
        bias_correction_of,
        quantize_model,
        save_plan,
        stubs_of,
        weight_fit_of,
    )

    schema = _schema_of(arguments)
    by_schema = schema is not None and (schema.bias_correction or schema.fits_weights)
    corrects = wants_correction(
        arguments,
        by_schema=by_schema,
        has_use=takes_ranges(arguments, schema),
        of_weights=schema is not None and not schema.needs_samples,
    )
    check_outputs(
        f"Quantizing '{arguments.model}'",
        {"--output": arguments.output, "--save-plan": arguments.save_plan},
        (
            arguments.model,
            arguments.profile,
            arguments.plan,
            arguments.schema,
            arguments.data,
            arguments.ranges,
        ),
    )
    check_plot_of(arguments, f"Quantizing '{arguments.model}'")
    model, plan, profile = _model_and_plan(arguments)
    fit, correction, left = None, None, dict[str, str]()
    if arguments.output:
        quantized = quantize_model(model, plan)
        if corrects:
            quantized = corrected_on_samples(arguments, model, quantized, plan)
            fit, correction = weight_fit_of(quantized), bias_correction_of(quantized)
        quantized, left = in_form(quantized, arguments.form)
        save_model(quantized, arguments.output)
    if arguments.save_plan:
        save_plan(plan, arguments.save_plan)
    done = _Quantized(
        plan=plan,
        fit=fit,
        correction=correction,
        left=left,
        unknown=unknown_sizes(model),
        stubs=() if arguments.read else stubs_of(model),
        drawn=_drawn(arguments, model, plan, profile),
    )
    if arguments.json:
        print_json(_facts(arguments, done))
    else:
        _print(arguments, done)
    return ExitCode.FINE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantized:
    """What was done: the plan, the fit of weights, the correction of biases, node → why it stays
    between Q and DQ, unknown sizes, pairs that the model came with.
    """

    plan: "Plan"
    fit: "WeightFit | None"
    correction: "BiasCorrection | None"
    left: Mapping[str, str]
    unknown: Sequence[str]
    stubs: "Sequence[Stub]"
    drawn: str


def _facts(arguments: argparse.Namespace, done: _Quantized) -> dict[str, Any]:
    plan = done.plan
    facts = {
        "output": arguments.output,
        "integer_macs": plan.integer_macs,
        "macs": plan.macs,
        "units": len(plan.requested),
        "units_on_grids": len(plan.quantized_units),  # stored name
        "weight_fit": None if done.fit is None else str(done.fit),
        "bias_correction": None if done.correction is None else str(done.correction),
        "form": arguments.form,
        "left_in_float": done.left,
        "unknown_sizes": done.unknown,
        "refusals": plan.refusals,
        "run_in_float": dict(plan.run_in_float),
        "stubs": [
            {"value": stub.value, "node": stub.node, "readers": stub.readers} for stub in done.stubs
        ],
        "without_stubs": _without_stubs(plan),
        **({"plot": arguments.plot} if done.drawn else {}),
    }
    if arguments.why:
        facts["decisions"] = plan.lines(None, arguments.backend or "the backend")[1:]
    return facts


def _print(arguments: argparse.Namespace, done: _Quantized) -> None:
    lines = done.plan.lines(terminal_width(), arguments.backend or "the backend")
    put(f"{arguments.output or arguments.model}: {lines[0]}")
    for line in _stub_lines(done):
        put(line)
    for change in (done.fit, done.correction):
        if change is not None:
            put(f"  {change}")
    if done.unknown:
        named = ", ".join(done.unknown)
        put(
            f"  the usual size of {named} is unknown and counts as 1: give it with --size "
            f"{done.unknown[0]}=…"
        )
    for line in lines[1:] if arguments.why else _float_lines(done.plan, arguments.backend):
        put(line)
    for name, reason in done.left.items():
        put(f"  {name} stays between Q and DQ: {reason}")
    if done.drawn:
        put(done.drawn)


def _drawn(
    arguments: argparse.Namespace, model: "ir.Model", plan: "Plan", profile: "Profile | None"
) -> str:
    """Draw the values and weights, and what was drawn, in words; empty without ``--plot``."""
    from qbench.diagnosis import distributions_of_plan

    if not arguments.plot:
        return ""
    text = draw_values(arguments, distributions_of_plan(plan, model, profile))
    return text if profile is not None else f"{text}; of weights alone: there is no profile"


_FORMS_OF_USE = """

forms:
  MODEL --calib D --schema S -o OUT.onnx         ranges from samples
  MODEL --profile P.json --schema S -o OUT.onnx  ranges from a profile
  MODEL --schema S -o OUT.onnx                   weights only, or _dyn; or what
                                                 Q/DQ pairs in MODEL are before
  MODEL --plan P.json -o OUT.onnx                a saved plan
  MODEL --read [-o OUT.onnx]                     the plan of a quantized MODEL
With --save-plan, -o may be left out."""

_NAMED = 4
"""Units of one line."""


def _float_lines(plan: "Plan", backend: str | None) -> list[str]:
    """What stays in float, and what runs in float between qparams; equal reasons in one line."""
    units: dict[str, list[str]] = {}
    for name, reason in plan.run_in_float.items():
        units.setdefault(reason, []).append(name)
    by = backend or "the backend"
    lines = (
        f"  {by} runs "
        f"{', '.join(names[:_NAMED])}{f' and {len(names) - _NAMED} more' * (len(names) > _NAMED)} "
        f"in float: {reason}"
        for reason, names in units.items()
    )
    own = plan.own_biases
    few = (
        f"  {counted(len(own), 'bias', 'biases')} at own scales: few backends add such in integers "
        "(--backend B)"
    )
    return [
        *(f"  {refusal}" for refusal in plan.refusals),
        *lines,
        *([few] if own and backend is None else []),
    ]


def _model_and_plan(
    arguments: argparse.Namespace,
) -> "tuple[ir.Model, Plan, Profile | None]":
    if arguments.plan:
        return (*read_saved_plan(arguments), None)
    return (*read_given_plan(arguments), None) if arguments.read else _planned(arguments)


def _schema_of(arguments: argparse.Namespace) -> "Schema | None":
    """The schema, with the ranges by hand, where the command line names it."""
    if not arguments.schema:
        return None
    return with_ranges_by_hand(
        choose_own_schema(arguments.schema, f"Quantizing '{arguments.model}'"), arguments
    )


def _planned(arguments: argparse.Namespace) -> "tuple[ir.Model, Plan, Profile | None]":
    from qbench.backends import get_backend
    from qbench.calibration import Profile
    from qbench.quantization import is_quantized, make_plan, of_stubs_alone, stubs_of
    from qbench.subjects import read_graph

    schema = _schema_of(arguments)
    model = read_graph(arguments.model)
    by_stubs = _goes_by_stubs(arguments, schema, stubs_of(model))
    needs_profile = not by_stubs and (schema is None or schema.needs_profile)
    for name, needed in (
        ("profile", needs_profile),
        ("schema", True),
        ("output", not arguments.save_plan),
    ):
        if needed and not getattr(arguments, name) and not (name == "profile" and arguments.data):
            raise InputError(
                f"Quantizing '{arguments.model}'",
                found=f"no --{name}",
                expected=(
                    "--calib or --profile, --schema and --output, or --read for a model that is "
                    "quantized already"
                ),
                remedy="Add --calib, calibration samples."
                if name == "profile"
                else f"Add --{name}.",
            )
    assert schema is not None
    capabilities = get_backend(arguments.backend).capabilities if arguments.backend else None
    if is_quantized(model):
        raise InputError(
            f"Quantizing '{arguments.model}' under '{schema.name}'",
            found="a model that is quantized already: it would keep its quantization parameters",
            expected="a float model",
            remedy="Quantize the float file; --read prints the plan that this one has.",
        )
    declare_sizes(model, arguments)
    profile = Profile.load(arguments.profile) if arguments.profile else None
    if takes_ranges(arguments, schema):
        profile = _profiled(arguments, schema)
    if by_stubs:
        known = profile or _nothing_seen(model, schema)
        plan = make_plan(model, known, of_stubs_alone(schema, model), capabilities=capabilities)
    else:
        plan = make_plan(model, profile, schema, capabilities=capabilities)
        refuse_idle_rules(schema.name, arguments.model, plan.idle_rules)
    _refuse_all_float(arguments, plan)
    return model, plan, profile


def _nothing_seen(model: "ir.Model", schema: "Schema") -> "Profile":
    """A profile of no sample: pairs that are there need no ranges."""
    from qbench.calibration import Profile
    from qbench.passes import plannable, plannable_digest

    return Profile(plannable_digest(plannable(model, schema.canonical)), {}, 0, {})


def _profiled(arguments: argparse.Namespace, schema: "Schema") -> "Profile":
    """The profile of the model on the samples that ``arguments`` name, with what ``schema``
    needs of it.

    Raises:
        QbenchError: the data is wrong or does not fit the model, or a value is not finite.
    """
    from qbench.evaluation import profile_of

    network, samples = read_samples(
        arguments.model, arguments.data, arguments.count, choose_cache(arguments.cache)
    )
    return profile_of(network, samples, pipeline=schema.canonical, channels=schema.wants_channels)


def _refuse_all_float(arguments: argparse.Namespace, plan: "Plan") -> None:
    """Check that something is quantized where the schema asks for it; ``--why`` prints the reasons
    first.

    Raises:
        UnsupportedError: everything it asks for is refused.
    """
    from qbench.quantization import refuse_all_float, why_all_float

    if arguments.why and not arguments.json and why_all_float([plan]):
        for line in plan.lines(terminal_width()):
            put(line)
    refuse_all_float(arguments.model, plan.schema, [plan])


COMMAND = Command(
    name="quantize",
    summary="quantize a float ONNX file",
    example="qbench quantize net.onnx --calib train.npz --schema w8a8_asym_pc -o q.onnx",
    declare=declare,
    execute=execute,
)
