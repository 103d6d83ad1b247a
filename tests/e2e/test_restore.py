"""A platform on a restored Postgres: what the backup knows goes on, what it can't know is repeated under the same key.

The commands and settings are those of `docs/guides/postgres.md`.
"""

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from starling.infra.postgres.embedded.os_user import service_account
from starling.infra.postgres.schema import upgrade
from tests.chaos.workload import Call
from tests.support.documented_commands import blocks
from tests.support.planned_runs import PlannedRuns, assert_whole, first_call, planned_runs
from tests.support.postgres_servers import PostgresServer, run_program, running

pytestmark = pytest.mark.timeout(180)

_GUIDE = "docs/guides/postgres.md"
_FOLDER = "/var/backups/starling"
_MOMENT = "2026-11-20 11:12:01+00"
_HOST, _NEW_HOST = "user:password@host:5432", "user:password@new-host:5432"


@dataclass(frozen=True, slots=True)
class Backups:
    """A server, its backups in a folder, and the server that they are restored to."""

    folder: Path
    source: PostgresServer
    restored: PostgresServer

    def documented(self, words: str) -> str:
        """Return the block of the guide that contains some words, with the addresses and the folder of this test."""
        (text,) = (block.text for block in blocks(_GUIDE) if words in block.text)
        for server, host in ((self.source, _HOST), (self.restored, _NEW_HOST)):
            text = text.replace(f"postgresql://{host}", server.url("").rstrip("/"))
        return text.replace(_FOLDER, str(self.folder)).replace("starling.dump", str(self.folder / "starling.dump"))

    def settings(self, words: str) -> dict[str, str]:
        lines = self.documented(words).splitlines()
        return {name: value.strip("'") for name, _, value in (line.partition(" = ") for line in lines)}

    def run(self, words: str) -> None:
        """Run the documented command."""
        program, *arguments = shlex.split(self.documented(words))
        run_program(program, *arguments)


async def source_of(folder: Path) -> Backups:
    """Start a server that archives its log, with a database for the platform."""
    service_account().make_folder(folder / "backups")
    service_account().make_folder(folder / "backups" / "wal")
    backups = Backups(folder / "backups", PostgresServer(folder / "source"), PostgresServer(folder / "restored"))
    source = PostgresServer(folder / "source", port=backups.source.port, settings=backups.settings("archive_mode"))
    source.initialise().start()
    source.execute("CREATE DATABASE starling")
    await upgrade(source.url())
    return Backups(backups.folder, source, backups.restored)


def dump(backups: Backups) -> Callable[[], None]:
    """Dump the database; return what restores it."""
    backups.run("pg_dump")

    def restore() -> None:
        backups.restored.initialise().start()
        backups.restored.execute("CREATE DATABASE starling")
        backups.run("pg_restore")

    return restore


def moment(backups: Backups) -> Callable[[], None]:
    """Return what restores the server as it is now, from a base backup and its archived log."""
    now = str(backups.source.value("SELECT clock_timestamp()"))

    def restore() -> None:
        restored = backups.restored
        restored.password = backups.source.password
        service_account().make_folder(restored.data)
        subprocess.run(["cp", "-a", f"{backups.folder}/base/.", restored.data], check=True)
        settings = backups.documented("recovery_target_time").replace(_MOMENT, now)
        (restored.data / "postgresql.auto.conf").write_text(settings)
        (restored.data / "recovery.signal").touch()
        restored.start()
        restored.wait_until("SELECT NOT pg_is_in_recovery()")

    return restore


async def until_ended(runs: PlannedRuns, run_id: str) -> str:
    return (await runs.until(run_id, "succeeded", "failed", "cancelled"))["status"]


@pytest.mark.parametrize("take", [dump, moment])
async def test_restored_platform_ends_the_runs_of_the_backup(
    open_folder: Path, take: Callable[[Backups], Callable[[], None]]
) -> None:
    backups = await source_of(open_folder)
    with running(backups.source, backups.restored):
        if take is moment:
            backups.run("pg_basebackup")
        async with planned_runs(open_folder, backups.source.url(), workers=1) as first:
            ended = await first.begin("ended", Call("charge"))
            assert await until_ended(first, ended) == "succeeded"
            sent = await first.begin("sent", Call("charge", "after"))
            later, stopped = [
                await first.begin(token, Call("read_it", "after"), Call("charge")) for token in ("later", "stopped")
            ]
            for token in ("sent", "later", "stopped"):
                await first.effects.until("done", first_call(token))
            restore = take(backups)
            first.effects.open(f"{first_call('later')}.gate")
            lost = await first.begin("lost", Call("charge"))
            assert [await until_ended(first, run_id) for run_id in (later, lost)] == ["succeeded"] * 2
        backups.source.execute("SELECT pg_switch_wal()")
        backups.source.stop()

        restore()
        async with planned_runs(open_folder, backups.restored.url()) as second:
            assert (await second.request("GET", f"/v1/runs/{lost}"))[0] == 404
            assert (await second.request("POST", f"/v1/runs/{stopped}/cancel"))[0] < 300
            held = [(await second.request("GET", f"/v1/runs/{run_id}"))[1]["status"] for run_id in (sent, later)]
            await second.start(("worker",))
            await second.resolve(sent, "done")
            streams = {run_id: await second.read(run_id) for run_id in (ended, sent, later, stopped)}

    assert held == ["running", "running"]
    for run_id, events in streams.items():
        assert_whole(events, "cancelled" if run_id == stopped else "succeeded")
    charges = {token: second.charges(token) for token in ("ended", "sent", "later", "stopped", "lost")}
    assert {token: len(keys) for token, keys in charges.items()} == {
        "ended": 1, "sent": 1, "later": 2, "stopped": 0, "lost": 1,
    }  # fmt: skip
    assert len(set(charges["later"])) == 1
