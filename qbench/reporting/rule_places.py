"""Where the number of a rule stands, so that who wants another knows the file and the key.

tolerance 0.3 % (suite smoke)            →  set in smoke.qbench.toml: [suite] tolerance
decision ci (cell m::ort-cpu+w8a8_*)     →  set in smoke.qbench.toml: [[model]] id = "m", decision."ort-cpu+w8a8_*"
"""

import re

_KEYS = (
    ("tolerance ", "tolerance"),
    ("decision ", "decision"),
    ("agreement ", "agreement"),
    ("integer_macs ", "integer_macs"),
    ("probabilities ", "probabilities"),
    ("equals ", "equal_to"),
    ("close to ", "close_to"),
)
_FLIPS = re.compile(r"at most \d+ flips? ")
_OWNER = re.compile(r"\((default|suite|model|cell|option)(?: ([^\s():]+)(?:::([^\s()]+))?)?")


def place_of(rule: str, suite: str) -> str:
    """A clause with the file and the key of ``rule``, a verdict's, in ``suite``; empty where no file sets it."""
    file = f"{suite}.qbench.toml"
    if rule.startswith("quarantine "):
        return f"set in {suite}.quarantine.toml"
    if rule.startswith("accepted floor"):
        return f"set by what was accepted: floors in the baselines of {suite}"
    if rule.startswith("identical predictions"):
        return f"the default; flips in {file} admits more"
    key = next((key for start, key in _KEYS if rule.startswith(start)), "flips" if _FLIPS.match(rule) else "")
    owner = _OWNER.search(rule)
    if not key or owner is None:
        return ""
    kind, name, pattern = owner.groups()
    if kind == "option":
        return ""
    if kind == "default":
        return f"the default; {key} in {file} sets another"
    table = "[suite]" if kind == "suite" else f'[[model]] id = "{name}",'
    return f"set in {file}: {table} {key}" + (f'."{pattern}"' if pattern else "")
