"""Text from outside (names in a model, messages of an engine, lines of a run file), made safe
to print.

Invisible characters are written as escapes: control characters and with them the codes of
terminals, codes that turn the direction of text, zero-width characters, separators of lines, halves
of surrogate pairs. A log of continuous integration takes some lines for commands and a spreadsheet
some fields for formulas; both get a mark that prevents this.
"""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable

from qbench.storage.serialize import json_text

_COMMAND_AT_START = re.compile(r"^(\s*)(?=::)")
"""GitHub's runner trims a line, then takes ``::name …::`` for a command (actions/runner,
ActionCommand).
"""
_COMMAND_ANYWHERE = re.compile(r"##(?=\w*\[)")
"""``##[name]``, ``##vso[name]``, ``##teamcity[name]``, at any place of a line."""
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NO_SIGN = re.compile("[^ -~]")
"""Every character but the printable ones of ASCII."""
_NO_CHARACTER = 0xFFFE
"""The last two code points of each plane: not characters, and not allowed in XML."""


def visible(text: str, keep: str = "") -> str:
    r"""``text`` with invisible characters as ``\n``, ``\x1b``, ``\u202e``; ``keep`` stays."""
    if text.isprintable():
        return text
    # only the rare characters that are no ASCII letters or signs are looked up: a page has a
    # million of the others
    doubtful = re.compile(f"[^ -~{re.escape(keep)}]") if keep else _NO_SIGN
    hidden = filter(_is_hidden, set(doubtful.findall(text)))
    if written := {ord(one): _escape(one) for one in hidden}:
        return text.translate(written)
    return text


def neutral_line(text: str) -> str:
    """``text`` as one line of a terminal or a log, which is a command to neither."""
    seen = _COMMAND_ANYWHERE.sub(r"#\\#", visible(text))
    return _COMMAND_AT_START.sub(r"\1\\", seen)


def neutral_text(text: str) -> str:
    """The lines of ``text``, each as ``neutral_line`` writes it; only a line feed ends one."""
    return "\n".join(map(neutral_line, text.split("\n")))


def neutral_json(value: object) -> str:
    """``json_text`` of ``value``, same content, without commands to a terminal or a log."""
    text = json_text(value)
    if not text.replace("\n", "").isprintable():
        # character by character takes long, and is hardly ever needed
        text = "".join(
            json.dumps(one)[1:-1] if one != "\n" and _is_hidden(one) else one for one in text
        )
    return _COMMAND_ANYWHERE.sub(r"#\\u0023", text)


def csv_text(rows: Iterable[Iterable[object]], *, end: str = "\r\n") -> str:
    """``rows`` as CSV (RFC 4180): a text that a spreadsheet would take for a formula gets an
    apostrophe before it.
    """
    target = io.StringIO(newline="")
    csv.writer(target, lineterminator=end).writerows(map(_field, row) for row in rows)
    return target.getvalue()


def _field(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = visible(value)
    return (
        f"'{text}"
        if value.lstrip().startswith(_FORMULA) or value.startswith(("\t", "\r"))
        else text
    )


def _is_hidden(one: str) -> bool:
    return unicodedata.category(one) in _HIDDEN or ord(one) & _NO_CHARACTER == _NO_CHARACTER


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")
