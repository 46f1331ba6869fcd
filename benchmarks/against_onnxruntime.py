"""Whether our min/max plans cost as little accuracy as onnxruntime's own quantizer does, on
trained networks.

    ours    calibrate → make_plan(w8a8_asym_pc or _pt) → quantize_model
    theirs  quant_pre_process → quantize_static(QDQ, MinMax, uint8 activations, int8 weights, per
    channel or not)

Both are calibrated on the same batches and answer the same samples in the same engine, one whose
sums are exact on every processor. The bar, for scales per channel: ours is at most half a point
worse, or the two cannot be told apart: the 95 % interval of the paired difference holds zero
(Tango's; where samples share sources, such as crops of a photograph, that of the sources). Scales
per tensor are shown too, since they ruin some networks, in both hands.

    python benchmarks/against_onnxruntime.py [subject …] [--scored N] [--calibrated N] [--backend B]
    [--all-operators]
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxruntime.quantization import CalibrationDataReader, quant_pre_process, quantize_static

from qbench.backends import Executor, Feeds, get_backend, in_slices
from qbench.evaluation import MetricUse, Subject, SubjectArtifacts
from qbench.graph import load_model, save_model
from qbench.judging import paired_interval
from qbench.metrics import Against, Answers, get_metric
from qbench.metrics.clusters import clustered, source_numbers
from qbench.quantization import get_schema
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model

BAR = 0.005
"""What per-channel plans of ours may lose against theirs, as a share."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What both are measured on. ``metric`` counts each sample as right or wrong.

    ``backend`` has exact sums on every processor, so that no saturation of an engine's blurs the
    comparison. Theirs quantizes ``operators``, None: all that it takes for worth it.
    """

    data: str
    calibration: str
    metric: str
    scored: int
    calibrated: int
    backend: str = "ort-cpu-precise"
    operators: tuple[str, ...] | None = None


PRODUCTS = ("Conv", "MatMul", "Gemm")

CONTESTS: Mapping[str, Contest] = {
    "mobilenet_v2": Contest("photo_crops", "calibration_crops", "agreement", 200, 64),
    "efficientnet_lite0": Contest("photo_crops", "calibration_crops", "agreement", 200, 64),
    "magika": Contest(
        "magika_files_all", "magika_calibration", "top1", 1200, 136, "ort-cpu-noopt", PRODUCTS
    ),
    "g2p_en": Contest("cmudict_words_all", "cmudict_calibration", "exact", 2000, 256),
    "digits_cnn": Contest("digits_test", "digits_train", "top1", 360, 512),
}
"""The float subjects of suites/nightly.qbench.toml. What theirs makes of Magika does not load
in the precise mode, and is ruined when the layer normalizations that are spelled out in it are
quantized (``--all-operators``); ours keeps them in float by itself.
"""


WORSE = "WORSE"
HEAD = (
    "| subject | scales | counted | n | fp32 | onnxruntime | ours | losses / gains | change, 95 % "
    "| |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Result:
    """Right answers of fp32, ours and theirs to ``n`` samples; on how many ours did worse and
    better than theirs.

    ``interval``: of ours minus theirs, a share.
    """

    subject: str
    place: str
    metric: str
    n: int
    fp32: int
    ours: int
    theirs: int
    losses: int
    gains: int
    sources: int
    interval: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Worse, better, or neither by half a point and the interval."""
        change, (low, high) = (self.gains - self.losses) / self.n, self.interval
        if change < -BAR and high < 0:
            return WORSE
        return "better" if change > BAR and low > 0 else "within"

    @property
    def data(self) -> str:
        """``200 of 20 sources``."""
        return f"{self.n:,}" + (f" of {self.sources} sources" if self.sources < self.n else "")

    def row(self) -> str:
        """One row of the table."""
        shares = (f"{count / self.n:.1%}" for count in (self.fp32, self.theirs, self.ours))
        low, high = (100 * end for end in self.interval)
        change = 100 * (self.gains - self.losses) / self.n
        cells = (
            self.subject, self.place, self.metric, self.data, *shares,
            f"{self.losses} / {self.gains}", f"{change:+.1f} [{low:+.1f}, {high:+.1f}]",
            self.verdict,
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


class Fed:
    """A runner that notes the batches it is fed."""

    def __init__(self, runner: Executor) -> None:
        self.batches: list[dict[str, Any]] = []
        self._runner = runner

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """One batch."""
        self.batches.append({name: np.array(array) for name, array in feeds.items()})
        return dict(self._runner.run(feeds))


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Batches as onnxruntime asks for them."""

    def __init__(self, batches: list[dict[str, Any]]) -> None:
        self._remaining = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        """The next batch, None behind the last."""
        return next(self._remaining, None)


def theirs(
    model: ir.Model,
    batches: list[dict[str, Any]],
    *,
    per_channel: bool,
    operators: tuple[str, ...] | None = None,
) -> ir.Model:
    """``model`` quantized as onnxruntime's documentation has it."""
    with tempfile.TemporaryDirectory(prefix="qbench-against-") as folder:
        raw, ready, done = (Path(folder, f"{name}.onnx") for name in ("raw", "ready", "done"))
        save_model(model, raw)
        for plain in (False, True):
            # Symbolic sizes make its own shape inference give up; onnx's does not.
            quant_pre_process(raw, ready, skip_symbolic_shape=True, skip_optimization=plain)
            try:
                quantize_static(
                    ready,
                    done,
                    Reader(batches),
                    per_channel=per_channel,
                    op_types_to_quantize=operators,
                )
                break
            except ValueError as error:
                # 1.31.1 cannot have channels where its preprocessing fused a bias of shape (1, n)
                # into a Gemm.
                if plain:
                    raise
                print(f"  onnxruntime: {error} Again without its optimizations.", file=sys.stderr)
        return load_model(done)


def right(
    answers: Answers, shared: SubjectArtifacts, contest: Contest, reference: Answers
) -> np.ndarray[Any, Any]:
    """Which samples count as right, (n,) of 0 and 1."""
    metric, labels = (
        get_metric(contest.metric),
        shared.samples(next(iter(shared.subject.data.values()))).labels,
    )
    against_labels = metric.against is Against.LABELS
    return metric.count(
        answers, labels if against_labels else None, None if against_labels else reference
    ).hits


def fed_by(shared: SubjectArtifacts) -> dict[str, list[dict[str, Any]]]:
    """Graph → the batches that the task feeds it while
    the float model answers the calibration samples.
    """
    with ExitStack() as stack:
        fed = {
            name: Fed(in_slices(stack.enter_context(get_backend("ort-cpu").prepare(graph)), graph))
            for name, graph in shared.graphs.items()
        }
        shared.subject.model.task.answer(fed, shared.samples(shared.subject.calibration))
    return {name: runner.batches for name, runner in fed.items()}


def work_of(name: str, contest: Contest) -> SubjectArtifacts:
    """The subject with its float graphs, samples and profiles, in the user's cache."""
    data = get_dataset(contest.data)
    calibration = get_dataset(contest.calibration)
    subject = Subject(
        model=get_model(name),
        data={data.id: data.take(min(contest.scored, len(data)))},
        metrics=(MetricUse(contest.metric, get_metric(contest.metric), data.id),),
        calibration=calibration.take(min(contest.calibrated, len(calibration))),
    )
    return SubjectArtifacts(subject, Cache.default(), get_backend("ort-cpu"), "benchmark")


def compare(name: str, contest: Contest) -> Iterator[Result]:
    """Both quantizers on one subject, for scales per channel and per tensor."""
    shared, backend = work_of(name, contest), get_backend(contest.backend)
    (data,) = shared.subject.data.values()
    reference = shared.reference()[data.id]
    full = right(reference, shared, contest, reference)
    batches = fed_by(shared)
    for place in ("pc", "pt"):
        ours = shared.quantized(get_schema(f"w8a8_asym_{place}"), backend.capabilities).models
        foreign = {
            graph: theirs(
                model, batches[graph], per_channel=place == "pc", operators=contest.operators
            )
            for graph, model in shared.graphs.items()
        }
        hits = [
            right(shared.answer(backend, graphs, data, threads=1), shared, contest, reference)
            for graphs in (ours, foreign)
        ]
        losses, gains = int((hits[0] < hits[1]).sum()), int((hits[0] > hits[1]).sum())
        numbers = source_numbers(data.drawn_from, len(data))
        interval = paired_interval(losses, gains, len(data))
        if numbers is not None:
            interval = clustered(hits[0].astype(np.int64) - hits[1].astype(np.int64), numbers).shown
        yield Result(
            name, place, contest.metric, len(full), int(full.sum()), int(hits[0].sum()),
            int(hits[1].sum()), losses, gains, len(set(data.drawn_from)), interval,
        )  # fmt: skip


def contests(arguments: argparse.Namespace) -> dict[str, Contest]:
    """Those that were asked for, with the numbers of samples that were asked for."""
    chosen = {name: CONTESTS[name] for name in arguments.subjects or CONTESTS}
    given: dict[str, Any] = {
        key: value
        for key in ("scored", "calibrated", "backend")
        if (value := getattr(arguments, key))
    }
    if arguments.all_operators:
        given["operators"] = None
    return {name: replace(contest, **given) for name, contest in chosen.items()}


def main() -> int:
    """Print a row a subject and granularity;
    1 when a per-channel plan of ours is worse than theirs.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "subjects", nargs="*", choices=[*CONTESTS, []], metavar="subject", help=", ".join(CONTESTS)
    )
    parser.add_argument("--scored", type=int, help="score this many samples of each")
    parser.add_argument("--calibrated", type=int, help="calibrate on this many")
    parser.add_argument("--backend", help="run both on this")
    parser.add_argument(
        "--all-operators", action="store_true", help="let theirs quantize all that it would"
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # theirs advises preprocessing, which is done
    print(HEAD)
    kept = True
    for name, contest in contests(arguments).items():
        started = time.perf_counter()
        for result in compare(name, contest):
            print(result.row(), flush=True)
            kept &= result.place == "pt" or result.verdict != WORSE
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    print(
        f"\nper channel within {BAR:.1%} or the interval of onnxruntime's quantizer: "
        f"{'yes' if kept else 'NO'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
