"""Which platform a command talks to: the one that runs on its data folder, else STARLING_URL, else the database."""

import logging
import sys
from dataclasses import dataclass
from typing import Final

import typer

from starling.app.access.local_token import read_token
from starling.app.access.port_file import RunningPlatform, find_platform
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.settings_file import read_settings_file
from starling.app.cli.terminal.output import print_note
from starling.client.api import Api
from starling.client.api_errors import ONCE, ApiUnavailableError, RetryTimes
from starling.core.errors import ConfigurationError, InvalidRequestError
from starling.core.principal import DEFAULT_TENANT
from starling.core.settings.client import EMBEDDED, ClientSettings, read_client_settings

_LASTING: Final = RetryTimes(tell=print_note)
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class Connection:
    """How a command reaches the platform."""

    context: typer.Context
    settings: ClientSettings

    def api(self, tenant: str = DEFAULT_TENANT, *, lasting: bool = False) -> Api:
        """Return the API for a tenant; requests to a lasting one are repeated while its platform is started again.

        That is the API of this data folder where it serves this tenant without a key, else the API of STARLING_URL,
        else the same routes over the database.
        """
        times = _LASTING if lasting else ONCE
        return self._running(tenant, times) or late_imports.database_api(self.context, tenant)

    def conversation(self, url: str | None = None) -> Api:
        """Return a lasting API for requests to agents.

        That is the API at `url`; without one that of this data folder, of STARLING_URL, of STARLING_HOST and PORT.
        """
        found = self._here()
        if found is not None and (not url or url.rstrip("/") == found.address):
            return self._of(found)
        if not (url or self.settings.url):
            print_note(f"{self._nowhere()} Asking {self.settings.default_url}.")
        return Api(url or self.settings.url or self.settings.default_url, self.settings.api_key, times=_LASTING)

    def platform(self) -> Api:
        """Return the lasting API that `api` asks; where that is none, that of a platform that needs a key.

        Raises ApiUnavailableError where neither a platform runs on this data folder nor STARLING_URL names one;
        ConfigurationError where it needs a key and there is none.
        """
        if running := self._running(DEFAULT_TENANT, _LASTING):
            return running
        if (found := self._here()) is None:
            remedy = "Start one with `starling up`, or give the address of one in STARLING_URL."
            raise ApiUnavailableError(self._nowhere(), remedy)
        if not found.keyless:
            if not self.settings.api_key:
                remedy = "Set STARLING_API_KEY to a key; `starling key create` makes one."
                raise ConfigurationError(f"The platform at {found.address} needs a key.", remedy)
            print_note(f"Asking {found.address} with STARLING_API_KEY: the tenant is that of the key.")
        return self._of(found)

    def named(self) -> Api | None:
        """Return the API of this data folder, else that of STARLING_URL, without a look whether it answers."""
        if (found := self._here()) is not None:
            return self._of(found, ONCE)
        return Api(self.settings.url, self.settings.api_key) if self.settings.url else None

    def _running(self, tenant: str, times: RetryTimes) -> Api | None:
        """Return the API of this data folder, if it answers this tenant without a key, else that of STARLING_URL."""
        found = self._here()
        if found is None:
            if self.settings.url and tenant != DEFAULT_TENANT:
                raise InvalidRequestError(
                    f"--tenant {tenant} can't be used with the API at {self.settings.url}.",
                    "It shows the runs of the tenant of its key: set STARLING_API_KEY to a key of that tenant.",
                )
            return Api(self.settings.url, self.settings.api_key, times=times) if self.settings.url else None
        if not found.keyless or tenant != DEFAULT_TENANT:
            return None
        api = Api(found.address, read_token(self.settings.data_dir), times=times)
        if not api.answers():
            return None
        if self.settings.url.rstrip("/") not in ("", found.address):
            print_note(f"Asking {found.address}, which runs on {self.settings.data_dir}, not STARLING_URL.")
        return api

    def _here(self) -> RunningPlatform | None:
        """Return the platform of this data folder, unless DATABASE_URL names another database than it uses."""
        found = find_platform(self.settings.data_dir, self.settings.database)
        if found is None and self.settings.database == EMBEDDED:
            found = find_platform(self.settings.data_dir)
        return found

    def _of(self, found: RunningPlatform, times: RetryTimes = _LASTING) -> Api:
        """Return the API of a platform, with the local token where that is the key."""
        key = self.settings.api_key or (read_token(self.settings.data_dir) if found.keyless else "")
        return Api(found.address, key, times=times)

    def _nowhere(self) -> str:
        """Return that no platform runs here."""
        other = find_platform(self.settings.data_dir)
        if other is None:
            return f"No platform runs on {self.settings.data_dir}."
        return f"The platform at {other.address} uses another database than DATABASE_URL names."


def connection_of(context: typer.Context) -> Connection:
    """Return how the command reaches the platform. Raises ConfigurationError."""
    settings = read_client_settings(read_settings_file(context.find_root().obj))
    if settings is None or settings.log_level not in ("", *_LEVELS):
        late_imports.checked_settings(context)  # raises ConfigurationError with the place that is wrong
        raise ConfigurationError("PORT is not written in digits alone.", "Write it like 8000.")
    logging.basicConfig(level=settings.log_level or "WARNING", stream=sys.stderr)
    return Connection(context, settings)
