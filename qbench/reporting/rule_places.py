"""Where the number of a rule stands, so that who wants another knows the file and the key.

tolerance 0.3 % (suite smoke)            →  set in smoke.qbench.toml: [suite] tolerance
tolerance 1 % (option --qbench-tolerance)  →  set on the command line: --qbench-tolerance
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


_DECISION = re.compile(r", (?=decision (?:ci|strict) \()")


def places_of(rule: str, suite: str) -> tuple[str, ...]:
    """The places of all that ``rule`` is made of: of how it was decided, where that is not by the counts, first."""
    parts = reversed(_DECISION.split(rule))
    return tuple(dict.fromkeys(filter(None, (place_of(part, suite) for part in parts))))


def place_of(rule: str, suite: str) -> str:
    """A clause with the file and the key of one part of a verdict's rule, in ``suite``; empty where nothing sets it."""
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
        return f"set {'on the command line' if name.startswith('--') else 'in the ini file of pytest'}: {name}"
    if kind == "default":
        return f"the default; {key} in {file} sets another"
    table = "[suite]" if kind == "suite" else f'[[model]] id = "{name}",'
    return f"set in {file}: {table} {key}" + (f'."{pattern}"' if pattern else "")
