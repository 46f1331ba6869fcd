"""A place where qbench keeps things: the path of a folder, or the URL of a store of objects.

One function, ``place_of``, reads both. Behind a URL are write-once objects: each is made whole, or
not at all, and only where there is none of its name (``pipe_file(mode="create")`` of fsspec). So no
lock is needed, and two computers cannot write over each other.
"""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from qbench.errors import InputError, StoreError, UnavailableError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LEAST_SECONDS, _LEAST_RATE = 16.0, 50_000.0
"""How long one object may take to be stored: in seconds, and in bytes per second more."""
_ONE_SLASH = re.compile(r"(s3|gs|file):/(?!/)")


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How objects behind one kind of URL are reached.

    Args:
        package: what fsspec needs for it; empty: nothing.
        options: of its file system. Two tries of eight seconds without an answer, which with the
            pause between them are less than twenty, because a night goes on without its store; no
            listing is kept, because others add objects meanwhile.
        retries: of the file system itself, around those of the client; None: it has none.
        variables: of the environment that its package reads once, where users have not set them.
    """

    package: str
    example: str
    options: Mapping[str, Any]
    retries: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


SCHEMES: Mapping[str, _Scheme] = {
    "s3": _Scheme(
        "s3fs",
        "s3://BUCKET/FOLDER",
        {
            "use_listings_cache": False,
            "config_kwargs": {
                "connect_timeout": 5,
                "read_timeout": 8,
                "retries": {"total_max_attempts": 2},
            },
        },
        retries=1,
    ),
    "gs": _Scheme(
        "gcsfs",
        "gs://BUCKET/FOLDER",
        {"use_listings_cache": False},
        # else it asks by gRPC what kind of bucket this is, a minute where only HTTPS gets through
        variables={"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
    ),
    "file": _Scheme("", "file:///FOLDER", {"auto_mkdir": True}),
}
"""The schemes of URLs that qbench takes."""


def is_url(text: str) -> bool:
    """Whether ``text`` is read as a URL, not as a path."""
    return _URL.fullmatch(text) is not None


def place_of(text: str | Path, base: Path = Path()) -> "Path | ObjectFolder":
    """The place that ``text`` names: a path, under ``base`` if it is relative, or a URL.

    Nothing is opened, and fsspec is not loaded.

    Raises:
        InputError: a URL of another scheme, without a bucket, or with a key, a token or a query.
    """
    if isinstance(text, Path):
        return base / text
    found = _URL.fullmatch(text)
    if found is None:
        if _ONE_SLASH.match(text):
            _refuse(text.partition(":")[0], "a URL with one slash after ':'")
        return base / text
    scheme, rest = found[1].lower(), found[2]
    if scheme not in SCHEMES:
        raise InputError(
            "Reading the place of a store",
            found=f"a URL with the scheme '{scheme}'",
            expected=f"a folder, or one of {', '.join(one.example for one in SCHEMES.values())}",
            remedy="Correct the URL; a folder of such a name is written './NAME'.",
        )
    host, _, _ = rest.partition("/")
    if "@" in host or set("?#") & set(rest):
        _refuse(scheme, "a user, a key, a token or a query in the URL, which is not repeated here")
    path = "/".join(part for part in rest.split("/") if part)
    if {".", ".."} & set(path.split("/")) or "::" in path:
        _refuse(scheme, "'.', '..' or '::' in the URL")
    if scheme == "file":
        if host or not path:
            _refuse(scheme, "no absolute path after 'file://'")
        path = f"/{path}"
    elif not host:
        _refuse(scheme, "no bucket")
    return ObjectFolder(scheme, path)


def _refuse(scheme: str, found: str) -> NoReturn:
    raise InputError(
        f"Reading the URL '{scheme}://…'",
        found=found,
        expected=SCHEMES[scheme].example,
        remedy="Write the URL so; credentials are taken from the environment or from their usual "
        "files.",
    )


class PlaceError(StoreError):
    """A store behind a URL does not answer, or refuses. No text of the client is in it, because
    that may hold keys and signed URLs.
    """


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """An object as a listing has it: ``size`` in bytes; ``state``: another one wherever its
    content may be another.
    """

    size: int
    state: str


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """The objects whose names begin with ``path``, which is ``BUCKET/FOLDER``, or an absolute
    path of ``file``. Names of objects are relative to it.
    """

    scheme: str
    path: str

    @property
    def url(self) -> str:
        """The URL that it was made from, without what was superfluous."""
        return f"{self.scheme}://{self.path}"

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "ObjectFile":
        return ObjectFile(self, name)

    def require_client(self) -> None:
        """Check that the packages are installed that reach it.

        Raises:
            UnavailableError: one of them is not.
        """
        _file_system(self.scheme, os.getpid())

    def listing(self, suffix: str = "") -> dict[str, ObjectFacts]:
        """The objects whose names end with ``suffix``, at any depth, by their names.

        Raises:
            PlaceError: the store does not answer, or refuses.
        """
        with self._asking("Listing"):
            found = self._files.find(self.path, detail=True)
        start = f"{self.path}/"
        return {
            path[len(start) :]: ObjectFacts(int(facts.get("size") or 0), _state(facts))
            for path, facts in sorted(found.items())
            if path.startswith(start) and path.endswith(suffix)
        }

    def read(self, name: str) -> bytes | None:
        """The content of one object; None: there is none of that name.

        Raises:
            PlaceError: the store does not answer, or refuses.
        """
        try:
            with self._asking(f"Reading '{name}' in"):
                content: bytes = self._files.cat_file(f"{self.path}/{name}")
        except _NoObjectError:
            return None
        return content

    def has(self, name: str) -> bool:
        """Whether there is an object of that name.

        Raises:
            PlaceError: the store does not answer, or refuses.
        """
        try:
            with self._asking(f"Looking for '{name}' in"):
                self._files.info(f"{self.path}/{name}")
        except _NoObjectError:
            return False
        return True

    def read_starts(self, names: Sequence[str], size: int) -> list[bytes]:
        """The first ``size`` bytes of each object, asked for at once; empty where that cannot be
        read.
        """
        paths = [f"{self.path}/{name}" for name in names]
        with self._asking("Reading objects in"):
            found = self._files.cat_ranges(
                paths, [0] * len(paths), [size] * len(paths), on_error="return"
            )
        return [one if isinstance(one, bytes) else b"" for one in found]

    def create(self, name: str, content: bytes) -> None:
        """Make one object, whole, where there is none of its name.

        Raises:
            FileExistsError: there is one.
            PlaceError: the store does not answer, or refuses.
        """
        path = f"{self.path}/{name}"
        with self._asking(f"Writing '{name}' to"):
            if self.scheme == "file":
                self._link(path, content)
            else:
                # the client's own limit does not hold while it waits to be let send
                limit = _LEAST_SECONDS + len(content) / _LEAST_RATE
                self._files.pipe_file(path, content, mode="create", timeout=limit)

    def keep(self, name: str, content: bytes) -> bool:
        """Make one object, or find the same one there already; whether it is new.

        An answer that is lost on its way lets the client try again and find its own object: what
        counts is the content.

        Raises:
            OtherContentError: there is one with other content; it stays as it is.
            PlaceError: the store does not answer, or refuses.
        """
        try:
            self.create(name, content)
        except FileExistsError:
            if self.read(name) != content:
                raise OtherContentError(
                    f"Writing '{name}' to '{self.url}'",
                    found="an object of that name with other content",
                    expected="none: an object is never written over",
                    remedy="Find out which of the two is right, and move the other away.",
                ) from None
            return False
        return True

    @property
    def _files(self) -> Any:  # noqa: ANN401 - a file system of fsspec
        return _file_system(self.scheme, os.getpid())

    def _link(self, path: str, content: bytes) -> None:
        """Make a file that has its whole content from the first moment on.

        ``pipe_file`` writes into the file itself: a process that is killed would leave a part of it
        under the final name.
        """
        folder, _, name = path.rpartition("/")
        try:
            self._files.makedirs(folder, exist_ok=True)
        except FileExistsError:  # a file of that name: another sentence than that of an object
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        if _link_unnamed(folder, path, content):
            return
        part = f"{folder}/.{name}.{secrets.token_hex(8)}.part"
        try:
            self._files.pipe_file(part, content, mode="create")
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.link(part, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(part)

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        """Inside the block, any error of the client is one sentence without a text of its own."""
        try:
            yield
        except (FileExistsError, UnavailableError):  # the client itself is not installed
            raise
        except Exception as error:
            kind = _NoObjectError if _is_no_object(error) else PlaceError
            raise kind(
                f"{doing} '{self.url}'",
                found=_words(error),
                expected="a store that answers, and credentials that permit this",
                remedy="Correct the URL, the network or the credentials, and do this again.",
            ) from None  # a traceback would print the client's text


def _link_unnamed(folder: str, path: str, content: bytes) -> bool:
    """Make the file at ``path`` from one that has no name before, so that nothing is left of it
    where the process is killed; False: this system or disk has no such files.

    Raises:
        FileExistsError: there is a file at ``path``.
        OSError: it cannot be written.
    """
    flags = getattr(os, "O_TMPFILE", None)
    if flags is None:
        return False
    try:
        handle = os.open(folder, flags | os.O_WRONLY, 0o644)
    except OSError:  # the disk of the folder, such as one of a network
        return False
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)
        if not os.path.exists(f"/proc/self/fd/{handle}"):
            return False
        # with a folder as the start, the link is followed to the file itself
        os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)
    return True


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """One object that people write and exchange, such as annotations: it is read anew each time."""

    folder: ObjectFolder
    name: str

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}"

    def read(self) -> bytes | None:
        """What is there now; None: nothing.

        Raises:
            PlaceError: the store does not answer, or refuses.
        """
        return self.folder.read(self.name)


def file_at(text: str) -> Path | ObjectFile:
    """The file that ``text`` names: a path, or the URL of an object.

    Raises:
        InputError: as ``place_of``.
    """
    if not is_url(text):
        return Path(text)
    folder, _, name = text.rstrip("/").rpartition("/")
    place = place_of(folder)
    assert isinstance(place, ObjectFolder)
    return place / name


class OtherContentError(StoreError):
    """An object of that name is there, with other content; nothing was written over."""


class _NoObjectError(PlaceError):
    """There is no such object."""


_CODES = {
    "AccessDenied": "no permission",
    "AllAccessDisabled": "no permission",
    "ExpiredToken": "expired credentials",
    "ExpiredTokenException": "expired credentials",
    "InvalidAccessKeyId": "credentials that the store does not know",
    "InvalidToken": "credentials that the store does not know",
    "NoSuchBucket": "no such bucket",
    "NoSuchKey": "no such object",
    "RequestTimeTooSkewed": "a clock that differs from that of the store",
    "SignatureDoesNotMatch": "credentials that the store does not know",
    "403": "no permission",
    "404": "no such object",
}
"""Code of an answer of S3 → words."""

_TYPES = {
    "NoCredentialsError": "no credentials",
    "PartialCredentialsError": "a part of the credentials only",
    "DefaultCredentialsError": "no credentials",
    "RefreshError": "expired credentials",
    "SSOTokenLoadError": "expired credentials",
    "TokenRetrievalError": "expired credentials",
    "UnauthorizedSSOTokenError": "expired credentials",
    "ProfileNotFound": "no such profile of credentials",
    "EndpointConnectionError": "no connection to the store",
    "ConnectTimeoutError": "no connection to the store",
    "ConnectionClosedError": "a connection that the store closed",
    "ClientConnectorError": "no connection to the store",
    "ReadTimeoutError": "no answer in time",
    "FSTimeoutError": "no answer in time",
    "TimeoutError": "no answer in time",
    "ConnectionError": "no connection to the store",
    "FileNotFoundError": "no such bucket or object",
    "PermissionError": "no permission",
}
"""Name of a type of error, the nearest one first → words."""

_CODE = re.compile(r"[A-Za-z0-9]{1,40}")


def _words(error: Exception) -> str:
    """What went wrong, out of the type of ``error`` and the code of the store's answer alone."""
    code = _code_of(error)
    names = [kind.__name__ for kind in type(error).__mro__]
    known = next((_TYPES[name] for name in names if name in _TYPES), "")
    if code:
        return f"{_CODES.get(code) or known or 'an answer that is an error'} ({code})"
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and type(number) is int and number:
        return os.strerror(number)
    return f"{known or 'an error of the client'} ({names[0]})"


