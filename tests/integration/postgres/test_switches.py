"""What a process learns of switches and revoked keys: all of them at first, then what is new."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.access.keys import KeyService, KeySpec
from starling.app.access.kill_switches import KillSwitchCache
from starling.core.clock import SystemClock
from starling.core.principal import HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import NOTHING, Halted, SwitchRepository, Target

ADMIN = Actor.local("test")
LONG_AGO = text("UPDATE keys SET revoked_at = now() - interval '1 day'")


async def revoked(engine: AsyncEngine) -> str:
    keys = KeyService(KeyRepository(engine), SystemClock())
    row, _ = await keys.create(HOST_ADMIN, KeySpec("test", "default", frozenset([Scope.RUN])), ADMIN)
    await keys.revoke(HOST_ADMIN, row.id, ADMIN)
    return row.id


async def test_keys_revoked_long_ago_are_read_once(engine: AsyncEngine) -> None:
    old = await revoked(engine)
    async with engine.begin() as connection:
        await connection.execute(LONG_AGO)
    new = await revoked(engine)
    switches = SwitchRepository(engine)

    at_first = await switches.halted()
    again = await switches.halted(Halted(NOTHING.switches, frozenset(), at_first.at))
    together = await switches.halted(at_first)

    assert (at_first.revoked, again.revoked, together.revoked) == ({old, new}, {new}, {old, new})
    assert at_first.switches == {}


async def test_board_keeps_revoked_keys_and_drops_removed_switches(engine: AsyncEngine) -> None:
    switches = SwitchRepository(engine)
    board, server = KillSwitchCache(switches), Target("server", "bench")
    await board.refresh()
    key = await revoked(engine)
    await switches.off(server, "It lies.", ADMIN)
    await board.refresh()
    off = board.named("server", "default")
    await switches.on(server, ADMIN)
    async with engine.begin() as connection:
        await connection.execute(LONG_AGO)
    await board.refresh()

    assert off == {"bench": "The server bench is switched off: It lies."}
    assert board.named("server", "default") == {}
    assert "was revoked" in board.everything("default", key)
