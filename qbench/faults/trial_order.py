"""In which order faults are put into the cells of a suite: every kind once before any twice.

The k-th kind of fault begins at the k-th model, so that the first round already reaches all models
and backends; cells of one backend come in one order for all kinds, so that few cells have to be
measured without a fault.
"""

import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from qbench.judging import Cell

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slot:
    """A fault (its name) at the ``place``-th place, from 0, of ``cell``, if it has one."""

    fault: str
    cell: Cell
    place: int

    @property
    def identity(self) -> str:
        """What tells slots of one suite apart."""
        return f"{self.cell} {self.fault} {self.place}"

    def drawn_by(self, seed: int) -> int:
        """The seed by which its place is drawn: another one in each cell."""
        return zlib.crc32(f"{seed} {self.cell}".encode())


def slots_of(
    cells: Sequence[Cell], fits: Mapping[str, Callable[[Cell], bool]], *, seed: int, places: int
) -> dict[str, list[Slot]]:
    """Kind of fault → where it is tried, in this order; kinds without a slot are left out.

    Args:
        cells: of the suite.
        fits: kind of fault → whether the backend of a cell can have it.
        seed: of the order.
        places: of each cell.
    """
    found = {}
    for number, (fault, can) in enumerate(fits.items()):
        order = _spread([cell for cell in cells if can(cell)], number, seed)
        slots = [Slot(fault, cell, place) for place in range(places) for cell in order]
        if slots:
            found[fault] = slots
    return found


def _spread(cells: Sequence[Cell], number: int, seed: int) -> list[Cell]:
    """``cells``, in turn of each model, and of each backend of the model."""
    by_model: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, {}).setdefault(cell.backend, []).append(cell)
    models = _shuffled(by_model, seed)
    turn = number % max(len(models), 1)
    in_turn = []
    for model in (*models[turn:], *models[:turn]):
        backends = _shuffled(by_model[model], seed, model)
        first = (number // len(models)) % len(backends)
        in_turn.append(
            _interleaved(
                _shuffled(by_model[model][backend], seed, model, backend)
                for backend in (*backends[first:], *backends[:first])
            )
        )
    return _interleaved(in_turn)


def _shuffled(values: Iterable[T], seed: int, *names: str) -> list[T]:
    listed = list(values)
    random = np.random.default_rng((seed, zlib.crc32(" ".join(names).encode())))
    return [listed[place] for place in random.permutation(len(listed))]


def _interleaved(lists: Iterable[Sequence[T]]) -> list[T]:
    """The first of each list, then the second of each, and so on."""
    missing = object()
    turns = itertools.zip_longest(*lists, fillvalue=missing)
    return [one for turn in turns for one in turn if one is not missing]  # type: ignore[misc]
