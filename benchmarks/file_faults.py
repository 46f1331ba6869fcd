"""Kills and errors at every file operation of libc: `python benchmarks/file_faults.py [--trials N] [--state FILE]`.

A library that gcc compiles now is loaded into `qbench quarantine` (LD_PRELOAD). It counts the operations below the
folder of the suite (open to write, write, rename, unlink, mkdir, rmdir, fsync, chmod, link); at the k-th it kills the
process, writes half and kills it, or returns an error. After each trial the file is the old or the new one, and the
same command again, without faults, adds the entry or says that it is there. Exit code 1 where that is not so, where a
traceback is shown, or where something is left over. With `--state FILE` a run that was interrupted goes on.
"""

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int done = 0;
static int below(const char *path) {
    const char *folder = getenv("FAULT_BELOW");
    return folder && path && !strncmp(path, folder, strlen(folder));
}
static int below_fd(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}
static int fault(void) {           /* 0: go on, 1: fail with errno, 2: torn */
    const char *at = getenv("FAULT_AT"), *what = getenv("FAULT_WHAT");
    done++;
    if (!at || done != atoi(at)) return 0;
    if (!strcmp(what, "kill")) raise(SIGKILL);
    if (!strcmp(what, "torn")) return 2;
    errno = atoi(what);
    return 1;
}
__attribute__((destructor)) static void tell(void) {
    const char *count = getenv("FAULT_COUNT");
    if (count && getenv("FAULT_BELOW")) { fprintf(stderr, "OPERATIONS %d\n", done); }
}
#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define ONE(name, path, args, list) int name list { REAL(name); \
    if (below(path)) { int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); } return real args; }
#define OPENS (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
int open(const char *path, int flags, ...) {
    REAL(open); va_list l; va_start(l, flags); int mode = va_arg(l, int); va_end(l);
    if ((flags & OPENS) && below(path)) { int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); }
    return real(path, flags, mode); }
int open64(const char *path, int flags, ...) {
    REAL(open64); va_list l; va_start(l, flags); int mode = va_arg(l, int); va_end(l);
    if ((flags & OPENS) && below(path)) { int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); }
    return real(path, flags, mode); }
ssize_t write(int fd, const void *data, size_t n) { REAL(write);
    if (below_fd(fd)) { int f = fault(); if (f == 1) return -1; if (f == 2) { real(fd, data, n / 2); raise(SIGKILL); } }
    return real(fd, data, n); }
int fsync(int fd) { REAL(fsync);
    if (below_fd(fd)) { int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); } return real(fd); }
ONE(rename, from, (from, to), (const char *from, const char *to))
ONE(unlink, path, (path), (const char *path))
ONE(rmdir, path, (path), (const char *path))
ONE(mkdir, path, (path, mode), (const char *path, mode_t mode))
ONE(chmod, path, (path, mode), (const char *path, mode_t mode))
ONE(linkat, to, (a, from, b, to, flags), (int a, const char *from, int b, const char *to, int flags))
"""
_SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "digits_cnn"
data = "digits_test"
calibration = { data = "digits_train", count = 8 }
metrics = ["top1"]
"""
_ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "EROFS")
_COMMAND = ("quarantine", "digits_cnn::*", "--reason", "r", "--until", "2999-12-31", "--owner", "o", "--measured", "m")


def ran(folder: Path, shim: Path, **fault: str) -> subprocess.CompletedProcess[str]:
    """The command once, with a fault."""
    below = {"FAULT_BELOW": str(folder / "suites"), "LD_PRELOAD": str(shim), **fault} if fault else {}
    command = [sys.executable, "-m", "qbench", *_COMMAND]
    environment = {**os.environ, **below}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def trial(shim: Path, what: str, at: int) -> tuple[str, bool]:
    """What a fault at the ``at``-th operation leaves, in a word, and whether that is as it should be."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name).resolve()
        file = made(folder)
        before = file.read_bytes()
        number = str(getattr(errno, what)) if what in _ERRORS else what
        first = ran(folder, shim, FAULT_AT=str(at), FAULT_WHAT=number)
        after = file.read_bytes()
        is_new = after.count(b"[[cell]]") == 2 and after.startswith(before.rstrip())
        is_told = first.returncode == 0 if what in _ERRORS else first.returncode in (0, -signal.SIGKILL)
        again = ran(folder, shim)
        left = [path.name for path in file.parent.iterdir() if path.name not in ("f.qbench.toml", file.name)]
        is_right = (
            (after == before or is_new)
            and "Traceback" not in first.stderr
            and again.returncode == (2 if is_new else 0)
            and not left
            and file.read_bytes().count(b"[[cell]]") == 2
            and not (is_told and what in _ERRORS and not is_new)
        )
        return ("new" if is_new else "old"), is_right


def made(folder: Path) -> Path:
    """A suite with one entry in quarantine."""
    (folder / "suites").mkdir()
    (folder / "suites" / "f.qbench.toml").write_text(_SUITE)
    file = folder / "suites" / "f.quarantine.toml"
    entry = 'cell = "digits_cnn::ort-cpu+fp32"\nmeasured = "m"\nreason = "r"\nowner = "o"\nexpires = "2999-12-31"\n'
    file.write_text(f"# mine\n\n[[cell]]\n{entry}")
    return file


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=0, help="at most that many, spread evenly (default: all)")
    parser.add_argument("--state", type=Path, help="file of the trials that are done")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shim-") as name:
        shim = Path(name) / "faults.so"
        source = shim.with_suffix(".c")
        source.write_text(_SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-O1", "-o", shim, source, "-ldl"], check=True)
        with tempfile.TemporaryDirectory(prefix="faults-") as counted:
            folder = Path(counted).resolve()
            made(folder)
            told = ran(folder, shim, FAULT_AT="0", FAULT_WHAT="kill", FAULT_COUNT="1").stderr
        operations = max(int(line.split()[1]) for line in told.splitlines() if line.startswith("OPERATIONS"))
        chosen = [(what, at) for what in ("kill", "torn", *_ERRORS) for at in range(1, operations + 1)]
        if arguments.trials:
            chosen = chosen[:: max(1, len(chosen) // arguments.trials)]
        is_kept = arguments.state is not None and arguments.state.exists()
        done = json.loads(arguments.state.read_text()) if is_kept else {}
        for what, at in chosen:
            if f"{what} {at}" not in done:
                done[f"{what} {at}"] = trial(shim, what, at)
                if arguments.state:
                    arguments.state.write_text(json.dumps(done))
    print(f"{operations} operations of `qbench quarantine`")
    counts = Counter((key.split()[0], state, right) for key, (state, right) in done.items())
    for (what, state, right), count in sorted(counts.items()):
        print(f"{what:8} {state:4} {'right' if right else 'WRONG'}  {count}")
    sys.exit(any(not right for _, right in done.values()))


if __name__ == "__main__":
    main()
