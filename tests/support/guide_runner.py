"""Runs the commands of documentation pages, with real ids and addresses in place of those that are written there."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import command_client
from tests.support.command_line import CliWorkspace
from tests.support.command_server import command_server
from tests.support.documented_commands import ROOT, Block, blocks, reason_not_to_run
from tests.support.postgres_servers import program_path

_OWN = re.compile(
    r"sk-starling-[\w-]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|http://(?:127\.0\.0\.1|0\.0\.0\.0):\d+"
)
_READY = re.compile(r" listens on | works with ")
_PORT = re.compile(r"--port \d+")
_SERVICES = {"up", "serve", "worker"}
_UP = "starling up"
_ADDRESS = "http://127.0.0.1:8000"
_SECONDS = 120

type Variables = Mapping[str, str]


@dataclass(frozen=True)
class Service:
    """A started `starling up`, `serve` or `worker`, and its output until it was ready."""

    command: str
    exported: Variables
    process: subprocess.Popen[str]
    said: str

    def end(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(_SECONDS) == 128 + signal.SIGINT
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class GuideRunner:
    """Runs pages in a folder of its own, next to a running `starling up`.

    `stand_ins` maps addresses that guides mention, such as a database, to real ones.
    """

    workspace: CliWorkspace
    stand_ins: dict[str, str]
    own: dict[str, str] = field(default_factory=dict[str, str])
    knows_keys: bool = False  # for two seconds the running `up` may still ask for a key that was revoked
    up: Service | None = None

    @classmethod
    @contextmanager
    def in_clone(cls, workspace: CliWorkspace, stand_ins: dict[str, str]) -> Generator["GuideRunner"]:
        """Give a runner in a folder like a clone after `make demo`, with the README's `mcp.json`."""
        _link_environment(workspace.folder / ".venv")
        (workspace.folder / ".tools").symlink_to(ROOT / ".tools")
        (workspace.folder / ".curlrc").write_text("fail\n")  # a status of 400 or more is an exit code
        reader = cls(workspace, stand_ins)
        try:
            yield reader
        finally:
            reader.leave()

    def follow(self, page: str) -> Iterator[Block]:
        """Run the commands of a page, starting from the state after the README; yield each block that was run."""
        self._begin()
        for block in blocks(page):
            if block.file:
                (self.workspace.folder / block.file).write_text(self._translated(block.text))
            if block.is_run:
                with ExitStack() as services:
                    self._type(block, services)
                yield block

    def leave(self) -> None:
        """Stop the running `up`."""
        if self.up:
            self.up.end()
        self.up = None

    def _begin(self) -> None:
        file, text = self.workspace.folder / "mcp.json", next(block.text for block in blocks("README.md") if block.file)
        changed = not file.exists() or file.read_text() != text
        file.write_text(text)
        if not self.up or self.knows_keys or (_bare(self.up.command), self.up.exported) != (_UP, {}):
            self._start(_UP, {})
            self.knows_keys = False
        elif changed:
            self._run("starling registry reload", {})

    def _type(self, block: Block, services: ExitStack) -> None:
        """Run the commands of a block; `services` that it starts run until its end."""
        expected = block.exit_code
        exported: dict[str, str] = {}
        for command, output in block.commands():
            if reason_not_to_run(command):
                continue
            words = _words(self._translated(command))
            if words[0] == "export":
                exported |= dict(word.split("=", 1) for word in words[1:])
            elif not _SERVICES.isdisjoint(words):
                self._serve(command, dict(exported), output, services)
            else:
                done = self._run(command, exported)
                assert done.returncode == expected, f"{command}\n{done.stdout}{done.stderr}"
                self._learn(output, done.stdout + done.stderr)
                self.knows_keys |= " key revoke " in command
            expected = 0

    def _serve(self, command: str, exported: Variables, output: str, services: ExitStack) -> None:
        """Start a service. An `up` replaces the running one, unless it is the same command."""
        if "up" not in command.split():
            service = self._started(command, exported)
            services.callback(service.end)
            self._learn(output, service.said)
        elif not self.up or (_bare(self.up.command), self.up.exported) != (_bare(command), exported):
            self._start(command, exported)

    def _start(self, command: str, exported: Variables) -> None:
        """Stop the running `up` and start another."""
        self.leave()
        self.up = self._started(command, exported)
        self.own[_ADDRESS] = _OWN.findall(self.up.said)[0].replace("0.0.0.0", "127.0.0.1")  # noqa: S104

    def _started(self, command: str, exported: Variables) -> Service:
        log = self.workspace.folder / "service.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                _words(_PORT.sub("--port 0", self._translated(command))),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.workspace.folder,
                env=self._environment(exported) | {"PORT": "0"},
            )
        assert process.stdout is not None
        said = ""
        try:
            for line in process.stdout:
                said += line
                if _READY.search(line):
                    return Service(command, exported, process, said)
        except BaseException:  # the test has timed out
            process.kill()
            raise
        raise AssertionError(f"{command}\n{said}{log.read_text()}")

    def _run(self, command: str, exported: Variables) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-ec", self._translated(command)],
            capture_output=True,
            text=True,
            cwd=ROOT if command.startswith("make") else self.workspace.folder,
            env=self._environment(exported),
            timeout=_SECONDS,
            check=False,
        )

    def _environment(self, exported: Variables) -> dict[str, str]:
        kept = {name: value for name, value in self.workspace.environment.items() if name != "STARLING_MODEL"}
        here = {
            "PATH": f"{self.workspace.folder}/.venv/bin:{kept['PATH']}",
            "OLLAMA_BASE_URL": "http://127.0.0.1:9",  # nothing listens there, so the model is offline:rules
        }
        port = {"PORT": self.own[_ADDRESS].rpartition(":")[2]} if _ADDRESS in self.own else {}
        return kept | here | port | dict(exported)

    def _translated(self, text: str) -> str:
        for named, here in self.stand_ins.items():
            text = text.replace(named, here)
        return _OWN.sub(lambda found: self.own.get(found[0], found[0]), text)

    def _learn(self, written: str, said: str) -> None:
        """Remember which real ids, keys and addresses stand for those written in a guide."""
        self.own |= dict(zip(_OWN.findall(written), _OWN.findall(said), strict=False))


def _link_environment(environment: Path) -> None:
    """Link to the Python environment and Postgres' programs; its `starling` is the client of the command server."""
    (environment / "bin").mkdir(parents=True)
    for place in (Path(sys.prefix), Path(sys.prefix, "bin")):
        for file in place.iterdir():
            if file.name not in ("bin", "starling"):
                (environment / file.relative_to(sys.prefix)).symlink_to(file)
    for program in ("pg_dump", "pg_restore"):
        (environment / "bin" / program).symlink_to(program_path(program))
    client, address = Path(command_client.__file__), command_server().address()
    program = environment / "bin" / "starling"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{client}" "{address}" "$@"\n')
    program.chmod(0o755)


def _bare(command: str) -> str:
    return command.removeprefix(".venv/bin/")


def _words(command: str) -> list[str]:
    with suppress(ValueError):
        return shlex.split(command, comments=True)
    return command.split()
