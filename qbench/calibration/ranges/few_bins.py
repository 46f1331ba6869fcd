"""The warning that a histogram is too coarse for the grid that it is to judge: there is no window to choose from."""

import warnings


class FewBinsWarning(UserWarning):
    """A range method has fewer bins than the grid has levels, so that it keeps the whole range."""


def warn_of_few_bins(method: object, bins: int, levels: int) -> None:
    """Says so, in one sentence."""
    warnings.warn(
        f"Choosing a range by '{method}': found {bins} bins; expected at least the {levels} levels that they are merged"
        " into. The whole range is kept; give more bins.",
        FewBinsWarning,
        stacklevel=3,
    )
