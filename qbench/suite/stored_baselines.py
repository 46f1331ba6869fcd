"""The baselines of one suite's models, read once each; a model that came quantized has its reference from its partner.

Its own file holds what was accepted for its cells, and a copy of the reference they were accepted against.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from qbench.errors import DamagedError
from qbench.suite.suite import Suite
from qbench.tracking import Baseline, BaselineChange, baseline_path, changing_baseline, find_baseline


class StoredBaselines:
    """Files of the folder ``folder``.

    ``replacing``: a new reference is to come, so of a damaged baseline the whole parts are taken; where the ``.json``
    itself is damaged there are none. A file that cannot be read at all is an error in any case.
    """

    def __init__(self, folder: Path, suite: Suite, *, replacing: bool) -> None:
        self._folder = folder
        self._suite = suite
        self._replacing = replacing
        self._loaded: dict[str, Baseline | None] = {}
        self._lost: dict[str, tuple[str, ...]] = {}

    def get(self, model: str) -> Baseline | None:
        """The baseline that cells of ``model`` are judged by, or None when there is none.

        Raises:
            StoreError: its file, or its partner's, cannot be read, or is damaged and not about to be replaced.
        """
        partner = self._suite.partners.get(model)
        if partner is None:
            return self._file(model)
        reference = self._file(partner.id)
        return None if reference is None else reference.lent(model, self._file(model))

    def own(self, model: str) -> Baseline | None:
        """What the file of ``model`` itself holds.

        Raises:
            StoreError: as ``get``.
        """
        return self._file(model)

    def lost(self, model: str) -> tuple[str, ...]:
        """What of the file of ``model`` was damaged and is about to be replaced, a sentence each.

        Raises:
            StoreError: as ``get``.
        """
        self._file(model)
        return self._lost.get(model, ())

    @contextlib.contextmanager
    def changing(self, model: str) -> Iterator[BaselineChange]:
        """The baseline of ``model`` held by this process, to be written; all are read again, now and afterwards.

        Raises:
            StoreError: the folder cannot be written.
        """
        with changing_baseline(self._path(model)) as change:
            self._forget()
            yield change
        self._forget()

    def _forget(self) -> None:
        self._loaded.clear()
        self._lost.clear()

    def _file(self, model: str) -> Baseline | None:
        if model not in self._loaded:
            try:
                baseline = find_baseline(self._path(model), keep_whole_parts=self._replacing)
            except DamagedError as error:
                if not self._replacing:
                    raise
                baseline, self._lost[model] = None, (f"{error.doing}: found {error.found}",)
            if baseline is not None and baseline.lost:
                self._lost[model] = baseline.lost
            self._loaded[model] = baseline
        return self._loaded[model]

    def _path(self, model: str) -> Path:
        return baseline_path(self._folder, self._suite.name, model)
