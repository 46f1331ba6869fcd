"""Jobs on workers, with a program in the place of pytest that does as its table says: what is tried
again, what is given up, and what an executor may hand back without harm.
"""

import ctypes
import json
import os
import socket
import sys
import textwrap
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from qbench.errors import InputError, UnavailableError
from qbench.extension import install_command
from qbench.storage import without_secrets
from qbench.suite import (
    DIED,
    MEASURED,
    REFUSED,
    JobState,
    Night,
    PlannedCode,
    PlannedSuite,
    Unit,
    make_job_plan,
    own_source,
    own_version,
    runs_of_job,
    save_job_plan,
    workers_at,
)
from qbench.suite.job_process import _LAUNCH
from qbench.tracking import FolderStore

HOST = "localhost"
CODES = {"0": MEASURED, "1": MEASURED, "2": DIED, "3": DIED, "4": REFUSED, "5": REFUSED}

PROGRAM = """
    import json, os, signal, sys, time
    from pathlib import Path

    store, does = Path(sys.argv[1]), json.loads(sys.argv[2])
    plan, _, index = sys.argv[-1].partition("=")[2].partition("#")
    short = json.loads(Path(plan).read_text())["digest"][:16]
    steps = does.get(index, [["cell", "end"]])
    done = sorted(store.glob(f"tries-{index}-*"))
    (store / f"tries-{index}-{len(done)}-{os.getpid()}").touch()
    file = None
    for word in steps[min(len(done), len(steps) - 1)]:
        if word in ("cell", "end") and file is None:
            number = 1
            while file is None:
                path = store / f"{short}-j{int(index):04}-a{number:02}-scratch.jsonl"
                try:
                    file = path.open("x")
                except FileExistsError:
                    number += 1
            print(json.dumps({"type": "run", "selected": 2, "limited": None}), file=file)
        if word in ("cell", "end"):
            cell = dict.fromkeys(("model", "backend", "schema", "variant"), index)
            print(json.dumps({"type": word, **cell}), file=file, flush=True)
        elif word == "kill":
            print("loading the model", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "sleep":
            time.sleep(600)
        elif isinstance(word, int):
            print(f"last words of {index}, token={os.environ.get('MY_TOKEN')}", flush=True)
            sys.exit(word)
"""


