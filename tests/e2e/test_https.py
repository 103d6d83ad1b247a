"""Commands on a platform behind TLS: whose certificate is not trusted is refused, until `SSL_CERT_FILE` names it."""

import ssl
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.command_line import new_workspace

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
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _HOST)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(hours=1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(_HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = tmp_path / "platform.pem"
    file.write_bytes(signed.public_bytes(pem) + plain)
    return file


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
