"""What an extra brings is not there: one sentence names the extra."""

import sys

import pytest

from qbench.cli.program import main
from qbench.errors import UnavailableError
from qbench.metrics.sequences import _edit_distance


@pytest.mark.parametrize("metric", ["per", "cer"])
def test_edits_without_rapidfuzz(monkeypatch, metric):
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(UnavailableError) as refused:
        _edit_distance(metric)
    assert refused.value.expected == "the extra 'text'"
    assert "[text]" in str(refused.value)


def test_completion_without_argcomplete(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete.shell_integration", None)
    assert main(["completion", "bash"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "the extra 'completion'" in sentence


def test_the_shell_gets_no_words_without_argcomplete(monkeypatch, capsys):
    from qbench.cli.completion import complete
    from qbench.cli.program import build_parser

    monkeypatch.setitem(sys.modules, "argcomplete", None)
    with pytest.raises(SystemExit):
        complete(build_parser())
    assert capsys.readouterr() == ("", "")
