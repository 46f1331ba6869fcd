"""Trimming a page: rules of its style sheet that match nothing in it are removed, and space without
meaning.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

# A rule stays when one of its selectors names only classes, ids and elements that the page has.
# Every word in a string of a script counts as such a name, since scripts add elements, but not
# those by which it looks for elements. Names inside ``:not()`` or ``:nth-child()`` are not
# required.

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_LOOKED_FOR = re.compile(r"\.(?:querySelector(?:All)?|closest)\((?:\"[^\"]*\"|`[^`]*`)\)")
_DATA = re.compile(r"^const choice = .*$", re.MULTILINE)
_ELEMENT = re.compile(r"<([a-z][a-z0-9]*)")
_NAMING = ('class="', 'id="')
"""What is before names; text outside of tags has no such sign, because it is escaped."""
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r"\"[^\"\n]*\"|`[^`]*`")
_ASIDE = re.compile(r"\[[^\]]*\]|:(?:not|nth-child)\([^)]*\)")
_NAMED = re.compile(r"[.#]([A-Za-z_][\w-]*)|(?:^|(?<=[\s>+~(]))([a-z][a-z0-9]*)")
_VARIABLE = re.compile(r"(--[\w-]+):[^;}]*;?")


def trim_page(page: str) -> str:
    """``page``, whose ``<style>`` is our own, with only the rules and colours that it uses."""
    words = frozenset().union(*map(_script_words, _SCRIPT.findall(page)))
    written = _SCRIPT.sub("", page)
    used = words.union(_names_in(written), _ELEMENT.findall(written))
    return _STYLE.sub(lambda style: f"<style>{trim_style(style[1], used)}</style>", page)


def _names_in(written: str) -> set[str]:
    """The classes and ids in the page ``written``: cut at each, which takes an eighth of the time
    of a pattern.
    """
    found: set[str] = set()
    for naming in _NAMING:
        found.update([rest[: rest.find('"')] for rest in written.split(naming)[1:]])
    return set(" ".join(found).split())


@functools.lru_cache(maxsize=64)  # pages of one kind have the same scripts
def _script_words(script: str) -> frozenset[str]:
    """Every word in a string of ``script`` that can be the name of an element that it adds."""
    added = _LOOKED_FOR.sub("", _DATA.sub("", script))
    return frozenset(re.findall(r"[\w-]+", " ".join(_STRING.findall(added))))


def trim_style(sheet: str, words: AbstractSet[str]) -> str:
    """The rules of ``sheet`` that can match where ``words`` are all names and elements of the
    page.
    """
    return _trimmed(sheet, frozenset(words & _style_names(sheet)))


@functools.lru_cache(maxsize=256)  # a site has few kinds of pages, which differ in few names
def _trimmed(sheet: str, words: frozenset[str]) -> str:
    kept = "".join(_kept(_parsed(_COMMENT.sub("", sheet)), words))
    return _VARIABLE.sub(lambda one: one[0] if f"var({one[1]})" in kept else "", kept)


@functools.lru_cache(maxsize=32)
def _style_names(sheet: str) -> frozenset[str]:
    """Every name that a selector of ``sheet`` has."""
    return frozenset(_required(_parsed(_COMMENT.sub("", sheet))))


def _required(rules: Sequence["_Rule"]) -> Iterator[str]:
    for rule in rules:
        yield from _required(rule.inner)
        for _, names in rule.selectors:
            yield from names


def trim_script(script: str) -> str:
    """``script`` without indentation and without the lines that are comments alone."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule of a style sheet: each selector with its names; of an ``@`` rule ``head`` and the
    rules inside.
    """

    head: str
    body: str
    selectors: tuple[tuple[str, frozenset[str]], ...] = ()
    inner: "tuple[_Rule, ...]" = ()


@functools.lru_cache(maxsize=32)
def _parsed(sheet: str) -> tuple[_Rule, ...]:
    """The rules of ``sheet``, read once for all pages that have it."""
    found = []
    for head, body in _rules(sheet):
        if head.startswith("@"):
            found.append(_Rule(head=_tight(head), body="", inner=_parsed(body)))
        else:
            selectors = tuple(
                (one, frozenset(_names(one))) for one in map(_tight, _selectors(head))
            )
            found.append(_Rule(head="", body=_tight(body).rstrip(";"), selectors=selectors))
    return tuple(found)


def _kept(rules: Sequence[_Rule], words: frozenset[str]) -> Iterator[str]:
    for rule in rules:
        if rule.head:
            inner = "".join(_kept(rule.inner, words))
            if inner:
                yield f"{rule.head}{{{inner}}}"
            continue
        chosen = [text for text, names in rule.selectors if names <= words]
        if chosen:
            yield f"{','.join(chosen)}{{{rule.body}}}"


def _selectors(head: str) -> list[str]:
    """The selectors of a rule: ``head`` cut at the commas that are in no brackets."""
    found, depth = [""], 0
    for letter in head:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def _names(selector: str) -> set[str]:
    return {name or element for name, element in _NAMED.findall(_ASIDE.sub("", selector))}


def _rules(sheet: str) -> Iterator[tuple[str, str]]:
    """(text before the opening brace, text between it and its closing brace) of each rule."""
    at = 0
    while (opened := sheet.find("{", at)) >= 0:
        depth, end = 1, opened + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(sheet[end], 0)
            end += 1
        yield sheet[at:opened].strip(), sheet[opened + 1 : end - 1]
        at = end


def _tight(text: str) -> str:
    """``text`` without space that has no meaning; space before a colon and around a sign has
    one.
    """
    return re.sub(r"\s*([;,>])\s*|:\s+", lambda found: found[1] or ":", " ".join(text.split()))
