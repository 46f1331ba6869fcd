"""qbench profile: the statistics of a float model's values."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    check_outputs,
    check_plot_of,
    choose_cache,
    declare_cache,
    declare_calibration_data,
    declare_count,
    declare_json,
    declare_model,
    declare_plot,
    declare_threads,
    draw_values,
    read_samples,
)
from qbench.cli.printing import print_json, put, say
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.calibration import Profile
    from qbench.subjects import Samples, ZooModel


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench profile``."""
    declare_model(parser)
    declare_calibration_data(parser, "calibration samples")
    declare_count(parser)
    written = parser.add_mutually_exclusive_group(required=True)
    written.add_argument("-o", "--output", metavar="P.json", help="the profile to write")
    written.add_argument(
        "--check",
        metavar="P.json",
        help="check that P.json is a profile of this model on these samples, and write nothing",
    )
    parser.add_argument(
        "--add",
        metavar="P.json",
        action="append",
        default=[],
        help="merge this profile of other samples into it",
    )
    parser.add_argument(
        "--canonical",
        metavar="C",
        default="default",
        help="canonical passes, named as in schemas (default: default)",
    )
    parser.add_argument(
        "--channels", action="store_true", help="also keep the extremes of every channel"
    )
    parser.add_argument(
        "--bins",
        metavar="FILE",
        help="also write histograms of 2000 equal bins to FILE.csv or FILE.json",
    )
    declare_plot(parser, "the histogram of every value, with the ranges of two methods")
    declare_threads(parser)
    declare_cache(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Calibrate and write, or check.

    Raises:
        QbenchError: the model or the data is wrong, or a value is not finite (the sample is named);
            a profile to add or to check is of another model, or of other samples.
    """
    from qbench.calibration import Profile, equal_width_text
    from qbench.evaluation import profile_of
    from qbench.storage import write_text

    if arguments.bins is not None:
        equal_width_text({}, Path(arguments.bins))  # refuses a suffix before, not after, the work
    _check_files(arguments)
    added = [Profile.load(path) for path in arguments.add]
    network, samples = read_samples(
        arguments.model, arguments.data, arguments.count, choose_cache(arguments.cache)
    )
    if arguments.check is not None:
        return _check(arguments, network, samples)
    profile = profile_of(
        network,
        samples,
        threads=arguments.threads,
        pipeline=arguments.canonical,
        channels=arguments.channels,
    )
    if profile.rows != len(samples):
        fed = f"the task feeds {counted(len(samples), 'sample')} as {profile.rows}"
        say(f"note: {fed}, which the profile counts")
    for other in added:
        profile = profile.merge(other)
    profile.dump(arguments.output)
    if arguments.bins is not None:
        write_text(Path(arguments.bins), equal_width_text(profile.values, Path(arguments.bins)))
    return _tell(arguments, arguments.output, profile)


def _check_files(arguments: argparse.Namespace) -> None:
    check_plot_of(arguments, f"Profiling '{arguments.model}'")
    check_outputs(
        f"Profiling '{arguments.model}'",
        {"--output": arguments.output, "--bins": arguments.bins},
        (arguments.model, arguments.data, arguments.check, *arguments.add),
    )


def _check(arguments: argparse.Namespace, network: "ZooModel", samples: "Samples") -> ExitCode:
    from qbench.calibration import Profile
    from qbench.evaluation import data_of_profile
    from qbench.graph import graph_digest
    from qbench.passes import canonicalize
    from qbench.subjects import only_graph

    profile, model = Profile.load(arguments.check), only_graph(network)
    profile.require_graph(graph_digest(canonicalize(model, arguments.canonical)), arguments.model)
    data = data_of_profile(
        network, samples, pipeline=arguments.canonical, threads=arguments.threads
    )
    profile.require_data(data, arguments.data)
    return _tell(arguments, arguments.check, profile)


def _tell(arguments: argparse.Namespace, path: str, profile: "Profile") -> ExitCode:
    from qbench.diagnosis import distributions_of_profile

    drawn = draw_values(arguments, distributions_of_profile(profile)) if arguments.plot else ""
    infinite = {name: seen.infinite for name, seen in profile.values.items() if seen.infinite}
    facts = {
        "profile": path,
        "graph": profile.graph,
        "data": profile.data,
        "samples": profile.rows,
        "repeated": profile.repeated,
        "values": len(profile.values),
        "infinite": infinite,
    }
    if arguments.json:
        print_json(facts | ({"plot": arguments.plot} if drawn else {}))
        return ExitCode.FINE
    again = f", {profile.repeated} of them repeated" if profile.repeated else ""
    over = f"{profile.rows} sample{'s' * (profile.rows != 1)}{again}"
    put(f"{path}: {facts['values']} values of graph {profile.graph[:12]}… over {over}")
    for name, count in infinite.items():
        put(f"  {name}: {count} infinite numbers, which cannot be quantized; it will stay in float")
    if drawn:
        put(drawn)
    return ExitCode.FINE


COMMAND = Command(
    name="profile",
    summary="run a float model on samples and write the statistics of its values",
    example="qbench profile net.onnx --data train.npz -o net.profile.json",
    declare=declare,
    execute=execute,
)
