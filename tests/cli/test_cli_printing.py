"""Columns fold in a terminal and nowhere else."""

from qbench.cli import printing


def test_the_last_column_folds_in_a_terminal(monkeypatch, capsys):
    rows = [("a", "word " * 12), ("bcd", "")]
    printing.print_columns(rows)
    plain = capsys.readouterr().out.splitlines()
    assert plain == [f"a    {'word ' * 12}".rstrip(), "bcd"]
    monkeypatch.setattr(printing, "terminal_width", lambda: 30)
    printing.print_columns(rows)
    folded = capsys.readouterr().out.splitlines()
    assert folded == [
        f"a    {'word ' * 5}".rstrip(),
        f"     {'word ' * 5}".rstrip(),
        "     word word",
        "bcd",
    ]
    monkeypatch.setattr(printing, "terminal_width", lambda: 10)
    printing.print_columns(rows)
    assert capsys.readouterr().out.splitlines() == plain
