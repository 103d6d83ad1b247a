"""A hostile stdio server beside another one: it reads, forges, stops and writes nothing of what isn't its own."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

import starling
from mcp_gateway.sessions import shim
from tests.support.command_line import CliWorkspace, Service, new_workspace
from tests.support.gateway_harness import SERVERS
from tests.support.puppets import Puppet, Puppets

_SYS_PTRACE: Final = 19  # the number of a capability
_SECRET: Final = "shop-token-of-this-test"
_ABI: Final = ctypes.CDLL(None).syscall(444, None, 0, 1) if sys.platform == "linux" else 0  # of Landlock
_PYTHON: Final = {"": sys.executable, "nobody": "/usr/bin/python3"}  # one that the server's user reaches

pytestmark = pytest.mark.skipif(_ABI < 1, reason="the kernel has no Landlock")
with_scoped_signals = pytest.mark.skipif(_ABI < 6, reason="the kernel's Landlock doesn't scope signals")


@dataclass(frozen=True)
class Attacked:
    """A platform with the servers `shop`, which has a token, and `mole`, which attacks."""

    workspace: CliWorkspace
    service: Service
    config: Path
    puppets: Puppets
    mole: Puppet

    @property
    def others(self) -> list[int]:
        """The platform, the shop, and the shims of the shop."""
        own = [self.mole.pid, *(parent.pid for parent in psutil.Process(self.mole.pid).parents())]
        family = psutil.Process(self.service.process.pid).children(recursive=True)
        return [self.service.process.pid, *(process.pid for process in family if process.pid not in own)]

    @property
    def readable(self) -> list[str]:
        """What `mole` can read of other processes, also of its own outermost shim."""
        own = [one.pid for one in psutil.Process(self.mole.pid).parents() if one.ppid() == self.service.process.pid]
        return self.mole("read_memory", self.others + own) + self.mole("processes_with", _SECRET)


def pay(workspace: CliWorkspace, service: Service, puppets: Puppets, name: str) -> Puppet:
    """Have a server called, so that it runs; its session is kept."""
    with workspace.started("ask", f"Pay the invoice of the {name}.", "--url", service.url) as asking:
        (puppet := puppets.called(name))("pay")
        asking.communicate()
    return puppet


@pytest.fixture(
    scope="module",
    params=["", pytest.param("nobody", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it"))],
    ids=["platform_user", "own_user"],
)
def attacked(request: pytest.FixtureRequest, module_database_url: str) -> Generator[Attacked]:
    user: dict[str, str] = {"STARLING_SERVER_USER": request.param} if request.param else {}
    with (
        Puppets.listening_for() as puppets,
        new_workspace(DATABASE_URL=module_database_url, SHOP_TOKEN=_SECRET, **user) as workspace,
    ):
        workspace.folder.chmod(0o755)
        (config := workspace.folder / "config").mkdir(mode=0o755)
        script = Path(shutil.copy(SERVERS / "puppet.py", workspace.folder))
        first, second = (puppets.server(name, _PYTHON[request.param], script) for name in ("shop", "mole"))
        servers = {"shop": first | {"env": {"SHOP_TOKEN": "${SHOP_TOKEN}"}}, "mole": second}
        (config / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        (workspace.folder / "starling.yaml").write_text("log_level: WARNING\n")
        command = ("up", "--port", "0", "--mcp-config", config / "mcp.json")
        with workspace.running(*command, installed=True) as service:
            _, mole = [pay(workspace, service, puppets, name) for name in servers]
            yield Attacked(workspace, service, config / "mcp.json", puppets, mole)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to pass on")
def test_server_inherits_no_capabilities() -> None:
    """With an inherited one, a server of root would keep it whatever is dropped, and read other servers."""
    given = ("setpriv", "--inh-caps", "+sys_ptrace,+net_raw", "--ambient-caps", "+sys_ptrace,+net_raw")
    server = (sys.executable, "-I", "-S", shim.__file__, str(os.getpid()), "cat", "/proc/self/status")

    done = subprocess.run([*given, *server], check=True, capture_output=True, text=True, stdin=subprocess.PIPE)

    has = {name: int(held, 16) for name, held in re.findall(r"Cap(\w+):\t(\w+)", done.stdout)}
    assert (has["Inh"], has["Amb"], has["Eff"] >> _SYS_PTRACE & 1) == (0, 0, 0)


def test_server_reads_no_token_and_no_memory_of_another_process(attacked: Attacked) -> None:
    assert attacked.readable == []


def test_call_of_a_server_is_answered_by_no_other_server(attacked: Attacked) -> None:
    asked = ("ask", "Pay the invoice of the shop.", "--url", attacked.service.url, "--json")
    with attacked.workspace.started(*asked) as asking:
        shop = attacked.puppets.called("shop")
        taken = attacked.mole("forge", attacked.others)
        shop("pay")
        events, _ = asking.communicate()

    assert "FORGED" not in events
    assert "paid by the shop" in events
    assert taken == []


@pytest.mark.parametrize("attack", [pytest.param("reach_by_signal", marks=with_scoped_signals), "limit"])
def test_server_reaches_no_other_process_by_signals_and_limits(attacked: Attacked, attack: str) -> None:
    assert attacked.mole(attack, attacked.others) == []


def test_server_writes_no_servers_settings_source_or_environment_of_the_platform(attacked: Attacked) -> None:
    source, environment = Path(starling.__file__).parent, Path(sys.prefix)
    library = next(environment.glob("lib/python*/site-packages"))
    own = [attacked.config, attacked.workspace.folder / "starling.yaml", source / "__init__.py", source]
    used = [environment / "bin", environment / "pyvenv.cfg", library, Path(os.__file__), Path(os.__file__).parent]
    paths = [str(path) for path in own + used]
    around = [f"/proc/{pid}/root{path}" for pid in (1, *attacked.others) for path in paths]

    assert attacked.mole("write", [*paths, *around]) == []


def test_server_changes_no_setting_of_the_kernel_that_runs_or_freezes_other_processes(attacked: Attacked) -> None:
    if psutil.Process(attacked.mole.pid).uids().real == 0:
        pytest.skip("a server of root can change the machine, as the guide says")
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob("**/cgroup.procs")]

    assert attacked.mole("write", ["/proc/sys/kernel/core_pattern", *groups]) == []


def test_server_replaces_no_folder_above_the_servers_of_the_platform(attacked: Attacked) -> None:
    assert attacked.mole("rename", str(attacked.config)) == []


def test_server_still_writes_its_own_files_and_controls_its_own_processes(attacked: Attacked) -> None:
    (folder := attacked.workspace.folder / "own").mkdir()
    folder.chmod(0o777)

    child = attacked.mole("start_child", str(folder / "file"))

    assert child == {"environment": "OWN=1", "ended_by": -15, "file": "written"}


def test_isolation_that_is_told_is_what_an_attack_finds(attacked: Attacked) -> None:
    reached = attacked.mole("reach_by_signal", attacked.others)
    shown = attacked.workspace.json("server", "show", "mole")["isolation"]
    listed = attacked.workspace.json("server", "list")

    assert shown["processes"] == ("none" if attacked.readable else "signals" if reached else "apart")
    assert shown["processes"] == ("apart" if _ABI >= 6 else "signals")
    assert shown["files"] == ("own_user" if psutil.Process(attacked.mole.pid).uids().real else "mount_namespace")
    assert [server["isolation"] for server in listed] == [shown] * 2


@with_scoped_signals
def test_platform_and_server_outlive_a_server_that_kills_all_it_reaches(attacked: Attacked) -> None:
    """The last test: it may leave no platform."""
    others = attacked.others

    assert attacked.mole("end", others) == []
    assert attacked.others == others
