"""Which platform a command talks to: the one that runs on its data folder, else STARLING_URL, else the database."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer

from starling.app.access.local_token import read_token
from starling.app.access.port_file import RunningPlatform, find_platform
from starling.app.cli import deferred
from starling.app.cli.platform.api_requests import Api, ApiRequests, NoPlatformError
from starling.app.cli.platform.api_source import ApiSource
from starling.app.cli.platform.reconnection import ReconnectingApi, Relocate, same_address
from starling.app.cli.platform.run_source import RunSource
from starling.app.cli.platform.settings_file import read_settings_file
from starling.core.errors import ConfigurationError, InvalidRequestError
from starling.core.principal import DEFAULT_TENANT
from starling.core.settings.client import EMBEDDED, ClientSettings, database_name, read_client_settings

if TYPE_CHECKING:
    from starling.app.cli.platform.api_client import ApiClient

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An API: its address now, the key for it, and what returns its address later."""

    url: str
    key: str = ""
    relocate: Relocate = same_address

    @property
    def requests(self) -> ApiRequests:
        return ApiRequests(self.url, self.key)

    def streams(self) -> "ApiClient":
        return deferred.stream_client(self.url, self.key, self.relocate)

    def reconnecting(self, *, reached: bool) -> ReconnectingApi:
        return ReconnectingApi(self.requests, self.relocate, reached)


@dataclass(frozen=True, slots=True)
class Connection:
    """How a command reaches the platform."""

    context: typer.Context
    settings: ClientSettings

    def conversation(self, url: str | None = None) -> "tuple[ApiClient, ApiSource]":
        """Return the streams and the runs of an API, which are found again if its platform is started again.

        That is the API at `url`; without one that of this data folder, of STARLING_URL, of STARLING_HOST and PORT.
        """
        return _streams_and_runs(self._named(url) if url else self._default())

    def platform(self) -> "tuple[ApiClient, ApiSource]":
        """Return the streams and the runs of the API that `api` asks; where that is none, of one that needs a key.

        Raises NoPlatformError where neither a platform runs on this data folder nor STARLING_URL names one;
        ConfigurationError where it needs a key and there is none.
        """
        if running := self._running(DEFAULT_TENANT):
            return _streams_and_runs(running)
        if (found := self._here()) is not None:
            if not (found.keyless or self.settings.api_key):
                remedy = "Set STARLING_API_KEY to a key; `starling key create` makes one."
                raise ConfigurationError(f"The platform at {found.address} needs a key.", remedy)
            if not found.keyless:
                _note(f"Asking {found.address} with STARLING_API_KEY: the tenant is that of the key.")
            return _streams_and_runs(self._of(found))
        if self.settings.url:
            return _streams_and_runs(self._named(self.settings.url))
        raise NoPlatformError(self._nowhere())

    def source(self, tenant: str = DEFAULT_TENANT) -> RunSource:
        """Return where the runs of a tenant are read.

        That is the API of this data folder where it serves this tenant without a key, else the API of STARLING_URL,
        else the database.
        """
        running = self._running(tenant)
        return ApiSource(running.requests, running.streams) if running else self._database(tenant)

    def lasting_source(self, tenant: str = DEFAULT_TENANT) -> RunSource:
        """Return what `source` returns; an API is found again if its platform is started again."""
        running = self._running(tenant)
        return ApiSource(running.reconnecting(reached=False), running.streams) if running else self._database(tenant)

    def api(self, tenant: str = DEFAULT_TENANT) -> Api:
        """Return the API for a tenant: where `source` finds one, else the same routes over the database."""
        running = self._running(tenant)
        return running.requests if running else deferred.database_api(self.context, tenant)

    def _running(self, tenant: str) -> _Endpoint | None:
        return self._local(tenant) or self._remote(tenant)

    def _here(self) -> RunningPlatform | None:
        """Return the platform of this data folder, unless DATABASE_URL names another database than it uses."""
        found = find_platform(self.settings.data_dir, self.settings.database)
        if found is None and self.settings.database == EMBEDDED:
            found = find_platform(self.settings.data_dir)
        return found

    def _of(self, found: RunningPlatform) -> _Endpoint:
        key = self.settings.api_key or self._token_for(found)
        return _Endpoint(found.address, key, partial(self._address, found.database))

    def _token_for(self, found: RunningPlatform) -> str:
        """Return the local token for a platform of this data folder; empty where that needs a key."""
        return read_token(self.settings.data_dir) if found.keyless else ""

    def _local(self, tenant: str) -> _Endpoint | None:
        found = self._here()
        if found is None or not found.keyless or tenant != DEFAULT_TENANT:
            return None
        endpoint = replace(self._of(found), key=self._token_for(found))
        if not endpoint.requests.answers():
            return None
        if self.settings.url.rstrip("/") not in ("", found.address):
            _note(f"Asking {found.address}, which runs on {self.settings.data_dir}, not STARLING_URL.")
        return endpoint

    def _remote(self, tenant: str) -> _Endpoint | None:
        if not self.settings.url or self._here() is not None:
            return None
        if tenant != DEFAULT_TENANT:
            raise InvalidRequestError(
                f"--tenant {tenant} can't be used with the API at {self.settings.url}.",
                "It shows the runs of the tenant of its key: set STARLING_API_KEY to a key of that tenant.",
            )
        return self._named(self.settings.url)

    def _default(self) -> _Endpoint:
        found = self._here()
        if found is not None:
            return self._of(found)
        if self.settings.url:
            return self._named(self.settings.url)
        _note(f"{self._nowhere()} Asking {self.settings.default_url}.")
        return _Endpoint(self.settings.default_url, self.settings.api_key, partial(self._address, None))

    def _nowhere(self) -> str:
        """Return that no platform runs here."""
        other = find_platform(self.settings.data_dir)
        if other is None:
            return f"No platform runs on {self.settings.data_dir}."
        return f"The platform at {other.address} uses another database than DATABASE_URL names."

    def _named(self, url: str) -> _Endpoint:
        found = self._here()
        is_here = found is not None and found.address == url.rstrip("/")
        return _Endpoint(url, self.settings.api_key or (self._token_for(found) if found and is_here else ""))

    def _database(self, tenant: str) -> RunSource:
        return deferred.database_source(self.context, tenant)

    def _address(self, database: str | None) -> str:
        found = find_platform(self.settings.data_dir, database)
        return found.address if found else ""


