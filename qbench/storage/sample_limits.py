"""The limits of what is kept and shown of lost and gained samples, in one place."""

MOST_SAMPLES = 10
"""Samples of one data set that a cell lists where no number is given; it counts them all."""
MOST_LISTED = 200
"""The largest number that can be given (``--qbench-samples``), and that is read of a line."""
MOST_LINE_BYTES = 64_000
"""Bytes of the line of a cell in a run file: where texts are long, it has fewer samples."""
MOST_TEXT = 200
"""Characters of a text that is read of a line."""
MOST_PREVIEWS = 500
"""Previews of one data set that are kept next to the reports."""
PREVIEW_SIDE = 128
"""Pixels of the longer side of a preview."""
MOST_PREVIEW_BYTES = 12_000
"""Bytes of the picture of a preview: a larger one is made smaller."""
MOST_ON_PAGE = 24
"""Samples of a page."""
MOST_PAGES = 400
"""Pages of samples of one suite: those of red cells first."""
MOST_RUNS = 6
"""The newest runs of a suite whose samples a report reads: of each cell the last two are shown."""
