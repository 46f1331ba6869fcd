"""Whether peak memory grows with the number of samples: one quantized cell on 8 and on 512
crops, a process each.

The bar is 50 MB between the two. The cache of the run is a fresh folder, so that preparing samples,
profiling and the fp32 run count too; packages are fetched into the user's cache first.

    python benchmarks/memory_flat.py [model [schema]]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

COUNTS = (8, 512)
BAR_MB = 50

CHILD = """
import resource, sys
from pathlib import Path
from qbench.backends import get_backend
from qbench.evaluation import MetricUse, SubjectArtifacts, Subject, measure_cell
from qbench.judging import EnvironmentClass
from qbench.metrics import get_metric
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model

model, schema, count, cache = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
data = get_dataset("photo_crops").take(count)
subject = Subject(
    model=get_model(model),
    data={data.id: data},
    metrics=(MetricUse("agreement", get_metric("agreement"), data.id),),
    calibration=get_dataset("calibration_crops").take(8),
)
backend = get_backend("ort-cpu")
shared = SubjectArtifacts(subject, Cache(cache), backend, "benchmark")
measure_cell(shared, backend, schema, environment=EnvironmentClass("benchmark"))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6)
"""


def peak_mb(model: str, schema: str, count: int, cache: Path) -> float:
    """Peak resident memory, in MB, of a process that measures ``count`` samples."""
    command = [sys.executable, "-c", CHILD, model, schema, str(count), str(cache)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> int:
    """Measure both and print them; 1 when they lie further apart than the bar."""
    model = sys.argv[1] if len(sys.argv) > 1 else "mobilenet_v2"
    schema = sys.argv[2] if len(sys.argv) > 2 else "w8a8_asym_pc"
    with tempfile.TemporaryDirectory(prefix="qbench-memory-") as folder:
        peaks = {count: peak_mb(model, schema, count, Path(folder, str(count))) for count in COUNTS}
    print(f"{model} {schema}\n{'samples':>7}  {'peak MB':>8}")
    for count, peak in peaks.items():
        print(f"{count:7}  {peak:8.1f}")
    apart = peaks[COUNTS[1]] - peaks[COUNTS[0]]
    print(f"{apart:.1f} MB apart, bar {BAR_MB} MB: {'within' if apart < BAR_MB else 'BEYOND'}")
    return 0 if apart < BAR_MB else 1


if __name__ == "__main__":
    sys.exit(main())
