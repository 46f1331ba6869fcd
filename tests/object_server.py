"""A server of objects on this computer that speaks S3 (moto), for slow tests: it can refuse,
forget its writers, and go away.
"""

import logging
import threading
import urllib.request

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
    """``refuses``: "" for nothing, or a key of ``_REFUSALS``."""

    def __init__(self):
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self.refuses = ""
        self._app = DomainDispatcherApplication(create_backend_app)
        self._make = make_server
        self._port = 0
        self.start()
        request = urllib.request.Request(f"http://{HOST}:{self._port}/moto-api/reset", b"")
        urllib.request.urlopen(request).close()  # moto keeps all objects of a process

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
        import boto3

        server = cls()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        _file_system.cache_clear()
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        return server

    def start(self):
        """Answer, at the same address as before."""
        self._server = self._make(HOST, self._port, self._answer, threaded=True)
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self):
        """Answer no more: what was stored is there again after ``start``."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ, start_response):
        code, concerns = _REFUSALS.get(self.refuses, ("", lambda _: False))
        if not concerns(environ["REQUEST_METHOD"]):
            return self._app(environ, start_response)
        from werkzeug.wsgi import get_input_stream

        get_input_stream(environ).read()  # else the client's connection breaks while it sends
        text = f"<Error><Code>{code}</Code><Message>{' '.join(SECRETS)}</Message></Error>"
        length = ("Content-Length", str(len(text)))
        start_response("403 Forbidden", [("Content-Type", "application/xml"), length])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [text.encode()]
