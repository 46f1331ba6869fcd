"""``qbench rewrite``: what it writes, what it tells, and how it ends when a pass is refused,
stopped or refuted.
"""

import json
import re
import textwrap
from pathlib import Path

import numpy as np
import onnx_ir
import pytest

from qbench import load_model, save_model
from qbench.passes import catalogue, standard_pipeline

CHAIN = """<ir_version: 10, opset_import: ["" : 21]>
net (int8[n,4] x) => (float[n,4] y)
<float s = {0.5}, float t = {0.25}, int8 z = {0}, int8 low = {-4}, int8 high = {6}> {
    r = DequantizeLinear(x, s, z)
    q = QuantizeLinear(r, s, z)
    c = Clip(q, low, high)
    d = DequantizeLinear(c, s, z)
    p = QuantizeLinear(d, t, z)
    y = DequantizeLinear(p, t, z)
}"""
EXTENSION = '''
from dataclasses import dataclass

from qbench.extension import Extension
from qbench.passes import EXACT, Effect


@dataclass(frozen=True, slots=True)
class DropClips:
    """Drops every Clip, whatever it does."""

    effect: Effect = EXACT
    name: str = "drop-clips"

    def run(self, model):
        found = [node for node in model.graph if node.op_type == "Clip"]
        for node in found:
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            model.graph.remove(node, safe=True)
        return bool(found)


@dataclass(frozen=True, slots=True)
class Break:
    """Removes what others read."""

    effect: Effect = EXACT
    name: str = "break"

    def run(self, model):
        model.graph.outputs[0].name = "lost"
        return True


@dataclass(frozen=True, slots=True)
class DropSilently(DropClips):
    """Drops every Clip and says nothing of it."""

    name: str = "drop-silently"

    def run(self, model):
        DropClips.run(self, model)
        return False


@dataclass(frozen=True, slots=True)
class Once:
    """Puts an operator there that nothing runs, and breaks down on it."""

    effect: Effect = EXACT
    name: str = "once"

    def run(self, model):
        node = next(node for node in model.graph if node.op_type == "Clip")
        node.op_type, node.domain = "Sum", ""
        return True


PASSES = {"drop-clips": DropClips, "break": Break, "drop-silently": DropSilently, "once": Once}
EXTENSION = Extension(name="mine", passes=PASSES)
'''
MINE = ("--extension", "mine:EXTENSION")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    import onnx_ir as ir

    monkeypatch.chdir(tmp_path)
    model = ir.from_onnx_text(CHAIN)
    for node in model.graph:
        node.name = node.outputs[0].name
    save_model(model, tmp_path / "net.onnx")
    (tmp_path / "mine.py").write_text(textwrap.dedent(EXTENSION))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    import sys

    sys.modules.pop("mine", None)


def operators(path: Path) -> list[str]:
    return [node.op_type for node in load_model(path).graph]


def test_a_chain_is_merged_proven_and_told(folder, qbench, golden):
    code, out, _ = qbench(
        "rewrite",
        "net.onnx",
        "-o",
        "out.onnx",
        "--check",
        "--passes",
        "merge-requantize, remove-dead",
    )
    assert code == 0
    assert operators(folder / "out.onnx") == [
        "DequantizeLinear",
        "QuantizeLinear",
        "Clip",
        "DequantizeLinear",
    ]
    golden("output/rewrite.txt", out)


@pytest.mark.parametrize("checked", [(), ("--check",)])
def test_passes_that_changed_nothing_share_a_line(checked, folder, qbench):
    qbench("rewrite", "net.onnx", "-o", "once.onnx")
    for source in ("net.onnx", "once.onnx"):
        facts = json.loads(qbench("rewrite", source, "-o", "out.onnx", *checked, "--json")[1])
        lines = qbench("rewrite", source, "-o", "out.onnx", *checked)[1].splitlines()
        table = lines[2 : lines.index("", 2) if "" in lines[2:] else None]
        rows = {line.split()[0] for line in table if " exact " in line}
        assert rows == {one["pass"] for one in facts["passes"] if one["rounds"]}
        idle = [one["pass"] for one in facts["passes"] if not one["rounds"]]
        assert [line for line in table if ", ".join(idle) in line] == table[-1:]
    assert not rows  # of the second time


def test_json_says_the_same_and_what_was_declined(folder, qbench):
    passes = "merge-requantize{steps = 1}, drop-clips, remove-dead"
    code, out, _ = qbench(
        "rewrite", "net.onnx", "-o", "out.onnx", "--passes", passes, *MINE, "--json"
    )
    facts = json.loads(out)
    assert code == 0
    assert (facts["nodes_before"], facts["nodes_after"]) == (6, 5)
    assert [one["pass"] for one in facts["passes"]] == ["drop-clips", "remove-dead"]
    (refused,) = facts["declined"]
    assert refused["pass"] == "merge-requantize"
    assert "rounding(1)" in refused["reason"]


