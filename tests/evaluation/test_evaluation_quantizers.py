"""Quantizers of other people as schemas: what runs, what is refused, what is contained."""

import json
import os
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from quantizer_scripts import HEAD, QUANTIZES, SAVES, network, subject, write_quantizer

from qbench.backends import get_backend
from qbench.cli import main
from qbench.errors import (
    InputError,
    NotFetchedError,
    QbenchError,
    UnavailableError,
    UnsupportedError,
)
from qbench.evaluation import SubjectArtifacts, environment_here, measure_cell, quantizer_run
from qbench.extension import extending_packages
from qbench.graph import save_model
from qbench.quantization import load_quantizer, schema_in_file
from qbench.storage import Cache


def shared_in(folder, seed=0, **options):
    backend = get_backend("ort-cpu")
    return SubjectArtifacts(
        subject(seed), Cache(folder / "cache"), backend, str(environment_here(backend)), **options
    )


def measured(folder, script, *, shared=None, **settings):
    """The cell of the quantizer ``script`` on ONNX Runtime."""
    path = write_quantizer(folder / "quantizers", script, **settings)
    return measure_cell(shared or shared_in(folder), "ort-cpu", schema_in_file(path))


def refused(folder, script, kind=QbenchError, **settings):
    with pytest.raises(QbenchError) as caught:
        measured(folder, script, **settings)
    assert type(caught.value) is kind
    return caught.value


def test_its_file_is_measured_as_a_given_model_is(tmp_path):
    found = measured(tmp_path, QUANTIZES + SAVES)
    assert found.cell.schema == "by-fake"
    assert found.integer_macs == 1.0
    assert found.executed_macs == 1.0
    assert found.score("top1").hits > 50
    note = found.quantizer
    assert note.title == "Fake"
    assert (note.samples, note.weights, note.near, note.left) == (20, 1, 1, 0)
    assert note.same_bytes is None
    assert note.size > 100
    assert note.peak_mb > 10
    assert found.made["quantizer"] == "Fake"
    assert "20" in found.made["calibration"]


def test_a_result_is_found_again_by_model_samples_and_settings_and_twice_says_whether_bytes_differ(
    tmp_path,
):
    counting = QUANTIZES + SAVES + f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n"
    runs = lambda: len((tmp_path / "runs").read_text())  # noqa: E731
    measured(tmp_path, counting)
    measured(tmp_path, counting)
    assert runs() == 1
    measured(tmp_path, counting, environment={"OTHER": "1"})
    assert runs() == 2
    found = measured(tmp_path, counting, shared=shared_in(tmp_path, quantizes_twice=True))
    assert runs() == 4
    assert found.quantizer.same_bytes is True


@pytest.mark.slow
def test_other_bytes_each_time_are_noted(tmp_path):
    script = QUANTIZES + "import os\nmodel.doc_string = os.urandom(8).hex()\n" + SAVES
    found = measured(tmp_path, script, shared=shared_in(tmp_path, quantizes_twice=True))
    assert found.quantizer.same_bytes is False


