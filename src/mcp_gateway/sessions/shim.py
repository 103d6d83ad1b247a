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
import errno
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION, _LANDLOCK_PATH_BENEATH, _LANDLOCK_ACCESS_REFER, _LANDLOCK_SCOPE_SIGNAL = 1, 1, 1 << 13, 2
_LANDLOCK_REFER_ABI, _LANDLOCK_SIGNAL_ABI = 2, 6
_PRLIMIT = {  # of a machine: each architecture of its programs, as seccomp names it, with the number of prlimit64
    "x86_64": ((0xC000003E, 302), (0xC000003E, 302 | 1 << 30), (0x40000003, 340)),
    "aarch64": ((0xC00000B7, 261), (0x40000028, 369)),
}
_CAPABILITIES_OF_THIS = struct.pack("Ii", 0x20080522, 0)  # the version of their form, and the calling thread
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 4096, 16384, 1 << 18
# DAC_READ_SEARCH, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, MKNOD, PERFMON, BPF, CHECKPOINT_RESTORE
_DANGEROUS_CAPABILITIES = (2, 16, 17, 19, 21, 27, 38, 39, 40)
# Variables that the server doesn't get:
HIDDEN = "STARLING_SHIM_HIDDEN"  # the paths to hide from it, one a line
READ_ONLY = "STARLING_SHIM_READ_ONLY"  # the paths that it can't write, one a line
USER = "STARLING_SHIM_USER"  # its uid, gid and groups
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


def hide(paths: list[str], read_only: list[str], *, as_own_user: bool = False) -> str:
    """Make files and folders empty, and others read-only, for this process and its descendants.

    Return why that failed, else nothing. It gets a mount namespace of its own. A server that runs as a user of its own
    can't be in a user namespace that doesn't have that user. Folders above these paths can't be renamed there: they
    are mount points.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        if as_own_user:
            return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
        if (trial := os.fork()) == 0:  # a namespace whose user can't be mapped can't be left
            os._exit(_enter_user_namespace(libc))
        if error := os.waitstatus_to_exitcode(os.waitpid(trial, 0)[1]) or _enter_user_namespace(libc):
            return f"no mount namespace: {os.strerror(error)}"
    for mount in _mounts(list(filter(os.path.exists, paths)), read_only := list(filter(os.path.exists, read_only))):
        if libc.mount(*mount) != 0:
            return f"{os.fsdecode(mount[1])} can't be covered: {os.strerror(ctypes.get_errno())}"
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    for path in filter(os.path.exists, read_only):  # the others are hidden now
        flags, size = _AT_RECURSIVE, ctypes.c_size_t(len(attributes))
        if libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attributes, size) != 0:
            return f"{path} can't be made read-only: {os.strerror(ctypes.get_errno())}"
    os.chdir(os.getcwd())  # the folder of that path is in the new mounts now
    return ""


def _enter_user_namespace(libc: ctypes.CDLL) -> int:
    """Enter a user namespace that has this user, and a mount namespace; return the number of an error, else 0."""
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
        return ctypes.get_errno()
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def _mounts(hidden: list[str], read_only: list[str]) -> Iterator[_Mount]:
    """Yield the mounts that cover paths; each folder above one, and what will be read-only, is mounted on itself."""
    yield b"none", b"/", None, _MS_REC | _MS_PRIVATE, None
    above, paths = set[str](), {*hidden, *read_only}
    while paths := {os.path.dirname(path) for path in paths} - {"/"}:
        above |= paths
    for path in [*sorted(above, key=len), *read_only]:
        yield os.fsencode(path), os.fsencode(path), None, _MS_BIND | _MS_REC, None
    for path in map(os.fsencode, hidden):
        folder = (b"tmpfs", path, b"tmpfs", _MS_RDONLY, b"size=4k,mode=000")
        yield folder if os.path.isdir(path) else (b"/dev/null", path, None, _MS_BIND, None)


def set_apart() -> tuple[str, str]:
    """Keep this process and its descendants from all other processes, also as root, from the next program on.

    Return what was reached, and why it isn't more: `apart`, `signals` (it can send signals to other processes, but not
    read their variables, memory and descriptors), or `none`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    held = ctypes.create_string_buffer(24)
    if libc.capget(_CAPABILITIES_OF_THIS, held) == 0:
        kept = struct.unpack("6I", held)
        libc.capset(_CAPABILITIES_OF_THIS, struct.pack("6I", *kept[:2], 0, *kept[3:5], 0))  # none is inherited
    for capability in _DANGEROUS_CAPABILITIES:  # with some of them, root reads processes of all domains
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if abi < _LANDLOCK_REFER_ABI:  # with the first one, no domain could rename a file into another folder
        return "none", f"no Landlock: {os.strerror(ctypes.get_errno()) if abi < 0 else 'Linux 5.19 or later has it'}"
    if (ruleset := _ruleset(libc, abi)) < 0 or libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # who isn't root needs it
        if libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            return "none", f"no Landlock domain: {os.strerror(ctypes.get_errno())}"
    if abi < _LANDLOCK_SIGNAL_ABI:
        return "signals", "Linux 6.12 or later keeps signals in a Landlock domain"
    return ("apart", "") if _forbid_limits(libc) else ("signals", "it can set limits of other processes")


def _ruleset(libc: ctypes.CDLL, abi: int) -> int:
    """Return the descriptor of a Landlock ruleset that denies nothing, or only signals; -1 for an error."""
    scoped = abi >= _LANDLOCK_SIGNAL_ABI
    handled = struct.pack("QQQ", 0, 0, _LANDLOCK_SCOPE_SIGNAL) if scoped else struct.pack("Q", _LANDLOCK_ACCESS_REFER)
    ruleset: int = libc.syscall(_LANDLOCK_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if scoped:
        return ruleset
    everywhere = struct.pack("=Qi", _LANDLOCK_ACCESS_REFER, os.open("/", os.O_PATH))
    return ruleset if libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, everywhere, 0) == 0 else -1


def _forbid_limits(libc: ctypes.CDLL) -> bool:
    """Deny prlimit of other processes, which could end them; return whether that is done."""
    load, equal, leave = 0x20, 0x15, 0x06  # BPF: of the field at an offset; else skip instructions; with a verdict
    code = b"".join(
        struct.pack("=" + "HBBI" * 7, load, 0, 0, 4, equal, 0, 5, machine, load, 0, 0, 0, equal, 0, 3, number,
                    load, 0, 0, 16, equal, 1, 0, 0, leave, 0, 0, 0x50000 | errno.EPERM)
        for machine, number in _PRLIMIT.get(os.uname().machine, ())
    )  # fmt: skip
    if not code:
        return False
    code += struct.pack("=HBBI", leave, 0, 0, 0x7FFF0000)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(kept := ctypes.create_string_buffer(code)))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0) == 0 and kept)


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
        own = os.environ  # noqa: TID251 - the server's environment
        hidden, read_only, user = own.pop(HIDDEN, ""), own.pop(READ_ONLY, ""), own.pop(USER, "")
        try:
            if _LINUX and (hidden or read_only):
                hide(hidden.split("\n"), read_only.split("\n"), as_own_user=bool(user))
            if _LINUX:
                set_apart()
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
