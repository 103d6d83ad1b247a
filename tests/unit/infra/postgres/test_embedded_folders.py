"""Folders, sockets and accounts of the embedded Postgres."""

import os
from pathlib import Path

import pytest

from starling.core.errors import ConfigurationError
from starling.infra.postgres.embedded.binaries import find_binaries
from starling.infra.postgres.embedded.os_process import Account, claim_folder
from starling.infra.postgres.embedded.postmaster import end_previous, running_server, socket_folder

ANSWERER = Account(uid=54_321, gid=54_321, is_self=False)


def test_a_socket_needs_a_short_path() -> None:
    assert socket_folder(Path("/tmp/run")) == Path("/tmp/run")
    assert socket_folder(Path("/tmp") / ("é" * 45)) is None


def test_another_user_reaches_what_no_folder_closes(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    assert ANSWERER.can_reach(Path("/"))
    assert not ANSWERER.can_reach(closed / "not" / "yet" / "there")
    assert Account(os.geteuid(), os.getegid(), is_self=True).can_reach(closed)


def test_a_link_is_no_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)

    with pytest.raises(ConfigurationError, match="isn't a folder of user id"):
        claim_folder(tmp_path / "link", 0o700)


def test_a_platform_without_the_wheel_is_told_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="no embedded Postgres") as caught:
        find_binaries("no_such_package")

    assert "DATABASE_URL" in caught.value.remedy


def test_a_process_that_is_something_else_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n")

    end_previous(tmp_path)

    assert running_server(os.getpid(), tmp_path) is None
    assert not (tmp_path / "postmaster.pid").exists()
