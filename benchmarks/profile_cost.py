"""What a histogram profile costs: beside the plain forward pass, beside ONNX Runtime's
calibrators, and in memory.

    marginal cost = processor time of one more image / that of the plain optimized fp32 forward pass
    of it

The bars: 1.4 on a ResNet-50 shape and 3 on MobileNetV2 (224², one thread); 4 times as fast as
onnxruntime's Entropy and 5 times as fast as its Percentile calibrator on 64 images, all told, from
the model to ranges; peak memory at most 500 MB above the plain pass, and less than 50 MB apart for
8 and 256 images. Each forward pass is timed beside a profiled one, so that a busy machine slows
both; medians are compared. Everything is measured in processes of their own (a process begins with
the peak memory of the one that started it, so this one stays small).

    python benchmarks/profile_cost.py [--images 64] [--skip-theirs] [--skip-memory]

Their calibrators keep every value of every image: 64 images of the ResNet-50 shape take 7.5 GB.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MODELS = ("resnet50_shape", "mobilenet_v2")
MARGINAL_BARS = {"resnet50_shape": 1.4, "mobilenet_v2": 3.0}
SPEED_BARS = {"entropy": 4.0, "percentile": 5.0}
ABOVE_MB, APART_MB = 500, 50

Image = dict[str, npt.NDArray[np.float32]]


def images(count: int) -> Iterator[Image]:
    """``count`` pictures of smooth noise, (1, 3, 224, 224),
    about as wide as normalized photographs.
    """
    random = np.random.default_rng(7)
    for _ in range(count):
        coarse = random.normal(size=(1, 3, 28, 28)).repeat(8, axis=2).repeat(8, axis=3)
        yield {"x": (coarse + 0.3 * random.normal(size=(1, 3, 224, 224))).astype(np.float32)}


def load(path: Path, _: int, name: str) -> None:
    """Write the model ``name`` to ``path``."""
    from resnet50_shape import resnet50_shape

    from qbench.graph import save_model
    from qbench.subjects import get_model

    model = resnet50_shape() if name == "resnet50_shape" else get_model(name).graphs["model"]()
    save_model(model, path)


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def loaded_and_timed(work: Callable[[int], object], count: int) -> float:
    """Seconds of ``work`` on ``count`` images,
    after a few that load what libraries load when first used.
    """
    work(3)
    return timed(lambda: work(count))


def marginal(path: Path, count: int) -> dict[str, float]:
    """Seconds an image: of the plain pass, of fetching the watched values, of profiling;
    medians, interleaved.
    """
    from qbench.backends import get_backend
    from qbench.calibration import prepare_watch, watched_values
    from qbench.graph import load_model
    from qbench.passes import canonicalize

    model, backend = load_model(path), get_backend("ort-cpu")
    canonical = canonicalize(model)
    given = {value.name for value in (*canonical.graph.inputs, *canonical.graph.outputs)}
    taps = [value.name for value in watched_values(canonical) if value.name not in given]
    seconds: dict[str, list[float]] = {"forward": [], "fetch": [], "profile": []}
    with (
        backend.prepare(model) as plain,
        backend.prepare(canonical, taps=taps) as tapped,
        prepare_watch(model, backend) as watch,
    ):
        for number, image in enumerate(images(count + WARM)):
            for name, run in (
                ("forward", plain.run),
                ("fetch", tapped.run),
                ("profile", watch.run),
            ):
                spent = timed(lambda run=run, image=image: run(image))  # type: ignore[misc]
                if number >= WARM:
                    seconds[name].append(spent)
    return {name: statistics.median(values) for name, values in seconds.items()}


WARM = 12
"""Images before the clock starts: sessions plan their memory,
and counting changes to its compiled loop.
"""


def ours(path: Path, count: int, method: str) -> float:
    """Seconds from the model file to the range of every watched value by ``method``."""
    from qbench.calibration import calibrate, get_range_method
    from qbench.graph import load_model
    from qbench.numerics import QParamsKind, QType

    def work(count: int) -> None:
        profile = calibrate(load_model(path), images(count))
        kind = QParamsKind(QType.parse("int8"), "symmetric")
        for seen in profile.values.values():
            get_range_method(method).of_distribution(seen.distribution(), kind)

    return loaded_and_timed(work, count)


def theirs(path: Path, count: int, method: str) -> float:
    """Seconds from the model file to the ranges by onnxruntime.quantization, one thread,
    as its users call it.
    """
    from onnxruntime import SessionOptions
    from onnxruntime.quantization import calibrate
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    class Reader(calibrate.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, count: int) -> None:
            self.images = images(count)

        def get_next(self) -> Image | None:
            return next(self.images, None)

    class OneThread(SessionOptions):  # type: ignore[misc]
        """They make their session themselves,
        and leave no other way to say how many threads it has.
        """

        def __init__(self) -> None:
            super().__init__()
            self.intra_op_num_threads = 1

    def work(count: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            calibrator = create_calibrator(
                path,
                calibrate_method=getattr(CalibrationMethod, method.capitalize()),
                augmented_model_path=str(Path(folder, "augmented.onnx")),
            )
            calibrator.collect_data(Reader(count))
            calibrator.compute_data()

    import onnxruntime

    kept, onnxruntime.SessionOptions = onnxruntime.SessionOptions, OneThread
    try:
        return loaded_and_timed(work, count)
    finally:
        onnxruntime.SessionOptions = kept


def peak_mb() -> float:
    """Peak resident memory of this process."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def memory(path: Path, count: int, kind: str) -> float:
    """Peak memory after ``count`` images through the plain pass or a profile."""
    from qbench.backends import get_backend
    from qbench.calibration import calibrate
    from qbench.graph import load_model

    model = load_model(path)
    if kind == "profile":
        calibrate(model, images(count)).dump(path.with_suffix(".profile.json"))
    else:
        with get_backend("ort-cpu").prepare(model) as executor:
            for image in images(count):
                executor.run(image)
    return peak_mb()


