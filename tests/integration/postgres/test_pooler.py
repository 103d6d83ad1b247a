"""A transaction pooler without DATABASE_DIRECT_URL is refused at the start and by the doctor; the others are used."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from starling.app.doctor import database
from starling.core.errors import DatabaseUnsuitableError
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.os_process import service_account
from starling.infra.postgres.schema import check, upgrade
from tests.support.gateway_harness import free_port
from tests.support.open_folder import new_open_folder
from tests.support.postgres_servers import DATABASE, PostgresServer, running

_PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(_PGBOUNCER is None, reason="PgBouncer is missing: `apt-get install pgbouncer`")


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with new_open_folder() as folder, running(server := PostgresServer(folder / "pg")):
        server.initialise().start()
        server.execute(f"CREATE DATABASE {DATABASE}")
        asyncio.run(upgrade(server.url()))
        yield server


@contextmanager
def pooled(server: PostgresServer, folder: Path, mode: str, ignored: str) -> Generator[str]:
    """Yield the address of a PgBouncer before a server."""
    assert _PGBOUNCER is not None
    direct, port = urlsplit(server.url()), free_port()
    folder.chmod(0o755)
    (folder / "users.txt").write_text(f'"{direct.username}" "{server.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
{DATABASE} = host=127.0.0.1 port={direct.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {folder / "users.txt"}
pool_mode = {mode}
ignore_startup_parameters = {ignored}
"""
    )
    command = [_PGBOUNCER, folder / "pgbouncer.ini"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **service_account().popen) as process:
        try:
            yield f"postgresql://{direct.username}:{server.password}@127.0.0.1:{port}/{DATABASE}"
        finally:
            process.terminate()


async def answered(url: str) -> None:
    """Wait until the pooler answers; it may refuse our start-up parameters."""
    place = urlsplit(url)
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection(place.hostname, place.port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@pytest.mark.parametrize("ignored", ["", "options"], ids=["refuses options", "ignores options"])
async def test_pooler_of_transactions_is_refused_at_the_start_and_by_the_doctor(
    server: PostgresServer, open_folder: Path, ignored: str
) -> None:
    with pooled(server, open_folder, "transaction", ignored) as url:
        await answered(url)
        for begin in (check, upgrade):
            with pytest.raises(DatabaseUnsuitableError, match="DATABASE_DIRECT_URL"):
                await begin(url)
        (found,) = await database.check(Settings(database_url=SecretStr(url)))
        direct = Settings(database_url=SecretStr(url), database_direct_url=SecretStr(server.url()))
        fine, _clock = await database.check(direct)

    assert (found.state, fine.state) == ("problem", "ok")
    assert "DATABASE_DIRECT_URL" in found.remedy


async def test_pooler_of_sessions_is_used(server: PostgresServer, open_folder: Path) -> None:
    with pooled(server, open_folder, "session", "options") as url:
        await answered(url)

        await check(url)
