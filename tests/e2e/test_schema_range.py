"""Processes on a database whose schema another version has made: they start on it, or say what to do."""

import shutil
from pathlib import Path

import psycopg

from tests.support.command_line import new_workspace
from tests.support.versions import ROOT, THIS, Version

_NEXT = '''"""Adds a table."""

from alembic import op

revision = "9999"
down_revision = "{before}"


def upgrade() -> None:
    op.execute("CREATE TABLE of_the_next_version (n integer)")
'''
_SERVE = ("serve", "--port", "0")
_WORKER = ("worker",)


def next_version(folder: Path, compatible_from: str) -> Version:
    """Return this version with one more migration, whose schema can be used from `compatible_from` on."""
    for part in ("src", "migrations"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "migrations/versions/9999_next.py").write_text(_NEXT.format(before=THIS.revision))
    schema = folder / "src/starling/infra/postgres/schema.py"
    lines = schema.read_text("utf-8").splitlines()
    changed = [
        f'COMPATIBLE_FROM = "{compatible_from}"' if line.startswith("COMPATIBLE_FROM") else line for line in lines
    ]
    schema.write_text("\n".join(changed), "utf-8")
    return Version(folder)


async def test_service_starts_on_the_compatible_schema_of_the_next_version(
    empty_database_url: str, tmp_path: Path
) -> None:
    await next_version(tmp_path, THIS.revision).upgrade(empty_database_url, tmp_path)

    with new_workspace(DATABASE_URL=empty_database_url) as workspace, workspace.running(*_SERVE) as service:
        upgraded = workspace.json("db", "upgrade")

    assert service.url
    assert upgraded == {"schema": "9999"}


def test_service_refuses_the_schema_of_a_former_version(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")

    with new_workspace(DATABASE_URL=database_url) as workspace:
        refused = [workspace.starling(*command) for command in (_SERVE, _WORKER)]

    assert [(done.returncode, done.stdout) for done in refused] == [(2, "")] * 2
    assert [done.stderr.splitlines() for done in refused] == [
        [
            f"Error: The database has schema 0001; this Starling needs {THIS.revision}.",
            "  Run `starling db upgrade`.",
        ]
    ] * 2
