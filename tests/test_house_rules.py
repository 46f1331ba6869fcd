"""The house style as far as a machine can see it: sizes, names, front doors, docstrings,
nothing of one machine.
"""

import ast
import functools
import json
import re
import runpy
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from qbench.judging import GateKind
from qbench.judging.gates import GATES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qbench"
GUESTS = ("engines", "zoo")
"""Folders of the distributions that join qbench as extensions;
each holds the package ``qbench_NAME``.
"""
LONGEST_FILE = 800
LONGER_FILES = {
    "engines/qbench_engines/tflite_writer.py": "a function per operator, chosen by one table",
    "benchmarks/onnx_fuzz.py": "one program: the mutations of a model, and what watches a case",
}
"""The files of more than ``LONGEST_FILE`` lines, and why each is one topic."""
BANNED = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
CODE_FOLDERS = ("qbench", "engines", "zoo", "tests", "benchmarks", "docs", "examples")

# Written in pieces, so that this file does not find itself.
_MACHINE_PATHS = [f"/{'work'}/", f"/{'root'}/", f"/{'home'}/", f"/{'Users'}/", f"C:{chr(92)}Users"]
_HOSTS = [
    *("pypi." + end for end in ("org", "python.org")),
    "files." + "pythonhosted",
    "git" + "lab.",
    "hugging" + "face.co",
    "art" + "ifactory",
    "localhost" + ":",
    "127.0." + "0.1",
]
_INDEX_OPTIONS = re.compile(r"--(extra-)?index-" + r"url|--trusted-" + r"host|--find-" + r"links")


