"""Runs one stdio server and ends all its processes: `python -I -S shim.py <parent pid> <command> [<argument> ...]`.

The server inherits stdin, stdout and stderr. The shim, its parent process, ends when the server ends, when the platform
closes stdin, when the platform ends (also by kill -9), or on SIGTERM; then it ends every descendant, also those that
ignore SIGTERM and the end of stdin, or that became daemons. Its exit code is the server's, or 128 + n if signal n ended
the server.

It imports only a few modules of the standard library, because it starts with every server. On Linux it is a child
subreaper, so that it adopts orphans; elsewhere only the server's process group is ended. There it is two processes, of
which each ends everything if the other one is killed: a guard, and its child, which starts the server.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAPBSET_DROP = 24
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 4096, 16384, 1 << 18
# DAC_READ_SEARCH, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, MKNOD, PERFMON, BPF, CHECKPOINT_RESTORE
_DANGEROUS_CAPABILITIES = (2, 16, 17, 19, 21, 27, 38, 39, 40)
HIDDEN = "STARLING_SHIM_HIDDEN"  # the variable with the paths to hide from the server, which doesn't get it
USER = "STARLING_SHIM_USER"  # the variable with uid, gid and groups of the server, which doesn't get it
_PARENT_GONE = signal.SIGUSR1  # sent by the kernel when the thread that spawned the shim ends
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STDIN_GRACE = 0.7  # seconds between the end of stdin and SIGTERM
_TERM_GRACE = 0.7  # seconds between SIGTERM and SIGKILL
_KILL_ROUNDS = 100  # of 50 ms; what is left then can't be ended
_LINUX = sys.platform == "linux"


type _Mount = tuple[bytes, bytes, bytes | None, int, bytes | None]  # source, target, type, flags, options


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become(uid: int, gid: int, *groups: int) -> None:
    """Give up root for another user. Raises OSError."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def hide(paths: list[str], *, as_own_user: bool = False) -> str:
    """Make these files and folders empty for this process and its descendants; return why that failed, else nothing.

    It gets a mount namespace of its own, and loses the capabilities by which root could get around it. A server that
    runs as a user of its own can't be in a user namespace that doesn't have that user.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    for capability in _DANGEROUS_CAPABILITIES:  # the next program doesn't get them
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if libc.unshare(_CLONE_NEWNS) != 0:
        if as_own_user or libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
            return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mounts: list[_Mount] = [(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)]
    for path in filter(os.path.exists, paths):
        folder = (b"tmpfs", os.fsencode(path), b"tmpfs", _MS_RDONLY, b"size=4k,mode=000")
        mounts.append(folder if os.path.isdir(path) else (b"/dev/null", os.fsencode(path), None, _MS_BIND, None))
    for mount in mounts:
        if libc.mount(*mount) != 0:
            return f"{os.fsdecode(mount[1])} can't be covered: {os.strerror(ctypes.get_errno())}"
    return ""


def _parent(name: str) -> int:
    """Return the parent of process `name`, 0 if it has ended."""
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _descendants() -> list[int]:
    """Return the processes below this one."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        children.setdefault(_parent(name), []).append(int(name))
    found = [os.getpid()]
    for pid in found:  # grows during the iteration
        found += children.get(pid, [])
    return found[1:]