def child(*arguments: object) -> Any:  # noqa: ANN401 - JSON
    """What this file prints as a process of its own with ``arguments``."""
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])  # their calibrators talk before


def judged(label: str, value: float, bar: float, unit: str = "", *, least: bool = False) -> bool:
    """Print a number beside its bar; whether it holds."""
    holds = value >= bar if least else value <= bar
    word = "within" if holds else "BEYOND"
    print(f"  {label:44} {value:8.2f}{unit}  bar {'≥' if least else '≤'} {bar:g}{unit}: {word}")
    return holds


def compare(name: str, path: Path, arguments: argparse.Namespace) -> bool:
    """All numbers of one model; whether every bar holds."""
    child("load", path, 0, name)
    cost = child("marginal", path, 32)
    print(f"{name}\n  forward {cost['forward'] * 1e3:.1f} ms an image")
    print(f"  fetching the watched values {cost['fetch'] / cost['forward']:.2f} × that")
    holds = judged(
        "profile, marginal, × the forward pass",
        cost["profile"] / cost["forward"],
        MARGINAL_BARS[name],
    )
    if not arguments.skip_theirs:
        for method, bar in SPEED_BARS.items():
            mine, other = (
                child("ours", path, arguments.images, method),
                child("theirs", path, arguments.images, method),
            )
            print(
                f"  {method}, {arguments.images} images, all told: "
                f"{mine:.1f} s, onnxruntime's {other:.1f} s"
            )
            holds &= judged(
                f"times as fast as onnxruntime's {method}", other / mine, bar, least=True
            )
            passes = cost["forward"] * arguments.images
            print(
                "    without the forward passes themselves: "
                f"{(other - passes) / (mine - passes):.2f} times"
            )
    if not arguments.skip_memory:
        plain, few, many = (
            child("memory", path, count, kind)
            for count, kind in ((8, "plain"), (8, "profile"), (256, "profile"))
        )
        print(
            f"  peak MB: plain pass {plain:.0f}, profile of 8 images {few:.0f}, "
            f"of 256 images {many:.0f}"
        )
        holds &= judged("above the plain pass", max(few, many) - plain, ABOVE_MB, " MB")
        holds &= judged("apart", abs(many - few), APART_MB, " MB")
    return holds


CHILDREN: dict[str, Callable[..., Any]] = {
    "load": load,
    "marginal": marginal,
    "ours": ours,
    "theirs": theirs,
    "memory": memory,
}


def main() -> int:
    """Measure, print, and say by the exit code whether all bars hold."""
    if sys.argv[1:2] == ["--child"]:
        what, path, count, *more = sys.argv[2:]
        print(json.dumps(CHILDREN[what](Path(path), int(count), *more)))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--skip-theirs", action="store_true")
    parser.add_argument("--skip-memory", action="store_true")
    arguments = parser.parse_args()
    holds = True
    with tempfile.TemporaryDirectory(prefix="qbench-profile-") as folder:
        for name in arguments.models:
            holds &= compare(name, Path(folder, f"{name}.onnx"), arguments)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
