"""Folders that commands run in."""

from collections.abc import Generator

import pytest

from tests.support.command_line import CliWorkspace, new_workspace


@pytest.fixture
def workspace(database_url: str) -> Generator[CliWorkspace]:
    """A workspace with a migrated database of the test's own."""
    with new_workspace(DATABASE_URL=database_url) as workspace:
        yield workspace
