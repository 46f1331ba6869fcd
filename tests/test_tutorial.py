"""docs/tutorial.md runs as it is: every file and every command, in order, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(
    r"(?:^<!-- exits with (\d) -->\n)?^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
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


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "200"}
    environment.pop("CI", None)
    met: set[str] = set()
    printed: list[str] = []
    for code, language, title, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if named := re.search(r'title="([^"]+)"', title):
            target = tmp_path / named.group(1)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        elif language == "sh" and not content.startswith("pip install"):
            done = subprocess.run(
                ["bash", "-c", content],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == int(code or 0), (
                f"{content}{done.stdout[-3000:]}{done.stderr[-2000:]}"
            )
            for command, claims in CLAIMS.items():
                if command in content:
                    met.add(command)
                    printed += re.findall(r"cause: (qbench localize .*)", done.stdout)
                    assert [claim for claim in claims if claim not in done.stdout] == [], (
                        done.stdout[-4000:]
                    )
    assert met == set(CLAIMS)
    assert (
        re.search(r"^qbench localize .*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[0]
        in printed
    )
    assert (tmp_path / "reports" / "index.html").is_file()
