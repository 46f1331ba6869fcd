"""A page without what it does not use: rules of its style sheet that can match nothing in it, and space nobody sees.

A rule stays when one of its selectors asks only for classes, ids and elements that the page has; every word of a
script counts as one, since scripts add some. What stands inside ``:not()`` or ``:nth-child()`` is not asked for.
"""

import re
from collections.abc import Iterator

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_TAG = re.compile(r"<([a-z][a-z0-9]*)([^>]*)>")
_NAMES = re.compile(r'\b(?:class|id)="([^"]*)"')
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(r",(?![^(\[]*[)\]])")
_ASIDE = re.compile(r"\[[^\]]*\]|:(?:not|nth-child)\([^)]*\)")
_ASKED = re.compile(r"[.#]([A-Za-z_][\w-]*)|(?:^|(?<=[\s>+~(]))([a-z][a-z0-9]*)")
_VARIABLE = re.compile(r"(--[\w-]+):[^;}]*;?")


def trim_page(page: str) -> str:
    """``page``, whose ``<style>`` is our own, with only the rules and colours that it uses."""
    words = set(re.findall(r"[\w-]+", " ".join(_SCRIPT.findall(page))))
    for element, attributes in _TAG.findall(_SCRIPT.sub("", page)):
        words |= {element, *" ".join(_NAMES.findall(attributes)).split()}
    return _STYLE.sub(lambda style: f"<style>{trim_style(style[1], words)}</style>", page)


def trim_style(sheet: str, words: set[str]) -> str:
    """What of ``sheet`` can match where ``words`` are all the names and elements there are."""
    kept = "".join(_kept(_COMMENT.sub("", sheet), words))
    return _VARIABLE.sub(lambda one: one[0] if f"var({one[1]})" in kept else "", kept)


def trim_script(script: str) -> str:
    """``script`` without indentation and without the lines that are comments alone."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _kept(sheet: str, words: set[str]) -> Iterator[str]:
    for head, body in _rules(sheet):
        if head.startswith("@"):
            inner = "".join(_kept(body, words))
            if inner:
                yield f"{_tight(head)}{{{inner}}}"
            continue
        chosen = [one for one in map(_tight, _COMMA.split(head)) if _names(one) <= words]
        if chosen:
            yield f"{','.join(chosen)}{{{_tight(body).rstrip(';')}}}"


def _names(selector: str) -> set[str]:
    return {name or element for name, element in _ASKED.findall(_ASIDE.sub("", selector))}


def _rules(sheet: str) -> Iterator[tuple[str, str]]:
    """(what stands before the brace, what stands between it and the brace that closes it) of each rule."""
    at = 0
    while (opened := sheet.find("{", at)) >= 0:
        depth, end = 1, opened + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(sheet[end], 0)
            end += 1
        yield sheet[at:opened].strip(), sheet[opened + 1 : end - 1]
        at = end


def _tight(text: str) -> str:
    """``text`` without the space that has no meaning; before a colon and around a sign it has one."""
    return re.sub(r"\s*([;,>])\s*|:\s+", lambda found: found[1] or ":", " ".join(text.split()))
