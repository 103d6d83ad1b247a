"""Nothing of a server outlives the platform, whatever either does."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mcp_gateway.sessions import shim
from tests.support.gateway_harness import SERVERS, wait_for

SHIM = (sys.executable, "-I", "-S", shim.__file__)

# A platform that starts a server under the shim and waits to be killed.
PLATFORM = """
import os, subprocess, sys
subprocess.Popen([*sys.argv[1:5], str(os.getpid()), *sys.argv[5:]], stdin=subprocess.PIPE, start_new_session=True)
print("started", flush=True)
sys.stdin.read()
"""

# A process that says whether it reads and signals another one of its user, first as it is and then apart from it, with
# what that is called; and whether it moves a file to another folder. The first version of Landlock that is taken to
# scope signals is an argument.
APART = """
import ctypes, os, runpy, sys
_, shim, since, user = sys.argv
set_apart = runpy.run_path(shim)["set_apart"]
set_apart.__globals__["_LANDLOCK_SIGNAL_ABI"] = int(since)
os.setresuid(*[int(user)] * 3)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as after an exec
read, write = os.pipe()
if (other := os.fork()) == 0:
    os.close(write)
    os._exit(len(os.read(read, 1)))  # when the other end is closed
def works(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return False
    return True
reaches = lambda: (works(os.readlink, f"/proc/{other}/cwd"), works(os.kill, other, 0))
print(*reaches())
found, reason = set_apart()
open("a/file", "w").close()
print(found, *reaches(), works(os.rename, "a/file", "b/file"))
"""
LANDLOCK = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) if sys.platform == "linux" else 0
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def run(*command: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHIM, str(os.getpid()), *command], input=given, capture_output=True, text=True, check=False, timeout=60
    )


def pids_in(record: Path, number: int) -> Callable[[], bool]:
    return lambda: record.exists() and record.read_text().count("\n") == number


def executing(record: Path) -> list[int]:
    found: list[int] = []
    for line in record.read_text().split():
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(int(line)).status() != psutil.STATUS_ZOMBIE:  # not all systems reap at once
                found.append(int(line))
    return found


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record"


def deaf(record: Path) -> tuple[str, ...]:
    """A server that ignores SIGTERM and the end of stdin and has a daemonised child that does too."""
    return (sys.executable, str(SERVERS / "misbehaving.py"), "deaf", str(record))


def test_server_uses_stdin_stdout_and_stderr_of_the_shim() -> None:
    done = run("sh", "-c", "cat; echo oh >&2", given="hello")

    assert (done.stdout, done.stderr, done.returncode) == ("hello", "oh\n", 0)


@pytest.mark.parametrize(("ending", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_shim_exits_with_the_exit_code_of_the_server(ending: str, code: int) -> None:
    assert run("sh", "-c", ending).returncode == code


def test_missing_command_is_named() -> None:
    done = run("no-such-program")

    assert (done.returncode, done.stderr) == (127, "no-such-program: No such file or directory\n")


def test_server_runs_in_a_process_session_of_its_own() -> None:
    done = run(sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))")

    assert done.stdout == "True\n"


def test_children_that_outlive_their_server_are_killed(record: Path) -> None:
    done = run("sh", "-c", f"sleep 99 & echo $! >> {record}; (setsid sleep 99 & echo $! >> {record}) ; exit 5")

    assert done.returncode == 5
    assert record.read_text().count("\n") == 2
    assert not executing(record)


async def test_end_of_stdin_kills_a_server_that_ignores_it_and_its_children(record: Path) -> None:
    with subprocess.Popen([*SHIM, str(os.getpid()), *deaf(record)], stdin=subprocess.PIPE) as process:
        await wait_for(pids_in(record, 2))
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)

    assert process.returncode == 137
    assert not executing(record)


async def test_server_that_exits_at_the_end_of_stdin_is_not_killed(record: Path) -> None:
    script = f"cat; echo bye >> {record}"

    assert run("sh", "-c", script).returncode == 0
    assert record.read_text() == "bye\n"


async def test_sigterm_ends_the_server_and_its_children(record: Path) -> None:
    with subprocess.Popen([*SHIM, str(os.getpid()), *deaf(record)], stdin=subprocess.PIPE) as process:
        await wait_for(pids_in(record, 2))
        process.terminate()
        process.wait(60)

    assert not executing(record)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the death signal")
async def test_sigkill_of_the_platform_leaves_no_process(record: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PLATFORM, *SHIM, *deaf(record)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as platform:
        await wait_for(pids_in(record, 2))
        below = psutil.Process(platform.pid).children(recursive=True)
        platform.kill()
        platform.wait(60)

    await wait_for(lambda: not executing(record) and not any(process.is_running() for process in below))


async def test_sigkill_of_the_platform_is_detected_while_stdin_stays_open(record: Path) -> None:
    """Somebody else holds the other end of the pipe."""
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", PLATFORM.replace("stdin=subprocess.PIPE", f"stdin={reader}"), *SHIM, *deaf(record)],
        stdin=subprocess.PIPE,
        pass_fds=[reader],
    ) as platform:
        await wait_for(pids_in(record, 2))
        platform.kill()
        platform.wait(60)

    await wait_for(lambda: not executing(record))
    os.close(reader)
    os.close(writer)


async def test_sigkill_of_the_shim_ends_the_server(record: Path) -> None:
    with subprocess.Popen(
        [*SHIM, str(os.getpid()), "sh", "-c", f"echo $$ >> {record}; exec sleep 99"], stdin=subprocess.PIPE
    ) as process:
        await wait_for(pids_in(record, 1))
        process.kill()

    await wait_for(lambda: not executing(record))


def test_shim_starts_nothing_when_the_platform_has_already_ended(record: Path) -> None:
    done = subprocess.run([*SHIM, "1", "sh", "-c", f"echo x > {record}"], check=False, stdin=subprocess.DEVNULL)

    assert done.returncode == 1
    assert not record.exists()


async def test_shim_survives_the_end_of_the_thread_that_started_it(record: Path) -> None:
    with subprocess.Popen(
        [*SHIM, str(os.getpid()), "sh", "-c", f"echo $$ >> {record}; cat"], stdin=subprocess.PIPE
    ) as process:
        await wait_for(pids_in(record, 1))
        process.send_signal(signal.SIGUSR1)  # what the kernel sends then
        assert process.stdin is not None
        process.stdin.write(b"still here")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.stdin.close()

    assert process.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
@pytest.mark.parametrize("killed", ["guard", "supervisor"])
async def test_sigkill_of_either_process_of_the_shim_leaves_no_daemon(record: Path, killed: str) -> None:
    with subprocess.Popen([*SHIM, str(os.getpid()), *deaf(record)], stdin=subprocess.PIPE) as process:
        await wait_for(pids_in(record, 2))
        guard = psutil.Process(process.pid)
        below = guard.children(recursive=True)
        {"guard": guard, "supervisor": guard.children()[0]}[killed].kill()

        await wait_for(lambda: not executing(record) and not any(process.is_running() for process in below))


@pytest.mark.skipif(LANDLOCK < 6, reason="the kernel's Landlock doesn't scope signals")
@pytest.mark.parametrize("user", [os.geteuid(), pytest.param(65534, marks=as_root)], ids=["platform_user", "own_user"])
@pytest.mark.parametrize(("since", "said"), [(6, "apart False False True"), (99, "signals False True True")])
def test_process_is_kept_from_others_by_what_the_kernel_has_and_moves_files(
    tmp_path: Path, user: int, since: int, said: str
) -> None:
    for folder in (tmp_path, tmp_path / "a", tmp_path / "b"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    command = (sys.executable, "-I", "-S", "-c", APART, shim.__file__, str(since), str(user))

    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)

    assert done.stdout.splitlines() == ["True True", said]
