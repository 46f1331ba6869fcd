"""Text for logs without passwords and tokens.

    tcp://user:word@host            the login of an address
    ?sig=…&token=…                  values of a query that sign or name something secret
    MY_TOKEN=…  --password …        values behind names that say that they are secret
    Cookie: …  Authorization: …     headers of HTTP
    Bearer …  Basic …               credentials without their header
    curl -u user:word               a login
    ghp_…                           what has the form of a token, and values of variables of the
                                    environment whose names say that they are secret

What a name means is decided by its words: ``max_new_tokens``, ``token_kl``, ``tokenizer`` and
``eos_token`` are names of language models.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping

HIDDEN = "…"
"""What a log has in the place of a secret."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ALWAYS = re.compile(
    r"secret|password|passwd|passphrase|credential|(?:api|access|account|private)[_.-]?key",
    re.IGNORECASE,
)
_OF_TEXT = frozenset(
    ("pad", "eos", "bos", "unk", "mask", "sep", "cls", "next", "last", "first", "new", "per")
)
"""In front of ``token``: those of a text."""
_OF_TEXTS = _OF_TEXT | {"", "max", "min", "num", "n", "all", "special", "added", "input", "output"}
"""In front of ``tokens``: those of a text."""
_OF_METRICS = frozenset(("kl", "kld", "top", "perplexity", "ppl", "type", "ids"))
"""Behind ``token``: what is measured of a text."""
_NUMBER = re.compile(r"[-+]?\d{1,8}(?:\.\d+)?%?(?![\w.-])")
_RANDOM = re.compile(r"(?=[^\d]*\d).{16}")
"""What a signature looks like, and the name of one of a model does not."""

# Each pattern takes time with the length of the text: names begin where no name is before them,
# and none is given back.

_LOGIN = re.compile(r"(?P<scheme>(?<=[\w+.-])://)[^\s/?#'\"]*@")
_NAMED = re.compile(
    r"(?<![\w.-])(?P<name>(?=[\w.-]*[A-Za-z])[\w.-]++)"
    r"(?:[\"']?\s*[=:]\s*[\"']?|(?P<space>[ \t]+)[\"']?)"
)
_VALUE = re.compile(r"[^\s&'\",;]+")
_DECIDES = 64
"""Characters of a value that are looked at to decide whether it is secret."""
_QUERY = re.compile(r"(?P<name>[?&](?:[\w-]{1,40}-)?(?:signature|sig)=)[^\s&'\"#]+", re.IGNORECASE)
_HEADER = re.compile(
    r"(?P<before>[\"'])?(?P<name>\b(?:set-cookie|cookie|authorization)(?P<behind>[\"'])?"
    r"[ \t]*:[ \t]*(?P<opened>[\"'])?(?:(?:bearer|basic|digest|negotiate|token)[ \t]+)?)"
    r"(?=[^\s'\"])",
    re.IGNORECASE,
)
_TO_QUOTE = {quote: re.compile(rf"(?:\\.|[^\\\r\n{quote}])*+") for quote in "\"'"}
_TO_END = re.compile(r"[^\r\n]*+")
_BEARER = re.compile(
    r"(?P<name>\bbearer\s+)"
    r"(?=[\w+/=.~-]*\d|(?-i:[\w+/=.~-]*[a-z][\w+/=.~-]*[A-Z])|[\w+/=.~-]{16})[\w+/=.~-]{8,}",
    re.IGNORECASE,
)
_ASSIGNED_SCHEME = re.compile(
    r"(?P<name>[=:]\s*[\"']?(?:bearer|basic)[ \t]+)[^\s'\"]+", re.IGNORECASE
)
_BASIC = re.compile(r"(?P<name>\bbasic\s+)(?P<value>[A-Za-z0-9+/]{4,}={0,2})", re.IGNORECASE)
_USER = re.compile(
    r"(?P<name>(?:^|(?<=\s))(?:-u\s*|--(?:proxy-)?user[= ]\s*)[\"']?)"
    r"(?!\d+:\d+(?!\S))[^\s:'\"]+:[^\s'\"]+"  # numbers are users and groups of a container
)
FORMS = {
    "Hugging Face": r"(?:hf|api_org)_[A-Za-z0-9]{16,}",
    "GitHub": r"gh[oprsu]_[A-Za-z0-9]{16,}",
    "GitHub, with fine rights": r"github_pat_\w{16,}",
    "GitLab": r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-[\w-]{16,}",
    "Amazon": r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    "services of models": r"sk-[\w-]{16,}",
    "Slack": r"xox[a-z]-[\w-]{10,}",
    "PyPI": r"pypi-AgE[\w-]{16,}",
    "JSON Web Token": r"eyJ[\w-]{6,}\.[\w-]{4,}\.[\w-]*",
}
"""Whose token → its form, a regular expression: it is hidden anywhere in a text."""
_FORMS = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(FORMS.values())})")
_SECRET_VARIABLE = re.compile(
    rf"{_ALWAYS.pattern}|token(?!iz)|signature|(?:^|_)(?:key|pass|auth|cookie|sig|sas)(?:_|$)",
    re.IGNORECASE,
)
_SHORTEST = 6
"""Values of fewer characters stay, as they are also parts of ordinary words: ``KEY=1``."""


