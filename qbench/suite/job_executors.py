"""What runs the jobs of a plan: threads of this process that each wait for one, a cluster of Dask,
or any ``concurrent.futures.Executor`` that a factory makes.

    local:N                  N jobs at a time on this computer
    tcp://host:8786, tls://… the scheduler of a cluster of Dask (extra ``cluster``)
    module:factory           an executor of concurrent.futures, submitit, parsl, …

Queues, heartbeats and lost workers are theirs. Of an executor only ``submit`` and ``shutdown`` are
used, and of what ``submit`` gives ``done``, ``result`` and ``cancel``.
"""

import contextlib
import importlib
import re
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from qbench.errors import InputError, UnavailableError
from qbench.extension import error_of_code, install_command
from qbench.storage import without_secrets
from qbench.suite.job_process import end_jobs

Order = Mapping[str, Any]
Function = Callable[[Order], Mapping[str, Any]]

_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
_SCHEDULER = re.compile(r"(?:tcp|tls|ws|wss|ucx|inproc)://.+")
_FACTORY = re.compile(r"[\w.]+:[\w.]+")
_CONNECT_S = 30
_SLOTS = 8
"""Jobs that an executor is taken to run at a time: there is no way to ask."""


class Pending(Protocol):
    """What ``submit`` gives: a future of concurrent.futures, or what behaves like one."""

    def done(self) -> bool:
        """Whether there is a result or an error."""
        ...

    def result(self) -> Any:  # noqa: ANN401 - what an executor hands back is checked, not believed
        """The result."""
        ...

    def cancel(self) -> Any:  # noqa: ANN401
        """Ask that it is not begun."""
        ...


