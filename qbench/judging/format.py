"""Numbers in verdicts, and the remedy for each kind of red cell."""

from qbench.metrics import Score
from qbench.number_text import distance_text, settled, value_text

# The numbers of a score in the unit of its metric.


def valued(score: Score, value: float) -> str:
    """A value of ``score``'s metric in its unit: ``93.25 %``, ``35.213 dB``."""
    return value_text(settled(value) if score.unit == "%" else value, score.unit)


def apart(score: Score, difference: float) -> str:
    """A difference of values of ``score``'s metric: ``0.45 pp``, ``1.3 dB``."""
    return distance_text(settled(difference) if score.unit == "%" else difference, score.unit)


# Remedies: the exact command to type, or the line of a file to change, for each kind of red cell.

THEN = "; then "
"""Between the steps of a remedy, which are taken in this order."""


def _command(node_id: str, options: str, *, reason: bool) -> str:
    return f'pytest "{node_id}" {options}' + (' --qbench-reason "…"' if reason else "")


def _model(node_id: str) -> str:
    """The node id of the cell's model: all its cells share one reference; a test is one cell."""
    return node_id if is_test(node_id) else node_id.rpartition("::")[0] or node_id


def is_test(node_id: str) -> bool:
    """Whether it names a test that is one cell (``qbench_check``), not a cell of a suite file."""
    return ".py::" in node_id.partition("[")[0]


def missing_model(node_id: str) -> str:
    """No baseline for the model: make the fp32 reference, and accept what the cells measure."""
    return _command(_model(node_id), "--qbench-accept-fp32 --qbench-accept=new", reason=False)


def stale(node_id: str, *, lost: bool) -> str:
    """A reference of another model or data: make it again, and accept what the cells measure now.

    ``lost``: whether the float model became worse by more than its tolerance admits.
    """
    accept = _command(_model(node_id), "--qbench-accept-fp32 --qbench-accept=all", reason=True)
    return f"{accept} only if the loss of the fp32 model is intended" if lost else accept


def missing_cell(node_id: str, *, fails: bool) -> str:
    """A cell without an accepted result; accepting does not make a cell green that ``fails``."""
    accept = _command(node_id, "--qbench-accept=new", reason=False)
    return (
        f"{accept} records its numbers, but this stays red: {still_failing(node_id)}"
        if fails
        else accept
    )


def changed(node_id: str, *, worse: bool) -> str:
    """A result that differs from the accepted one: look at what changed, find the commit, and
    only then accept.

    ``worse``: whether a metric is: a commit is searched for by that alone.
    """
    # a Python test has no suite file that an old commit could be run with
    is_suite = ".qbench.toml::" in node_id
    bisect = [f'qbench bisect commits --good last-green "{node_id}"'] if worse and is_suite else []
    return THEN.join([_LOOK, *bisect, f"{_accept_changed(node_id)} if it is intended"])


def recalibrated(node_id: str, *, worse: bool) -> str:
    """Another calibration than the accepted one."""
    return f"{changed(node_id, worse=worse)}; else restore the accepted calibration data"


def improved(node_id: str) -> str:
    """A result that is better than the accepted one, which another calibration or a fault can
    cause, too.
    """
    return (
        f"{_LOOK}{THEN}{_command(node_id, '--qbench-accept=improved', reason=True)} if it is "
        "intended"
    )


_LOOK = "qbench compare last-green latest"


def _accept_changed(node_id: str) -> str:
    return _command(node_id, "--qbench-accept=changed", reason=True)


def failed(node_id: str, *, drifted: bool, floor: bool) -> str:
    """A loss: accepting does not make it green; a rule has to allow it, or the quarantine file
    to list it.
    """
    if floor and drifted:
        return _accept_changed(node_id) + (
            " lowers the floor, though not below the minimum of the suite; otherwise find the cause"
        )
    accept = f"; {_accept_changed(node_id)} only records the new numbers" if drifted else ""
    return f"this stays red: {still_failing(node_id)}{accept}"


def still_failing(node_id: str = "") -> str:
    """Its numbers are recorded, but beyond what the rule allows."""
    if is_test(node_id):
        return "find the cause, or give the check another 'tolerance', with the reason next to it"
    return (
        "find the cause, or give the cell its own tolerance or a quarantine entry ('qbench "
        "quarantine')"
    )


def undecided(node_id: str, *, whole: bool, by_counts: bool) -> str:
    """A sample too small to decide; the data has more where the run did not score the ``whole``
    of it.

    ``by_counts``: the suite decides by them already, and a margin of a sample or more would be.
    """
    if is_test(node_id):
        return f'pytest "{node_id}" again when its data has that many samples'
    more = (
        "when its model has that many samples in the suite ('samples', or other 'data')"
        if whole
        else "without --qbench-limit"
    )
    again = f'pytest "{node_id}" again {more}'
    if by_counts:
        return f"{again}; the counts alone decide where the tolerance admits a sample or more"
    return f'{again}; decision = "point" compares the counts alone'


def noisy(slug: str, runs: int | None) -> str:
    """Runs of the same code that differ by more than the margin: more of them, or none that
    differ.
    """
    more = (
        ""
        if runs is None
        else f'give the cell more runs in its suite: repeats = {{ "{slug}" = {runs} }}; or '
    )
    return (
        f"{more}find what makes the engine answer otherwise in another run (threads, batches, the "
        "order of samples)"
    )


def too_far() -> str:
    """A distance beyond its limit, which accepting does not change."""
    return (
        "find the cause, change the limit of the model in 'limits', or give the cell a quarantine "
        "entry ('qbench quarantine')"
    )


def worse_than(other: str, backend: str) -> str:
    """The next step for a cell that loses more than another backend does on the same samples."""
    return (
        f"find what differs: qbench diff MODEL --data D --calib D2 --left backend={other} --right "
        f"backend={backend}"
    )


def fell_to_float() -> str:
    """Less run in integers than the floor, which accepting does not change."""
    return (
        "find why the engine runs the named layers in float ('qbench quantize --why' has the "
        "plan), or lower executed_macs of the model"
    )


def unequal(backend: str) -> str:
    """Two backends with different results of one graph, which accepting does not change."""
    return (
        f"find why its results differ from {backend} there, allow the difference by 'close_to', "
        "or list the cell in the quarantine file"
    )


def worse_than_listed(pattern: str) -> str:
    """A cell in quarantine that fell beyond its listed values."""
    return (
        f"find the cause; if it is the known one, correct the values of '{pattern}' in the "
        "quarantine file and say why in its reason"
    )


def quarantine_over(pattern: str, owner: str) -> str:
    """A quarantine entry past its date."""
    return (
        f"Ask {owner} to fix the cell, or to give the entry '{pattern}' in the quarantine file a "
        "new date"
    )


def no_longer_fails(pattern: str) -> str:
    """A quarantine entry whose cell does not fail."""
    return f"Remove the entry '{pattern}' from the quarantine file"


def support_lost(slug: str, node_id: str = "") -> str:
    """A cell that was accepted and is no longer measured."""
    if is_test(node_id):
        return (
            "find the cause; if this is intended, name another backend in the check: its accepted "
            "results stay in the baseline"
        )
    return (
        f"find the cause; if this is intended, leave '{slug}' out of the suite file: its accepted "
        "results stay in the baseline"
    )
