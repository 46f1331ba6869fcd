"""The baselines of one suite's models, read once each; a model that came quantized has its reference from its partner.

Its own file holds what was accepted for its cells, and a copy of the reference they were accepted against.
"""

from pathlib import Path

from qbench.errors import StoreError
from qbench.suite.suite import Suite
from qbench.tracking import Baseline, baseline_path, load_baseline, save_baseline


class StoredBaselines:
    """Files of the folder ``folder``; ``replacing``: a damaged one is as good as none, since a new one is to come."""

    def __init__(self, folder: Path, suite: Suite, *, replacing: bool) -> None:
        self._folder = folder
        self._suite = suite
        self._replacing = replacing
        self._loaded: dict[str, Baseline | None] = {}

    def get(self, model: str) -> Baseline | None:
        """The baseline that cells of ``model`` are judged by, or None when there is none.

        Raises:
            StoreError: its file, or its partner's, is damaged and not about to be replaced.
        """
        partner = self._suite.partners.get(model)
        if partner is None:
            return self._file(model)
        reference = self._file(partner.id)
        return None if reference is None else reference.lent(model, self._file(model))

    def own(self, model: str) -> Baseline | None:
        """What the file of ``model`` itself holds.

        Raises:
            StoreError: it is damaged and not about to be replaced.
        """
        return self._file(model)

    def store(self, model: str, baseline: Baseline) -> None:
        """Write ``baseline`` as the one of ``model``.

        Raises:
            StoreError: the folder cannot be written.
        """
        save_baseline(self._path(model), baseline)
        self._loaded[model] = baseline

    def _file(self, model: str) -> Baseline | None:
        if model not in self._loaded:
            path = self._path(model)
            try:
                self._loaded[model] = load_baseline(path) if path.exists() else None
            except StoreError:
                if not self._replacing:
                    raise
                self._loaded[model] = None
        return self._loaded[model]

    def _path(self, model: str) -> Path:
        return baseline_path(self._folder, self._suite.name, model)
