"""The chosen cells of a sweep as a suite that pytest runs, with the files that it needs."""

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.options import values_of
from qbench.cli.starter_files import (
    NETWORK,
    PARTS,
    SAMPLES,
    filled,
    fourth_of,
    identifier,
    placed,
    quoted,
    relative,
    settings_files,
    write_all,
)
from qbench.errors import InputError, nearest
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.evaluation import SweepPlan
    from qbench.quantization import Schema
    from qbench.reporting import SweepTable
    from qbench.tracking import SweepCell

_ENDING = ".qbench.toml"
PARETO, ALL = "pareto", "all"
_FRONTS = {
    PARETO: ("size", "time"),
    "pareto-size": ("size",),
    "pareto-time": ("time",),
    "pareto-float": ("float",),
}
"""Word of ``--choose`` → the costs whose fronts it names."""


# Which cells.


def chosen_cells(text: str, table: "SweepTable") -> "tuple[SweepCell, ...]":
    """The quantized cells that ``text`` names, each once, in the order of ``table``.

    Raises:
        InputError: a name that no measured cell has, or nothing is chosen.
    """
    rows = [row for row in table.rows if not row.cell.is_float]
    chosen: set[str] = set()
    for word in values_of("choose", text):
        if word in _FRONTS:
            found = {row.cell.name for row in rows if {*row.fronts} & {*_FRONTS[word]}}
        else:
            found = {row.cell.name for row in rows if word == ALL or _is_named(row.cell, word)}
            if not found:
                raise _unknown(word, [row.cell.name for row in rows])
        chosen |= found
    if not chosen:
        raise InputError(
            "Choosing the cells of the suite",
            found=f"no cell by '{text}': no measured one has such a cost",
            expected="at least one",
            remedy="Name cells: --choose all, or a pattern such as ort-cpu+*.",
        )
    return tuple(row.cell for row in rows if row.cell.name in chosen)


def _refuse_unknown_choice(text: str, plan: "SweepPlan") -> None:
    """Refuse a word of ``--choose`` that names no cell, before any is measured."""
    cells = [(one.name, schema.name) for one, schema in plan.cells if schema is not None]
    for word in values_of("choose", text):
        is_known = word in _FRONTS or word == ALL
        if not is_known and not any(_names(word, *cell) for cell in cells):
            raise _unknown(word, ["+".join(cell) for cell in cells], "cell of this sweep")


def _is_named(cell: "SweepCell", pattern: str) -> bool:
    return _names(pattern, cell.backend, cell.schema)


def _names(pattern: str, backend: str, schema: str) -> bool:
    from qbench.judging import Cell

    return Cell("sweep", "m", backend, schema).is_named_by(pattern)


def _unknown(word: str, names: Sequence[str], kind: str = "measured cell") -> InputError:
    close = nearest(word, [*names, *_FRONTS, ALL])
    words = ", ".join((*_FRONTS, ALL))
    return InputError(
        "Choosing the cells of the suite",
        found=f"'{word}', which names no {kind}",
        expected=f"backend+schema of a row, a pattern with *, or {words}",
        remedy=f"Did you mean '{close}'?" if close else f"The first row is '{names[0]}'.",
    )


# The files.


def mixture_files(widths: "Sequence[Schema]", mixtures: "Sequence[Schema]") -> dict[str, str]:
    """Name → text of the file of each of ``mixtures``, which ``--mixed`` found of ``widths``."""
    from qbench.diagnosis import override_text

    comment = f"A mixture of {', '.join(one.name for one in widths)} and float."
    return {f"{one.name}.toml": override_text(one, comment=comment) for one in mixtures}


