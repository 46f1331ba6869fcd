"""What has to hold in the process before any test: what is loaded once, and that it can be
interrupted.

pytester forgets the modules that a test loaded; onnx's compiled part cannot be loaded twice in one
process and ends it.

A shell that starts a job in the background lets it ignore interrupts, and its children inherit
that: tests that send an interrupt to a child would wait for nothing. A handler of our own is not
inherited, so that children start as usual.

ONNX Runtime's warnings would fill the output of a failed test: sessions that set no level of their
own log nothing.

The collector of cycles waits until the tests are collected, and then leaves alone what is loaded by
then: that stays to the end, and looking through it took up to a twelfth of the processor time.

No test fails because the computer is busy: hypothesis holds no example to a deadline, and waits are
long or end by what they wait for.

The quick tests (``make test``) try a fifth of hypothesis' examples; ``make test-slow`` runs the
same tests, which are marked ``property``, with all of them. Both draw the same examples each time,
so that a commit that passed passes again; ``make test-random`` draws others.
"""

import difflib
import gc
import itertools
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import onnx  # noqa: F401
import onnxruntime
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, is_hypothesis_test, settings

gc.disable()

onnxruntime.set_default_logger_severity(4)

busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", busy, derandomize=True)
settings.register_profile("random", busy, print_blob=True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = Path(__file__).parent / "golden"
FEWER = 5
"""The quick tests try the whole number of examples divided by this."""


def pytest_addoption(parser):
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="write the files of tests/golden anew (make golden)",
    )
    parser.addoption(
        "--few-examples",
        action="store_true",
        help=f"hypothesis tries 1/{FEWER} of its examples (make test)",
    )
    parser.addoption(
        "--random-examples",
        action="store_true",
        help="hypothesis draws other examples than the last time (make test-random)",
    )


def pytest_configure(config):
    settings.load_profile("random" if config.getoption("--random-examples") else "same")


def mark_all_but_few(items: list[pytest.Item]) -> None:
    """Mark as slow what ``slow_but(count)`` says: all parameters of a test but ``count`` of them.

    Those that stay quick are spread evenly over the list of the parameters; the first is one.
    Parameters with a mark ``slow`` of their own do not count.
    """
    parameters: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow_but") and not item.get_closest_marker("slow"):
            parameters.setdefault((item.path, item.originalname), []).append(item)
    for of_one_test in parameters.values():
        (count,) = of_one_test[0].get_closest_marker("slow_but").args
        quick = {place * len(of_one_test) // count for place in range(count)}
        for place, item in enumerate(of_one_test):
            if place not in quick:
                item.add_marker(pytest.mark.slow)


def try_few_examples(test: Callable[..., None]) -> None:
    """Let hypothesis try a part of ``test``'s examples, whether it has a number of its own or
    not.
    """
    full = test._hypothesis_internal_use_settings
    test._hypothesis_internal_use_settings = settings(
        full, max_examples=max(full.max_examples // FEWER, 1)
    )


@pytest.hookimpl(tryfirst=True)  # pytest selects by markers afterwards
def pytest_collection_modifyitems(config, items):
    """Mark what is slow or a property. Of the tests, only those that have a golden file are run
    when these files are written.
    """
    mark_all_but_few(items)
    properties = [item for item in items if is_hypothesis_test(getattr(item, "obj", None))]
    for item in properties:
        item.add_marker(pytest.mark.property)
    if config.getoption("--few-examples"):
        for test in {item.function for item in properties}:  # one of several parameters
            try_few_examples(test)
    if config.getoption("--write-golden"):
        others = [
            item for item in items if not {"golden", "words"} & {*getattr(item, "fixturenames", ())}
        ]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture
def golden(request) -> Callable[[str, str], None]:
    """Holds a text to ``tests/golden/NAME``; with ``--write-golden``,
    the text becomes that file.
    """

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--write-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        changes = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), f"tests/golden/{name}", "now", lineterm=""
        )
        assert text == kept, "\n".join(["'make golden' writes the file anew", *changes])

    return check


_ENTRY = "## "
"""Begins an entry of a file of words: the name of its test, and which of the test's texts it is."""


def _entries(text: str) -> dict[str, str]:
    entries = (entry.partition("\n") for entry in f"\n{text}".split(f"\n{_ENTRY}")[1:])
    return {name: words.strip("\n") for name, _, words in entries}


@pytest.fixture
def words(request) -> Callable[[str | Iterable[str]], None]:
    """Holds what a person reads to ``tests/golden/words/FILE_OF_THE_TEST.txt``, so that tests
    pin facts and no prose.

    Each call has an entry of its own, and the lines of several texts are joined. ``--write-golden``
    writes the file.
    """
    path = GOLDEN / "words" / f"{request.path.stem}.txt"
    calls = itertools.count(1)

    def check(said: str | Iterable[str]) -> None:
        text = (said if isinstance(said, str) else "\n".join(said)).strip("\n")
        name = f"{request.node.name} {next(calls)}"
        if request.config.getoption("--write-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(Path(tempfile.gettempdir()) / f"qbench-{path.stem}.lock"):
                entries = _entries(path.read_text(encoding="utf-8")) if path.exists() else {}
                entries[name] = text
                lines = (f"{_ENTRY}{key}\n{value}\n" for key, value in sorted(entries.items()))
                path.write_text("\n".join(lines), encoding="utf-8")
        kept = _entries(path.read_text(encoding="utf-8")) if path.exists() else {}
        assert text == kept.get(name), "'make golden' writes the file of words anew"

    return check


@pytest.fixture
def small_python(tmp_path) -> Callable[..., Path]:
    """Makes a virtual environment in no time: a package that is a name, our onnxruntime or
    none, code run at start.
    """

    def make(
        version: str, *, package: str = "toy", engine: bool = True, at_start: str = ""
    ) -> Path:
        folder = tmp_path / f"{package}-{version}"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        info = site / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        if engine:
            (site / "ours.pth").write_text(sysconfig.get_paths()["purelib"])
        if at_start:
            (site / "at_start.py").write_text(at_start)
            (site / "zz.pth").write_text("import at_start\n")
        return folder

    return make