class Workers(Protocol):
    """What runs jobs; ``name`` of it for messages, without secrets."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def slots(self) -> int:
        """How many jobs they run at a time, as far as that is known."""
        ...

    def notices(self, needs: Collection[str]) -> tuple[str, ...]:
        """A sentence for each of these needs that it cannot tell workers apart by."""
        ...

    def submit(
        self, function: Function, order: Order, needs: Collection[str], avoided: Collection[str]
    ) -> Pending:
        """Begin ``function(order)`` on a worker that offers ``needs`` and is not ``avoided``."""
        ...

    def stop(self, mark: str) -> None:
        """Let the processes end that run now and have ``mark`` in their command line."""
        ...


def workers_at(cluster: str, factory: str) -> AbstractContextManager[Workers]:
    """The workers that ``--cluster`` or ``--executor`` names; one of the two is empty.

    Raises:
        InputError: neither, both, or another form.
    """
    if bool(cluster) == bool(factory):
        raise InputError(
            "Choosing what runs the jobs",
            found="--cluster and --executor" if cluster else "neither --cluster nor --executor",
            expected="one of the two",
            remedy="Leave one out.",
        )
    if cluster and not (_LOCAL.fullmatch(cluster) or _SCHEDULER.fullmatch(cluster)):
        raise InputError(
            "Reading --cluster",
            found=f"'{without_secrets(cluster)}'",
            expected="local:N, or the address of a scheduler such as tcp://host:8786",
            remedy="Correct it, or name a factory of executors with --executor MODULE:FACTORY.",
        )
    if factory and not _FACTORY.fullmatch(factory):
        raise InputError(
            "Reading --executor",
            found=f"'{without_secrets(factory)}'",
            expected="MODULE:FACTORY",
            remedy="Write it as in concurrent.futures:ProcessPoolExecutor.",
        )
    if factory:
        return _made(factory)
    local = _LOCAL.fullmatch(cluster)
    return _threads(int(local[1])) if local else _dask(cluster)


def _ignored(name: str, needs: Collection[str]) -> tuple[str, ...]:
    """The sentence about ``needs`` on workers of which nothing is known."""
    if not needs:
        return ()
    listed = ", ".join(f"'{need}'" for need in sorted(needs))
    return (
        f"{name} does not tell workers apart: jobs that need {listed} are given to any of them; a "
        "worker that lacks it says so, and its cells are skipped or refused",
    )


# An executor of a factory, and threads of this process.


class _Executor:
    """One executor at a time of ``make``: where it is broken, as a pool that lost a process, the
    next one is made.
    """

    def __init__(self, name: str, make: Callable[[], Any], slots: int = _SLOTS) -> None:
        self.name = name
        self.slots = slots
        self._make = make
        self._made = [make()]

    def notices(self, needs: Collection[str]) -> tuple[str, ...]:
        """That it cannot tell workers apart."""
        return _ignored(self.name, needs)

    def submit(
        self, function: Function, order: Order, needs: Collection[str], avoided: Collection[str]
    ) -> Pending:
        """Begin it on any worker."""
        del needs, avoided
        try:
            begun: Pending = self._made[-1].submit(function, order)
        except Exception:  # of any library; where a new one fails as well, its error is told
            self._made.append(self._make())
            begun = self._made[-1].submit(function, order)
        return begun

    def stop(self, mark: str) -> None:
        """End the processes below this one."""
        end_jobs(mark)

    def close(self) -> None:
        """Shut all of them down that can be."""
        for executor in self._made:
            with contextlib.suppress(Exception):  # a broken one, or one that has no such method
                executor.shutdown(wait=False)


@contextmanager
def _threads(count: int) -> Iterator[Workers]:
    workers = _Executor(f"local:{count}", lambda: ThreadPoolExecutor(count), count)
    try:
        yield workers
    finally:
        workers.close()


@contextmanager
def _made(factory: str) -> Iterator[Workers]:
    """The workers of the executors that ``factory`` makes.

    Raises:
        InputError: there is no such function, it fails, or gives something else.
    """
    workers = _Executor(factory, lambda: _executor_of(factory))
    try:
        yield workers
    finally:
        workers.close()


def _executor_of(factory: str) -> Any:  # noqa: ANN401 - duck-typed: submitit's executors have no base class
    module, _, path = factory.partition(":")
    doing = f"Making the executor '{factory}'"
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        value: Any = importlib.import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
        executor = value()
    except Exception as error:  # it is their code
        expected = "a function without arguments that returns an executor"
        remedy = "Correct the name or the function."
        raise error_of_code(
            doing, error, folder=folder, expected=expected, remedy=remedy
        ) from error
    if not callable(getattr(executor, "submit", None)):
        raise InputError(
            doing,
            found=f"a {type(executor).__name__}",
            expected="an executor, which has a method 'submit'",
            remedy="Return a concurrent.futures.Executor, or one of submitit or parsl.",
        )
    return executor


# A cluster of Dask.


class _Dask:
    """The workers of the cluster of ``client``, by its ``get_executor``."""

    def __init__(self, client: Any, name: str) -> None:  # noqa: ANN401 - a type of an extra
        self.name = name
        self._client = client

    @property
    def slots(self) -> int:
        """The threads of all workers."""
        return max(sum(int(one.get("nthreads", 1)) for one in self._workers().values()), 1)

    def notices(self, needs: Collection[str]) -> tuple[str, ...]:
        """One for each need that no worker declares."""
        missing = sorted(set(needs) - self._declared())
        return tuple(
            f"no worker of {self.name} declares the resource '{need}': jobs that need it are given "
            f"to any of them (dask worker --resources '{need}=1' declares it)"
            for need in missing
        )

    def submit(
        self, function: Function, order: Order, needs: Collection[str], avoided: Collection[str]
    ) -> Pending:
        """Begin it; where no worker is left that is not avoided, on any."""
        resources = dict.fromkeys(sorted(set(needs) & self._declared()), 1)
        others = sorted(set(self._workers()) - set(avoided)) if avoided else []
        where = {"workers": others, "allow_other_workers": False} if others else {}
        executor = self._client.get_executor(
            pure=False, retries=0, **where, **({"resources": resources} if resources else {})
        )
        begun: Pending = executor.submit(function, order)
        return begun

    def stop(self, mark: str) -> None:
        """End the processes below every worker."""
        with contextlib.suppress(Exception):  # workers may be gone already
            self._client.run(end_jobs, mark, on_error="ignore")

    def _declared(self) -> set[str]:
        return {name for one in self._workers().values() for name in one.get("resources", ())}

    def _workers(self) -> Mapping[str, Mapping[str, Any]]:
        found: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info(n_workers=-1)[
            "workers"
        ]
        return found


@contextmanager
def _dask(address: str) -> Iterator[Workers]:
    """The workers of the cluster at ``address``.

    Raises:
        UnavailableError: distributed is not installed, or no scheduler answers there.
    """
    doing = f"Connecting to the cluster '{without_secrets(address)}'"
    _require_answer(doing, address)
    try:
        import distributed
    except ImportError as error:
        raise UnavailableError(
            doing,
            found=f"no package '{error.name or 'distributed'}'",
            expected="the extra 'cluster'",
            remedy=f"Install it: {install_command('cluster')}; --cluster local:N needs no package.",
        ) from error
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(
                distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
            )
        except Exception as error:  # OSError, TimeoutError, and what tornado has
            raise _no_scheduler(doing, error) from error
        yield _Dask(client, address)


def _require_answer(doing: str, address: str) -> None:
    """Check that something listens at ``address``: a client of Dask that finds nothing there writes
    a traceback when the program ends.

    Raises:
        InputError: the address has a login, or no port. UnavailableError: nothing listens.
    """
    if address.startswith(("inproc:", "ucx:")):
        return
    host = port = None
    with contextlib.suppress(ValueError):  # half a bracket, or no port number
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    if host is None or port is None or "@" in address:
        raise InputError(
            doing,
            found="a login in the address" if "@" in address else "no host and port",
            expected="the address of a scheduler such as tcp://host:8786",
            remedy="Correct it; certificates and keys are settings of Dask (distributed.comm.tls).",
        )
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise _no_scheduler(doing, error) from error


def _no_scheduler(doing: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        doing,
        found=without_secrets(f"{type(error).__name__}: {error}").partition("\n")[0],
        expected="a scheduler that answers there",
        remedy="Check the address, and that 'dask scheduler' runs.",
    )
