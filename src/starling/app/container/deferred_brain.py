"""The brain, whose libraries are imported once the platform is ready, or when its first run comes earlier."""

import asyncio
import warnings
from typing import TYPE_CHECKING

from brain.collaborators import Collaborators
from starling.core.runs import RunResult
from starling.infra.postgres.runs.acceptance import Claim

if TYPE_CHECKING:
    from brain.run_executor import Brain


class DeferredBrain:
    """Executes runs by a Brain that is built on first use; `load` builds it before."""

    def __init__(self, parts: Collaborators) -> None:
        self._parts = parts
        self._brain: Brain | None = None
        self._building = asyncio.Lock()
        self._drained = False

    async def load(self) -> None:
        """Import what executes runs, in a thread."""
        await self.loaded()

    async def loaded(self) -> "Brain":
        """Return the brain once its imports are done."""
        async with self._building:
            if self._brain is None:
                # requests filters this warning out itself, which is lost if this thread restores filters meanwhile
                warnings.filterwarnings("ignore", message="SOCKS support in urllib3")
                self._brain = await asyncio.to_thread(self._build)
                if self._drained:
                    self._brain.drain()
        return self._brain

    def drain(self) -> None:
        """Let every execution end after its current step, from now on."""
        self._drained = True
        if self._brain is not None:
            self._brain.drain()

    async def park(self, claim: Claim) -> RunResult:
        """End a claimed run that crashed its workers too often. Raises what Brain.park raises."""
        return await (await self.loaded()).park(claim)

    async def execute(self, claim: Claim) -> RunResult | None:
        """Execute a claimed run. Returns and raises what Brain.execute does."""
        return await (await self.loaded()).execute(claim)

    def _build(self) -> "Brain":
        from brain.run_executor import Brain  # noqa: PLC0415 - deferred: LangGraph takes a third of a start

        return Brain(self._parts)
