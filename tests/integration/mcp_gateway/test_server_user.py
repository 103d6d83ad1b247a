"""The user as whom stdio servers run, and what other users than root can hide from them."""

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from mcp_gateway.configuration.servers import StdioServer
from mcp_gateway.registration.discovery import try_servers
from mcp_gateway.sessions import shim
from mcp_gateway.sessions.isolation import Isolation, PrivateFiles, ServerIsolation, ServerUser
from starling.core.errors import ConfigurationError, ServerUnavailableError
from starling.core.settings.schema import Limits

SECRET = "starling-local-of-this-platform"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")


@pytest.fixture
def folder() -> Generator[Path]:
    """A folder that every user reaches, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        path.chmod(0o755)
        yield path


@pytest.fixture
def private(folder: Path) -> PrivateFiles:
    data = folder / "data"
    data.mkdir()
    (data / "token").write_text(SECRET)
    return PrivateFiles(data, (data / "token",), ServerUser.of("nobody"))


def shell(script: str, folder: Path, *arguments: str) -> StdioServer:
    """Return a server that writes what a script says to stderr, on one line."""
    return StdioServer(
        command="/bin/sh",
        args=("-c", f'echo "[$({script})]" 2>&1 | tr "\\n" " " >&2', "sh", *arguments),
        env={"HOME": "/root"},
        cwd=str(folder),
    )


async def said(server: StdioServer, private: PrivateFiles, seconds: float = 20) -> str:
    environment = {"PATH": os.environ["PATH"]}
    found = await try_servers({"x": server}, Limits(server_start_seconds=seconds), environment, private)
    assert isinstance(found["x"], ServerUnavailableError)
    return found["x"].reason


@as_root
async def test_server_runs_as_its_own_user_and_reads_no_file_of_the_platform(
    private: PrivateFiles, folder: Path
) -> None:
    nobody = pwd.getpwnam("nobody")
    script = "id -u; id -g; echo $HOME $USER; env | grep STARLING_SHIM; grep CapEff /proc/self/status; cat data/token"

    found = await said(shell(script, folder), private)

    assert f"[{nobody.pw_uid} {nobody.pw_gid} {nobody.pw_dir} nobody CapEff:\t0000000000000000]" in found


@as_root
async def test_server_whose_files_its_own_user_does_not_reach_runs_as_the_platform_without_its_files(
    private: PrivateFiles, folder: Path
) -> None:
    (folder / "closed").mkdir(mode=0o700)

    for server in (
        shell("id -u; cat ../data/token", folder / "closed"),
        shell("id -u; cat data/token", folder, f"--root={folder / 'closed'}"),
    ):
        assert "[0]" in await said(server, private)
        assert SECRET in await said(server, PrivateFiles(private.folder))


@as_root
async def test_server_of_another_user_ends_with_its_session(private: PrivateFiles, folder: Path) -> None:
    server = shell("", folder).model_copy(update={"args": ("-c", "trap '' TERM; echo $$ >&2; sleep 600 & wait")})

    found = await said(server, private, seconds=4)  # it starts meanwhile

    assert not psutil.pid_exists(int(found.rpartition(": ")[2].rstrip(".")))


@as_root
async def test_isolation_of_servers_is_told(private: PrivateFiles, folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o700)
    reached, closed = shell("", folder), shell("", folder / "closed")

    isolation = ServerIsolation(private, {})
    without = ServerIsolation(replace(private, user=None), {})

    processes = (await isolation.machine()).processes
    assert await isolation.of("x", reached) == Isolation(processes, "own_user")
    assert await isolation.of("x", closed) == await without.of("x", reached) == Isolation(processes, "mount_namespace")
    assert isolation.unreached("x", closed) == str(folder / "closed")


def test_command_with_an_interpreter_that_a_user_does_not_reach_is_not_run_as_that_user(
    folder: Path, tmp_path: Path
) -> None:
    (interpreter := tmp_path / "python").write_bytes(Path("/bin/sh").read_bytes())
    (command := folder / "serve").write_text(f"#!{interpreter}\n")
    interpreter.chmod(0o755)
    command.chmod(0o755)
    tmp_path.chmod(0o700)

    unreached = ServerUser.of("nobody").unreached(StdioServer(command=str(command), cwd="/"))

    assert unreached == str(interpreter)


@pytest.mark.parametrize(("name", "said"), [("no-such-user", "isn't known"), ("root", "must not be root")])
def test_user_that_servers_can_not_have_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ServerUser.of(name)


HIDE_AS_NOBODY = """
import ctypes, os, runpy, sys
_, shim, data, root = sys.argv
hide = runpy.run_path(shim)["hide"]
os.chroot(root)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as after an exec
reason = hide([data], [])
namespace = os.readlink("/proc/self/ns/user") if root == "/" else ""
try:
    found = open(data + "/token").read()
except OSError as error:
    found = "unreadable"
print(reason, found, namespace, sep="; ")
"""


def hidden_as_nobody(folder: Path, root: str, *before: str) -> str:
    (data := folder / "data").mkdir()
    (data / "token").write_text(SECRET)
    path = f"/{data.relative_to(root)}"
    command = [*before, sys.executable, "-I", "-S", "-c", HIDE_AS_NOBODY, shim.__file__, path, root]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@as_root
def test_user_without_privileges_hides_files_in_a_user_namespace_or_is_told_why_not(folder: Path) -> None:
    reason, found, _ = hidden_as_nobody(folder, "/").split("; ")

    assert found == (SECRET if reason else "unreadable")


@as_root
def test_user_whose_namespace_can_not_be_mapped_stays_in_the_old_one_and_is_told_so(folder: Path) -> None:
    read_only = 'mount --bind /proc /proc && mount -o remount,bind,ro /proc && exec "$@"'

    found = hidden_as_nobody(folder, "/", "unshare", "-m", "sh", "-c", read_only, "sh")

    assert found == f"no mount namespace: Read-only file system; {SECRET}; {Path('/proc/self/ns/user').readlink()}"


@as_root
def test_user_who_may_make_no_namespace_is_told_so(folder: Path) -> None:
    found = hidden_as_nobody(folder, str(folder))  # in a changed root, the kernel refuses user namespaces

    assert found == f"no mount namespace: Operation not permitted; {SECRET};"
