"""Settings of planning that a command has no use for, because what it was given says everything already."""

import argparse

from qbench.errors import InputError


def refuse_idle_settings(arguments: argparse.Namespace, names: tuple[str, ...], *, beside: str, doing: str) -> None:
    """Refuse ``names`` (of arguments) beside the argument ``beside``: a ``plan``, or ``read`` from the model.

    Raises:
        InputError: one of them is given; ``doing`` says what was being done.
    """
    if idle := [name for name in names if getattr(arguments, name)]:
        raise InputError(
            doing,
            found=f"--{idle[0]} beside --{beside}",
            expected=f"no settings of planning: the {'plan' if beside == 'plan' else 'model'} says everything",
            remedy=f"Leave --{idle[0]} out, or --{beside}.",
        )
