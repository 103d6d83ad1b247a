"""Backups of a Postgres, taken and restored with the commands and settings of `docs/guides/postgres.md`."""

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starling.infra.postgres.embedded.os_process import service_account
from tests.support.documented_commands import blocks
from tests.support.postgres_servers import DATABASE, PostgresServer, run_program

_GUIDE = "docs/guides/postgres.md"
_FOLDER = "/var/backups/starling"
_MOMENT = "2026-11-20 11:12:01+00"
_HOST, _NEW_HOST = "user:password@host:5432", "user:password@new-host:5432"

type Take = Callable[["Backups"], Callable[[], None]]
"""Takes a backup of the running server; what it returns restores it, once the server is stopped."""


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


def source_of(folder: Path) -> Backups:
    """Start a server that archives its log, with an empty database for the platform."""
    service_account().make_folder(folder / "backups")
    service_account().make_folder(folder / "backups" / "wal")
    backups = Backups(folder / "backups", PostgresServer(folder / "source"), PostgresServer(folder / "restored"))
    source = PostgresServer(folder / "source", port=backups.source.port, settings=backups.settings("archive_mode"))
    source.initialise().start()
    source.execute(f"CREATE DATABASE {DATABASE}")
    return Backups(backups.folder, source, backups.restored)


def dump(backups: Backups) -> Callable[[], None]:
    """Dump the database; return what restores it."""
    backups.run("pg_dump")

    def restore() -> None:
        backups.restored.initialise().start()
        backups.restored.execute(f"CREATE DATABASE {DATABASE}")
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
