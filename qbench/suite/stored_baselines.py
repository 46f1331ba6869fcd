"""The baselines of the models of one suite, each file read once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from qbench.errors import StoreError
from qbench.storage import sweep_work_folder
from qbench.suite.suite_file import Suite
from qbench.tracking import (
    Acceptance,
    Baseline,
    BaselineChange,
    baseline_path,
    changing_baseline,
    find_baseline,
)


class StoredBaselines:
    """The baselines of the models of one suite in ``folder``, each read once.

    A model that came quantized takes its reference from its partner; its own file holds its
    accepted cells and a copy of the reference that they were accepted against.

    ``replacing``: a new reference will be stored, so of a damaged baseline the intact parts are
    used. A file that cannot be read at all is always an error, and so is a ``.json`` that is none:
    what it held is not known.
    """

    def __init__(self, folder: Path, suite: Suite, *, replacing: bool) -> None:
        self._folder = folder
        self._suite = suite
        self._replacing = replacing
        sweep_work_folder(folder / suite.name)
        self._loaded: dict[str, Baseline | None] = {}
        self._lost: dict[str, tuple[str, ...]] = {}

    def get(self, model: str) -> Baseline | None:
        """The baseline that cells of ``model`` are judged by, or None when there is none.

        Raises:
            StoreError: its file, or its partner's, cannot be read, or is damaged and not about to
                be replaced.
        """
        partner = self._suite.partners.get(model)
        if partner is None:
            return self.own(model)
        reference = self.own(partner.id)
        return None if reference is None else reference.as_reference_of(model, self.own(model))

    def lost(self, model: str) -> tuple[str, ...]:
        """A sentence for each damaged part of the file of ``model`` that will be replaced.

        Raises:
            StoreError: as ``get``.
        """
        self.own(model)
        return self._lost.get(model, ())

    @contextlib.contextmanager
    def changing(self, model: str) -> Iterator[BaselineChange]:
        """Lock the baseline of ``model`` for writing; all baselines are read again inside the
        block and after it.

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

    def own(self, model: str) -> Baseline | None:
        """The baseline in the file of ``model`` itself.

        Raises:
            StoreError: as ``get``.
        """
        if model not in self._loaded:
            baseline = find_baseline(self._path(model), keep_whole_parts=self._replacing)
            if baseline is not None and baseline.lost:
                self._lost[model] = baseline.lost
            self._loaded[model] = baseline
        return self._loaded[model]

    def _path(self, model: str) -> Path:
        return baseline_path(self._folder, self._suite.name, model)


def refuse_unread(model: str, done: Acceptance) -> None:
    """Refuse to store a baseline without what could not be read in it, unless this run made it
    again.

    Raises:
        StoreError: something would be gone.
    """
    gone = done.baseline.still_unread({row.cell for row in done.rows})
    if gone:
        raise StoreError(
            f"Accepting results of '{model}' over a baseline that cannot be read whole",
            found=f"{', '.join(gone)} unreadable",
            expected=(
                "values that can be read, or results of this run in their place; nothing was "
                "changed"
            ),
            remedy=(
                "Correct these values in the file; 'git log -p' of it shows the last ones that "
                "were committed."
            ),
        )
