"""The database of a process: DATABASE_URL, or the embedded Postgres."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from starling.core.errors import ConfigurationError, DatabaseUnavailableError
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.server import EmbeddedPostgres, attach


@dataclass(frozen=True, slots=True)
class Database:
    """Addresses of Postgres: `url` for transactions, `direct_url` past a transaction pooler.

    `embedded` is the server where this process runs it.
    """

    url: str
    direct_url: str
    embedded: EmbeddedPostgres | None = None

    @property
    def behind_pooler(self) -> bool:
        return self.url != self.direct_url


@contextmanager
def open_database(settings: Settings, meanwhile: Callable[[], object]) -> Generator[Database]:
    """Yield the database of DATABASE_URL, else run the embedded one for as long as the context lasts.

    `meanwhile` is called once, while the embedded one starts.
    """
    if settings.database_url is not None:
        meanwhile()
        yield _named(settings)
        return
    with EmbeddedPostgres(settings.data_dir, explicit=settings.data_dir_is_explicit, meanwhile=meanwhile) as server:
        yield Database(server.url, server.url, server)


def find_database(settings: Settings) -> Database:
    """Return the database that DATABASE_URL names, else the embedded one that `starling up` runs.

    Raises DatabaseUnavailableError where there is neither.
    """
    if settings.database_url is not None:
        return _named(settings)
    url = attach(settings.data_dir)
    if url is None:
        raise DatabaseUnavailableError(
            f"No `starling up` is running on {settings.data_dir}, and DATABASE_URL isn't set.",
            "Start one with `starling up`, or set DATABASE_URL to the address of your Postgres.",
        )
    return Database(url, url)


def _named(settings: Settings) -> Database:
    if settings.database_url is None:
        raise ConfigurationError("DATABASE_URL isn't set.", "Set it to the address of your Postgres.")
    url = settings.database_url.get_secret_value()
    direct = settings.database_direct_url
    return Database(url, direct.get_secret_value() if direct else url)
