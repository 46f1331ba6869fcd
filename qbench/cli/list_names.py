"""qbench list: the names that suites and commands can use."""

import argparse
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import declare_json
from qbench.cli.printing import print_columns, print_json, say
from qbench.errors import QbenchError
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.extension import Catalogue

KINDS = (
    "models",
    "datasets",
    "backends",
    "schemas",
    "quantizers",
    "arithmetics",
    "metrics",
    "operators",
    "passes",
    "faults",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench list``."""
    parser.add_argument(
        "kind", choices=KINDS, metavar="KIND", help=f"what to list: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--suites",
        metavar="DIR",
        default="suites",
        help="folder with schemas/, quantizers/ and arithmetics/*.toml (default: suites)",
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print one line a name.

    Raises:
        InputError: two extensions define one name, or --extension names none.
    """
    catalogue = _catalogue(arguments)
    rows = [
        {
            "name": name,
            "owner": catalogue.owner(name),
            "what": _described(catalogue, name, arguments.kind),
            **(_facts(catalogue, name) if arguments.kind == "quantizers" else {}),
        }
        for name in catalogue.names()
    ]
    if arguments.json:
        print_json(rows)
    else:
        print_columns(
            [(row["name"], row["owner"], row["what"]) for row in rows], ("name", "owner", "what")
        )
        if catalogue.grammar is not None:
            page = "metrics" if arguments.kind == "metrics" else "schemas"
            say(f"and every other name of the form {catalogue.grammar.form} (docs/{page}.md)")
    return ExitCode.FINE


def _catalogue(arguments: argparse.Namespace) -> "Catalogue[Any]":
    """All names of the kind that is asked for; of arithmetics suites name the backends
    ``integer-…``.
    """
    if arguments.kind == "arithmetics":
        from qbench.extension import known_extensions
        from qbench.numerics import catalogue
        from qbench.suite import written_extensions

        return catalogue((*known_extensions(), *written_extensions(Path(arguments.suites))))
    if arguments.kind == "faults":
        from qbench.extension import Catalogue
        from qbench.faults import CATALOGUE

        return Catalogue(
            "fault", {name: functools.partial(CATALOGUE.__getitem__, name) for name in CATALOGUE}
        )
    from qbench.suite import gather

    found: Catalogue[Any] = getattr(gather(suites=Path(arguments.suites)), arguments.kind)
    return found


def _described(catalogue: "Catalogue[Any]", name: str, kind: str) -> str:
    """One line about ``name``; data sets are not made for it, because that may download them."""
    if kind == "datasets":
        return ""
    try:
        return _DESCRIPTIONS[kind](catalogue.get(name))
    except QbenchError as error:
        return f"cannot be had here: {error}"


def _model(model: Any) -> str:  # noqa: ANN401 - a ZooModel, whose import would cost a second
    return str(model.origin)


def _backend(backend: Any) -> str:  # noqa: ANN401 - a Backend
    from qbench.backends import CPU, Recorded, arithmetic_of, device_of

    if isinstance(backend, Recorded):
        return f"answers that were recorded elsewhere, in '{backend.recorded().path}'"
    can = backend.capabilities
    forms = ", ".join(sorted((*(form.value for form in can.forms), *can.file_formats)))
    arithmetic = None if backend.packages else arithmetic_of(backend)
    if arithmetic is None:
        text = f"runs {forms}; counts with {', '.join(backend.packages) or 'nothing outside'}"
    else:
        text = f"runs {forms}; counts as {arithmetic.source}"
    if device_of(backend) != CPU:
        text += f"; on {device_of(backend)}"
    if can.max_macs is not None:
        text += f"; up to {can.max_macs / 1e6:g} million multiply-accumulates"
    return text


def _quantizer(path: Path) -> str:
    """What it is, its variants, and its lock."""
    from qbench.quantization import load_quantizer

    quantizer = load_quantizer(path)
    words = [quantizer.summary]
    if quantizer.variants:
        words.append(f"variants {', '.join(quantizer.variants)}")
    if quantizer.lock is not None:
        words.append(f"a lock of {counted(len(quantizer.requirements), 'package')}")
    return "; ".join(words)


def _facts(catalogue: "Catalogue[Any]", name: str) -> dict[str, Any]:
    """What a program needs of a quantizer; nothing where its file cannot be read."""
    from qbench.quantization import load_quantizer

    try:
        quantizer = load_quantizer(catalogue.get(name))
        versions = quantizer.requirements
    except QbenchError:
        return {}
    return {
        "schemas": [f"by-{name}", *(f"by-{name}.{one}" for one in quantizer.variants)],
        "title": quantizer.manifest.title,
        "package": quantizer.manifest.package,
        "versions": versions,
        "file": str(quantizer.file),
    }


def _schema(schema: Any) -> str:  # noqa: ANN401 - a Schema
    return str(schema.summary)


def _arithmetic(arithmetic: Any) -> str:  # noqa: ANN401 - an Arithmetic, whose import would load numpy
    return f"follows {arithmetic.source}; backend integer-{arithmetic.name}"


def _metric(metric: Any) -> str:  # noqa: ANN401 - a Metric
    return str(metric.summary)


def _pass(one: Any) -> str:  # noqa: ANN401 - a Pass
    summary = (type(one).__doc__ or "").strip().partition("\n\n")[0]
    words = " ".join(summary.split())
    return f"{one.effect} under {', '.join(one.effect.arithmetics)}; {words}"


def _operator(operator: Any) -> str:  # noqa: ANN401 - an Operator
    if operator.facts.moved:
        return "moves integers as they are"
    if operator.pointwise:
        return "looked up on integers"
    return "real between quantized values" if operator.data else "stays float"


def _fault(fault: Any) -> str:  # noqa: ANN401 - a Fault
    return f"{fault.stage.value}: {fault.summary} ({fault.story.thread})"


_DESCRIPTIONS: Mapping[str, Callable[[Any], str]] = {
    "models": _model,
    "backends": _backend,
    "schemas": _schema,
    "quantizers": _quantizer,
    "arithmetics": _arithmetic,
    "metrics": _metric,
    "operators": _operator,
    "passes": _pass,
    "faults": _fault,
}

COMMAND = Command(
    name="list",
    summary="list the names of models, backends, schemas, quantizers, metrics and more",
    example="qbench list backends",
    declare=declare,
    execute=execute,
)