def _streams_and_runs(endpoint: _Endpoint) -> "tuple[ApiClient, ApiSource]":
    client = endpoint.streams()
    return client, ApiSource(endpoint.reconnecting(reached=True), lambda: client)


def _note(text: str) -> None:
    """Say which platform is asked, beside the output."""
    typer.echo(text, err=True)


def connection_of(context: typer.Context) -> Connection:
    """Return how the command reaches the platform. Raises ConfigurationError."""
    settings = read_client_settings(_file_values(context))
    if settings is None or settings.log_level not in ("", *_LEVELS):
        settings = _checked_settings(context)
    logging.basicConfig(level=settings.log_level or "WARNING", stream=sys.stderr)
    return Connection(context, settings)


def _file_values(context: typer.Context) -> Mapping[str, Any]:
    """Return the content of the settings file, nothing where there is none."""
    return read_settings_file(context.find_root().obj)


def _checked_settings(context: typer.Context) -> ClientSettings:
    """Return the settings as all are read. Raises ConfigurationError with the place that is wrong."""
    settings = deferred.checked_settings(context)
    secrets = (settings.api_key, settings.database_url)
    key, database = (secret.get_secret_value() if secret else "" for secret in secrets)
    return ClientSettings(
        data_dir=settings.data_dir,
        url=settings.url or "",
        default_url=f"http://{settings.host}:{settings.port}",
        api_key=key,
        database=database_name(database),
        log_level=settings.log_level,
        mcp_config=settings.mcp_config,
    )
