"""A server of objects on this computer that speaks S3 (moto), for slow tests: it can refuse,
forget its writers, and go away.

It is a process of its own: moto keeps its objects in files that warn when they are deleted
unclosed, and in the process of the tests such a warning fails the test that happens to run.
"""

import logging
import subprocess
import sys
import threading

import pytest

from qbench.storage.places import _file_system  # here: pytester forgets what tests load

_REFUSALS = {
    "expired": ("ExpiredToken", lambda _: True),
    "read-only": ("AccessDenied", lambda method: method not in ("GET", "HEAD")),
}
SECRETS = ("AKIASECRETKEY", "SeCrEtKeY", "SeCrEtToKeN")
BUCKET = "nights"
HOST = "localhost"


class ObjectServer:
    """The process of a server, which answers one line to each command: a word and its value."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._refuses = ""
        self._port = self._command("start")

    def _command(self, word, value=""):
        self._process.stdin.write(f"{word} {value}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the server ended at '{word} {value}'"
        return int(answer)

    @property
    def environment(self):
        """What a client takes from its environment to reach it."""
        key, secret, token = SECRETS
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self._port}",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_SESSION_TOKEN": token,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @classmethod
    def of_test(cls, monkeypatch):
        """A server with an empty bucket, which clients of this process and its children find;
        the test skips where its packages are not installed.
        """
        pytest.importorskip("moto")
        pytest.importorskip("s3fs")
        server = cls()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        _file_system.cache_clear()
        return server

    @property
    def refuses(self):
        """What it refuses: "" for nothing, or a key of ``_REFUSALS``."""
        return self._refuses

    @refuses.setter
    def refuses(self, what):
        self._refuses = what
        self._command("refuse", what)

    def start(self):
        """Answer, at the same address as before."""
        self._command("start")

    def stop(self):
        """Answer no more: what was stored is there again after ``start``."""
        self._command("stop")

    def end(self):
        """End the process."""
        with self._process:
            self._process.stdin.close()


class _Answering:
    """What runs in the process of the server: an HTTP server, or none, and what it refuses."""

    def __init__(self):
        from moto.s3.models import s3_backends
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        s3_backends["123456789012"]["aws"].create_bucket(BUCKET, "us-east-1")
        self.refuses = ""
        self._one_at_a_time = threading.Lock()  # moto looks for a key and writes it in two steps
        self._app = DomainDispatcherApplication(create_backend_app)
        self._make = make_server
        self._port = 0
        self._server = None

    def start(self, _):
        self._server = self._make(HOST, self._port, self._answer, threaded=True)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self, _):
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def refuse(self, what):
        self.refuses = what

    def _answer(self, environ, start_response):
        code, concerns = _REFUSALS.get(self.refuses, ("", lambda _: False))
        if not concerns(environ["REQUEST_METHOD"]):
            with self._one_at_a_time:
                return self._app(environ, start_response)
        from werkzeug.wsgi import get_input_stream

        get_input_stream(environ).read()  # else the client's connection breaks while it sends
        text = f"<Error><Code>{code}</Code><Message>{' '.join(SECRETS)}</Message></Error>"
        length = ("Content-Length", str(len(text)))
        start_response("403 Forbidden", [("Content-Type", "application/xml"), length])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [text.encode()]

    def obey(self):
        commands = {"start": self.start, "stop": self.stop, "refuse": self.refuse}
        for line in sys.stdin:
            word, _, value = line.strip().partition(" ")
            commands[word](value)
            print(self._port, flush=True)


if __name__ == "__main__":
    _Answering().obey()
