"""What importing costs: `import qbench`, its command line, and first uses of public names, beside the bare interpreter.

Each number is the least of several fresh processes, alternating, so that a busy machine disturbs all alike.

    python benchmarks/import_cost.py [rounds]
"""

import subprocess
import sys
import time

CASES = {
    "python -c pass": "pass",
    "import numpy": "import numpy",
    "import qbench": "import qbench",
    "qbench --help": "from qbench.cli import main; main(['--help'])",
    "qbench.mcnemar_midp": "from qbench import mcnemar_midp",
    "qbench.quantize": "from qbench import quantize",
    "qbench.load_model": "from qbench import load_model",
    "qbench.make_plan": "from qbench import make_plan",
    "qbench.suite (all that a run needs)": "import qbench.suite",
}


def seconds(code: str) -> float:
    """Wall time of a fresh interpreter that runs ``code``."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    """Measure and print one line a case."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    best = dict.fromkeys(CASES, float("inf"))
    for _ in range(rounds):
        for name, code in CASES.items():
            best[name] = min(best[name], seconds(code))
    bare = best["python -c pass"]
    print(f"{'case':36}  {'ms':>7}  {'over bare':>9}")
    for name, took in best.items():
        print(f"{name:36}  {1e3 * took:7.1f}  {1e3 * (took - bare):9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
