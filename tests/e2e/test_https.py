"""Commands on a platform behind TLS: whose certificate is not trusted is refused, until `SSL_CERT_FILE` names it."""

import ssl
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.command_line import new_workspace
from tests.support.self_signed import write_certificate

_HOST = "127.0.0.1"


class _NoRuns(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"status": "ok"}' if self.path == "/health" else b'{"runs": [], "next": null}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate, with its key in the same file."""
    return write_certificate(tmp_path / "platform.pem", _HOST)


@pytest.fixture
def url(certificate: Path) -> Generator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer((_HOST, 0), _NoRuns) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"https://{_HOST}:{server.server_port}"
        server.shutdown()


def test_certificate_that_is_not_trusted_is_refused_with_the_reason(url: str) -> None:
    with new_workspace(STARLING_URL=url) as workspace:
        listed = workspace.starling("run", "list")

    assert listed.returncode == 3
    assert "self-signed certificate" in listed.stderr
    assert "SSL_CERT_FILE" in listed.stderr


def test_certificate_in_ssl_cert_file_is_trusted(url: str, certificate: Path) -> None:
    with new_workspace(STARLING_URL=url, SSL_CERT_FILE=str(certificate)) as workspace:
        assert workspace.json("run", "list") == []
