"""``--plot`` of ``quantize`` and ``profile``: pictures of values as files."""

import json
from pathlib import Path

import onnx
import pytest

QUANTIZE = ("quantize", "net.onnx", "--calib", "train.npz", "--schema", "w8a8_asym_pc")
PROFILE = ("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")
PNG = b"\x89PNG"


@pytest.mark.slow
def test_a_folder_has_a_picture_for_every_value_and_an_index(blobs_files, qbench):
    code, out, err = qbench(*QUANTIZE, "-o", "q.onnx", "--plot", "drawn")
    assert (code, err) == (0, "")
    assert "drawn/index.html: pictures of 4 values" in out
    names = {path.name for path in Path("drawn").glob("*.png")}
    assert names == {"x.png", "r.png", "w1.png", "w2.png"}
    page = Path("drawn/index.html").read_text()
    assert all(f'src="{name}"' in page for name in names)
    assert "codes: " in page
    assert "clipped: none" in page
    # the index is ours, hence written again; fewer pictures say so
    code, out, _ = qbench(*QUANTIZE, "-o", "q.onnx", "--plot", "drawn", "--plots", "1", "--json")
    assert (code, json.loads(out)["plot"]) == (0, "drawn")
    assert "3 values left out" in Path("drawn/index.html").read_text()


@pytest.mark.slow
def test_names_of_values_become_names_of_files(blobs_files, qbench):
    model = onnx.load("net.onnx")
    names = {"r": "../../<b>up</b>/" + 40 * "long", "w1": "W1", "w2": "w1"}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for one in model.graph.initializer:
        one.name = names.get(one.name, one.name)
    del model.graph.value_info[:]
    onnx.save(model, "odd.onnx")
    before = set(Path().iterdir())
    arguments = ("--calib", "train.npz", "--schema", "w8a8_asym_pc", "-o", "q.onnx")
    code, _, err = qbench("quantize", "odd.onnx", *arguments, "--plot", "drawn")
    assert (code, err) == (0, "")
    assert set(Path().iterdir()) - before <= {Path("q.onnx"), Path("drawn"), Path("cache")}
    assert len(list(Path("drawn").glob("*.png"))) == 4
    assert "<b>" not in Path("drawn/index.html").read_text()


@pytest.mark.slow
def test_one_file_holds_all_of_them(blobs_files, qbench):
    code, out, _ = qbench(*QUANTIZE, "-o", "q.onnx", "--plot", "all.png")
    assert code == 0
    assert "all.png: pictures of 4 values" in out
    assert Path("all.png").read_bytes().startswith(PNG)
    code, out, _ = qbench(*PROFILE, "--plot", "all.pdf")
    assert code == 0
    assert Path("all.pdf").read_bytes().startswith(b"%PDF")
    assert "all.pdf: pictures of " in out


@pytest.mark.slow
def test_without_a_profile_weights_are_drawn(blobs_files, qbench):
    arguments = ("--schema", "w8_sym_pc", "-o", "q.onnx", "--plot", "drawn")
    code, out, _ = qbench("quantize", "net.onnx", *arguments)
    assert code == 0
    assert "pictures of 2 values; of weights alone" in out


@pytest.mark.parametrize("verb", [(*QUANTIZE, "-o", "q.onnx"), PROFILE])
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--plot", "all.gif"), "all.gif"),
        (("--plot", "site"), "which --plot has not written"),
        (("--plot", "drawn", "--plots", "0"), "--plots"),
    ],
)
def test_mistakes_are_said_before_the_work(verb, options, found, blobs_files, qbench):
    Path("site").mkdir()
    Path("site/index.html").write_text("<p>mine</p>")
    code, out, err = qbench(*verb, *options)
    assert (code, out) == (2, "")
    assert found in err
    assert not Path("q.onnx").exists()
    assert not Path("p.json").exists()
    assert Path("site/index.html").read_text() == "<p>mine</p>"
