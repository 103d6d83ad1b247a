"""Sends feedback on runs to Langfuse as scores, in the background; Langfuse may be down."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starling.app.runtime.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError
from starling.core.settings.schema import Settings
from starling.core.tracing import USER_FEEDBACK
from starling.infra import deferred
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.feedback import FEEDBACK_CHANNEL, FeedbackRepository, UnsentFeedback
from starling.infra.tracing.destination import destination_of

if TYPE_CHECKING:
    from starling.infra.tracing.scores import Score, ScoreClient

_AT_ONCE = 50
_LOOK_SECONDS = 60.0  # for what could not be sent, and for a notice that was missed
_SEND_SECONDS = 3.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FeedbackRelay:
    """Delivers feedback soon after it was given; what can't be delivered is tried again every minute."""

    repository: FeedbackRepository
    client: "ScoreClient"
    with_comments: bool

    async def deliver_forever(self, hub: NotificationHub) -> None:
        """Deliver until cancelled."""
        async with aclosing(hub.notices(FEEDBACK_CHANNEL, at_least_every=_LOOK_SECONDS)) as notices:
            async for _ in notices:
                try:
                    await self._deliver()
                except DatabaseUnavailableError as error:
                    _log.warning("feedback can't be read: %s", error)

    async def _deliver(self) -> None:
        scores = deferred.scores()
        while found := await self.repository.take_unsent(_AT_ONCE):
            try:
                await asyncio.to_thread(self.client.send, [self._score(one) for one in found])
            except scores.ScoreError as error:
                _log.warning("feedback can't be delivered to %s; it is sent later: %s", self.client.address, error)
                return
            await self.repository.mark_sent(found)

    def _score(self, one: UnsentFeedback) -> "Score":
        """Return the score of the run's trace; the same for each version of somebody's feedback but for its value."""
        given = one.feedback
        comment = given.comment if self.with_comments else ""
        return deferred.scores().Score(
            one.trace_id, "", USER_FEEDBACK, given.score, comment, given.created_at, source=given.by
        )


@asynccontextmanager
async def relay_feedback(
    settings: Settings, repository: FeedbackRepository, hub: NotificationHub
) -> AsyncGenerator[None]:
    """Deliver for as long as the context lasts; do nothing without Langfuse. Raises ConfigurationError."""
    destination = destination_of(settings)
    if destination is None or not destination.langfuse:
        yield
        return
    client = deferred.scores().ScoreClient(destination, timeout=_SEND_SECONDS)
    relay = FeedbackRelay(repository, client, settings.trace_content)
    try:
        async with in_background(relay.deliver_forever(hub), "deliver-feedback"):
            yield
    finally:
        client.hurry()
        client.close()
