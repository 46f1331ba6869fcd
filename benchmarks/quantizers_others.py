"""A comparison of the page "Quantizers compared" once more, on the samples that the page does not
score.

    python benchmarks/quantizers_others.py g2p_en w8a8_asym_pc w8a8_asym_pc_mse by-quark
        [--backend integer-ideal]

Which schema is best was seen on the samples of the page; these are others of the same data set,
with the same calibration samples. Each is compared with the first one.
"""

import argparse
from dataclasses import replace

from quantizers import SUBJECTS, artifacts, measured
from quantizers_page import change_words, compared, shown

from qbench.backends import get_backend
from qbench.evaluation import SubjectArtifacts, environment_here
from qbench.judging import mcnemar_midp
from qbench.storage import Cache
from qbench.subjects import dataset_from_text


def other_samples(model: str, cache: Cache) -> SubjectArtifacts:
    """What the cells of ``model`` share, with the samples that the page leaves out."""
    ground = SUBJECTS[model]
    whole, _ = dataset_from_text(ground.data)
    ids = set(whole.take(ground.limit).sample_ids) if len(whole) > ground.limit else set()
    left = [index for index, name in enumerate(whole.sample_ids) if name not in ids]
    if not ids or not left:
        raise SystemExit(f"the page scores all samples of '{ground.data}'")
    subject = replace(artifacts(model, cache).subject, data={ground.data: whole.pick(left)})
    floats = get_backend("ort-cpu")
    return SubjectArtifacts(subject, cache, floats, str(environment_here(floats)))


def main() -> None:
    """Measure and print."""
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    made.add_argument("model")
    made.add_argument(
        "schema", nargs="+", help="the first is the one that others are compared with"
    )
    made.add_argument("--backend", default="integer-ideal")
    given = made.parse_args()
    shared = other_samples(given.model, Cache.default())
    known = {one: measured(shared, one, given.backend) for one in given.schema}
    first = known[given.schema[0]]
    for schema, result in known.items():
        if "error" in result:
            print(f"{schema}: {result['error']}")
            continue
        change = change_words(result["value"] - result["fp32"], *result["interval"])
        words = f"{schema}: {shown(result['value'])} of {result['n']}, against float {change}"
        print(f"{words}, agreement {shown(result['agreement'])}", flush=True)
        if result is first or "error" in first:
            continue
        found, low, high = compared(shared.subject, result, first)
        against = change_words(found.value - found.reference_value, low, high)
        p = mcnemar_midp(found.losses, found.gains)
        print(
            f"    against {given.schema[0]}: {against}, "
            f"losses / gains {found.losses} / {found.gains}, p {p:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
