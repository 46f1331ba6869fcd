"""Schemas in files on the command line, and rules of them that match nothing."""

import json
from pathlib import Path

import pytest

GOOD = """
[[rules]]
operators = ["Gemm"]
last = 1
reason = "the scores decide"

[[rules]]
activation = { qtype = "uint8", symmetry = "asymmetric" }
weight = { qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }
"""
IDLE = GOOD.replace('"Gemm"', '"Conv"')


@pytest.fixture
def profiled(blobs_files, qbench):
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    (blobs_files / "mine.toml").write_text(GOOD)
    (blobs_files / "idle.toml").write_text(IDLE)
    return blobs_files


def quantize(qbench, schema, *more):
    return qbench(
        "quantize", "net.onnx", "--profile", "p.json", "--schema", schema, "-o", "out.onnx", *more
    )


def test_a_schema_file_quantizes(profiled, qbench):
    code, out, _ = quantize(qbench, "mine.toml", "--why")
    assert code == 0
    assert "mine:" in out.splitlines()[0]
    assert "the scores decide" in out
    assert (profiled / "out.onnx").exists()


def test_a_name_of_the_grammar_quantizes(profiled, qbench):
    assert quantize(qbench, "w8a8_sym_pt_pow2_minmax")[0] == 0


def test_a_mistyped_quantizer_of_the_suites_is_suggested(profiled, qbench):
    (profiled / "suites/quantizers").mkdir(parents=True)
    (profiled / "suites/quantizers/mine.toml").write_text("")  # its name is all that is read
    for written in ("by-mien", "by_mine"):
        code, _, err = quantize(qbench, written)
        assert (code, "Did you mean 'by-mine'?" in err) == (2, True)


def test_a_schema_of_the_suites_is_known_by_its_name(profiled, qbench):
    (profiled / "suites/schemas").mkdir(parents=True)
    (profiled / "mine.toml").rename(profiled / "suites/schemas/mine.toml")
    code, out, _ = quantize(qbench, "mine", "--why")
    assert (code, "the scores decide" in out) == (0, True)
    code, out, _ = qbench(
        "diff",
        "net.onnx",
        "--data",
        "test.npz",
        "--calib",
        "train.npz",
        "--right",
        "schema=mine",
        "--json",
    )
    assert code in {0, 1}
    assert json.loads(out)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("idle.toml", "rule 1 (operators Conv; last 1) matching no operator of it"),
        ("nowhere.toml", "No such file"),
        ("w8a8_asm_pc", "Did you mean 'w8a8_asym_pc'?"),
        ("w1a8_asym_pc", "weights of 1 bit"),
        ("renamed.toml", "as the file is called"),
    ],
)
def test_what_is_no_use_is_refused_and_nothing_written(profiled, qbench, schema, sentence):
    (profiled / "renamed.toml").write_text('name = "other"\n' + GOOD)
    code, out, error = quantize(qbench, schema)
    assert (code, out) == (2, "")
    assert sentence in error
    assert "Traceback" not in error
    assert not (profiled / "out.onnx").exists()


@pytest.mark.slow
def test_eval_takes_files_and_refuses_idle_rules(profiled, qbench):
    data = ("--data", "test.npz", "--calib", "train.npz", "--json")
    code, out, _ = qbench("eval", "net.onnx", *data, "--schema", "mine.toml")
    assert code == 0
    assert json.loads(out)["quantized"]["cell"]["schema"] == "mine"
    code, out, error = qbench("eval", "net.onnx", *data, "--schema", "idle.toml")
    assert (code, out) == (2, "")
    assert "rule 1 (operators Conv; last 1)" in error


CACHE = """
cache = { qtype = "int8", symmetry = "symmetric" }

[[rules]]
weight = { qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }
"""


@pytest.mark.slow_but(2)
@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        ("kv8h", "Name another schema than 'kv8h', which quantizes nothing else."),
        ("w8_sym_pc_kv8h", "Name 'w8_sym_pc', the schema without keys and values."),
        ("cache.toml", "Remove 'cache' from the schema."),
    ],
)
def test_a_cache_of_a_model_that_keeps_none_is_refused_by_no_rule(profiled, qbench, schema, remedy):
    (profiled / "cache.toml").write_text(CACHE)
    code, out, error = qbench(
        "quantize", "net.onnx", "--calib", "train.npz", "--schema", schema, "-o", "out.onnx"
    )
    assert (code, out) == (2, "")
    assert "a model that keeps no keys and values" in error
    assert remedy in error
    assert "rule" not in error


def accept_everything(path):
    """A baseline of the suite at ``path`` as it is."""
    from qbench.host import utc_today
    from qbench.storage import Cache
    from qbench.suite import Bench, Settings, approve_run, expand, gather, load_suite
    from qbench.tracking import Accepting, Scope

    suite, catalogues = load_suite(path), gather(suites=path.parent)
    settings = Settings(
        baselines=Path("baselines"),
        suite_path=str(path),
        today=utc_today(),
        cache=Cache.default(),
        accepting=Accepting(scope=Scope.NEW, fp32=True),
    )
    bench = Bench(suite, catalogues, settings)
    approve_run(bench, [(planned, bench.measure(planned)) for planned in expand(suite, catalogues)])


@pytest.mark.slow
def test_a_whole_run_with_an_idle_rule_is_red(project, qbench):
    folder = project / "suites" / "schemas"
    folder.mkdir()
    (folder / "mine.toml").write_text(GOOD)
    (folder / "idle.toml").write_text(IDLE)
    suite = project / "suites" / "tiny.qbench.toml"
    suite.write_text(suite.read_text().replace('"w8a8_asym_pt", "w8a8_asym_pc"', '"mine", "idle"'))

    accept_everything(suite)

    def run(*more):
        code, out, error = qbench("run", suite.relative_to(project), "--json", *more)
        lines = [
            json.loads(line) for line in Path(json.loads(out)["path"]).read_text().splitlines()
        ]
        return code, error, [line["text"] for line in lines if line["type"] == "note"], lines

    code, error, notes, lines = run()
    assert code == 1
    sentence = (
        "Running the schema 'idle': found rule 1 (operators Conv; last 1), which matches no "
        "operator of blobs"
    )
    assert [note.startswith(sentence) for note in notes] == [True]
    assert sentence in error
    assert {line["schema"]: line.get("idle_rules") for line in lines if line["type"] == "cell"} == {
        "fp32": None,
        "mine": None,
        "idle": ["rule 1 (operators Conv; last 1)"],
    }
    code, error, notes, _ = run("--select", "schema=idle")
    assert (code, notes) == (0, [])
    assert "matches no operator" not in error


def test_the_former_name_of_a_key_leads_to_the_new_one(profiled, qbench):
    (profiled / "old.toml").write_text(CACHE.replace("cache", "kept"))
    words = ("--calib", "train.npz", "--schema", "old.toml", "-o", "out.onnx")
    code, out, error = qbench("quantize", "net.onnx", *words)
    assert (code, out) == (2, "")
    assert "unknown key 'kept'" in error
    assert "'cache'?" in error