class SuiteFiles:
    """The suite of ``--write-suite`` and the files that it needs, in the folder of a bench.

    Args:
        arguments: of ``qbench sweep``.
        plan: the sweep.
        mixtures: name → text of the file of a schema that the sweep mixed.

    Raises:
        InputError: a file is there already, the suite's has another name than suites have, or a
            word of ``--choose`` names no cell.
    """

    def __init__(
        self, arguments: argparse.Namespace, plan: "SweepPlan", mixtures: Mapping[str, str]
    ) -> None:
        self._arguments, self._plan, self._mixtures = arguments, plan, mixtures
        self._subject = plan.shared.subject
        self.suite = Path(arguments.write_suite)
        self._doing = f"Writing the suite '{arguments.write_suite}'"
        self._refuse_name()
        _refuse_unknown_choice(arguments.choose or PARETO, plan)
        parent = self.suite.parent
        self.folder = parent.parent if parent.name == "suites" else parent
        self._needed = self._needed_files()

    def write(self, chosen: "Sequence[SweepCell]") -> list[str]:
        """Write the suite of ``chosen``, and what is not there of the rest; sentences about it."""
        names = {f"{one.schema}.toml" for one in chosen}
        needed = {
            path: text
            for path, text in self._needed.items()
            if path.name not in self._mixtures or path.name in names
        }
        files: dict[Path, str | bytes] = {self.suite: self._suite_text(chosen), **needed}
        settings, notes = settings_files(self.folder)
        write_all(files | settings, self._doing)
        suite = relative(self.suite, self.folder)
        into = "" if self.folder.resolve() == Path.cwd() else f"cd {self.folder}; "
        return [
            *(f"wrote {path}" for path in (*files, *settings)),
            *notes,
            f"{counted(len(chosen), 'cell')} chosen; next: "
            f"{into}pytest {suite} --qbench-accept-fp32 --qbench-accept=new",
        ]

    def _refuse_name(self) -> None:
        stem = self.suite.name.removesuffix(_ENDING)
        if not self.suite.name.endswith(_ENDING) or not stem:
            raise InputError(
                self._doing,
                found=f"the name '{self.suite.name}'",
                expected=f"one that ends in {_ENDING}, which pytest collects",
                remedy=f"Write it as suites/{self.suite.name.split('.')[0] or 'mine'}{_ENDING}.",
            )
        if self.suite.exists():
            raise self._there(self.suite)

    def _there(self, path: Path) -> InputError:
        return InputError(
            self._doing,
            found=f"'{path}', which is there already",
            expected="no file of a name that is written here",
            remedy="Name a suite in another folder, or move what is there.",
        )

    def _needed_files(self) -> dict[Path, str | bytes]:
        """What the suite needs and is not there: the conftest.py, and the files of schemas and
        arithmetics.
        """
        found: dict[Path, str | bytes] = {}
        if (text := self._conftest()) is not None:
            found[self.folder / "conftest.py"] = text
        for name, source in self._sources().items():
            found[self.suite.parent / name] = source.read_text(encoding="utf-8")
        for name, text in self._mixtures.items():
            found[self.suite.parent / "schemas" / name] = text
        for path, written in [*found.items()]:
            if path.exists():
                if path.read_text(encoding="utf-8") != written:
                    raise self._there(path)
                del found[path]
        return found

    def _sources(self) -> dict[str, Path]:
        """Path next to the suite → the file of a schema or an arithmetic that the sweep read."""
        found = {}
        for text in values_of("schema", self._arguments.schema) if self._arguments.schema else ():
            here = Path("suites", "schemas", f"{text}.toml")
            source = Path(text) if text.endswith(".toml") else here
            if source.is_file():
                found[f"schemas/{source.name}"] = source
        for text in values_of("backend", self._arguments.backend):
            if text.endswith(".toml"):
                found[f"arithmetics/{Path(text).name}"] = Path(text)
        return found

    # Names of the catalogue stay as they are; what is a file has a name by the conftest.py.

    @property
    def _names_model(self) -> bool:
        from qbench.extension import known_extensions
        from qbench.subjects import model_catalogue

        return self._arguments.model in model_catalogue(known_extensions()).names()

    def _names_data(self, text: str | None) -> bool:
        from qbench.extension import known_extensions
        from qbench.subjects import dataset_catalogue

        return text is not None and text in dataset_catalogue(known_extensions()).names()

    @property
    def _is_named(self) -> bool:
        """Whether the suite can name everything, so that it needs no conftest.py."""
        return (
            self._names_model
            and self._names_data(self._arguments.data)
            and self._names_data(self._arguments.calib)
        )

    def _text_of_data(self, text: str) -> str:
        return quoted(text) if self._names_data(text) else placed(text, self.folder)

    def _conftest(self) -> str | None:
        """The conftest.py; None: none is needed."""
        if self._is_named:
            return None
        samples = PARTS
        if self._arguments.calib:
            samples = SAMPLES.replace("@CALIB@", self._text_of_data(self._arguments.calib))
        else:
            fourth_of(next(iter(self._subject.data.values())), self._doing)
        network = models = ""
        imports = "Dataset, dataset_from_text"
        if not self._names_model:
            name = self._subject.model.id
            output = self._arguments.output
            more = f', output="{quoted(output)}"' if output else ""
            file = quoted(relative(Path(self._arguments.model), self.folder))
            made = f'read_network(str(HERE / "{file}"), *dataset_from_text(DATA){more})'
            network = NETWORK.format(function=identifier(name), made=made)
            models = f'"{name}": {identifier(name)}'
            imports = "Dataset, ZooModel, dataset_from_text, read_network"
        return filled(
            "own.conftest",
            DATA=self._text_of_data(self._arguments.data),
            IMPORTS=imports,
            NETWORK=network,
            MODELS=models,
            SAMPLES=samples,
        )

    # The suite.

    def _suite_text(self, chosen: "Sequence[SweepCell]") -> str:
        """The suite as TOML; each cell of it is one that was chosen, or the float model."""
        subject = self._subject
        suite: dict[str, object] = {
            "backends": list(dict.fromkeys(one.backend for one in chosen)),
            "schemas": _common_schemas(chosen),
        }
        if self._plan.threads != 1:
            suite["threads"] = self._plan.threads
        model: dict[str, object] = {
            "id": subject.model.id,
            "data": self._arguments.data if self._is_named else "my_data",
            "calibration": self._calibration(),
            "metrics": [use.name for use in subject.metrics],
        }
        if self._arguments.ranges:
            path = os.path.relpath(self._arguments.ranges, self.suite.parent)
            model["ranges_file"] = Path(path).as_posix()
        if variants := _variants(chosen):
            model["variants"] = variants
        name = relative(self.suite, self.folder)
        lines = [
            f"# Chosen from a sweep of {_one_line(self._arguments.model)} on "
            f"{_one_line(self._arguments.data)}, where they measured:",
            "#",
            *_measured_lines(chosen),
            "#",
            f"# pytest {name} --qbench-accept-fp32 --qbench-accept=new      once: store references",
            f"# pytest {name}                                               from then on",
            "",
            "[suite]",
            *_toml_lines(suite),
            "",
            "[[model]]",
            *_toml_lines(model),
        ]
        return "\n".join(lines) + "\n"

    def _calibration(self) -> dict[str, object]:
        arguments, name = self._arguments, "my_calibration"
        if self._is_named:
            name = arguments.calib
        count = len(self._subject.calibration)
        if not arguments.calib:
            data = next(iter(self._subject.data.values()))
            count = len(fourth_of(data, self._doing))
        return {"data": name, "count": count}


