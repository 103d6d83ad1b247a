"""The data folder of the embedded server: its location and its initialisation."""

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from starling.core.errors import ConfigurationError
from starling.infra.postgres.embedded.os_process import Account, claim_folder, die_with_parent, root_home

ROLE = "starling"
_INITDB_SECONDS = 120
# A random password of 192 bits needs no stretching; every connection pays for each iteration.
_INITDB = (
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale-provider=builtin",
    "--locale=C.UTF-8",
    *("-c", "scram_iterations=64"),
    *("-c", "timezone=UTC"),
    *("-c", "log_timezone=UTC"),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The folders of one embedded server.

    `control` belongs to this process's user: lock, run-time file, password, log. `home` holds the folders that belong
    to the server's account, `data` and `run`; it is `control` itself unless the account can't reach that.
    """

    control: Path
    home: Path
    account: Account

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def run(self) -> Path:
        return self.home / "run"

    @property
    def log(self) -> Path:
        return self.control / "log"

    @property
    def password_file(self) -> Path:
        return self.control / "password"

    def password(self) -> str:
        return self.password_file.read_text()


def locate(data_dir: Path, account: Account, *, explicit: bool) -> Cluster:
    """Return the folders for `data_dir`; create missing ones.

    If the account can't reach `data_dir`, the data are stored under `root_home()`; if the user named the folder
    (`explicit`), ConfigurationError is raised instead.
    """
    control = control_folder(data_dir)
    claim_folder(control, 0o700 if account.is_self else 0o711)
    home = control if account.can_reach(control) else _hidden_home(control, explicit=explicit)
    account.make_folder(home / "run")
    return Cluster(control, home, account)


def control_folder(data_dir: Path) -> Path:
    """Return where the embedded server of `data_dir` keeps its lock and its run-time file."""
    return data_dir.expanduser().absolute() / "postgres"


def _hidden_home(control: Path, *, explicit: bool) -> Path:
    if explicit:
        raise ConfigurationError(
            f"Postgres doesn't run as root, and the user that it runs as can't reach {control}.",
            "Open the folders above it (chmod o+x), choose another STARLING_DATA_DIR, or set DATABASE_URL.",
        )
    home = root_home() / hashlib.sha256(os.fsencode(control)).hexdigest()[:16]
    claim_folder(home, 0o711)
    return home


def initialise(cluster: Cluster, binaries: Path, *, durable: bool) -> None:
    """Create the data folder if it is missing; what an interrupted attempt leaves is not used."""
    if (cluster.data / "PG_VERSION").is_file():
        if not cluster.password_file.is_file():  # set a new one, so that the data stay usable
            password = secrets.token_urlsafe(24)
            command = [binaries / "postgres", "--single", "-D", cluster.data, "postgres"]
            _run(cluster, command, stdin=f"ALTER ROLE {ROLE} PASSWORD '{password}'\n")
            write_private(cluster.password_file, password)
        return
    draft = cluster.home / "data.new"
    shutil.rmtree(draft, ignore_errors=True)
    cluster.account.make_folder(draft)
    password = secrets.token_urlsafe(24)
    with _private_file(cluster, password) as file:
        command = [binaries / "initdb", "-D", draft, "-U", ROLE, "--pwfile", file, *_INITDB]
        _run(cluster, command if durable else [*command, "--no-sync"])
    write_private(cluster.password_file, password)
    draft.rename(cluster.data)


@contextlib.contextmanager
def _private_file(cluster: Cluster, text: str) -> Generator[str]:
    """Yield the path of a temporary file with `text` that only the account can read."""
    with tempfile.NamedTemporaryFile("w", dir=cluster.run) as file:
        if not cluster.account.is_self:
            os.fchown(file.fileno(), cluster.account.uid, cluster.account.gid)
        file.write(text)
        file.flush()
        yield file.name


def _run(cluster: Cluster, command: Sequence[str | Path], *, stdin: str = "") -> None:
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        timeout=_INITDB_SECONDS,
        check=False,
        preexec_fn=die_with_parent(signal.SIGKILL),
        **cluster.account.popen,
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise ConfigurationError(
            f"The embedded Postgres can't be set up in {cluster.home}: {' '.join(last)}",
            "Correct that, choose another STARLING_DATA_DIR, or set DATABASE_URL.",
        )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)
