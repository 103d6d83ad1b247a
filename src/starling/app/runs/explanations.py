"""Explanations of runs and comparisons of two runs, from their documents."""

import asyncio
from dataclasses import dataclass, field

from brain.explanation.comparison import Comparison, compare
from brain.explanation.explain import explain
from brain.explanation.shape import Explanation
from starling.core.clock import Clock, SystemClock
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import RunDocumentRepository


@dataclass(frozen=True, slots=True)
class RunExplanations:
    """Explains runs in a thread: a run may have thousands of rows.

    Raises NotFoundError, also for runs of other tenants, and DatabaseUnavailableError.
    """

    documents: RunDocumentRepository
    clock: Clock = field(default_factory=SystemClock)

    async def explain(self, key: RunKey) -> Explanation:
        """Explain the outcome of a run; one that has not ended is explained as far as it is now."""
        document = await self.documents.read(key)
        return await asyncio.to_thread(explain, document, self.clock.now())

    async def compare(self, first: RunKey, second: RunKey) -> Comparison:
        """Return two runs side by side."""
        one, other = await self.documents.read(first), await self.documents.read(second)
        return await asyncio.to_thread(compare, one, other)
