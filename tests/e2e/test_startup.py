"""Services that are started before their database."""

import asyncio

import pytest

from tests.support.command_line import Process, Service, new_workspace
from tests.support.tcp_proxy import proxied


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)])
async def test_service_waits_for_postgres_to_start(database_url: str, command: tuple[str, ...]) -> None:
    async with proxied(database_url) as database:
        port = database.proxy.port
        await database.proxy.stop()
        with (
            new_workspace(DATABASE_URL=database.url) as workspace,
            workspace.started(*command, "--json") as process,
        ):
            said = await asyncio.to_thread(_line_of, process)
            await database.proxy.start(port)
            service = await asyncio.to_thread(Service.ready, process)
            process.terminate()
            await asyncio.to_thread(process.wait)  # while the proxy serves it: a service that stops uses the database

    assert "Waiting for it" in said
    assert service.said


def _line_of(process: Process) -> str:
    assert process.stderr is not None
    return process.stderr.readline()
