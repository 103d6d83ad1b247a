"""Which database it is: one that the settings name, or the embedded one."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from starling.core.errors import ConfigurationError, DatabaseUnavailableError
from starling.core.settings import Settings
from starling.infra.postgres.embedded import EmbeddedPostgres, attach


@dataclass(frozen=True, slots=True)
class Database:
    """Where Postgres is: `url` for transactions, `direct_url` for what a pooler can't carry."""

    url: str
    direct_url: str

    @property
    def behind_pooler(self) -> bool:
        return self.url != self.direct_url


@contextmanager
def own_database(settings: Settings) -> Generator[Database]:
    """Give the database that DATABASE_URL names, else start the embedded one for as long as the context lasts."""
    if settings.database_url is not None:
        yield _named(settings)
        return
    with EmbeddedPostgres(settings.data_dir, explicit=settings.data_dir_is_explicit) as server:
        yield Database(server.url, server.url)


def find_database(settings: Settings) -> Database:
    """Return the database that DATABASE_URL names, else the embedded one that `starling up` runs.

    Raises DatabaseUnavailableError where there is neither.
    """
    if settings.database_url is not None:
        return _named(settings)
    url = attach(settings.data_dir)
    if url is None:
        raise DatabaseUnavailableError(
            f"No Starling runs on {settings.data_dir}, and DATABASE_URL isn't set.",
            "Start one with `starling up`, or set DATABASE_URL to the address of your Postgres.",
        )
    return Database(url, url)


def _named(settings: Settings) -> Database:
    if settings.database_url is None:
        raise ConfigurationError("DATABASE_URL isn't set.", "Set it to the address of your Postgres.")
    url = settings.database_url.get_secret_value()
    direct = settings.database_direct_url
    return Database(url, direct.get_secret_value() if direct else url)
