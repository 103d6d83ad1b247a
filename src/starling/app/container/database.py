"""The database of a process: DATABASE_URL, or the embedded Postgres."""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import SecretStr

from starling.core.errors import DatabaseUnavailableError
from starling.core.outages import Outage
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.server import EmbeddedPostgres, attach
from starling.infra.postgres.engine import connected

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Database:
    """Addresses of Postgres: `url` for transactions, `direct_url` past a transaction pooler.

    `embedded` is the server where this process runs it.
    """

    url: str
    direct_url: str
    embedded: EmbeddedPostgres | None = None


@contextmanager
def open_database(settings: Settings, meanwhile: Callable[[], object]) -> Generator[Database]:
    """Yield the database of DATABASE_URL, else run the embedded one for as long as the context lasts.

    `meanwhile` is called once, while the embedded one starts.
    """
    if settings.database_url is not None:
        meanwhile()
        yield _named(settings, settings.database_url)
        return
    with EmbeddedPostgres(settings.data_dir, explicit=settings.data_dir_is_explicit, meanwhile=meanwhile) as server:
        yield Database(server.url, server.url, server)


def find_database(settings: Settings) -> Database:
    """Return the database that DATABASE_URL names, else the embedded one that `starling up` runs.

    Raises DatabaseUnavailableError where there is neither.
    """
    if settings.database_url is not None:
        return _named(settings, settings.database_url)
    url = attach(settings.data_dir)
    if url is None:
        raise DatabaseUnavailableError(
            f"No `starling up` is running on {settings.data_dir}, and DATABASE_URL isn't set.",
            "Start one with `starling up`, or set DATABASE_URL to the address of your Postgres.",
        )
    return Database(url, url)


async def wait_for_database(database: Database, seconds: float) -> None:
    """Wait until Postgres answers: services may be started together with it.

    Raises DatabaseUnavailableError after `seconds`.
    """
    clock = asyncio.get_running_loop().time
    until, pause = clock() + seconds, _FIRST_PAUSE_SECONDS
    outage = Outage(_log, f"Waiting for Postgres, {seconds:g} s at most", "Postgres answers", clock)
    while True:
        try:
            async with connected(database.direct_url):
                outage.recovered()
                return
        except DatabaseUnavailableError as error:
            if (left := until - clock()) <= 0:
                raise
            outage.failed(error.message)
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _named(settings: Settings, url: SecretStr) -> Database:
    return Database(url.get_secret_value(), (settings.database_direct_url or url).get_secret_value())