def _common_schemas(chosen: "Sequence[SweepCell]") -> list[str]:
    """The schemas that were chosen on every backend."""
    backends = {one.backend for one in chosen}
    names = dict.fromkeys(one.schema for one in chosen)
    return [
        name for name in names if {one.backend for one in chosen if one.schema == name} == backends
    ]


def _variants(chosen: "Sequence[SweepCell]") -> dict[str, object]:
    """The other cells: one variant for each backend, which has a schema that others have not."""
    common = _common_schemas(chosen)
    found: dict[str, object] = {}
    for backend in dict.fromkeys(one.backend for one in chosen):
        schemas = [
            one.schema for one in chosen if one.backend == backend and one.schema not in common
        ]
        if schemas:
            found[f"only-{backend}"] = {"backends": [backend], "schemas": schemas}
    return found


def _measured_lines(chosen: "Sequence[SweepCell]") -> list[str]:
    from qbench.reporting import bytes_text, loss_text, time_text

    wide = max(len(one.name) for one in chosen)
    return [
        f"#   {one.name.ljust(wide)}  {_one_line(one.metric)} {loss_text(one)}  "
        f"{bytes_text(one.file_bytes)}  {time_text(one.ms)} ms"
        for one in chosen
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _toml_lines(table: Mapping[str, object]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    """``name`` as a key of TOML, between quotes where it has to be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _toml(value: object) -> str:
    """``value`` as TOML in one line."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(str(name))} = {_toml(one)}" for name, one in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
