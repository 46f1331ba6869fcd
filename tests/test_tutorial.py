"""docs/tutorial.md runs as it is: every file and every command, in order, in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import DOCS, run_page

PAGE = DOCS / "tutorial.md"
# what the outputs that are shown claim, in words that do not depend on the machine
CLAIMS = {
    "qbench eval": ("99.17 %", "agreement"),
    "pytest suites -k proposal\n": (
        "top1 99.17 % → 42.50 % (−56.67 pp)",
        "worst: conv2",
        "cause: clipping",
    ),
    "qbench localize": ("conv2: clipping", "their range is cut"),
    "python forget_scaling.py": ("7 of 7 ranges moved, the first that of 'x', 0 … 1 → 0 … 16",),
}


def check_tutorial(folder: Path, programs: Path | None = None) -> None:
    met: set[str] = set()
    printed: list[str] = []
    for content, said in run_page(PAGE, folder, programs):
        for command, claims in CLAIMS.items():
            if command in content:
                met.add(command)
                printed += re.findall(r"cause: (qbench localize .*)", said)
                assert [claim for claim in claims if claim not in said] == [], said[-4000:]
    assert met == set(CLAIMS)
    assert (
        re.search(r"^qbench localize .*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[0]
        in printed
    )
    assert (folder / "reports" / "index.html").is_file()


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    check_tutorial(tmp_path)


@pytest.mark.slow
def test_the_wheels_alone_pass_the_tutorial(tmp_path: Path) -> None:
    """No checkout is on the path: what a wheel lacks, or an undeclared package, fails here."""
    root = DOCS.parent
    client = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
    wheels, folder, venv = tmp_path / "wheels", tmp_path / "empty", tmp_path / "venv"
    folder.mkdir()
    subprocess.run(
        [sys.executable, *client, "wheel", "--no-deps", "-w", wheels, root, root / "zoo"],
        check=True,
        cwd=folder,
    )
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    inside = venv / "bin" / "python"
    pins = ("-c", root / "constraints.txt")
    subprocess.run([inside, *client, "install", *pins, *wheels.glob("*.whl")], check=True)
    where = "import qbench; print(qbench.__file__)"
    found = subprocess.run(
        [inside, "-P", "-c", where], capture_output=True, text=True, check=True, cwd=folder
    )
    assert found.stdout.startswith(str(venv))
    check_tutorial(folder, inside.parent)
