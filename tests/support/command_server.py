"""Runs `starling` commands in forks of one process that has imported everything: starting one takes milliseconds.

Each command is a process of its own, with its own arguments, environment, folder and streams, and it ends with the
exit code that the installed command has. What is saved is the interpreter's start and the imports, about a second of
processor time a command, twice that for a service. Tests of the installed program itself start
`command_line.STARLING` instead. `command_client.py` takes the place of the program in commands of a shell.

The server is `python -m tests.support.command_server SOCKET`; the workers of xdist share one. A request is JSON with
three file descriptors; the answer is the process id and, once the command has ended, the exit code, in four bytes each.
A client that closes the connection earlier has the command killed.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import logging
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, Self

_ROOT: Final = Path(__file__).parents[2]
_SHARED: Final = "TESTS_COMMAND_SERVER"  # the folder of the server that this process shares
_START_SECONDS: Final = 240
_REQUEST_BYTES: Final = 1 << 20
_STREAMS: Final = 3  # stdin, stdout, stderr
_NUMBER: Final = struct.Struct("!i")
_PACKAGES: Final = ("starling", "brain", "architect", "mcp_gateway")
_NOT_IMPORTED: Final = ("brain.agents.runtimes.crew.", "mcp_gateway.servers.")
_EXIT_CODES: Final[list[int]] = []  # in a command that has come to its end
_LATE_LIBRARIES: Final = ("alembic.command", "alembic.config", "httpcore", "typer.rich_utils")


class CommandServer:
    """The client's side: starts the server, unless the test processes share one that runs, and sends it commands."""

    def __init__(self, folder: Path) -> None:
        self._address = f"{folder}/socket"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not Path(self._address).exists():
                self._start(folder / "life")

    def _start(self, life: Path) -> None:
        """Start the server, which ends when no process has its input open for writing."""
        with life.open("rb") as source:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._address],
                cwd=_ROOT,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # numpy would start a thread
                stdin=source,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not Path(self._address).exists():  # it is still importing
            assert process.poll() is None, f"the command server ended with {process.returncode}"
            assert time.monotonic() < deadline, "the command server doesn't start"
            time.sleep(0.02)
        process.returncode = 0  # it may outlive this process, so that nobody waits for it

    def address(self) -> str:
        """Return the address of the socket."""
        return self._address

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str],
        stdin: str,
        seconds: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises TimeoutError after so many seconds, and kills it."""
        words = ["starling", *map(str, arguments)]
        with (
            tempfile.TemporaryFile() as source,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
            self._requested(words, folder, environment, (source, out, errors), stdin) as connection,
        ):
            connection.settimeout(seconds)
            _received(connection)  # its process id
            code = _received(connection)
            return subprocess.CompletedProcess(words, code, _content(out), _content(errors))

    def start(self, arguments: Sequence[str | Path], *, folder: Path, environment: Mapping[str, str]) -> "Command":
        """Start a command without input; its output can be read while it runs."""
        out, theirs_out = os.pipe()
        errors, theirs_errors = os.pipe()
        with (
            Path(os.devnull).open("rb") as nothing,
            open(theirs_out, "wb") as out_end,  # noqa: PTH123 - a file descriptor
            open(theirs_errors, "wb") as errors_end,  # noqa: PTH123
        ):
            words = ["starling", *map(str, arguments)]
            connection = self._requested(words, folder, environment, (nothing, out_end, errors_end))
        return Command(connection, _received(connection), os.fdopen(out, "r"), os.fdopen(errors, "r"))

    def start_on_terminal(
        self, arguments: Sequence[str | Path], terminal: int, *, folder: Path, environment: Mapping[str, str]
    ) -> "Command":
        """Start a command on a terminal, whose file descriptor is closed here; Ctrl-C there reaches the command."""
        with os.fdopen(terminal, "r+b", buffering=0) as opened:
            words = ["starling", *map(str, arguments)]
            connection = self._requested(words, folder, environment, (opened,) * _STREAMS, on_terminal=True)
        return Command(connection, _received(connection), io.StringIO(), io.StringIO())

    def _requested(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: Sequence[IO[bytes]],
        stdin: str = "",
        *,
        on_terminal: bool = False,
    ) -> socket.socket:
        """Send a request and return its connection, on which the answer comes."""
        if stdin:
            streams[0].write(stdin.encode())
            streams[0].seek(0)
        fields = {"arguments": words, "folder": str(folder), "environment": dict(environment)}
        request = json.dumps({**fields, "on_terminal": on_terminal}).encode()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self._address)
        socket.send_fds(connection, [request], [stream.fileno() for stream in streams])
        return connection


class Command:
    """A command that was started; what it offers is that of subprocess.Popen."""

    def __init__(self, connection: socket.socket, pid: int, stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._connection = connection
        self._waiting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.wait()

    def close(self) -> None:
        """Close both outputs."""
        self.stdout.close()
        self.stderr.close()

    def poll(self) -> int | None:
        """Return the exit code, None while the command runs."""
        if self._waiting.acquire(blocking=False):  # else another thread waits
            with contextlib.suppress(TimeoutError):
                self._receive(0.001)
            self._waiting.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, once there is one. Raises TimeoutError."""
        with self._waiting:
            return self._receive(timeout)

    def _receive(self, timeout: float | None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = _received(self._connection)
            self._connection.close()
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """Return the rest of both outputs, once the command has ended."""
        with ThreadPoolExecutor(1) as thread:
            errors = thread.submit(self.stderr.read)
            out = self.stdout.read()
        self.wait()
        return out, errors.result()

    def send_signal(self, number: int) -> None:
        """Send a signal unless the command has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends meanwhile
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def share_command_server() -> Path:
    """Have this process and those that it starts use one server, which ends with it; the first command starts it."""
    folder = tempfile.TemporaryDirectory(prefix="starling-commands-")
    life = Path(folder.name, "life")
    os.mkfifo(life)
    held = os.open(life, os.O_RDWR)
    os.environ[_SHARED] = folder.name

    def end() -> None:
        os.close(held)
        folder.cleanup()

    atexit.register(end)
    return Path(folder.name)


@cache
def command_server() -> CommandServer:
    """Return the server of this test process, or the one that it shares."""
    shared = os.environ.get(_SHARED)
    return CommandServer(Path(shared) if shared else share_command_server())


def _received(connection: socket.socket) -> int:
    answer = connection.recv(_NUMBER.size, socket.MSG_WAITALL)
    assert answer, "the command server ended"
    return _NUMBER.unpack(answer)[0]


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return io.TextIOWrapper(io.BytesIO(file.read()), "utf-8").read()  # with universal newlines, as a pipe of text has


class _Forks:
    """The server's side: listens, and forks a child for each request."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"{address}.new")
        self._listener.listen(16)
        Path(f"{address}.new").rename(address)  # what is there can be connected to
        self._running: dict[int, socket.socket] = {}
        self._ended, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for source in (sys.stdin, self._ended, self._listener):
            self._selector.register(source, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(self._waker.fileno())

    def serve(self) -> Callable[[], None] | None:
        """Return the command, in a child; return None in the server, when its input ends."""
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if sys.stdin in ready:
                return None
            if self._ended in ready:
                self._ended.recv(4096)
                self._answer_ended()
            self._kill_abandoned(ready)
            if self._listener in ready:
                connection = self._listener.accept()[0]
                content, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _STREAMS)
                if (pid := os.fork()) == 0:
                    self._close()
                    connection.close()
                    return _prepared(json.loads(content), streams)
                for stream in streams:
                    os.close(stream)
                connection.send(_NUMBER.pack(pid))
                self._running[pid] = connection
                self._selector.register(connection, selectors.EVENT_READ)

    def _answer_ended(self) -> None:
        """Send the exit codes of the children that have ended."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                with self._running.pop(pid) as connection, contextlib.suppress(OSError):
                    with contextlib.suppress(KeyError):  # its client has closed it
                        self._selector.unregister(connection)
                    connection.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def _kill_abandoned(self, ready: Collection[object]) -> None:
        """Kill the children whose clients have closed their connections."""
        for pid, connection in self._running.items():
            if connection in ready:
                self._selector.unregister(connection)
                os.kill(pid, signal.SIGKILL)

    def _close(self) -> None:
        """Close what is the server's, in a child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for opened in (self._selector, self._listener, self._ended, self._waker, *self._running.values()):
            opened.close()


def _wake(_: int, __: FrameType | None) -> None:
    """Handle SIGCHLD; a handler is needed for the wake-up file descriptor to be written to."""


def _prepared(request: Mapping[str, Any], streams: Sequence[int]) -> Callable[[], None]:
    """Make this process what a newly started command is, but for its modules; return the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request.get("on_terminal"):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", line_buffering=os.isatty(1)
    )
    errors = io.BufferedWriter(io.FileIO(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, "utf-8", "backslashreplace", line_buffering=True)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = request["arguments"]
    sys.modules["__main__"].__package__ = None  # or messages call the program `python -m ...`
    return importlib.import_module("starling.app.cli").main


def _import_platform() -> None:
    """Import all modules of the platform, so those that commands and services import later too, but for CrewAI."""
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(_NOT_IMPORTED):
                importlib.import_module(module.name)
    for library in _LATE_LIBRARIES:
        importlib.import_module(library)
    assert threading.active_count() == 1, "a process with threads can't be forked safely"
    gc.freeze()


def _run(command: Callable[[], None]) -> None:
    try:
        command()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _EXIT_CODES.append(ended.code or 0)
        raise


def _exit_at_once() -> None:
    """End this process, if it is a command that has come to its end.

    Taking apart what it has imported would copy all of the server's memory, which takes longer than most commands.
    """
    if _EXIT_CODES:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_EXIT_CODES[0])


if __name__ == "__main__":
    atexit.register(_exit_at_once)  # the first, which is called last: threads have ended by then
    _import_platform()
    if command := _Forks(sys.argv[1]).serve():
        _run(command)
