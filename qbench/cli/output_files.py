"""What a command is to write, checked before it works: no target is an input, or another target, or unwritable."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from qbench.errors import InputError
from qbench.storage import require_writable


def check_outputs(doing: str, outputs: Mapping[str, str | None], inputs: Iterable[str | None]) -> None:
    """Check the files that are to be written, so that all of them are or none.

    Args:
        doing: the command's work, for errors.
        outputs: flag → path; None: not asked for.
        inputs: paths (or names, which are no paths) of what is read.

    Raises:
        InputError: an output would overwrite an input, or another output.
        StoreError: one cannot be written.
    """
    read = {Path(path).resolve() for path in inputs if path}
    taken: dict[Path, str] = {}
    for flag, path in outputs.items():
        if not path:
            continue
        target = Path(path).resolve()
        if target in read or target in taken:
            found = "which is read here" if target in read else f"which {taken[target]} writes"
            raise InputError(
                doing,
                found=f"{flag} '{path}', {found}",
                expected="a file of its own for everything that is written",
                remedy=f"Give {flag} another path.",
            )
        taken[target] = flag
    for path in filter(None, outputs.values()):
        require_writable(Path(path))
