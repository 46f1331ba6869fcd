"""Measure what scoring a language model token by token costs, next to its forward pass alone.

    python benchmarks/token_scoring.py [--tokens 100000]

The small decoder of the zoo reads windows of 256 tokens until so many have been read: alone, where
the logits are thrown away, and by the task, which keeps the 32 best of each scored token; then the
table of two such streams is counted. Processor time, and the highest memory above that in front of
each.
"""

import argparse
import resource
import time
from collections.abc import Callable
from fractions import Fraction

from qbench.backends import get_backend
from qbench.metrics import TokenStreams, token_table
from qbench.storage import Cache
from qbench.subjects import BATCH, get_dataset, get_model, prepare_samples

WINDOW = 256
_KIB = 1024


def measured(title: str, work: Callable[[], object]) -> float:
    """The seconds of processor that ``work`` took; a line about it is printed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    work()
    seconds = time.process_time() - began
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{title:32} {seconds:7.2f} s  {more / _KIB:6.0f} MiB more")
    return seconds


def main() -> None:
    """Print the three times and the ratio of the first two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000)
    count = parser.parse_args().tokens // WINDOW
    model, data = get_model("gloss_decoder"), get_dataset("gloss_windows")
    samples = prepare_samples(data, model.preprocess, Cache.default())
    rows = [place % len(samples) for place in range(count)]
    windows = samples.picked(rows, split=Fraction(1))
    form = model.task.form  # type: ignore[attr-defined]
    found: list[TokenStreams] = []
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:

        def forward() -> None:
            for feeds in windows.batches(BATCH):
                tokens = feeds[form.tokens][:, :-1]
                past = {one.past: one.nothing(len(tokens)) for one in form.cache}
                executor.run({form.tokens: tokens, **past})

        def scored() -> None:
            answers = model.task.answer({"model": executor}, windows)
            assert isinstance(answers, TokenStreams)
            found.append(answers)

        alone = measured("the forward pass alone", forward)
        whole = measured("scored, with the 32 best", scored)
    table = measured("the table of two streams", lambda: token_table(found[0], found[0]))
    print(f"{count * WINDOW:,} tokens read, {len(found[0].realised):,} of them scored")
    print(
        f"{whole / alone:.2f} times the forward pass; with the table {(whole + table) / alone:.2f}"
    )


if __name__ == "__main__":
    main()
