"""A side of ``qbench diff`` as it is typed: ``key=value`` pairs, blanks between them, quotes around what has blanks.

    backend=ort-cpu schema=w8a8_asym_pc passes=merge-requantize policy=exact level=basic threads=2 python=VENV

What a side does not say it takes from the other one's text: the right from the left, the left from the defaults.
"""

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.chosen_machine import choose_backend
from qbench.errors import InputError, unknown_name

if TYPE_CHECKING:
    from qbench.backends import Backend
    from qbench.evaluation import Rewriting

FLOAT = "float"
NOTHING = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideText:
    """What a side says.

    Args:
        backend: a name, or a .toml that spells an arithmetic. schema: a name, a .toml, or ``float``.
        policy: which effects passes may have; alone, its standard pipeline runs. passes: others, with commas between
            them; ``none`` again: no pass. level: how far ONNX Runtime optimizes. threads: of the engine.
        python: another Python, whose onnxruntime runs it.
    """

    backend: str = "ort-cpu"
    schema: str = FLOAT
    passes: str = ""
    policy: str = ""
    level: str = ""
    threads: str = "1"
    python: str = ""

    def saying(self, text: str) -> "SideText":
        """This, but for what ``text`` says otherwise; an empty value takes back what was said.

        Raises:
            InputError: an unknown key, one without a value, or one that stands twice.
        """
        doing = f"Reading the side '{text}'"
        known = [one.name for one in fields(self)]
        said: dict[str, str] = {}
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InputError(doing, found=str(error), expected="quotes in pairs", remedy="Close the quote.") from error
        for word in words:
            key, sign, value = word.partition("=")
            if not sign:
                raise InputError(doing, found=f"'{word}'", expected="key=value", remedy="Write backend=ort-cpu.")
            if key not in known:
                raise unknown_name(doing, "key", key, known)
            if key in said:
                raise InputError(doing, found=f"'{key}' twice", expected="it once", remedy="Leave one of them out.")
            said[key] = value
        return replace(self, **said)

    @property
    def thread_count(self) -> int:
        """Threads as a number.

        Raises:
            InputError: it is none.
        """
        if self.threads.isdecimal() and int(self.threads):
            return int(self.threads)
        raise InputError(
            f"Reading 'threads={self.threads}'",
            found=f"'{self.threads}'",
            expected="a whole number from 1",
            remedy="Write threads=1.",
        )

    @property
    def label(self) -> str:
        """What a result calls it: all that it says and is not by default."""
        usual = SideText()
        said = (
            f"{one.name}={getattr(self, one.name)}"
            for one in fields(self)
            if one.name in ("backend", "schema") or getattr(self, one.name) != getattr(usual, one.name)
        )
        return " ".join(word for word in said if not word.endswith("="))

    def chosen_backend(self) -> "Backend":
        """The backend, at its level and in its Python.

        Raises:
            InputError: an unknown name, or a level of what has none.
            UnavailableError: the other Python lacks the engine.
        """
        from qbench.backends import HasLevels, python_backend

        backend = choose_backend(self.backend or SideText().backend)
        if self.level:
            if isinstance(backend, HasLevels) and self.level not in backend.levels:
                raise unknown_name(f"Reading 'level={self.level}'", "level", self.level, backend.levels)
            if not isinstance(backend, HasLevels) or self.python:
                raise InputError(
                    f"Choosing the level of '{self.backend}'",
                    found="another Python" if self.python else "a backend without optimization levels",
                    expected="ONNX Runtime of this Python: ort-cpu, ort-cpu-noopt or ort-cpu-precise",
                    remedy="Leave 'level' out.",
                )
            return backend.at_level(self.level)
        return python_backend(Path(self.python), like=self.backend) if self.python else backend

    def chosen_rewriting(self) -> "Rewriting | None":
        """What runs behind the quantizer; None: nothing.

        Raises:
            InputError: an unknown pass or policy.
        """
        from qbench.evaluation import Rewriting
        from qbench.extension import installed_extensions
        from qbench.passes import Policy, catalogue, parse_pipeline, standard_pipeline

        if self.passes == NOTHING or not (self.passes or self.policy):
            return None
        policies = {policy.value: policy for policy in Policy}
        policy = self.policy or Policy.FAST.value
        if policy not in policies:
            raise unknown_name(f"Reading 'policy={policy}'", "policy", policy, policies)
        known = catalogue(installed_extensions())
        chosen = policies[policy]
        pipeline = parse_pipeline(self.passes, known) if self.passes else standard_pipeline(chosen, known)
        return Rewriting(pipeline, chosen)
