"""Migrations after the oldest compatible revision only add, so that processes of former versions go on."""

import re

import pytest

from starling.infra.postgres.schema import COMPATIBLE_FROM, migrations_folder, revisions

_REMOVALS = (
    r"\bDROP\s+(?:TABLE|COLUMN|SCHEMA|TYPE|VIEW|FUNCTION)\b",
    r"\bRENAME\b",
    r"\bALTER\s+(?:COLUMN\s+)?\w+\s+(?:SET\s+DATA\s+)?TYPE\b",
    r"\bSET\s+NOT\s+NULL\b",
    r"\bop\.(?:drop_column|drop_table|rename_table|alter_column)\b",
    r"\bADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?\w+\s+(?![^,;]*\bDEFAULT\b)[^,;]*\bNOT\s+NULL\b",
)


def removals(text: str) -> list[str]:
    """Return the parts of a migration that would break processes of a version that doesn't know it."""
    code = re.sub(r"--[^\n]*", "", text)
    return [found[0] for pattern in _REMOVALS for found in re.finditer(pattern, code, re.IGNORECASE)]


@pytest.mark.parametrize(
    ("statement", "removes"),
    [
        ("CREATE TABLE t (a int NOT NULL)", False),
        ("ALTER TABLE t ADD COLUMN a int", False),
        ("ALTER TABLE t ADD COLUMN a int NOT NULL DEFAULT 0", False),
        ("ALTER TABLE t ADD COLUMN a int NOT NULL", True),
        ("-- DROP TABLE t", False),
        ("ALTER TABLE t DROP COLUMN a", True),
        ("DROP TABLE t", True),
        ("ALTER TABLE t RENAME COLUMN a TO b", True),
        ("ALTER TABLE t ALTER COLUMN a TYPE bigint", True),
        ("ALTER TABLE t ALTER COLUMN a SET NOT NULL", True),
        ('op.drop_column("t", "a")', True),
    ],
)
def test_removals_are_told_from_additions(statement: str, removes: bool) -> None:
    assert bool(removals(statement)) == removes


def test_migrations_after_the_oldest_compatible_one_only_add() -> None:
    later = [revision for revision in revisions() if revision > COMPATIBLE_FROM]
    files = [file for revision in later for file in migrations_folder().glob(f"*/{revision}_*")]

    assert COMPATIBLE_FROM in revisions()
    assert {file.name: found for file in files if (found := removals(file.read_text("utf-8")))} == {}