def python_files(*folders: str) -> list[Path]:
    """Every Python file below ``folders`` of the checkout, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def room_of(path: Path) -> str:
    """``numerics`` for qbench/numerics/affine.py, ``errors`` for qbench/errors.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_module(dotted: str) -> bool:
    """Whether ``qbench.graph.digest`` is a file or a folder
    of the package (and not a name inside one).
    """
    path = ROOT.joinpath(*dotted.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def imports_of(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import among ``nodes``, those inside functions too; files
    imported as names count.
    """
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                inside = node.module.startswith("qbench.") and is_module(whole)
                yield node.lineno, whole if inside else node.module


def side_doors(path: Path, imports: Iterable[tuple[int, str]], rooms: set[str]) -> list[str]:
    """The imports of ``path`` that break the front-door rule: another room's file,
    or one's own room whole.
    """
    own = room_of(path)
    found = []
    for line, module in imports:
        parts = module.split(".")
        if parts[0] != "qbench" or len(parts) < 2 or parts[1] not in rooms:
            continue
        if parts[1] != own and len(parts) > 2:
            found.append(
                f"{path.name}:{line} imports the file {module}; import the room qbench.{parts[1]}"
            )
        if parts[1] == own and len(parts) == 2 and path.name != "__init__.py":
            found.append(f"{path.name}:{line} imports its own room {module}; import the file")
    return found


_THROWS_AWAY = re.compile(
    r"\b(delete (it|the|that)|remove (the (page|file|baseline|run|index))|rm -|git "
    r"(rm|clean|reset)|discard it)|"
    r"from the baseline file|take them out",
    re.IGNORECASE,
)


def remedies_that_throw_away(nodes: Sequence[ast.AST]) -> list[str]:
    """The texts that recommend to throw a file away; docstrings are no messages."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {ast.get_docstring(node, clean=False) for node in nodes if isinstance(node, documented)}
    texts = (
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return [text for text in texts if text not in docs and _THROWS_AWAY.search(text)]


GATE_METRICS = frozenset(
    ("integer_macs", "executed_macs", "latency", "file_bytes", "ranges", "predictions")
)
"""What gates are about that is not a metric of a suite."""


def gate_kinds_as_text(nodes: Sequence[ast.AST]) -> list[int]:
    """The lines that compare a ``kind`` with the word of a gate instead of a ``GateKind``, or the
    ``metric`` of a gate with its name.
    """
    words = {kind.value for kind in GateKind} | GATE_METRICS
    found = []
    for node in nodes:
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        is_of_kind = any(
            isinstance(side, ast.Attribute) and side.attr in ("kind", "metric") for side in sides
        )
        texts = {
            one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)
        }
        if is_of_kind and texts & words:
            found.append(node.lineno)
    return found


DENSITY = runpy.run_path(str(ROOT / "benchmarks" / "density.py"))


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules ask of a file of code. A tree is large: it is made once and not kept."""

    purpose: str | None
    """The docstring of the module."""
    imports: list[tuple[int, str]]
    throwing_away: list[str]
    gate_kinds: list[int]
    dense: list[str]
    wide: int
    """The number of comprehensions with too many loops."""


def nodes_of(source: str) -> list[ast.AST]:
    """Every node of the tree of ``source``; the module is the first."""
    return list(ast.walk(ast.parse(source)))


@functools.cache
def facts_of(path: Path) -> Facts:
    """The facts of a file, found once for all rules."""
    nodes = nodes_of(path.read_text())
    tree = nodes[0]
    return Facts(
        purpose=ast.get_docstring(tree),
        imports=list(imports_of(nodes)),
        throwing_away=remedies_that_throw_away(nodes),
        gate_kinds=gate_kinds_as_text(nodes),
        dense=[one.text(ROOT) for one in DENSITY["dense_functions"](path, tree)],
        wide=len(list(DENSITY["wide_comprehensions"](nodes))),
    )


def exported_functions(init: Path) -> set[str]:
    """The names that a package's ``__init__`` imports or defines;
    files that it imports as such hide nothing.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(init.read_text())):
        if isinstance(node, ast.ImportFrom):
            named = [alias for alias in node.names if not is_module(f"{node.module}.{alias.name}")]
            names |= {alias.asname or alias.name for alias in named}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def tracked() -> list[Path]:
    """The files that git tracks or would add;
    skipped where there is no git (an unpacked archive).
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for line in listed.splitlines() if (path := ROOT / line).is_file()]


def test_files_stay_short():
    """A longer file needs a reason in ``LONGER_FILES``."""
    long = {
        str(path.relative_to(ROOT))
        for path in python_files("qbench", *GUESTS, "benchmarks")
        if len(path.read_text().splitlines()) > LONGEST_FILE
    }
    assert long == LONGER_FILES.keys(), f"longer than {LONGEST_FILE} lines: split by topic"


def test_ruff_watches_the_size_of_functions():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert settings["pylint"]["max-statements"] == 60
    assert settings["mccabe"]["max-complexity"] == 12
    assert {"C90", "PL"} <= set(settings["select"])


def test_no_line_is_longer_than_100_columns():
    """Ruff says which is; nothing may ask it not to, a table formatted by hand neither."""
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    lint = ruff["lint"]
    longest = runpy.run_path(str(ROOT / "benchmarks" / "density.py"))["LONGEST_LINE"]
    ignored = {rule for rules in lint["per-file-ignores"].values() for rule in rules}
    excused = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix == ".py" and re.search(r"noqa:[^#\n]*\bE501\b", path.read_text())
    ]
    assert ruff["line-length"] == longest == 100
    assert "max-line-length" not in lint.get("pycodestyle", {})
    assert any("E501".startswith(rule) for rule in lint["select"])
    assert not any("E501".startswith(rule) for rule in {*lint["ignore"], *ignored})
    assert excused == []


def test_no_drawer_for_odds_and_ends():
    names = [path for path in python_files(*CODE_FOLDERS) if {path.stem, path.parent.name} & BANNED]
    assert not names, "name a file after its idea"


def test_every_module_says_what_it_is_for():
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files("qbench", *GUESTS, "benchmarks")
        if not facts_of(path).purpose
    ]
    assert not silent


def test_rooms_are_entered_by_the_front_door():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    found = [
        line
        for path in python_files("qbench")
        for line in side_doors(path, facts_of(path).imports, rooms)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "breaks"),
    [
        ("from qbench.graph import load_model", False),
        ("from qbench.graph.digest import graph_digest", True),
        ("import qbench.graph.digest", True),
        ("from qbench.numerics.qtype import QType", False),
        ("from qbench.numerics import QType", True),
        ("def f():\n    from qbench.graph.digest import graph_digest", True),
        ("from qbench.graph import digest", True),
        ("from qbench.numerics import qtype", False),
        ("from qbench.errors import InputError", False),
    ],
)
def test_the_front_door_rule_can_be_broken(source, breaks):
    imports = imports_of(nodes_of(source))
    found = side_doors(PACKAGE / "numerics" / "affine.py", imports, {"graph", "numerics"})
    assert bool(found) == breaks


def lazy_doors() -> list[Path]:
    """The ``__init__`` files that load their names on first use."""
    return [
        path for path in sorted(PACKAGE.rglob("__init__.py")) if "open_on_use" in path.read_text()
    ]


OPENED = """
import importlib, json, sys

wrong = []
for package, names in json.load(sys.stdin).items():
    room = importlib.import_module(package)
    if set(room.__all__) - {"__version__"} != set(names):
        wrong.append([package, sorted(set(room.__all__) ^ set(names))])
    for public, (module, name) in names.items():
        if getattr(room, public) is not getattr(importlib.import_module(module), name):
            wrong.append([package, public])
print(json.dumps(wrong))
"""


def names_for_types(init: Path) -> dict[str, tuple[str | None, str]]:
    """Public name → (module, name there) of every import that mypy reads in ``init``."""
    (typed,) = (node for node in ast.parse(init.read_text()).body if isinstance(node, ast.If))
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(ast.Module(typed.body, []))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_a_lazy_door_opens_to_what_its_types_say():
    """Every import that mypy reads is a public name, and no other is; each is what its module
    has by that name.

    In a process of its own: pytester forgets the modules that were imported inside of it, and they
    would be imported again here, with other functions.
    """
    doors = {
        ".".join(init.parent.relative_to(ROOT).parts): names_for_types(init)
        for init in lazy_doors()
    }
    assert len(doors) > 10
    done = subprocess.run(
        [sys.executable, "-c", OPENED],
        input=json.dumps(doors),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert json.loads(done.stdout) == []


def test_no_module_is_hidden_by_a_function_of_its_name():
    hidden = []
    for init in sorted(PACKAGE.rglob("__init__.py")):
        exported = exported_functions(init)
        modules = {path.stem for path in init.parent.glob("*.py")} | {
            path.parent.name for path in init.parent.glob("*/__init__.py")
        }
        hidden += [f"{init.parent.relative_to(ROOT)}/{name}" for name in sorted(exported & modules)]
    assert not hidden, "rename the file: its function would hide it at run time"


def test_arrays_of_files_are_read_in_one_place():
    """``np.load`` and ``zlib.decompress`` have no limit of size; ``read_archive`` and
    ``inflate`` have one.
    """
    readers = re.compile(r"\b(?:np|numpy)\.load\(|\bzlib\.decompress\(")
    found = [
        str(path.relative_to(ROOT))
        for path in python_files("qbench", *GUESTS)
        # scripts of quantizers run without qbench, on samples that it has just written
        if readers.search(path.read_text()) and path.parent.name != "quantizers"
    ]
    # The archive of Qt's pictures is of a pinned package, whose digest is checked.
    assert found == ["zoo/qbench_zoo/readers/qt_resources.py"]


def test_guests_enter_by_the_front_door_too():
    """What a guest imports of qbench is a room or one of the modules next to the rooms, as a
    user's package would.
    """
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    found = [
        f"{path.name}:{line} imports the file {module}"
        for path in python_files(*GUESTS)
        for line, module in facts_of(path).imports
        if module.split(".")[0] == "qbench"
        and module.count(".") > 1
        and module.split(".")[1] in rooms
    ]
    assert not found, "\n".join(found)


def test_the_core_knows_no_engine_of_its_guests():
    """Neither the name of a backend of ``engines/`` nor the import name of an engine is in the
    code of the core.
    """
    from qbench_engines.extension import EXTENSION

    names = "|".join(
        sorted(map(re.escape, (*EXTENSION.backends, "ai_edge_litert")), key=len, reverse=True)
    )
    named = re.compile(rf"(?<![\w./-])(?:{names})(?![\w#/-])|\blitert\b|\bqbench_engines\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in python_files("qbench")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if named.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_public_name_hides_a_room():
    import qbench

    rooms = {path.stem for path in PACKAGE.iterdir()}
    assert not rooms & set(qbench.__all__)


def test_test_files_have_distinct_names():
    names = Counter(path.name for path in python_files("tests") if path.name != "conftest.py")
    assert not [name for name, count in names.items() if count > 1], (
        "one name a test file: there are no packages here"
    )


def test_nothing_is_tracked_that_belongs_to_one_machine():
    found = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" in data[:8192] or path.name == "LICENSE":
            continue
        text = data.decode("utf-8", errors="replace")
        found += [
            f"{path.relative_to(ROOT)}: {needle}"
            for needle in (*_MACHINE_PATHS, *_HOSTS)
            if needle in text
        ]
        if match := _INDEX_OPTIONS.search(text):
            found.append(f"{path.relative_to(ROOT)}: {match.group()}")
    assert not found, "\n".join(found)


def test_constraints_are_names_and_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line), line


def test_constraints_pin_everything_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.split(r"[<>=!~;\[ ]", line)[0].lower().replace("_", "-") for line in asked}
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().split()
    }
    # pip cannot pin itself while it runs: it is the one thing a new environment brings along
    ours = {"pytest-qbench", *(f"qbench-{guest}" for guest in GUESTS)}
    assert names - {"pip"} - ours <= pinned


def test_no_test_is_held_to_a_clock():
    """A busy computer makes everything slow: no deadline of an example, no wait under a minute,
    no measured time.
    """
    from hypothesis import HealthCheck, settings

    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    clocks = re.compile(
        r"deadline\s*=\s*\d|assert .*\b(?:perf_counter|process_time|monotonic)\(\) - "
        r"|timeout=\d{1,2}\b(?!_)"
    )
    found = [
        path
        for path in python_files("tests")
        if path != Path(__file__) and clocks.search(path.read_text())
    ]
    assert found == []


def test_no_message_recommends_to_throw_results_away():
    found = {
        path.name: texts
        for path in python_files("qbench")
        if (texts := facts_of(path).throwing_away)
    }
    assert not found


@pytest.mark.parametrize(
    "text", ["Delete it yourself", "remove 'a' from the baseline file", "git rm -r baselines"]
)
def test_the_rule_about_messages_can_be_broken(text):
    assert remedies_that_throw_away(nodes_of(f'raise Error(remedy="{text}")')) == [text]


def test_the_kind_of_a_gate_is_no_text() -> None:
    """A gate is a row of ``judging/gates.py``: nothing else switches on the word of its kind."""
    assert gate_kinds_as_text(nodes_of('broken = first.kind == "loss"')) == [1]
    assert gate_kinds_as_text(nodes_of('wide = gate.kind in ("loss", "floor")')) == [1]
    assert gate_kinds_as_text(nodes_of('fell = gate.metric == "executed_macs"')) == [1]
    assert gate_kinds_as_text(nodes_of('wide = array.dtype.kind == "f"')) == []
    named = {str(path): facts_of(path).gate_kinds for path in python_files("qbench", "engines")}
    assert {path: lines for path, lines in named.items() if lines} == {}


def test_every_kind_of_gate_is_one_row() -> None:
    assert sorted(spec.kind for spec in GATES) == sorted(GateKind)


def test_no_function_is_dense() -> None:
    """At most four conditional expressions in a function and none nested;
    at most two loops in a comprehension.
    """
    files = python_files(*DENSITY["FOLDERS"])
    found = [line for path in files for line in facts_of(path).dense]
    wide = [str(path) for path in files if facts_of(path).wide]
    assert found == []
    assert wide == []


def test_dense_functions_are_found() -> None:
    nested = ast.parse("def f(a, b):\n    return 1 if a else 2 if b else 3\n")
    many = ast.parse("def f(a):\n    return " + ", ".join(["1 if a else 2"] * 5) + "\n")
    few = ast.parse("def f(a):\n    return " + ", ".join(["1 if a else 2"] * 4) + "\n")
    counts = [
        len(list(DENSITY["dense_functions"](ROOT / "f.py", tree))) for tree in (nested, many, few)
    ]
    assert counts == [1, 1, 0]
