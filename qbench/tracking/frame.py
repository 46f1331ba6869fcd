"""Runs as one pandas frame: a row for each metric of each measured cell of each run."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbench.tracking.runs import Run

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "run",
    "started",
    "commit",
    "complete",
    "suite",
    "model",
    "backend",
    "schema",
    "variant",
    "environment_class",
    "outcome",
    "metric",
    "hits",
    "out_of",
    "value",
    "reference_hits",
    "reference_value",
    "losses",
    "gains",
    "n",
    "integer_macs",
    "data",
)


def cell_frame(runs: Iterable[Run]) -> "pd.DataFrame":
    """The columns are ``COLUMNS``; ``started`` is a UTC time, values are fractions, ``data`` names the samples.

    Rows keep the order of ``runs`` and of their files. A cell that was skipped or broken has no row.
    """
    import pandas as pd

    rows = []
    for run in runs:
        of_run = {
            "run": run.id,
            "started": run.header.get("started"),
            "commit": run.commit,
            "complete": run.complete,
        }
        for line in run.cells:
            axes = {name: line.get(name, "") for name in ("suite", "model", "backend", "schema", "variant")}
            digests = line.get("digests", {})
            data = "+".join(f"{k.removeprefix('data:')}:{digests[k][:12]}" for k in sorted(digests) if k[:5] == "data:")
            for metric, counts in line.get("metrics", {}).items():
                rows.append(
                    {
                        **of_run,
                        **axes,
                        **{key: counts[key] for key in ("hits", "out_of", "reference_hits", "losses", "gains", "n")},
                        "environment_class": line.get("environment_class", ""),
                        "outcome": line.get("outcome", ""),
                        "metric": metric,
                        "value": counts["hits"] / counts["out_of"],
                        "reference_value": counts["reference_hits"] / counts["out_of"],
                        "integer_macs": line.get("integer_macs", 0.0),
                        "data": data,
                    }
                )
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame["started"] = pd.to_datetime(frame["started"], utc=True, format="ISO8601")
    return frame