def without_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """``text`` with each secret as ``…``: ``tcp://…@host``, ``?token=…``, ``Bearer …``."""
    for value in _secret_values(environment):
        text = text.replace(value, HIDDEN)
    text = _LOGIN.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _FORMS.sub(HIDDEN, text)
    # before what is assigned: of ``TOKEN=Bearer x`` that would hide the word alone
    text = "".join(_without_headers(text))
    for pattern in (_ASSIGNED_SCHEME, _QUERY, _USER, _BEARER):
        text = pattern.sub(rf"\g<name>{HIDDEN}", text)
    text = _BASIC.sub(_hidden_login, text)
    return "".join(_without_assigned(text))


def _without_headers(text: str) -> Iterator[str]:
    """The parts of ``text``, with each value of a header that names who asks as ``…``: to the
    quote that closes it, else to the end of the line.
    """
    done = 0
    for found in _HEADER.finditer(text):
        if found.start() < done:  # in the value of another
            continue
        around = None if found["behind"] else found["before"]
        quote = found["opened"] or around
        value = (_TO_QUOTE[quote] if quote else _TO_END).match(text, found.end())
        assert value is not None  # also an empty one matches
        yield text[done : found.end()]
        yield HIDDEN
        done = value.end()
    yield text[done:]


def _hidden_login(found: re.Match[str]) -> str:
    """The word ``Basic`` and a login: base64 of ``user:password`` (RFC 7617)."""
    try:
        login = base64.b64decode(found["value"], validate=True)
    except binascii.Error:
        return found[0]
    return f"{found['name']}{HIDDEN}" if b":" in login else found[0]


def _without_assigned(text: str) -> Iterator[str]:
    """The parts of ``text``, with each value of a secret name as ``…``."""
    done = 0
    for found in _NAMED.finditer(text):
        if found.start() < done:  # in a value
            continue
        # words behind a space are a value behind an option alone
        if found["space"] and not found["name"].startswith("-"):
            continue
        begun = found.end()
        start = _VALUE.match(text, begun, begun + _DECIDES)
        if start is None or not _is_secret(found["name"], start[0]):
            continue
        if found["space"] and start[0].startswith("-"):  # the next option
            continue
        yield text[done:begun]
        yield HIDDEN
        value = _VALUE.match(text, begun)
        assert value is not None  # it is at least as long as its start
        done = value.end()
    yield text[done:]


def _is_secret(name: str, value: str) -> bool:
    """Whether ``name`` says that its ``value`` is secret."""
    if _ALWAYS.search(name):
        return True
    if _NUMBER.match(value):
        return False
    words = ["", *(word.lower() for word in _WORDS.findall(name)), ""]
    if words[-2].endswith("signature"):
        return _RANDOM.match(value) is not None
    return any(map(_is_token, words, words[1:], words[2:]))


def _is_token(before: str, word: str, behind: str) -> bool:
    """Whether ``word`` of a name is a token of a login, and none of a text."""
    if word.endswith("tokens"):
        return before not in _OF_TEXTS
    return word.endswith("token") and before not in _OF_TEXT and behind not in _OF_METRICS


def _secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values of variables with secret names; long ones first, as one may be a part of
    another.
    """
    found = {
        value
        for name, value in environment.items()
        if len(value) >= _SHORTEST and _is_secret_variable(name, value)
    }
    return sorted(found, key=len, reverse=True)


def _is_secret_variable(name: str, value: str) -> bool:
    return bool(_SECRET_VARIABLE.search(name)) and not _NUMBER.fullmatch(value)
