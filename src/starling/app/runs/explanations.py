"""Explanations of runs and comparisons of two runs, as the API gives them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from brain.explanation.comparison import Comparison, compare
from brain.explanation.explain import explain
from brain.explanation.repository import ExplanationRepository
from brain.explanation.rows import RunRows
from brain.explanation.shape import Explanation
from starling.core.secrets.look_alikes import mask_keys, mask_keys_in
from starling.infra.postgres.runs.acceptance import RunKey


@dataclass(frozen=True, slots=True)
class RunExplanations:
    """Explains runs from their rows. What is computed is computed in a thread: a run may have thousands of rows."""

    repository: ExplanationRepository

    async def explain(self, key: RunKey) -> Explanation:
        """Return why a run came to what it came to. Raises NotFoundError, DatabaseUnavailableError."""
        rows, now = await self.repository.rows(key)
        return await asyncio.to_thread(_masked, explain, rows, now)

    async def compare(self, first: RunKey, second: RunKey) -> Comparison:
        """Return two runs side by side. Raises NotFoundError, DatabaseUnavailableError."""
        (one, now), (other, _) = await self.repository.rows(first), await self.repository.rows(second)
        return await asyncio.to_thread(_masked, lambda rows, _: compare(rows, _without_keys(other)), one, now)


def _masked[Told: BaseModel](tell: Callable[[RunRows, datetime], Told], rows: RunRows, now: datetime) -> Told:
    """Return what is told of rows, with `***` where something looks like a key."""
    told = tell(_without_keys(rows), now)
    masked: Any = mask_keys_in(told.model_dump(mode="json"))
    return type(told).model_validate(masked)


def _without_keys(rows: RunRows) -> RunRows:
    """Return rows with their keys masked before texts are cut, which would leave the beginning of a key.

    Events and steps were masked when they were written.
    """
    result: Any = mask_keys_in(rows.run.result) if rows.run.result else None
    return replace(
        rows,
        run=replace(rows.run, input=mask_keys(rows.run.input), result=result),
        answers=[replace(one, content=mask_keys(one.content), fault=mask_keys(one.fault)) for one in rows.answers],
        interrupts=[replace(one, message=mask_keys(one.message)) for one in rows.interrupts],
    )
