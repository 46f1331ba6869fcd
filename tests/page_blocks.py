"""Runs the blocks of a page of the docs in order: files are written, commands are run in bash."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(
    r"(?:^<!-- exits with (\d) -->\n)?^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def run_page(page: Path, folder: Path, programs: Path | None = None) -> Iterator[tuple[str, str]]:
    """(command, what it printed) of each command of ``page``, run in ``folder``; each ends with 0,
    or with what the comment before it says.

    Args:
        programs: the folder of ``python``, ``pytest`` and ``qbench``; None: that of this Python.
    """
    programs = Path(sys.executable).parent if programs is None else programs
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "200"}
    environment.pop("CI", None)
    environment.pop("PYTHONPATH", None)
    for code, language, title, content in BLOCK.findall(page.read_text(encoding="utf-8")):
        if named := re.search(r'title="([^"]+)"', title):
            target = folder / named.group(1)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        elif language == "sh" and not content.startswith("pip install"):
            done = subprocess.run(
                ["bash", "-c", content],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == int(code or 0), (
                f"{content}{done.stdout[-3000:]}{done.stderr[-2000:]}"
            )
            yield content, done.stdout
