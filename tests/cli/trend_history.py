"""A repository with commits, and run files of nights that measured them, written with few words."""

import datetime
import json
import subprocess
from pathlib import Path

import numpy as np

from qbench.judging import Accepted
from qbench.metrics import Answers
from qbench.tracking import AcceptedCell, Baseline, RunWriter, StoredData, save_baseline

START = datetime.datetime(2026, 1, 1, 4, tzinfo=datetime.UTC)
CLASS = "x64-avx2+onnxruntime-1.31"


def git(folder: Path, *arguments: str) -> str:
    """What git prints in ``folder``."""
    names = [
        "-c",
        "user.name=ann",
        "-c",
        "user.email=ann@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(
        ["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class TrendHistory:
    """One cell of one model, its commits and its nights."""

    CELL = "digits_cnn::ort-cpu+w8a8_asym_pc"

    def __init__(self, project: Path) -> None:
        self.project = project
        self.folder = project / "reports/history"
        self.hashes: list[str] = []
        self._days = 0

    def commits(self, count: int) -> None:
        """That many commits."""
        git(self.project, "init", "-q")
        for number in range(count):
            git(self.project, "commit", "-q", "--allow-empty", "-m", f"change {number}")
        self.read_commits()

    def read_commits(self) -> None:
        """Take the commits that the project has, oldest first."""
        self.hashes = git(self.project, "log", "--reverse", "--format=%H").splitlines()

    def nights(self, hits, *, classes=None, first=0, end=True, dirty=False) -> None:
        """A run a night, each of the next commit from ``first`` on."""
        for number, (count, environment) in enumerate(
            zip(hits, classes or [CLASS] * len(hits), strict=True)
        ):
            started = START + datetime.timedelta(days=self._days)
            self._days += 1
            sha = self.hashes[first + number]
            facts = {"suite": "smoke", "commit": {"sha": sha, "dirty": dirty}}
            writer = RunWriter.open(self.folder, facts, started=started, commit=sha, token="aa")
            writer.write(self._line(count, environment))
            writer.close(exit_code=0) if end else writer.abandon()

    def shards(self, hits: int, *, commit: int, shares=("1/2", "2/2"), cut=()) -> None:
        """A night of ``commit`` on several machines, each with a model of its own; those
        ``cut`` were interrupted.
        """
        for number, share in enumerate(shares):
            started = START + datetime.timedelta(days=self._days, hours=number)
            sha = self.hashes[commit]
            facts = {"suite": "smoke", "commit": {"sha": sha, "dirty": False}, "shard": share}
            facts |= {
                "planned": 2,
                "selected": 1,
                "complete_selection": False,
                "limited": None,
                "select": "",
            }
            writer = RunWriter.open(self.folder, facts, started=started, commit=sha, token="aa")
            writer.write(self._line(hits, CLASS) | {"model": f"model{share[0]}"})
            writer.abandon() if share in cut else writer.close(exit_code=0)
        self._days += 1

    def annotate(self, commit: str, state: str) -> None:
        """Add an annotation."""
        table = {"commit": commit, "state": state, "author": "ann", "reason": "because"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        with (self.folder / "annotations.toml").open("a") as file:
            file.write("\n".join(["[[annotation]]", *lines, ""]))

    def accept(self, hits: int) -> None:
        """A baseline in which the cell has ``hits`` on the class of most nights."""
        answers = Answers(np.zeros((360, 1), dtype=np.int32))
        slug = self.CELL.partition("::")[2]
        made = Baseline(
            model="digits_cnn",
            model_digest="m",
            preprocessing="p",
            backend="ort-cpu",
            environment_class=CLASS,
            metrics={"top1": 357},
            data={"digits": StoredData(samples=360, digest="d1", reference=answers.digest)},
            stored={"digits": answers},
            cells={
                slug: AcceptedCell(
                    accepted={CLASS: Accepted(metrics={"top1": hits}, predictions={})}
                )
            },
        )
        save_baseline(self.project / "baselines/smoke/digits_cnn.json", made)

    def _line(self, hits: int, environment: str) -> dict[str, object]:
        counts = {
            "n": 360,
            "hits": hits,
            "out_of": 360,
            "reference_hits": 357,
            "losses": 0,
            "gains": 0,
        }
        return {
            "type": "cell",
            "suite": "smoke",
            "model": "digits_cnn",
            "backend": "ort-cpu",
            "schema": "w8a8_asym_pc",
            "variant": "",
            "outcome": "passed",
            "environment_class": environment,
            "metrics": {"top1": {**counts, "direction": "higher"}},
            "digests": {"data:digits": "d1"},
        }