@pytest.mark.parametrize(
    ("policy", "rest"),
    [("exact", ()), ("rounding", ()), ("rounding", ("--check", "--data", "data.npz"))],
)
def test_it_says_whether_effects_bound_the_outputs_and_measures_them(folder, qbench, policy, rest):
    np.savez(
        folder / "data.npz",
        x=np.arange(-128, 128).reshape(64, 4).astype(np.int8),
        y=np.zeros(64, np.int64),
    )
    model = onnx_ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> net (int8[n,4] x) => (float[n,4] y)'
        "<float s = {0.5}, float t = {0.3}, int8 z = {0}> {"
        " r = DequantizeLinear(x, s, z) q = QuantizeLinear(r, t, z) d = DequantizeLinear(q, t, z)"
        " p = QuantizeLinear(d, s, z) y = DequantizeLinear(p, s, z) }"
    )
    for node in model.graph:
        node.name = node.outputs[0].name
    save_model(model, folder / "net.onnx")
    settings = (
        "--policy",
        policy,
        "--count",
        "64",
        "--passes",
        "merge-requantize{steps = 1}, remove-dead",
        *rest,
    )
    code, out, _ = qbench("rewrite", "net.onnx", "-o", "out.onnx", *settings, "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["outputs_bounded"] is (policy == "exact")
    assert [one["arithmetic"] for one in facts["outputs"]] == (["qdq", "ideal"] if rest else [])
    assert all(
        one["of"] == 256 and (one["steps"] == 1) == bool(one["moved"]) for one in facts["outputs"]
    )


def test_without_names_the_standard_pipeline_of_the_policy_runs(folder, qbench):
    from qbench.passes import Policy

    for policy in Policy:
        out = qbench("rewrite", "net.onnx", "-o", "out.onnx", "--policy", policy.value, "--json")[1]
        written = ", ".join(one["pass"] for one in json.loads(out)["passes"])
        assert written == str(standard_pipeline(policy).admitted(policy)[0])


@pytest.mark.parametrize("as_json", [False, True])
def test_a_refuted_pass_ends_with_one_and_its_counterexample(folder, qbench, golden, as_json):
    rest = [*MINE, *(["--json"] if as_json else [])]
    code, out, err = qbench(
        "rewrite", "net.onnx", "-o", "out.onnx", "--check", "--passes", "drop-clips", *rest
    )
    assert code == 1
    words = f"net.onnx: {json.loads(out)['why']}" if as_json else out.rstrip()
    golden("output/rewrite-refuted.txt", f"{words}\n\n{err}")
    assert operators(folder / "out.onnx") == operators(folder / "net.onnx")


def test_a_change_that_a_pass_keeps_to_itself_is_refuted(words, folder, qbench):
    run = ("rewrite", "net.onnx", "-o", "out.onnx", "--passes", "drop-silently", *MINE)
    code, out, _ = qbench(*run, "--check")
    assert code == 1
    words(out)
    assert operators(folder / "out.onnx") == operators(folder / "net.onnx")


def test_a_graph_that_does_not_run_refutes_its_pass(words, folder, qbench):
    run = ("rewrite", "net.onnx", "-o", "out.onnx", "--passes", "once", *MINE)
    code, out, _ = qbench(*run, "--check")
    assert code == 1
    assert "the pass 'once'" in out
    words(out)
    assert operators(folder / "out.onnx") == operators(folder / "net.onnx")


def test_samples_and_machines_are_checked_on(folder, qbench):
    np.savez(
        folder / "data.npz",
        x=np.arange(-8, 8).reshape(4, 4).astype(np.int8),
        y=np.zeros(4, np.int64),
    )
    settings = ("--check", "--passes", "drop-clips", "--machine", "gemmlowp", *MINE)
    code, out, _ = qbench("rewrite", "net.onnx", "-o", "out.onnx", *settings)
    assert code == 1
    assert "(gemmlowp)" in out
    merged = ("--check", "--passes", "merge-requantize", "--data", "data.npz", "--count", "2")
    code, out, _ = qbench("rewrite", "net.onnx", "-o", "out.onnx", *merged)
    assert code == 0
    assert "1 proven, 1 tried" in out, "the whole graph on samples is not proven by them"


def test_a_stopped_pass_leaves_the_last_sound_graph(words, folder, qbench):
    code, _, err = qbench(
        "rewrite", "net.onnx", "-o", "out.onnx", "--passes", "merge-requantize, break", *MINE
    )
    assert code == 2
    words(err)
    assert operators(folder / "out.onnx") == [
        "DequantizeLinear",
        "QuantizeLinear",
        "Clip",
        "DequantizeLinear",
    ]


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        (("--passes", "merge-requantise"), "Did you mean 'merge-requantize'?"),
        (("--passes", "remove-dead, remove-dead"), "the pass 'remove-dead' 2 times"),
        (("--machine", "gemmlowp"), "--machine without --check"),
        (("--data", "data.npz"), "--data without --check"),
        (("--check", "--machine", "gemlowp"), "Did you mean 'gemmlowp'?"),
        (("-o", "net.onnx"), "which is read here"),
    ],
)
def test_bad_input_is_one_sentence(folder, qbench, rest, found):
    arguments = rest if "-o" in rest else ("-o", "out.onnx", *rest)
    code, _, err = qbench("rewrite", "net.onnx", *arguments)
    assert code == 2
    assert found in err
    assert len(err.splitlines()) == 1


