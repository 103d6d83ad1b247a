"""Which platform a command talks to."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import typer
from typer.core import TyperCommand

from starling.app.access.local_token import local_token
from starling.app.access.port_file import RunningPlatform, published
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.database_api import DatabaseApi
from starling.client.api import Api
from starling.client.api_errors import ApiUnavailableError
from starling.core.errors import ConfigurationError, InvalidRequestError
from starling.core.settings.client import database_name
from tests.support.logging_state import restored_logging

_REMOTE = "http://starling.example:8000"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Path]:
    """A folder with no settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STARLING_DATA_DIR", str(tmp_path))
    for name in ("DATABASE_URL", "STARLING_URL", "STARLING_HOST", "PORT", "STARLING_API_KEY", "LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    with restored_logging():
        yield tmp_path


@pytest.fixture
def context() -> typer.Context:
    return typer.Context(TyperCommand("starling"))


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(b'{"status": "ok"}')

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


@contextmanager
def platform(folder: Path, *, keyless: bool = True, database: str = "embedded") -> Generator[str]:
    """A platform that answers, and its port file."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Healthy) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with published(folder, RunningPlatform(address, "0", 1, database, keyless)):
            yield address
        server.shutdown()


def test_platform_of_the_data_folder_comes_first(
    context: typer.Context, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARLING_URL", _REMOTE)

    with platform(folder) as address:
        assert asked(connection_of(context).api()) == (address, "")


def test_platform_of_the_data_folder_is_asked_without_the_key(
    context: typer.Context, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARLING_API_KEY", "a-key")

    with platform(folder) as address:
        connection = connection_of(context)

        assert asked(connection.api()) == (address, "")
        assert connection.api("shop").in_process


def asked(api: Api) -> tuple[str, str]:
    """Return the address that is asked, and the key."""
    return api.url, api.key


def test_platform_of_the_data_folder_is_asked_with_the_local_token(context: typer.Context, folder: Path) -> None:
    token = local_token(folder)

    with platform(folder) as address:
        connection = connection_of(context)

        assert asked(connection.api()) == (address, token)
        assert asked(connection.conversation(f"{address}/")) == (address, token)


def test_local_token_is_sent_to_no_other_address(context: typer.Context, folder: Path) -> None:
    local_token(folder)

    with platform(folder):
        assert asked(connection_of(context).conversation(_REMOTE)) == (_REMOTE, "")


def test_url_is_asked_where_no_platform_runs(context: typer.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_URL", _REMOTE)
    monkeypatch.setenv("STARLING_API_KEY", "a-key")

    assert asked(connection_of(context).api()) == (_REMOTE, "a-key")


@pytest.mark.parametrize(
    ("tenant", "running"),
    [
        ("shop", {}),  # without a key it serves the default tenant
        ("default", {"keyless": False}),
    ],
)
def test_database_is_read_where_the_platform_does_not_serve_it(
    context: typer.Context, folder: Path, tenant: str, running: dict[str, str | bool]
) -> None:
    with platform(folder, **running):  # pyright: ignore[reportArgumentType]
        api = connection_of(context).api(tenant)

    assert isinstance(api, DatabaseApi)
    assert api.tenant == tenant


def test_platform_of_another_database_than_is_named_is_passed_over(
    context: typer.Context, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://here/starling")

    with platform(folder, database=database_name("postgresql://elsewhere/starling")):
        connection = connection_of(context)

        assert connection.api().in_process
        with pytest.raises(ApiUnavailableError, match="uses another database than DATABASE_URL names"):
            connection.platform()
        connection.conversation()
    assert capsys.readouterr().err.endswith("names. Asking http://127.0.0.1:8000.\n")


def test_platform_of_the_data_folder_is_asked_whatever_database_it_uses_where_none_is_named(
    context: typer.Context, folder: Path
) -> None:
    with platform(folder, database=database_name("postgresql://elsewhere/starling")) as address:
        connection = connection_of(context)

        assert {api.url for api in (connection.api(), connection.platform(), connection.conversation())} == {address}


def test_builds_ask_the_api_that_the_other_commands_ask(
    context: typer.Context, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STARLING_API_KEY", "a-key")

    with pytest.raises(ApiUnavailableError, match=f"No platform runs on {folder}"):
        connection_of(context).platform()
    monkeypatch.setenv("STARLING_URL", _REMOTE)
    connection = connection_of(context)
    remote = connection.api(), connection.platform()
    with platform(folder) as address:
        local = connection.api(), connection.platform()

    assert {*map(asked, remote)} == {(_REMOTE, "a-key")}
    assert {*map(asked, local)} == {(address, "")}
    assert f"Asking {address}, which runs on {folder}, not STARLING_URL.\n" in capsys.readouterr().err


def test_build_on_a_platform_that_needs_a_key_sends_it_and_names_the_platform(
    context: typer.Context, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with platform(folder, keyless=False) as address:
        with pytest.raises(ConfigurationError, match=f"{address} needs a key"):
            connection_of(context).platform()
        monkeypatch.setenv("STARLING_API_KEY", "a-key")
        assert asked(connection_of(context).platform()) == (address, "a-key")

    assert capsys.readouterr().err == f"Asking {address} with STARLING_API_KEY: the tenant is that of the key.\n"


def test_database_is_read_where_the_platform_does_not_answer(context: typer.Context, folder: Path) -> None:
    silent = RunningPlatform("http://127.0.0.1:1", "0", 1, "embedded", keyless=True)

    with published(folder, silent):
        assert connection_of(context).api().in_process
    with published(folder, replace(silent, address="http://192.0.2.1", keyless=False)):
        assert connection_of(context).api().in_process


def test_named_address_is_not_replaced_by_that_of_the_data_folder(context: typer.Context, folder: Path) -> None:
    with platform(folder / "other") as named, platform(folder):
        api = connection_of(context).conversation(named)

        with pytest.raises(InvalidRequestError, match=f"{named}/v1/runs/r/events answered 404"):
            api.watch("r", 0, print)


def test_another_tenant_at_a_url_is_refused(context: typer.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_URL", _REMOTE)

    with pytest.raises(InvalidRequestError, match="STARLING_API_KEY"):
        connection_of(context).api("shop")


def test_settings_file_is_read_after_the_environment(
    context: typer.Context, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "starling.yaml").write_text("url: http://of.file\nport: 8001\nhost: '::1'\n")
    monkeypatch.setenv("PORT", "8002")

    settings = connection_of(context).settings

    assert (settings.url, settings.default_url) == ("http://of.file", "http://[::1]:8002")


@pytest.mark.parametrize(("name", "value"), [("PORT", "many"), ("PORT", "70000"), ("LOG_LEVEL", "loud")])
def test_wrong_setting_is_refused_with_its_place(
    context: typer.Context, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match=name):
        connection_of(context)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://a:b@host/db", "postgresql://a:c@host:5432/db", True),
        ("postgresql://host/db", "postgresql://host/other", False),
        ("postgresql://host/db", "", False),
    ],
)
def test_databases_are_told_apart_without_their_passwords(one: str, other: str, *, same: bool) -> None:
    assert (database_name(one) == database_name(other)) is same
