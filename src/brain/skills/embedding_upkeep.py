"""Background work on the memory of skills: vectors of the configured model, and their index once a store is large."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from brain.skills.repository import COMPARED_EACH
from starling.core.embeddings import Embedder
from starling.core.errors import DatabaseUnavailableError, StarlingError
from starling.infra.postgres.skill_vectors import FIRST, SkillVectors, open_skill_vectors

_INTERVAL_SECONDS: Final = 600.0
_AT_ONCE: Final = 256  # texts that are embedded together
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SkillUpkeep:
    """Gives skills vectors of `embedder`, and indexes them once a tenant has more than `large` of them.

    Of processes with different models, the one that was started last does it: the others see after their first time
    that most vectors are of its model. `on_failure` is called while Postgres is unavailable.
    """

    direct_url: str
    embedder: Embedder
    large: int = COMPARED_EACH
    on_failure: Callable[[DatabaseUnavailableError], None] = lambda _: None
    _is_new: bool = True  # until it has done its work once
    _leading: str = ""  # the other model that has most vectors

    async def repeat(self) -> None:
        """Embed and index skills every ten minutes, until cancelled."""
        while True:
            try:
                await self.sweep()
            except DatabaseUnavailableError as error:
                self.on_failure(error)
                _log.info("the vectors of skills are updated later: %s", error)
            except StarlingError as error:
                _log.warning("skills of another embedding model are found by words only for now: %s", error)
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def sweep(self) -> bool:
        """Embed and index skills; return False if another process does it now, or does it with another model.

        Raises what the embedder raises, and DatabaseUnavailableError; what was done by then stays done.
        """
        async with open_skill_vectors(self.direct_url) as vectors:
            if vectors is None or not await self._leads(vectors):
                return False
            await self._embed(vectors)
            model, dimensions = self.embedder.name, self.embedder.dimensions
            if dimensions:  # else there are no skills yet
                await vectors.drop_other_indexes(model, dimensions)
                is_large = await vectors.is_large(model, dimensions, self.large)
                if is_large and await vectors.build_indexes(model, dimensions):
                    _log.info("the vectors of %s are indexed now", model)
            self._is_new = False
            return True

    async def _leads(self, vectors: SkillVectors) -> bool:
        """Return whether this process makes the vectors; warn once if another model's process does."""
        leading = None if self._is_new else await vectors.leading_model()
        other = leading if leading and leading != self.embedder.name else ""
        if other and other != self._leading:
            _log.warning(
                "skills have vectors of %s, which a process that was started later makes; here they are found by words "
                "only: set STARLING_EMBEDDINGS to the same model in all processes (%s here)",
                other,
                self.embedder.name,
            )
        self._leading = other
        return not other

    async def _embed(self, vectors: SkillVectors) -> None:
        """Embed the tasks of skills whose vector another model made, or that have none."""
        model, count, last = self.embedder.name, 0, FIRST
        while found := await vectors.outdated(model, self.embedder.dimensions, last, _AT_ONCE):
            if not self.embedder.dimensions:  # the provider decides it
                await self.embedder.embed([found[0].task])
                continue
            await vectors.store(model, found, await self.embedder.embed([skill.task for skill in found]))
            count, last = count + len(found), found[-1]
        if count:
            _log.info("%d skills have vectors of %s now", count, model)