def test_a_float_model_is_to_be_quantized_first(blobs_files, qbench):
    code, _, err = qbench("rewrite", "net.onnx", "-o", "out.onnx")
    assert code == 2
    assert "found a float model" in err
    assert "qbench quantize" in err


def test_operator_form_is_raised_first(words, folder, qbench):
    from qbench import save_model
    from qbench.passes import lower_to_qoperator
    from qbench.subjects import get_operator, operator_graph

    subject = get_operator("op.conv.dense.u8s8.real")
    save_model(lower_to_qoperator(operator_graph(subject)), folder / "q.onnx")
    assert "QLinearConv" in operators(folder / "q.onnx")
    code, _, err = qbench("rewrite", "q.onnx", "-o", "out.onnx", "--check")
    assert code == 0
    words(err)
    assert "Conv" in operators(folder / "out.onnx")


def test_pairs_of_an_engine_are_left_and_told(folder, qbench):
    import onnx_ir as ir

    from qbench import save_model

    model = ir.from_onnx_text(CHAIN)
    model.opset_imports["com.microsoft"] = 1
    for node in model.graph:
        if node.op_type.endswith("Linear"):
            node.domain = "com.microsoft"
    save_model(model, folder / "engine.onnx")
    code, _, err = qbench("rewrite", "engine.onnx", "-o", "out.onnx")
    assert code == 0
    assert err.count("by the domain 'com.microsoft': passes rewrite only those of ONNX") == 1
    assert operators(folder / "out.onnx") == operators(folder / "engine.onnx")
    assert "leave" not in qbench("rewrite", "net.onnx", "-o", "out.onnx")[2]


def test_list_tells_every_pass_with_its_effect(folder, qbench):
    rows = {row["name"]: row for row in json.loads(qbench("list", "passes", *MINE, "--json")[1])}
    assert rows["drop-clips"] == {
        "name": "drop-clips",
        "owner": "mine",
        "what": "exact under qdq, ideal; Drops every Clip, whatever it does.",
    }
    assert rows["merge-requantize"]["owner"] == "qbench"


def test_list_tells_the_summary_of_a_pass_whole(qbench):
    rows = {row["name"]: row for row in json.loads(qbench("list", "passes", "--json")[1])}
    words = type(catalogue().get("drop-pair")).__doc__
    summary = " ".join(words.partition("\n\n")[0].split())
    assert "\n" in words.partition("\n\n")[0]
    assert rows["drop-pair"]["what"] == f"lossy under qdq, ideal; {summary}"


def test_the_page_tells_every_pass():
    page = (Path(__file__).parents[2] / "docs" / "passes.md").read_text()
    table = page.partition("## The passes")[2].partition("\n## ")[0]
    assert set(catalogue().names()) <= set(
        re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE)
    )


def test_an_operator_of_an_extension_is_known_to_the_check(folder, qbench):
    import onnx_ir as ir

    from qbench import save_model

    text = """<ir_version: 10, opset_import: ["" : 21, "acme" : 1]> net (int8[4] x) => (float[4] y)
    <float s = {0.5}, float t = {1.0}, int8 z = {0}> {
        d = DequantizeLinear(x, s, z) a = acme.Twice(d)
        q = QuantizeLinear(a, s, z) r = DequantizeLinear(q, s, z)
        p = QuantizeLinear(r, t, z) y = DequantizeLinear(p, t, z) }"""
    save_model(ir.from_onnx_text(text), "twice.onnx")
    (folder / "mine.py").write_text(
        "from qbench import Extension\n\n\ndef twice():\n    from qbench.graph import Operator\n\n"
        "    return Operator(kernel=lambda x: 2 * x, pointwise=True)\n\n\n"
        'EXTENSION = Extension(name="acme", operators={"acme::Twice": twice})\n'
    )
    passes = ("--passes", "requantize-into-producer{steps = 255}", "--policy", "rounding")
    code, out, _ = qbench("rewrite", "twice.onnx", "-o", "once.onnx", *passes, "--check", *MINE)
    assert code == 0
    assert "1 proven" in out