def _ignore(*_: object) -> None:
    """Do nothing: the wake-up descriptor ends the wait."""


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class Supervisor:
    """Supervises one server from its start until all of its processes have ended."""

    def __init__(self, parent: int, command: list[str]) -> None:
        self.parent = parent
        self.command = command
        self.code: int | None = None  # the server's exit code, once it has ended
        self.server = 0
        self.no_children = False  # no child is left, running or unreaped
        self.stop_requested = False
        self.wake, wake_writer = os.pipe()
        for end in (self.wake, wake_writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)

    def run(self) -> int:
        """Start the server, wait for a reason to end, end everything; return the exit code."""
        signal.signal(signal.SIGCHLD, _ignore)
        signal.signal(_PARENT_GONE, _ignore)
        for number in _ENDING:
            signal.signal(number, self._request_stop)
        _prctl(_PR_SET_PDEATHSIG, _PARENT_GONE)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if self._parent_gone():  # it died before the death signal was set
            return 1
        self.server = os.fork()
        if self.server == 0:
            self._exec_server()
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1)  # so that the reader sees the end of the server's output
        os.dup2(quiet, 2)
        self._wait_for_end()
        self._end_all()
        return self.code if self.code is not None else 1

    def _request_stop(self, *_: object) -> None:
        self.stop_requested = True

    def _parent_gone(self) -> bool:
        return os.getppid() != self.parent

    def _exec_server(self) -> None:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*_ENDING, _PARENT_GONE, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        hidden, user = os.environ.pop(HIDDEN, ""), os.environ.pop(USER, "")  # noqa: TID251 - the server's environment
        try:
            if hidden and _LINUX:
                hide(hidden.split(os.pathsep), as_own_user=bool(user))
            if user:
                become(*map(int, user.split(",")))
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it is killed with the shim; a change of the user resets that
            os.execvp(self.command[0], self.command)
        except OSError as error:
            os.write(2, f"{self.command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(127)

    def _wait_for_end(self) -> None:
        """Return when there is a reason to end."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(0, 0)  # reports only that the other end was closed
        stdin_closed = False
        while not (self.stop_requested or stdin_closed or self._parent_gone()):
            events = poll.poll()
            stdin_closed = any(fd == 0 for fd, _ in events)
            self._drain()
            self._reap()
            if self.code is not None:
                return
        self._wait_until(time.monotonic() + _STDIN_GRACE, lambda: self.code is not None)

    def _drain(self) -> None:
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass

    def _reap(self) -> None:
        """Reap ended children. Orphans are adopted by this process, so that no children means no processes at all."""
        while not self.no_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.no_children = True
                return
            if pid == 0:
                return
            if pid == self.server:
                self.code = _exit_code(status)

    def _end_all(self) -> None:
        """End all remaining processes: SIGTERM, a short wait, SIGKILL until none is left."""
        self._signal(signal.SIGTERM)
        self._wait_until(time.monotonic() + _TERM_GRACE, lambda: self.no_children)
        for _ in range(_KILL_ROUNDS):
            if self.no_children:
                return
            self._signal(signal.SIGKILL)
            self._wait_until(time.monotonic() + 0.05, lambda: self.no_children)

    def _signal(self, number: signal.Signals) -> None:
        for pid in _descendants() if _LINUX else (-self.server,):
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _wait_until(self, end: float, reached: Callable[[], bool]) -> None:
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        self._reap()
        while not reached() and (left := end - time.monotonic()) > 0:
            poll.poll(max(1, int(left * 1000)))
            self._drain()
            self._reap()


class Guard:
    """Waits for the process that supervises the server, and ends what it leaves if it is killed."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def run(self, supervisor: int) -> int:
        """Wait; return the exit code."""
        for number in _ENDING:
            signal.signal(number, partial(self._stop, supervisor))
        signal.signal(_PARENT_GONE, partial(self._stop_without_parent, supervisor))
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # so that the platform sees when the server and the supervisor close its streams
            os.dup2(quiet, stream)
        _prctl(_PR_SET_PDEATHSIG, _PARENT_GONE)
        self._stop_without_parent(supervisor)
        pid = status = 0
        while pid != supervisor:
            pid, status = os.wait()
        code = _exit_code(status)
        for _ in range(_KILL_ROUNDS):
            if not _kill_descendants():
                break
            time.sleep(0.01)
        return code

    def _stop_without_parent(self, supervisor: int, *_: object) -> None:
        if os.getppid() != self.parent:
            self._stop(supervisor)

    def _stop(self, supervisor: int, *_: object) -> None:
        try:
            os.kill(supervisor, signal.SIGTERM)
        except ProcessLookupError:
            pass


def _kill_descendants() -> bool:
    """Kill and reap the processes below this one; return whether there were any."""
    found = _descendants()
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return bool(found)


def main() -> int:
    """Supervise a server, in two processes on Linux; return the exit code."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if not _LINUX:
        return Supervisor(parent, command).run()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    if os.getppid() != parent:  # it died before the death signal is set
        return 1
    if (supervisor := os.fork()) == 0:
        return Supervisor(guard, command).run()
    return Guard(parent).run(supervisor)


if __name__ == "__main__":
    sys.exit(main())
