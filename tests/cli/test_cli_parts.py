"""``qbench eval --parts`` and ``--counters``: what a loss is made of,
and what an integer machine did.
"""

import json

import pytest

EVAL = ("eval", "net.onnx", "--data", "test.npz", "--metrics", "top1,agreement")
SCHEMA = ("--schema", "w8a8_asym_pc", "--calib", "train.npz")
SATURATING = (
    'source = "a data sheet"\nscaling = { form = "float32" }\naccumulator = { pair_bits = 16 }\n'
)
NARROW = (
    'source = "a data sheet"\nscaling = { form = "float32" }\n'
    'accumulator = { bits = 13, overflow = "saturate" }\n'
)


def facts(qbench, *arguments):
    code, out, err = qbench(*EVAL, *SCHEMA, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def machines(blobs_files):
    (blobs_files / "pairs.toml").write_text(SATURATING)
    (blobs_files / "narrow.toml").write_text(NARROW)
    return blobs_files


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("backend", ["ort-cpu", "integer-gemmlowp", "narrow.toml"])
def test_parts_begin_with_fp32_and_end_with_the_backend(machines, qbench, backend):
    found = facts(qbench, "--backend", backend, "--parts")
    (top1,) = found["parts"]  # agreement has none
    scores = {score["metric"]: score for score in found["quantized"]["scores"]}
    assert top1["metric"] == "top1"
    assert (
        top1["schema"]["before"]
        == found["fp32"]["scores"][0]["hits"]
        == scores["top1"]["reference_hits"]
    )
    assert top1["schema"]["after"] == top1["counting"]["before"]
    assert top1["counting"]["after"] == scores["top1"]["hits"]
    for part in (top1["schema"], top1["counting"]):
        assert part["after"] - part["before"] == part["gains"] - part["losses"]


def test_the_ideal_machine_has_no_part_of_its_own(machines, qbench):
    (top1,) = facts(qbench, "--backend", "integer-ideal", "--parts")["parts"]
    assert (top1["counting"]["losses"], top1["counting"]["gains"]) == (0, 0)


@pytest.mark.slow
def test_a_machine_that_counts_badly_is_seen_in_its_part(machines, qbench):
    (top1,) = facts(qbench, "--backend", "narrow.toml", "--parts")["parts"]
    assert top1["counting"]["losses"] > top1["schema"]["losses"]
    code, out, _ = qbench(*EVAL, *SCHEMA, "--backend", "narrow.toml", "--parts")
    assert code == 0
    assert "schema: integer-ideal" in out
    assert "counting: integer-narrow" in out


def test_counters_of_a_narrow_accumulator(machines, qbench):
    found = facts(qbench, "--backend", "narrow.toml", "--counters")
    (nodes,) = found["counters"].values()
    assert nodes["first"]["levels"] == 300 * 6
    assert sum(events["overflowed"] for events in nodes.values()) > 0
    assert sum(events["saturated"] for events in nodes.values()) == 0
    out = qbench(*EVAL, *SCHEMA, "--backend", "narrow.toml", "--counters")[1]
    assert "sums saturated" in out


def test_counters_of_pairs(machines, qbench):
    (nodes,) = facts(qbench, "--backend", "pairs.toml", "--counters")["counters"].values()
    assert sum(events["saturated"] for events in nodes.values()) > 0
    assert "pairs saturated" in qbench(*EVAL, *SCHEMA, "--backend", "pairs.toml", "--counters")[1]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pairs.toml", "integer-ort-x64"])
def test_counting_changes_no_number(machines, qbench, backend):
    plain, counted = (facts(qbench, "--backend", backend, *more) for more in ((), ("--counters",)))
    assert counted["quantized"]["scores"] == plain["quantized"]["scores"]
    assert counted["quantized"]["digests"] == plain["quantized"]["digests"]
    assert "arithmetic" in plain["quantized"]["digests"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((*SCHEMA, "--counters"), "'ort-cpu'"),
        (("--parts",), "--parts of a float model"),
        ((*SCHEMA, "--metrics", "agreement", "--parts"), "agreement with fp32 cannot be split"),
        ((*SCHEMA, "--backend", "nowhere.toml"), "No such file"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(machines, qbench, arguments, sentence):
    named = EVAL[:-2] if "--metrics" in arguments else EVAL
    code, out, err = qbench(*named, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err


def test_parts_are_printed_in_the_unit_of_their_metric(capsys):
    from qbench.cli.loss_parts import print_parts
    from qbench.judging import parts_of_counts

    nats = parts_of_counts(
        "perplexity",
        reference=1_800_000,
        ideal=1_850_000,
        hits=1_849_000,
        out_of=10**6,
        unit="nats",
    )
    share = parts_of_counts("top1", reference=757, ideal=757, hits=750, out_of=1000)
    print_parts([nats, share], "ort-cpu")
    words = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[2:]]
    assert words == [
        "perplexity fp32 1.8000 nats",
        "schema: integer-ideal 1.8500 nats +0.0500 nats None None",
        "counting: ort-cpu 1.8490 nats −0.0010 nats None None",
        "top1 fp32 75.70 % 757/1000",
        "schema: integer-ideal 75.70 % 757/1000 +0.00 pp None None",
        "counting: ort-cpu 75.00 % 750/1000 −0.70 pp None None",
    ]
