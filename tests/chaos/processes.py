"""Services as a supervisor of the machine keeps them: started again whenever they end, until they are told to stop."""

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

from starling.infra.postgres.embedded.parent_death import die_with_parent
from tests.support.command_line import STARLING

_RESTART_SECONDS = 0.2
_STOP_SECONDS = 60.0
_FAMILY_SECONDS = 20.0  # then what a killed service started has to be gone


@dataclass(slots=True)
class Service:
    """One service over its lives. `environment` gives what a life of a number finds in its environment."""

    name: str
    command: Sequence[str]
    environment: Callable[[int], Mapping[str, str]]
    folder: Path
    lives: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    restarts: list[float] = field(default_factory=list[float])  # seconds from an end to being ready again
    wrong: list[str] = field(default_factory=list[str])
    stopped: bool = False  # by SIGSTOP
    _ending: bool = False
    _killed: bool = False  # or told to stop: it ends by our doing

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    async def keep(self) -> None:
        """Have it run, life after life, until `end`."""
        ended = monotonic()
        while not self._ending:
            was_ready = await self._live(ended)
            ended = monotonic()
            if was_ready and not self._killed and not self._ending:
                code = self.process.returncode if self.process else None
                self.wrong.append(f"{self.name} ended by itself in life {self.lives}, with {code}")
            self._killed = False
            await asyncio.sleep(_RESTART_SECONDS)

    async def _live(self, ended: float) -> bool:
        """Live once; returns whether it became ready."""
        self.lives += 1
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                STARLING,
                *self.command,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=dict(self.environment(self.lives)),
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
            if self._ending:
                self.process.terminate()
            assert self.process.stdout is not None
            line = await self.process.stdout.readline()
            was_ready = bool(line) and isinstance(json.loads(line), dict)
            if was_ready:
                self.restarts += [monotonic() - ended] if self.lives > 1 else []
                self.ready.set()
            await self.process.wait()
        self.ready.clear()
        return was_ready

    async def kill(self) -> None:
        """Pull its plug; whatever it started has to go too."""
        if self.process is None or self.process.returncode is not None:
            return
        family = self.family()
        self._killed = True
        self.ready.clear()
        self.process.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=_FAMILY_SECONDS)
        self.wrong += [f"{self.name} was killed and process {left.pid} outlived it" for left in alive]

    def family(self) -> list[psutil.Process]:
        """Return every process below it."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True) if self.process else []
        except psutil.NoSuchProcess:
            return []

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)
        self.stopped = False

    async def end(self) -> None:
        """End it for good."""
        self._ending = True
        await self.stop()

    async def stop(self) -> None:
        """Tell it to stop and wait; what it started has to be gone when it is."""
        self._killed = True
        self.ready.clear()
        if self.process is None or self.process.returncode is not None:
            return
        family = self.family()
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self.wrong.append(f"{self.name} didn't stop within {_STOP_SECONDS:.0f} s")
            await self.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, timeout=_FAMILY_SECONDS)
        self.wrong += [f"{self.name} stopped and process {left.pid} outlived it" for left in alive]

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                self.process.send_signal(number)


@asynccontextmanager
async def kept(services: Sequence[Service]) -> AsyncGenerator[None]:
    """Keep services for as long as the block lasts."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.keep(), name=f"keep-{service.name}")
        try:
            yield
        finally:
            await asyncio.gather(*(service.end() for service in services))


async def all_ready(services: Sequence[Service]) -> None:
    """Wait until all run and are ready."""
    while not all(service.ready.is_set() for service in services):
        await asyncio.gather(*(service.ready.wait() for service in services))
