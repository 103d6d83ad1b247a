"""A Postgres, pgvector or schema that is too old is refused with a remedy."""

import pytest

from starling.core.errors import DatabaseUnsuitableError
from starling.infra.postgres.engine import connected
from starling.infra.postgres.schema import check, check_versions, upgrade


async def test_the_embedded_server_is_new_enough(database_url: str) -> None:
    async with connected(database_url) as connection:
        await check_versions(connection)


@pytest.mark.parametrize("use", [upgrade, check])
async def test_postgresql_15_is_refused(old_server_url: str, use: type) -> None:
    with pytest.raises(DatabaseUnsuitableError, match=r"version 15\..* needs 16 or newer.*DATABASE_URL"):
        await use(old_server_url)


async def test_a_server_without_pgvector_is_refused(old_server_url: str) -> None:
    async with connected(old_server_url) as connection:
        with pytest.raises(DatabaseUnsuitableError, match=r"no pgvector.*Install"):
            await check_versions(connection, postgres=15)


async def test_server_below_the_required_version_is_refused(database_url: str) -> None:
    async with connected(database_url) as connection:
        with pytest.raises(DatabaseUnsuitableError, match="needs 19"):
            await check_versions(connection, postgres=19)


async def test_an_old_pgvector_is_refused(database_url: str) -> None:
    async with connected(database_url) as connection:
        with pytest.raises(DatabaseUnsuitableError, match=r"has pgvector .*needs 9\.0\.0.*ALTER EXTENSION"):
            await check_versions(connection, pgvector=(9, 0, 0))


async def test_an_old_extension_over_a_new_package_is_refused(empty_database_url: str) -> None:
    async with connected(empty_database_url) as connection:
        await connection.execute("CREATE EXTENSION vector")
        await connection.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")

        with pytest.raises(DatabaseUnsuitableError, match=r"uses pgvector 0\.7\.4.*ALTER EXTENSION"):
            await check_versions(connection)
