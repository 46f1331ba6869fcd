"""The processor time of the cache's keys: `python benchmarks/cache_key.py [SUITE]`.

For every model of a suite: the digest of its preprocessing, its task and the loaders of its data,
as a run asks for them, in one process; what cannot be followed is named. `--digests` prints the
digests instead, so that two processes with other hash seeds can be compared:

    for seed in 1 2; do PYTHONHASHSEED=$seed python benchmarks/cache_key.py --digests > /tmp/$seed;
    done cmp /tmp/1 /tmp/2
"""

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from qbench.storage import followed_code
from qbench.suite import gather, load_suite

ROOT = Path(__file__).parents[1]


def held(path: Path) -> Iterator[tuple[str, object]]:
    """What a run of the suite takes the key of, with a name."""
    catalogues = gather()
    for settings in load_suite(path).models:
        model = catalogues.models.get(settings.id)
        yield f"{settings.id} preprocessing", model.preprocess
        yield f"{settings.id} task", model.task
        calibration = settings.calibration
        names = dict.fromkeys([settings.data, calibration.data if calibration else None])
        for name in filter(None, names):
            yield f"{settings.id} load {name}", catalogues.datasets.get(name).load


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "suite", nargs="?", type=Path, default=ROOT / "suites" / "smoke.qbench.toml"
    )
    parser.add_argument("--digests", action="store_true")
    arguments = parser.parse_args()
    total = 0.0
    for name, value in held(arguments.suite):
        start = time.process_time()
        found = followed_code(value)
        spent = time.process_time() - start
        total += spent
        words = found.digest if arguments.digests else f"{1000 * spent:8.1f} ms"
        print(f"{words}  {name}", *found.unfollowed, sep="  ")
    if not arguments.digests:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{1000 * total:8.1f} ms  in all; {peak} MB at most")


if __name__ == "__main__":
    main()
