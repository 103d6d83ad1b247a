"""What other processes can read of this one."""

import os
import subprocess
import sys
from pathlib import Path

_WATCHED = """
import sys
from starling.app.cli.process_setup import forbid_inspection
forbid_inspection()
print("ready", flush=True)
sys.stdin.read()
"""
_LOOK = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
if os.geteuid() == 0:
    for capability in (19, 21, 38):  # SYS_PTRACE, SYS_ADMIN, PERFMON: they leave with the next program
        libc.prctl(24, capability, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], *sys.argv[1:]])
exec(sys.argv[1])
"""
_READ = """
import sys
for name in ("environ", "mem", "maps"):
    try:
        open(f"/proc/{sys.argv[-1]}/{name}", "rb").read(1)
        print(name, "read")
    except PermissionError:
        print(name, "refused")
    except OSError:
        print(name, "opened")
"""


def test_environment_and_memory_are_unreadable_for_a_process_that_may_not_trace_others() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _WATCHED], stdin=pipe, stdout=pipe, env=environment) as watched:
        assert watched.stdout is not None
        watched.stdout.readline()
        look = [sys.executable, "-c", _LOOK, _READ, str(watched.pid)]
        seen = subprocess.run(look, capture_output=True, text=True, check=True).stdout
        watched.communicate()

    assert seen.split("\n")[:-1] == ["environ refused", "mem refused", "maps refused"]
