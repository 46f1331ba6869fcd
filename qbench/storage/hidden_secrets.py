"""Text for logs without passwords and tokens: those of addresses, and the values of variables
whose names say that they are secret.
"""

import os
import re
from collections.abc import Mapping

HIDDEN = "…"
"""What a log has in the place of a secret."""
_NAME = (
    r"(?:token|secret|password|passwd|passphrase|credential|signature|api[_-]?key|access[_-]?key)"
)
_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^\s/?#'\"]*@")
_ASSIGNED = re.compile(
    rf"(?P<name>[\w.-]*{_NAME}[\w.-]*[\"']?\s*[=:]\s*[\"']?)(?P<value>[^\s&'\",;]+)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)[\w+/=.~-]{8,}", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(
    rf"{_NAME}|(?:^|_)(?:key|pass|auth|cookie|sig|sas)(?:_|$)", re.IGNORECASE
)
_SHORTEST = 6
"""Values of fewer characters stay, as they are also parts of ordinary words: ``KEY=1``."""


def without_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """``text`` with each secret as ``…``: ``tcp://…@host``, ``?token=…``."""
    for value in _secret_values(environment):
        text = text.replace(value, HIDDEN)
    text = _LOGIN.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _ASSIGNED.sub(rf"\g<name>{HIDDEN}", text)
    return _BEARER.sub(rf"\g<name>{HIDDEN}", text)


def _secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values of variables with secret names; long ones first, as one may be a part of
    another.
    """
    found = {
        value
        for name, value in environment.items()
        if _SECRET_VARIABLE.search(name) and len(value) >= _SHORTEST
    }
    return sorted(found, key=len, reverse=True)