@pytest.fixture
def start(tmp_path):
    """A function that makes the night of a plan whose jobs do as a table says."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    store = tmp_path / "store"
    store.mkdir()
    own_source.cache_clear()  # earlier tests may have installed an extension for a while

    def started(workers, does, *, jobs=3, needs=(), **order):
        code = PlannedCode(commit="", dirty=False, qbench="")
        suite = PlannedSuite(path="scratch.qbench.toml", name="scratch", digest="d", cells=jobs)
        units = [
            [Unit(suite="scratch", model=f"m{one}", cells=2, seconds=float(one))]
            for one in range(jobs)
        ]
        plan = make_job_plan([suite], code, None, units)
        save_job_plan(plan, tmp_path / "plan.json")
        table = {
            "plan": (tmp_path / "plan.json").read_text(),
            "short": plan.short,
            "folder": str(tmp_path),
            "words": [str(program), str(store), json.dumps(does)],
            "of": f"plan {plan.short}",
            "options": ["--qbench-job={plan}#{job}"],
            "codes": CODES,
            "variables": {},
            "version": own_version(),
            "source": own_source(),
            **order,
        }
        told = []
        night = Night(plan, workers, store, table, lambda job: needs, told.append, wait=briefly)
        return Started(night, store, told)

    return started


@dataclass
class Started:
    night: Night
    store: Path
    told: list

    def run(self):
        return self.night.run()


class Now:
    """Workers that call the function at once, and hand back what ``change`` makes of results."""

    name = "my:executor"

    def __init__(self, change=lambda value, order: value):
        self.change = change
        self.avoided = []

    def notices(self, needs):
        return tuple(f"ignored: {need}" for need in sorted(needs))

    def submit(self, function, order, needs, avoided):
        self.avoided.append(sorted(avoided))
        future = Future()
        try:
            future.set_result(self.change(function(order), order))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self, short):
        pass


def tries_of(night, index):
    return len(list(night.store.glob(f"tries-{index}-*")))


def briefly(seconds):
    time.sleep(seconds / 20)


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()


def states(night):
    return {end.index: end.state.value for end in night.run()}


def test_a_process_pool_measures_every_job_once_and_keeps_what_is_there(start):
    with workers_at("", "concurrent.futures:ProcessPoolExecutor") as workers:
        night = start(workers, {})
        assert states(night) == dict.fromkeys((1, 2, 3), "measured"), night.told
        assert states(start(workers, {})) == dict.fromkeys((1, 2, 3), "kept")
    assert [tries_of(night, index) for index in (1, 2, 3)] == [1, 1, 1]
    assert set(runs_of_job(night.store, night.night.plan.short, 3).complete) == {"scratch"}


@pytest.mark.parametrize(
    "header",
    [
        {"selected": 2, "limited": 4},
        {"selected": 2, "limited": None, "select": "model=m0"},
        {"selected": 1, "limited": None, "select": ""},
    ],
    ids=["some samples", "other cells", "some cells"],
)
def test_an_attempt_at_a_part_of_a_job_is_not_all_of_it(start, header):
    night = start(Now(), {})
    lines = [{"type": "run", **header}, {"type": "end"}]
    path = night.store / f"{night.night.plan.short}-j0002-a01-scratch.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert states(night)[2] == "measured"
    assert tries_of(night, 2) == 1


def test_a_night_keeps_what_has_its_number_of_samples_and_takes_what_its_own_jobs_chose(start):
    night = start(Now(), {"1": [[0]]}, jobs=1)
    night.night.limit = 4

    def write(number, **header):
        lines = [{"type": "run", "limited": 4, **header}, {"type": "end"}]
        path = night.store / f"{night.night.plan.short}-j0001-a{number:02}-scratch.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    write(1, selected=1)
    night.night.workers = Now(lambda value, order: write(2, selected=1) or value)
    assert states(night) == {1: "measured"}
    write(3, selected=2)
    again = start(Now(), {}, jobs=1)
    again.night.limit = 4
    assert states(again) == {1: "kept"}


def test_the_store_is_listed_once_for_what_all_jobs_have(start):
    night = start(Now(), {})
    assert set(states(night).values()) == {"measured"}
    listed = []

    class Counted(FolderStore):
        def runs(self):
            listed.append(1)
            return super().runs()

    again = start(Now(), {})
    again.night.history = Counted(night.store)
    assert set(states(again).values()) == {"kept"}
    assert len(listed) == 1


@pytest.mark.parametrize(("answers_after_s", "state"), [(30, "measured"), (3600, "lost")])
def test_a_job_that_ends_while_the_store_is_away_waits_for_it(start, answers_after_s, state):
    night = start(Now(), {}, jobs=1)
    clock = [0.0]

    class Away(FolderStore):
        outage = None

        def runs(self):
            is_away = 0 < clock[0] < answers_after_s
            self.outage = "no answer" if is_away else None
            return [] if is_away else super().runs()

    def wait(seconds):
        clock[0] += seconds

    def change(value, order):
        clock[0] = 1.0
        return value

    night.night.history, night.night.wait = Away(night.store), wait
    night.night.clock, night.night.workers = lambda: clock[0], Now(change)
    assert states(night) == {1: state}
    assert tries_of(night, 1) == 1


def test_red_cells_are_no_failure_of_a_job(start):
    night = start(Now(), {"1": [["cell", "end", 1]]})
    assert states(night)[1] == "measured"
    assert tries_of(night, 1) == 1


def test_a_job_whose_process_died_once_is_tried_again(start):
    night = start(Now(), {"2": [["cell", "kill"], ["cell", "end"]]})
    assert states(night) == dict.fromkeys((1, 2, 3), "measured")
    assert tries_of(night, 2) == 2
    assert any("by signal SIGKILL" in line for line in night.told)


def test_after_two_deaths_before_the_first_cell_a_job_is_infra_with_its_last_output(start):
    night = start(Now(), {"2": [["kill"]]})
    ends = {end.index: end for end in night.run()}
    assert [ends[index].state for index in (1, 3)] == [JobState.MEASURED] * 2
    assert ends[2].state is JobState.INFRA
    assert ends[2].output == ("loading the model",)
    assert ends[2].tries == tries_of(night, 2) == 2
    assert any("loading the model" in line for line in night.told)


def test_a_job_that_dies_again_and_again_after_the_same_cell_is_given_up(start):
    night = start(Now(), {"2": [["cell", "kill"]]})
    assert states(night) == {1: "measured", 2: "infra", 3: "measured"}
    assert tries_of(night, 2) == 4


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"version": "9.9"}, "found qbench 0.1.0; expected 9.9"),
        ({"source": "0" * 64}, "found other source code of qbench"),
        ({"folder": "/no/such/folder"}, "found no folder '/no/such/folder'"),
    ],
)
def test_a_worker_of_another_kind_refuses_in_one_sentence_and_runs_nothing(start, order, says):
    workers = Now()
    night = start(workers, {}, jobs=1, **order)
    (end,) = night.run()
    assert end.state is JobState.REFUSED
    assert says in end.reason
    assert tries_of(night, 1) == 0
    assert workers.avoided[0] == []
    assert all(workers.avoided[1:])


def test_a_job_that_the_program_refuses_has_its_sentence(start):
    night = start(Now(), {"1": [[4]]}, jobs=1)
    (end,) = night.run()
    assert (end.state, end.reason) == (JobState.REFUSED, "last words of 1, token=…")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda value, order: None, "found no result"),
        (lambda value, order: 7, "of type int"),
        (lambda value, order: {**value, "token": "x"}, "of type dict"),
        (lambda value, order: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_an_executor_returns_is_no_evidence(start, change, says):
    night = start(Now(change), {})
    assert states(night) == dict.fromkeys((1, 2, 3), "measured")
    assert [tries_of(night, index) for index in (1, 2, 3)] == [1, 1, 1]
    assert sum(says in line for line in night.told) == 3


def test_the_result_of_another_job_and_one_that_comes_twice_are_named(start):
    first = []

    def change(value, order):
        first.append(value)
        return first[0]

    night = start(Now(change), {})
    assert states(night) == dict.fromkeys((1, 2, 3), "measured")
    assert sum("found the result of a try of job 3" in line for line in night.told) == 2


def test_an_executor_that_takes_nothing_loses_the_jobs_and_ends(start):
    class Full(Now):
        def submit(self, *given):
            raise RuntimeError("no room at tcp://me:hidden-word@host/")

    night = start(Full(), {})
    assert states(night) == dict.fromkeys((1, 2, 3), "lost")
    assert any("RuntimeError: no room at tcp://…@host/" in line for line in night.told)
    assert not any("hidden-word" in line for line in night.told)


def test_an_executor_that_returns_no_future_is_named(start):
    class Nothing(Now):
        def submit(self, *given):
            return None

    night = start(Nothing(), {}, jobs=1)
    assert states(night) == {1: "lost"}
    assert any("which is no future" in line for line in night.told)


def test_a_run_file_that_this_computer_does_not_see_is_no_success(start):
    night = start(Now(), {"1": [[0]]}, jobs=1)
    (end,) = night.run()
    assert end.state is JobState.LOST
    assert "no complete run file" in end.reason
    assert tries_of(night, 1) == 1


def test_no_secret_of_the_environment_is_told(start, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hidden-word")
    night = start(Now(), {"1": [[3]]}, jobs=1)
    (end,) = night.run()
    assert end.output == ("last words of 1, token=…",)
    assert not any("hidden-word" in line for line in night.told)


def test_needs_that_nobody_declares_are_told_once(start):
    night = start(Now(), {}, needs=("gpu", "vnni"))
    assert set(states(night).values()) == {"measured"}
    assert night.told[:2] == ["ignored: gpu", "ignored: vnni"]


def test_ctrl_c_ends_the_processes_and_keeps_what_is_measured(start):
    with workers_at("local:2", "") as workers:
        night = start(workers, {"2": [["cell", "sleep"]], "1": [["cell", "sleep"]]})
        waits = []

        def wait(seconds):
            time.sleep(seconds)
            waits.append(seconds)
            begun = tries_of(night, 1) and tries_of(night, 2)
            if begun and not night.night.is_interrupted:
                raise KeyboardInterrupt

        night.night.wait = wait
        assert states(night) == {1: "interrupted", 2: "interrupted", 3: "measured"}
    assert night.night.is_interrupted
    for path in night.store.glob("tries-[12]-*"):
        assert not is_alive(int(path.name.rpartition("-")[2]))
    assert runs_of_job(night.store, night.night.plan.short, 1).cells <= 1


def test_a_process_ends_with_the_worker_that_started_it(start, tmp_path):
    night = start(Now(), {"1": [["cell", "sleep"]]})
    order = json.dumps({**night.night.order, "job": 1, "token": "t"})
    module = "from qbench.suite.job_process import run_job"
    code = f"import json, sys; {module}; run_job(json.load(sys.stdin))"
    with Popen([sys.executable, "-c", code], stdin=PIPE) as worker:
        worker.stdin.write(order.encode())
        worker.stdin.close()
        while not tries_of(night, 1) and worker.poll() is None:
            time.sleep(0.05)
        assert worker.poll() is None
        worker.kill()
    (path,) = night.store.glob("tries-1-*")
    process = int(path.name.rpartition("-")[2])
    left = 1200
    while is_alive(process) and left:
        time.sleep(0.05)
        left -= 1
    assert not is_alive(process)


@pytest.mark.parametrize(
    ("cluster", "factory", "says"),
    [
        ("", "", "found neither"),
        ("local:2", "a:b", "found --cluster and --executor"),
        ("local:0", "", "found 'local:0'; expected local:N"),
        ("here", "", "expected local:N"),
        ("ftp://me:word@host", "", "found 'ftp://…@host'"),
        ("tcp://me:word@host:1", "", "'tcp://…@host:1': found a login"),
        ("tcp://host", "", "found no host and port"),
        ("tcp://[::1:8786", "", "found no host and port"),
        ("", "factory", "expected MODULE:FACTORY"),
        ("", "no_such_module:factory", "ModuleNotFoundError"),
        ("", "concurrent.futures:no_such", "AttributeError"),
        ("", "builtins:dict", "found a dict; expected an executor"),
    ],
)
def test_wrong_workers_are_one_sentence(cluster, factory, says):
    with pytest.raises(InputError) as found, workers_at(cluster, factory):
        pass
    assert says in str(found.value)


def test_the_process_of_a_job_begins_on_a_system_without_prctl(monkeypatch):
    begun = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(os, "execv", lambda program, words: begun.append(words[1:]))
    monkeypatch.setattr(sys, "argv", ["-c", str(os.getppid()), "-m", "pytest"])
    exec(_LAUNCH)  # as python -c does
    assert begun == [["-m", "pytest"]]


def test_a_cluster_that_is_not_there_is_one_sentence():
    with pytest.raises(UnavailableError) as found, workers_at(f"tcp://{HOST}:9", ""):
        pass
    assert "expected a scheduler that answers there" in str(found.value)


def test_without_the_extra_a_sentence_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with socket.create_server((HOST, 0)) as server:
        address = f"tcp://{HOST}:{server.getsockname()[1]}"
        with pytest.raises(UnavailableError) as found, workers_at(address, ""):
            pass
    assert f"Install it: {install_command('cluster')};" in str(found.value)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("tcp://me:word@host:1/x", "tcp://…@host:1/x"),
        ("https://host/?token=abc&x=1", "https://host/?token=…&x=1"),
        ("key abcdef123 there", "key … there"),
        ("Authorization: Bearer abcdefghij", "Authorization: Bearer …"),
        ("{'password': 'abc'}", "{'password': '…'}"),
        ("s3://bucket/key@2 and a monkey=3", "s3://bucket/key@2 and a monkey=3"),
    ],
)
def test_texts_without_secrets(text, hidden):
    assert without_secrets(text, {"AWS_SECRET_ACCESS_KEY": "abcdef123", "A_KEY": "1"}) == hidden