def _code_of(error: BaseException) -> str:
    """The code in the answer of S3 that caused ``error``; empty: there is none."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            return code if _CODE.fullmatch(code) else ""
    return ""


def _is_no_object(error: Exception) -> bool:
    """Whether ``error`` says that there is no such object, in a bucket that is there."""
    return isinstance(error, FileNotFoundError) and _code_of(error) in ("", "NoSuchKey", "404")


_STATE = ("ETag", "etag", "md5Hash", "generation", "LastModified", "updated", "mtime", "ino")
"""Entries of a listing that change when an object is made again."""


def _state(facts: Mapping[str, Any]) -> str:
    return repr([facts.get("size"), *(str(facts[key]) for key in _STATE if key in facts)])


@cache
def _file_system(scheme: str, process: int) -> Any:  # noqa: ANN401, ARG001 - one for each process
    """The file system of fsspec for ``scheme``; it connects when it is first used."""
    kind = SCHEMES[scheme]
    doing = f"Opening a store behind '{scheme}://'"
    try:
        import fsspec
    except ModuleNotFoundError:
        raise _not_installed(doing, "fsspec") from None
    for name, value in kind.variables.items():
        os.environ.setdefault(name, value)
    try:
        # fsspec keeps clients by their options alone, with the address that the environment had
        files = fsspec.filesystem(scheme, skip_instance_cache=True, **kind.options)
    except ImportError:
        raise _not_installed(doing, kind.package) from None
    if kind.retries is not None:
        files.retries = kind.retries
    return files


def _not_installed(doing: str, package: str) -> UnavailableError:
    also = " and the package gcsfs" if package == "gcsfs" else ""
    return UnavailableError(
        doing,
        found=f"no package {package}",
        expected=f"the extra 'remote' (fsspec and s3fs){also}",
        remedy=f"Install the extra 'remote' of pytest-qbench{also}; a folder needs neither.",
    )
