"""Runs of an earlier version that wait for a person, as rows of its database: recorded once, and loaded by tests.

`python -m tests.support.golden_runs FOLDER FILE [LIBRARIES]` runs the version in FOLDER (its `src` and `migrations`,
with the folder LIBRARIES on its path for what it needs and this one doesn't), brings each run of `CASES` to its
question, and writes every row of the database as a line of JSON `{table, row}`.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import psycopg
from psycopg import sql

from starling.infra.postgres.embedded.server import EmbeddedPostgres
from tests.support.command_line import STARLING
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.local_access import admin_headers
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.open_folder import new_open_folder
from tests.support.platform import ScriptedModel, calls, decision, task, verdict
from tests.support.versions import ROOT, Version

WORDING: Final = "This is the wording that the run was begun with."
"""A line in each prompt of the recorded version, so that a request with another version's prompt is recognised."""
CASES: Final = ("first_attempt", "equal_call", "other_call", "clarification", "team", "in_doubt")
"""The threads of the runs. `equal_call` and `other_call` wait in a second attempt: the first was approved, and its
result was rejected."""
TEAM: Final = "tills"
_CLERK: Final = {"name": "clerk", "role": "Clerk", "goal": "Does what is ordered, once.", "runtime": "native"}
_SPEC: Final = {"name": TEAM, "purpose": "Charges what is ordered.", "members": [{**_CLERK, "server": "effects"}]}
_LEFT_OUT: Final = frozenset({"alembic_version", "audit", "audit_events", "checkpoint_migrations", "configs"})
_COLUMNS: Final = """
SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns
WHERE table_schema = 'public' AND is_generated = 'NEVER' AND table_name IN
    (SELECT relname FROM pg_class WHERE relkind = 'r') GROUP BY table_name ORDER BY table_name"""
_INSERT: Final = sql.SQL(
    "INSERT INTO {0} ({1}) OVERRIDING SYSTEM VALUE SELECT {1} FROM json_populate_record(NULL::{0}, %s::json)"
)
_SEQUENCES: Final = """
SELECT table_name, column_name, pg_get_serial_sequence(quote_ident(table_name), column_name)
FROM information_schema.columns WHERE table_schema = 'public'
AND pg_get_serial_sequence(quote_ident(table_name), column_name) IS NOT NULL"""


def servers(effects: EffectRecorder) -> dict[str, Any]:
    """Return the servers of the runs; the call in doubt is given up after the timeout."""
    return {"effects": effects.as_server(approval="unsafe", timeout=5)}


def charge(what: str, **more: str) -> Answer:
    """Return an agent's answer that charges somebody."""
    return calls(("charge", {"what": what, **more}))


def _script() -> ScriptedModel:
    script = ScriptedModel()
    script.supervisor(
        decision(task("first_attempt", AGENT)),
        decision(task("equal_call", AGENT)),
        decision(task("other_call", AGENT)),
        decision(question="Whom?"),
        decision(task("team", TEAM)),
        decision(task("member", "clerk")),
        decision(task("in_doubt", AGENT)),
    )
    script.agent("first_attempt", charge("a"))
    script.agent("equal_call", charge("b"))
    script.agent("other_call", charge("c"), charge("d"))
    script.agent("member", charge("f"))
    script.agent("in_doubt", charge("g", stall="after", gate="never"))
    script.reviewer(verdict("REJECTED", "Name the sum."))
    return script


