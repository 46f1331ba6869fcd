"""What an extra brings and is not installed: the error names the extra, whatever is looked up."""

import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench import extension
from qbench.backends import backends_of_format, get_backend
from qbench.cli import main
from qbench.errors import InputError, NotFetchedError
from qbench.extension import install_command, missing_extra
from qbench.graph import format_of_path

ASKED = [
    "numpy>=2.0",
    'acme-lib>=1; extra == "fast"',
    'qbench-acme==0.1.0; extra == "acme"',
    'acme-lib>=1; extra == "acme"',
    'qbench-acme==0.1.0; extra == "abc"',
]


def came_from(monkeypatch, origin):
    """pip noted ``origin`` when it installed qbench; empty: it came from a package index."""
    installed = SimpleNamespace(
        version="0.1.0", read_text=lambda _: json.dumps(origin) if origin else None
    )
    others = importlib.metadata.distribution
    monkeypatch.setattr(
        importlib.metadata,
        "distribution",
        lambda name: installed if name == extension.DISTRIBUTION else others(name),
    )


@pytest.fixture
def alone(monkeypatch):
    """qbench without extensions; its extras ``acme``
    and ``abc`` would install the guest ``qbench-acme``.
    """
    monkeypatch.setattr(extension, "read_entry_points", tuple)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ASKED)
    came_from(monkeypatch, {})


def test_an_extra_has_the_first_word_of_what_it_brings_as_its_name(alone):
    for name in ("acme", "acme-fast", "Acme_fast", "abc", ".abc"):
        assert (
            missing_extra(name.lstrip("."))
            == name.lower().lstrip(".").replace("_", "-").partition("-")[0]
        )
    for name in ("fast", "acm", "ort-cpu", ""):  # an extra without a guest, no extra
        assert missing_extra(name) is None


def test_an_installed_guest_is_not_missing(alone, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.0")
    assert missing_extra("acme-fast") is None


def test_a_checkout_on_the_path_has_no_extras(alone, monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert missing_extra("acme-fast") is None


def test_a_backend_of_an_extra_says_what_to_install(alone):
    with pytest.raises(InputError) as caught:
        get_backend("acme-fast")
    assert "'acme-fast'" in caught.value.found
    assert caught.value.remedy == "Install it: pip install 'pytest-qbench[acme]'."
    with pytest.raises(InputError, match="Did you mean 'ort-cpu'"):
        get_backend("ort-cpi")


def test_a_model_file_of_an_extra_says_what_to_install(alone, capsys, tmp_path):
    with pytest.raises(NotFetchedError) as caught:
        format_of_path("net.abc", "Loading")
    assert caught.value.remedy == "Install it: pip install 'pytest-qbench[abc]'."
    assert format_of_path("net.onnx", "Loading") is None
    assert main(["export", "m.onnx", "-o", str(tmp_path / "m.abc")]) == 2
    assert "pip install 'pytest-qbench[abc]'" in capsys.readouterr().err
    assert backends_of_format("abc") == ()


def test_every_engine_here_has_its_extra(monkeypatch):
    """The rule of names holds for the guest of this repository:
    each backend and each format names an extra.
    """
    from qbench_engines.extension import EXTENSION

    monkeypatch.setattr(importlib.metadata, "version", _nothing_installed)
    for name in (*EXTENSION.backends, *EXTENSION.formats):
        assert missing_extra(name) == name.partition("-")[0]


def _nothing_installed(name):
    raise importlib.metadata.PackageNotFoundError(name)


REPOSITORY = "git+https://git.invalid/qbench@abc"


@pytest.mark.parametrize(
    ("origin", "guest", "core"),
    [
        ({}, "pip install 'pytest-qbench[acme]'", "pip install 'pytest-qbench[fast]'"),
        (
            {"url": "file:///src/qbench", "dir_info": {"editable": True}},
            "pip install -e '/src/qbench[acme]' -e /src/qbench/acme",
            "pip install -e '/src/qbench[fast]'",
        ),
        (
            {"url": "file:///src/qbench", "dir_info": {}},
            "pip install '/src/qbench[acme]' /src/qbench/acme",
            "pip install '/src/qbench[fast]'",
        ),
        (
            {"url": "file:///dist/pytest_qbench-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install '/dist/pytest_qbench-0.1.0-py3-none-any.whl[acme]' "
            "/dist/qbench_acme-0.1.0-py3-none-any.whl",
            "pip install '/dist/pytest_qbench-0.1.0-py3-none-any.whl[fast]'",
        ),
        (
            {
                "url": "https://git.invalid/qbench",
                "vcs_info": {"vcs": "git", "commit_id": "abc"},
            },
            f"pip install 'pytest-qbench[acme] @ {REPOSITORY}' "
            f"'qbench-acme @ {REPOSITORY}#subdirectory=acme'",
            f"pip install 'pytest-qbench[fast] @ {REPOSITORY}'",
        ),
    ],
)
def test_the_advice_is_for_where_qbench_came_from(alone, monkeypatch, origin, guest, core):
    """'pip install pytest-qbench[acme]' finds nothing while no index has qbench."""
    came_from(monkeypatch, origin)
    assert install_command("acme") == guest
    assert install_command("fast") == core


def test_in_a_checkout_the_folders_are_relative(alone, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    came_from(monkeypatch, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    assert install_command("acme") == "pip install -e '.[acme]' -e ./acme"


def test_one_function_writes_the_advice():
    """Five places had a command of their own, and none was right before publication."""
    root = Path(extension.__file__).parents[1]
    wrote = [
        str(path)
        for folder in ("qbench", "engines")
        for path in (root / folder).rglob("*.py")
        if "pip install 'pytest-qbench" in path.read_text()
    ]
    assert wrote == []