def test_one_that_ends_with_an_error_is_unsupported_with_its_last_lines_and_without_secrets(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("REGISTRY_TOKEN", "abcdefgh12345678")
    script = """
        import os, sys
        print("REGISTRY_TOKEN" in os.environ, os.environ["HOME"] == os.getcwd(), os.environ["MINE"])
        print("token=zyxw9876 of abcdefgh12345678")
        sys.exit("ValueError: no rule for MatMul")
    """
    error = refused(tmp_path, script, UnsupportedError, environment={"MINE": "one"})
    assert "code 1" in error.found
    assert "no rule for MatMul" in error.found
    assert "False True one" in error.found
    assert "zyxw9876" not in error.found
    assert "abcdefgh12345678" not in error.found


def test_one_that_takes_a_module_can_import_what_makes_one_of_the_graph_and_nothing_else(tmp_path):
    script = (
        QUANTIZES
        + """
import os, pathlib, qbench.errors, qbench_engines
for one in (qbench, qbench_engines):
    assert pathlib.Path(one.__file__).is_relative_to(pathlib.Path.cwd()), one
path = pathlib.Path(os.environ["PYTHONPATH"])
assert sorted(one.name for one in path.iterdir()) == EXPECTED
""".replace("EXPECTED", repr(sorted({"qbench", *extending_packages()})))
        + SAVES
    )
    found = measured(tmp_path, script, takes="module")
    assert found.integer_macs == 1.0
    assert found.quantizer.near == 1


def test_what_makes_the_module_is_in_the_digest_of_one_that_takes_it(tmp_path, monkeypatch):
    package = tmp_path / "importing"
    package.mkdir()
    (package / "maker.py").write_text("import importing.rules")
    (package / "rules.py").write_text("")
    monkeypatch.setattr(
        "qbench.quantization.quantizer_file.extending_packages", lambda: {"importing": package}
    )
    digests = []
    for takes in ("module", "onnx"):
        path = write_quantizer(tmp_path, "from importing.maker import module", takes=takes)
        digests.append(load_quantizer(path).digest)
        (package / "rules.py").write_text(f"changed = '{takes}'")
        digests.append(load_quantizer(path).digest)
    assert digests[0] != digests[1]
    assert digests[2] == digests[3]


def test_passes_of_qbench_are_in_the_digest_of_one_whose_module_is_made_by_them(
    tmp_path, monkeypatch
):
    package, own = tmp_path / "importing", tmp_path / "qbench"
    for folder in (package, own / "passes" / "canonical", own / "reporting"):
        folder.mkdir(parents=True)
    (package / "maker.py").write_text("from qbench.passes import canonicalize")
    canonical, elsewhere = own / "passes" / "canonical" / "biases.py", own / "reporting" / "html.py"
    canonical.write_text("")
    elsewhere.write_text("")
    where = "qbench.quantization.quantizer_file"
    monkeypatch.setattr(f"{where}.extending_packages", lambda: {"importing": package})
    monkeypatch.setattr(f"{where}._FOLDER", own)
    path = write_quantizer(tmp_path, "from importing.maker import module", takes="module")
    before = load_quantizer(path).digest
    elsewhere.write_text("other = 1")
    assert load_quantizer(path).digest == before
    canonical.write_text("other = 1")
    assert load_quantizer(path).digest != before
    path = write_quantizer(tmp_path, "", takes="onnx")
    without = load_quantizer(path).digest
    canonical.write_text("other = 2")
    assert load_quantizer(path).digest == without


def test_a_failed_one_does_not_run_again_for_another_backend(tmp_path):
    script = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\nraise SystemExit(3)"
    shared = shared_in(tmp_path)
    path = write_quantizer(tmp_path / "quantizers", script)
    for backend in ("ort-cpu", "ort-cpu-noopt"):
        with pytest.raises(UnsupportedError):
            measure_cell(shared, backend, schema_in_file(path))
    assert (tmp_path / "runs").read_text() == "x"


def evaluated(folder, capsys, script, *backends):
    """The cells that ``qbench eval`` prints for a schema of qbench and the quantizer ``script``."""
    save_model(network(), folder / "net.onnx")
    x = np.random.default_rng(3).normal(size=(60, 16)).astype(np.float32)
    np.savez(folder / "scored.npz", x=x[:40])
    np.savez(folder / "spare.npz", x=x[40:])
    path = write_quantizer(folder / "quantizers", script)
    words = ["eval", str(folder / "net.onnx"), "--data", str(folder / "scored.npz")]
    words += ["--calib", str(folder / "spare.npz"), "--schema", f"w8a8_asym_pt,{path}"]
    words += ["--backend", ",".join(backends), "--cache", str(folder / "cache"), "--json"]
    code = main(words)
    return code, json.loads(capsys.readouterr().out)


def test_eval_asks_a_quantizer_once_for_several_backends(tmp_path, capsys):
    counting = QUANTIZES + SAVES + f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n"
    code, cells = evaluated(tmp_path, capsys, counting, "ort-cpu", "ort-cpu-noopt")
    assert code == 0
    assert len(cells) == 4
    assert not [one for one in cells if "error" in one]
    assert (tmp_path / "runs").read_text() == "x"
    code, _ = evaluated(tmp_path, capsys, counting, "ort-cpu-noopt")
    assert (tmp_path / "runs").read_text() == "x"


def test_eval_goes_on_after_a_file_that_is_refused(tmp_path, capsys):
    script = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n" + QUANTIZES
    script += "graph.node[3].op_type = 'Unknown'\n" + SAVES
    code, cells = evaluated(tmp_path, capsys, script, "ort-cpu", "ort-cpu-noopt")
    assert code == 0
    refused = [one for one in cells if "error" in one]
    assert len(refused) == 2
    assert (tmp_path / "runs").read_text() == "x"


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for_end(process: int) -> bool:
    until = time.monotonic() + 60
    while is_running(process):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


LEAVES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({file!r}, "w").write(str(os.getpid()))
        time.sleep(3600)
    os._exit(0)
while not (os.path.exists({file!r}) and os.path.getsize({file!r})):
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_one_that_hangs_is_killed_with_the_processes_that_it_started(tmp_path):
    file = str(tmp_path / "process")
    error = refused(tmp_path, LEAVES.format(file=file) + "time.sleep(3600)", timeout_s=20)
    assert "no end after 20 s" in error.found
    assert wait_for_end(int(Path(file).read_text()))


def test_processes_that_it_leaves_behind_are_killed_and_counted(tmp_path):
    file = str(tmp_path / "process")
    found = measured(tmp_path, LEAVES.format(file=file) + QUANTIZES + SAVES)
    assert found.quantizer.left == 1
    assert "1 process left behind" in found.quantizer.text
    assert wait_for_end(int(Path(file).read_text()))


@pytest.mark.parametrize(
    "script",
    [
        "open('big', 'wb').write(bytes(30_000_000))",
        "import time\nfor i in range(30): open(f'big{i}', 'wb').write(bytes(1_000_000))\n",
    ],
    ids=["one file", "many files"],
)
def test_one_that_fills_the_disk_is_ended(tmp_path, script):
    error = refused(tmp_path, script, disk_mb=10)
    assert "more than 10 MB of files" in error.found or "File too large" in error.found


def test_one_that_takes_too_much_memory_is_ended(tmp_path):
    script = "import time\nkept = b'x' * 400_000_000\ntime.sleep(3600)"
    assert "more than 200 MB of memory" in refused(tmp_path, script, memory_mb=200).found


def test_the_network_is_out_of_reach(tmp_path):
    server = socket.create_server(("localhost", 0))
    script = (
        QUANTIZES
        + SAVES
        + f"""
import socket
try:
    socket.create_connection(("localhost", {server.getsockname()[1]}))
    model.doc_string = "reached"
except OSError:
    model.doc_string = "closed"
onnx.save(model, out)
"""
    )
    with server:
        shared = shared_in(tmp_path)
        path = write_quantizer(tmp_path / "quantizers", script)
        schema = schema_in_file(path)
        found = shared.quantized(schema, get_backend("ort-cpu").capabilities)
    wanted = "closed" if found.note.offline else "reached"
    assert found.models["model"].doc_string == wanted


WRONG = {
    "nothing": ("", "no file"),
    "garbage": ("open(out, 'wb').write(b'garbage' * 100)", "no ONNX message"),
    "the float model": ("open(out, 'wb').write(open(fp32, 'rb').read())", "byte for byte"),
    "a float model": (
        "m = onnx.load(fp32)\nm.doc_string = 'x'\nonnx.save(m, out)",
        "a float model",
    ),
    "a link": ("import os\nos.symlink(fp32, out)", "a link"),
    "a folder": ("import os\nos.mkdir(out)", "a folder"),
    "a large file": ("open(out, 'wb').truncate(20_000_000)", "20,000,000 bytes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused(tmp_path, what):
    script, found = WRONG[what]
    assert found in refused(tmp_path, HEAD + script).found


CHANGED = {
    "another output": ("graph.output[0].name = graph.node[-1].output[0] = 'z'", "the outputs z"),
    "another shape": (
        "graph.node[-1].output[0] = 'z'\n"
        "graph.initializer.append(numpy_helper.from_array(np.array([1]), 'axes'))\n"
        "graph.node.append(helper.make_node('Unsqueeze', ['z', 'axes'], ['y']))\n"
        "graph.output[0].CopyFrom(helper.make_tensor_value_info('y', 1, ['n', 1, 8]))",
        "the output 'y'",
    ),
    "other weights": (
        "rng = np.random.default_rng(7)\n"
        "for one in graph.initializer:\n"
        "    if one.name == 'w_q':\n"
        "        other = rng.integers(-127, 128, codes.shape).astype(np.int8)\n"
        "        one.CopyFrom(numpy_helper.from_array(other, 'w_q'))",
        "1 of 1 weights",
    ),
    "constants elsewhere": (
        "big = next(one for one in graph.initializer if one.name == 'w_q')\n"
        "big.ClearField('raw_data')\n"
        "big.data_location = onnx.TensorProto.EXTERNAL\n"
        "big.external_data.add(key='location', value='../../secret')",
        "outside the model's folder",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_another_model_is_refused(tmp_path, what):
    change, found = CHANGED[what]
    script = QUANTIZES + change + "\nopen(out, 'wb').write(model.SerializeToString())\n"
    assert found in refused(tmp_path, script).found


def test_constants_in_files_of_its_folder_are_taken_along(tmp_path):
    script = QUANTIZES + (
        "onnx.save(model, out, save_as_external_data=True, location='out.data', size_threshold=0)"
    )
    assert measured(tmp_path, script).integer_macs == 1.0


def test_the_file_of_another_model_is_refused_by_its_bytes(tmp_path):
    kept = tmp_path / "kept.onnx"
    keeps = (
        QUANTIZES
        + SAVES
        + f"import os\nif not os.path.exists({str(kept)!r}):\n    onnx.save(model, {str(kept)!r})\n"
    )
    keeps += f"open(out, 'wb').write(open({str(kept)!r}, 'rb').read())\n"
    measured(tmp_path, keeps)
    # the weights of the second network are those of the first, but for one
    other = network()
    weight = other.graph.initializers["w"].const_value.numpy().copy()
    weight[0, 0] += 0.25
    path = tmp_path / "other.onnx"
    other.graph.initializers["w"].const_value = onnx_tensor(weight)
    save_model(other, path)
    shared = shared_in(tmp_path)
    shared.__dict__["graphs"] = {"model": other}
    with pytest.raises(QbenchError) as caught:
        measured(tmp_path, keeps, shared=shared)
    assert "one of another model" in caught.value.found


def onnx_tensor(array):
    import onnx_ir as ir

    return ir.tensor(array, name="w")


# The TOML file and the lock.


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path):
    path = write_quantizer(tmp_path, "", timeout_se=3)
    with pytest.raises(InputError) as caught:
        load_quantizer(path)
    assert "'timeout_se'" in caught.value.found
    assert "timeout_s" in caught.value.remedy


def test_a_variant_appends_its_arguments_and_has_its_limits(tmp_path):
    path = write_quantizer(tmp_path, "")
    path.write_text(path.read_text() + "[variant.slow]\narguments = ['--slow']\ntimeout_s = 7\n")
    found = load_quantizer(path, "slow")
    assert found.name == "fake.slow"
    assert found.manifest.timeout_s == 7
    places = dict.fromkeys(("python", "fp32", "calibration", "out"), Path("/p"))
    assert found.command(**places)[-1] == "--slow"
    assert found.digest != load_quantizer(path).digest
    with pytest.raises(InputError, match="slwo"):
        load_quantizer(path, "slwo")


def test_the_digest_follows_the_script_and_what_it_imports(tmp_path):
    (tmp_path / "shared_reader.py").write_text("x = 1\n")
    path = write_quantizer(tmp_path, "import shared_reader\n")
    before = load_quantizer(path).digest
    (tmp_path / "shared_reader.py").write_text("x = 2\n")
    assert load_quantizer(path).digest != before


@pytest.mark.parametrize("line", ["--pre", "-e .", "a @ file:///b", "a==1 --config=x"])
def test_a_lock_names_packages_and_nothing_else(tmp_path, line):
    path = write_quantizer(tmp_path / "quantizers", QUANTIZES + SAVES, lock="fake.txt")
    (path.parent / "fake.txt").write_text(f"{line}\n")
    with pytest.raises(InputError):
        measure_cell(shared_in(tmp_path), "ort-cpu", schema_in_file(path))


def test_a_lock_that_pip_cannot_install_leaves_the_cell_unfetched(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    path = write_quantizer(tmp_path / "quantizers", QUANTIZES + SAVES, lock="fake.txt")
    (path.parent / "fake.txt").write_text("numpy==2.0.0 --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(NotFetchedError) as caught:
        measure_cell(shared_in(tmp_path), "ort-cpu", schema_in_file(path))
    assert "pip said" in caught.value.found


def test_two_links_to_one_python_share_the_environment_of_a_lock(tmp_path, monkeypatch):
    bases = []
    monkeypatch.setattr(
        quantizer_run.EnvironmentMaker,
        "make_locked",
        lambda maker, lines, doing: bases.append(maker.base),
    )
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(Path(sys.executable).resolve())
        path = write_quantizer(tmp_path, "", lock="fake.txt", python=str(tmp_path / name))
        (tmp_path / "fake.txt").write_text("numpy==2.0.0\n")
        quantizer_run.quantizer_python(load_quantizer(path), Cache(tmp_path / "cache"))
    assert bases == [Path(sys.executable).resolve()] * 2


def test_a_python_that_is_a_launcher_without_that_version_is_missing(tmp_path, monkeypatch):
    launcher = tmp_path / "bin" / "python3.7"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\necho 'python3.7: command not found' >&2\nexit 127\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", f"{launcher.parent}{os.pathsep}{os.environ['PATH']}")
    found = refused(tmp_path, "", UnavailableError, python="3.7").found
    assert found == f"no Python 3.7 on this computer: {launcher} does not start it"


def test_versions_of_the_lock_are_read(tmp_path):
    path = write_quantizer(tmp_path, "", lock="fake.txt", package="My_Tool")
    (tmp_path / "fake.txt").write_text(
        "# a comment\nmy-tool==1.2 \\\n    --hash=sha256:" + "0" * 64 + "\nonnx[extra]==3 ; x\n"
    )
    assert load_quantizer(path).version == "1.2"
    assert load_quantizer(path).requirements == {"my-tool": "1.2", "onnx": "3"}
