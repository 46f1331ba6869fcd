"""Names of strangers reach no terminal, no log of continuous integration and no spreadsheet as
anything but text.
"""

import csv
import json
import unicodedata
from pathlib import Path

import onnx
import pytest

from qbench.storage import csv_text, neutral_json, neutral_line, neutral_text, visible

COMMANDS = "a\n::error title=x::boom\r  ::warning::no ##[error]red\n ##vso[task.setvariable]"
CODES = "\x1b[31mred\x9b1m\x00\x7f \u202ereversed\u2066\u200b\u200f\u2028::debug::\ufeff"
FORMULA = "=cmd|' /C calc'!A0"
HOSTILE = f"{COMMANDS}{CODES}"


def offences(text: str) -> list[str]:
    """The lines of ``text`` that a terminal, GitHub's runner or Azure's agent would act on."""
    found = []
    for line in text.split("\n"):
        hidden = [
            one for one in line if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        ]
        if hidden or line.strip().startswith("::") or "##[" in line or "##vso[" in line:
            found.append(line)
    return found


def test_the_check_sees_what_it_is_for():
    assert offences("fine\n one::two::three # [x] ## heading") == []
    assert len(offences(HOSTILE.replace("\r", "\n"))) == 3


@pytest.mark.parametrize(
    "text", [HOSTILE, COMMANDS, CODES, FORMULA, "\udcff", "\U0001fffe", "::x", "  ::x", "##[x"]
)
def test_every_way_of_writing_gives_text_alone(text):
    assert (
        offences(neutral_line(text))
        == offences(neutral_text(text))
        == offences(neutral_json({text: [text]}))
        == []
    )
    assert "\n" not in neutral_line(text)
    assert json.loads(neutral_json({text: [text]})) == {text: [text]}
    assert visible(visible(text)) == visible(text)
    ((field, number),) = csv.reader(csv_text([[text, -1.5]]).splitlines())
    assert field[0] not in "=+-@\t\r"
    assert (visible(field), number) == (field, "-1.5")


def test_what_is_harmless_stays():
    for text in (
        "conv1/weight:0",
        "smoke::blobs::ort-cpu+w8",
        "−48.00 pp · 日本 ✓",
        "a\u00a0b",
        "# comment ##",
    ):
        assert neutral_line(text) == visible(text) == text
    assert neutral_text("two\nlines") == "two\nlines"


@pytest.fixture
def hostile_files(blobs_files) -> Path:
    """``net.onnx`` with such names at every node and value but input and output."""
    model = onnx.load("net.onnx")
    renamed: dict[str, str] = {}
    names = iter([f"{FORMULA}{HOSTILE}{index}" for index in range(20)])
    for node in model.graph.node:
        node.name = f"{HOSTILE}{node.name}"
        for place, name in enumerate(node.output):
            if name not in {value.name for value in model.graph.output}:
                node.output[place] = renamed.setdefault(name, next(names))
    for constant in model.graph.initializer:
        constant.name = renamed.setdefault(constant.name, next(names))
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    del model.graph.value_info[:]
    onnx.save(model, "net.onnx")
    return blobs_files


DATA = ("--data", "test.npz", "--calib", "train.npz")
SCHEMA = ("--schema", "w8a8_asym_pc")
PLAN = ("quantize", "net.onnx", "--profile", "p.json", *SCHEMA, "-o", "q.onnx", "--why")
VERBS = (
    ("profile", "net.onnx", "--data", "train.npz", "-o", "p.json", "--bins", "bins.csv"),
    PLAN,
    (*PLAN, "--json"),
    ("eval", "net.onnx", *DATA, *SCHEMA, "--backend", "integer-gemmlowp", "--counters", "--parts"),
    ("eval", "net.onnx", *DATA, *SCHEMA, "--json"),
    ("lint", "q.onnx"),
    ("lint", "q.onnx", "--json"),
    ("partition", "q.onnx", "--device", "conv-engine"),
    ("diff", "net.onnx", *DATA, "--left", "schema=w8a8_asym_pc", "--right", "schema=w4a4_sym_pt"),
    ("localize", "net.onnx", *DATA, "--schema", "w4a4_sym_pt"),
    ("rewrite", "q.onnx", "-o", "s.onnx"),
)


@pytest.mark.slow
def test_no_verb_writes_a_name_as_it_is(hostile_files, qbench):
    shown = []
    for words in VERBS:
        code, out, err = qbench(*words)
        assert offences(out) == offences(err) == [], words
        assert code != 2 or words[0] == "partition", (words, err)
        shown += [words] * ("1b[31m" in out)
    assert len({words[0] for words in shown}) >= 5
    rows = list(csv.reader(Path("bins.csv").read_text().splitlines()))
    assert {row[0][:2] for row in rows[1:]} == {"x", "sc", "'="}
    code, out, err = qbench("quantize", "net.onnx", "--plan", "p.json", "-o", "q.onnx")
    assert (code, offences(err)) == (2, [])


HISTORY = (
    ("history", "show", "tiny::blobs::ort-cpu+w8a8_asym_pc"),
    ("history", "check"),
    ("compare", "latest", "latest"),
    ("compare", "latest", "latest", "--json"),
    *(
        ("export", "latest", "--format", name)
        for name in ("csv", "json", "junit", "github-benchmark", "bencher")
    ),
    ("accept", "latest"),
    ("report", "-o", "reports", "--report", "html", "--report", "md"),
    ("report", "-o", "reports", "--report", "github"),
)


@pytest.mark.slow
def test_no_verb_writes_a_line_of_a_run_file_as_it_is(project, qbench):
    assert qbench("run", "suites/tiny.qbench.toml")[0] == 1
    (path,) = Path("reports/history").rglob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for key in {"headline", "rule", "remedy", "variant"} & line.keys():
            line[key] = f"{FORMULA}{HOSTILE}"
        if line["type"] == "cell":
            line["notices"] = [HOSTILE, FORMULA]
            line["environment_class"] = f"{FORMULA}{HOSTILE}"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for words in HISTORY:
        _code, out, err = qbench(*words)
        ours = [
            line
            for line in out.splitlines()
            if line.startswith(("::error file=", "::error title=", "::warning file="))
        ]
        assert not ours or "github" in words
        rest = "\n".join(line for line in out.splitlines() if line not in ours)
        assert offences(rest) == offences(err) == [], words
        assert [one for line in ours for one in offences(line.removeprefix("::"))] == []
    for page in Path("reports").rglob("*.html"):
        text = page.read_text()
        assert visible(text, keep="\n\t") == text
    for row in csv.reader(qbench("export", "latest", "--format", "csv")[1].splitlines()):
        assert not any(field.startswith(("=", "@", "\t")) for field in row)


def test_words_of_the_command_line_are_text_in_errors(project, qbench):
    given = HOSTILE.replace("\0", "")
    for words in (
        ("lint", given),
        ("lint", "x", given),
        (given,),
        ("eval", "--data", f"{given}.npz", "net.onnx"),
    ):
        code, out, err = qbench(*words)
        assert (code, offences(out), offences(err)) == (2, [], []), words
