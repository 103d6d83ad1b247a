"""Service processes that are restarted whenever they end, as systemd does."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import psutil

from starling.infra.postgres.embedded.os_process import die_with_parent
from tests.support.command_line import STARLING

_RESTART_SECONDS = 0.2
_STOP_SECONDS = 60.0
_FAMILY_SECONDS = 20.0  # within which child processes of a killed service have to end


@dataclass(slots=True)
class ManagedService:
    """A service over all its starts. `environment` gives the environment variables of the nth start."""

    name: str
    command: Sequence[str]
    environment: Callable[[int], Mapping[str, str]]
    folder: Path
    starts: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    restarts: list[float] = field(default_factory=list[float])  # seconds from each end until it was ready again
    problems: list[str] = field(default_factory=list[str])
    stopped: bool = False  # by SIGSTOP
    _ending: bool = False
    _killed: bool = False  # or stopped: its end is expected

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    async def supervise(self) -> None:
        """Restart it whenever it ends, until `end` is called."""
        ended = monotonic()
        while not self._ending:
            was_ready = await self._run_once(ended)
            ended = monotonic()
            if was_ready and not self._killed and not self._ending:
                code = self.process.returncode if self.process else None
                self.problems.append(f"{self.name} ended by itself in start {self.starts}, with {code}")
            self._killed = False
            await asyncio.sleep(_RESTART_SECONDS)

    async def _run_once(self, ended: float) -> bool:
        """Start it and wait for its end; return whether it became ready."""
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                STARLING,
                *self.command,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=dict(self.environment(self.starts)),
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
            if self._ending:
                self.process.terminate()
            assert self.process.stdout is not None
            line = await self.process.stdout.readline()
            was_ready = bool(line) and isinstance(json.loads(line), dict)
            if was_ready:
                self.restarts += [monotonic() - ended] if self.starts > 1 else []
                self.ready.set()
            await self.process.wait()
        self.ready.clear()
        return was_ready

    async def kill(self) -> None:
        """Kill it; record child processes that survive."""
        if self.process is None or self.process.returncode is not None:
            return
        family = self.family()
        self._killed = True
        self.ready.clear()
        self.process.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=_FAMILY_SECONDS)
        self.problems += [f"{self.name} was killed and process {left.pid} outlived it" for left in alive]

    def family(self) -> list[psutil.Process]:
        """Return all its descendants."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True) if self.process else []
        except psutil.NoSuchProcess:
            return []

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.stopped = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.stopped = False

    async def end(self) -> None:
        """Stop it and don't restart it."""
        self._ending = True
        await self.stop()

    async def stop(self) -> None:
        """Send SIGTERM and wait; record child processes that survive."""
        self._killed = True
        self.ready.clear()
        if self.process is None or self.process.returncode is not None:
            return
        family = self.family()
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.problems.append(f"{self.name} didn't stop within {_STOP_SECONDS:.0f} s")
            await self.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=_FAMILY_SECONDS)
        self.problems += [f"{self.name} stopped and process {left.pid} outlived it" for left in alive]

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                self.process.send_signal(number)


@asynccontextmanager
async def supervised(services: Sequence[ManagedService]) -> AsyncGenerator[None]:
    """Supervise services until the end of the block."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.supervise(), name=f"supervise-{service.name}")
        try:
            yield
        finally:
            await asyncio.gather(*(service.end() for service in services))


async def all_ready(services: Sequence[ManagedService]) -> None:
    """Wait until all services are ready."""
    while not all(service.ready.is_set() for service in services):
        await asyncio.gather(*(service.ready.wait() for service in services))
