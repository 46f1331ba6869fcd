"""What ``qbench doctor`` says about this computer: its class, the installed packages, the cache, the extensions."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbench.extension import Extension
    from qbench.storage import Cache


def machine_facts(cache: "Cache", added: "Sequence[Extension]" = ()) -> dict[str, Any]:
    """Plain facts, and under ``problems`` a sentence for each thing that would keep a run from working.

    Args:
        cache: whose folder is looked at. added: extensions beside the installed ones.

    Raises:
        InputError: an installed extension is not one.
    """
    from qbench.extension import installed_extensions
    from qbench.host import describe_host

    host: dict[str, Any] = {**describe_host()}
    return {
        "environment_class": host.pop("processor_class"),
        "host": host,
        "cache": _cache(cache.folder),
        "extensions": [extension.name for extension in (*installed_extensions(), *added)],
        "problems": list(_problems(cache.folder)),
    }


def _cache(folder: Path) -> dict[str, Any]:
    kinds = (
        {child.name: _bytes(child) for child in sorted(folder.iterdir()) if child.is_dir()} if folder.is_dir() else {}
    )
    free = shutil.disk_usage(_existing(folder)).free
    return {"folder": str(folder), "bytes": sum(kinds.values()), "kinds": kinds, "free_bytes": free}


def _problems(folder: Path) -> Iterable[str]:
    if not os.access(_existing(folder), os.W_OK | os.X_OK):
        yield f"the cache '{folder}' cannot be written: make it writable, or set QBENCH_CACHE to another folder"
    if shutil.which("git") is None:
        yield "git is not installed: runs will not know the commit they measured"


def _existing(folder: Path) -> Path:
    """The nearest folder above that is there: the one that decides whether ``folder`` can be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