@asynccontextmanager
async def _platform(version: Version, database_url: str, folder: Path, libraries: str) -> AsyncGenerator[str]:
    """Run `starling up` of a version; yield its address."""
    recorder = EffectRecorder(folder / "effects")
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers(recorder)}))
    prompts = folder / "prompts"
    prompts.mkdir()
    for file in (version.folder / "src" / "brain" / "prompts").glob("*.md"):
        (prompts / file.name).write_text(f"{WORDING}\n{file.read_text()}")
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    path = version.variables["PYTHONPATH"] + (f"{os.pathsep}{libraries}" if libraries else "")
    async with ModelServer(_script()) as model:
        process = await asyncio.create_subprocess_exec(
            STARLING, "up", "--port", "0", "--json", "--mcp-config", folder / "mcp.json",
            cwd=folder,
            env={
                **inherited,
                "PYTHONPATH": path,
                "HOME": str(folder),
                "STARLING_DATA_DIR": str(folder),
                "STARLING_PROMPTS_DIR": str(prompts),
                "STARLING_MODEL": "openai:scripted",
                "OPENAI_BASE_URL": model.url,
                "OPENAI_API_KEY": "unused",
                "DATABASE_URL": database_url,
                "LOG_LEVEL": "WARNING",
            },
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            yield json.loads(await process.stdout.readline())["address"]
        finally:
            process.terminate()
            await process.wait()


async def _waiting_runs(address: str, folder: Path) -> None:
    """Bring each run to the question that it waits with."""
    async with aiohttp.ClientSession(address, headers=admin_headers(folder)) as client:
        await _sent(client, f"/v1/teams/{TEAM}/versions", {"spec": _SPEC})
        await _sent(client, f"/v1/teams/{TEAM}/activate", {})
        for case in CASES:
            waits = await _sent(client, "/process", {"input": "Charge them.", "thread_id": case})
            if case in ("equal_call", "other_call", "in_doubt"):
                (asked,) = waits["interrupts"]
                answer = {"status": "resolved", "payload": {"approved": True}}
                await _sent(client, f"/v1/approvals/{asked['id']}", answer)
                waits = await _next_question(client, waits["run_id"], asked["id"])
            print(case, [(item["kind"], item.get("call")) for item in waits["interrupts"]])


async def _next_question(client: aiohttp.ClientSession, run: str, answered: str) -> Any:
    async with asyncio.timeout(60):
        while True:
            async with client.get("/v1/approvals", params={"run_id": run}) as response:
                found = await response.json()
            if any(item["id"] != answered for item in found["interrupts"]):
                return found
            await asyncio.sleep(0.05)


async def _sent(client: aiohttp.ClientSession, path: str, body: Mapping[str, Any]) -> Any:
    async with client.post(path, json=body) as response:
        assert response.status in (200, 201, 202), await response.text()
        return await response.json()


def _rows(connection: psycopg.Connection) -> Iterable[str]:
    for table, columns in connection.execute(_COLUMNS).fetchall():
        if table in _LEFT_OUT or table.startswith("procrastinate"):
            continue
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        query = sql.SQL("SELECT to_json(it) FROM (SELECT {} FROM {}) it").format(listed, sql.Identifier(table))
        for (row,) in connection.execute(query):
            yield json.dumps({"table": table, "row": row}, ensure_ascii=False)


def load(connection: psycopg.Connection, file: Path) -> None:
    """Insert the recorded rows into a database of their version or a later one."""
    connection.execute("SET session_replication_role = replica")  # rows come in the order of their tables' names
    for line in file.read_text("utf-8").splitlines():
        recorded = json.loads(line)
        table, columns = sql.Identifier(recorded["table"]), list(map(sql.Identifier, recorded["row"]))
        listed = sql.SQL(", ").join(columns)
        connection.execute(_INSERT.format(table, listed), (json.dumps(recorded["row"]),))
    connection.execute("UPDATE interrupts SET expires_at = now() + interval '1 day'")
    for table, column, sequence in connection.execute(_SEQUENCES).fetchall():
        last = sql.SQL("SELECT setval(%s, coalesce(max({}), 0) + 1, false) FROM {}")
        connection.execute(last.format(sql.Identifier(column), sql.Identifier(table)), (sequence,))


async def _record(version: Version, file: Path, libraries: str) -> None:
    with new_open_folder() as folder, EmbeddedPostgres(folder / "database", durable=False) as server:
        async with _platform(version, server.url, folder, libraries) as address:
            await _waiting_runs(address, folder)
        with psycopg.connect(server.url) as connection:
            text = "".join(f"{line}\n" for line in _rows(connection))
        for place in (str(folder), str(ROOT)):
            text = text.replace(place, "/recorded")
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    asyncio.run(_record(Version(Path(sys.argv[1])), Path(sys.argv[2]), "".join(sys.argv[3:])))
