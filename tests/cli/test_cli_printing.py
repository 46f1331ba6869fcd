"""Columns fold in a terminal and nowhere else; shares and counts read as people write them."""

import pytest

from qbench.cli import printing


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100 %"), (0.9999, "100 %"), (0.123, "12 %"), (0.0456, "4.6 %"), (0.00034, "0.034 %"), (0.0951, "9.5 %")],
)
def test_shares(share, text):
    assert printing.rough_percent(share) == text


def test_counts():
    assert [printing.counted(n, "layer") for n in (0, 1, 2)] == ["0 layers", "1 layer", "2 layers"]


def test_the_last_column_folds_in_a_terminal(monkeypatch, capsys):
    rows = [("a", "word " * 12), ("bcd", "")]
    printing.print_columns(rows)
    plain = capsys.readouterr().out.splitlines()
    assert plain == [f"a    {'word ' * 12}".rstrip(), "bcd"]
    monkeypatch.setattr(printing, "terminal_width", lambda: 30)
    printing.print_columns(rows)
    folded = capsys.readouterr().out.splitlines()
    assert folded == [f"a    {'word ' * 5}".rstrip(), f"     {'word ' * 5}".rstrip(), "     word word", "bcd"]
    monkeypatch.setattr(printing, "terminal_width", lambda: 10)
    printing.print_columns(rows)
    assert capsys.readouterr().out.splitlines() == plain
