"""Sends stored scores of runs to Langfuse in the background: feedback, and how runs ended. Langfuse may be away."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

from starling.core.background_tasks import in_background
from starling.core.clock import Clock, Deadline, SystemClock
from starling.core.errors import DatabaseUnavailableError
from starling.core.outages import Outage
from starling.core.settings.schema import Settings
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.feedback import DELIVERY_DAYS, FEEDBACK_CHANNEL, UnsentScoreRepository, UnsentScores
from starling.infra.tracing.destination import langfuse_of
from starling.infra.tracing.scores import Score, ScoreClient, ScoreError, ScoresRefusedError

_AT_ONCE = 50
_LOOK_SECONDS = 5.0  # for runs that ended, and for a notice that was missed
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 900.0
_SEND_SECONDS = 3.0
_LAST_SECONDS = 2.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Delivery:
    """The outcome of sending a batch. After a `failure` the rest of it is sent later."""

    sent: list[UnsentScores] = field(default_factory=list[UnsentScores])
    refused: list[tuple[UnsentScores, str]] = field(default_factory=list[tuple[UnsentScores, str]])
    failure: str = ""


class ScoreRelay:
    """Delivers what is stored; while Langfuse can't take it, after growing pauses."""

    def __init__(
        self, unsent: UnsentScoreRepository, client: ScoreClient, clock: Clock, *, with_comments: bool
    ) -> None:
        self._unsent = unsent
        self._client = client
        self._clock = clock
        self._with_comments = with_comments
        failing = f"scores can't be delivered to {client.address}; they are sent later"
        self._outage = Outage(_log, failing, f"scores are delivered to {client.address} again", clock.monotonic)
        self._pause = 0.0  # after the last delivery, if it failed
        self._next = Deadline(clock, 0)
        self._turn = asyncio.Lock()

    async def deliver_forever(self, hub: NotificationHub) -> None:
        """Deliver until cancelled."""
        async with aclosing(hub.notices(FEEDBACK_CHANNEL, at_least_every=_LOOK_SECONDS)) as notices:
            async for _ in notices:
                await self.deliver()

    async def deliver(self) -> None:
        """Deliver all that is due until Langfuse fails; do nothing in the pause after a failure."""
        async with self._turn:
            with suppress(DatabaseUnavailableError):
                while self._next.passed and (found := await self._unsent.take(_AT_ONCE)):
                    if expired := [one for one in found if one.expired]:
                        text = "scores of %d runs are not sent: they are older than %d days"
                        _log.warning(text, len(expired), DELIVERY_DAYS)
                        await self._unsent.settle((), expired)
                    if batch := [one for one in found if not one.expired]:
                        done = await asyncio.to_thread(self._send, batch)
                        await self._unsent.settle(done.sent, [one for one, _ in done.refused])
                        self._report(done)

    def _send(self, batch: Sequence[UnsentScores]) -> _Delivery:
        """Send a batch; if Langfuse refuses some of it, in halves, since its answer doesn't say which. Blocks."""
        done, parts = _Delivery(), [batch]
        while parts:
            part = parts.pop()
            try:
                self._client.send([score for one in part for score in self._scores(one)])
                done.sent += part
            except ScoresRefusedError as error:
                if len(part) == 1:
                    done.refused.append((part[0], str(error)))
                else:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
            except ScoreError as error:
                done.failure = str(error)
                break
        return done

    def _scores(self, one: UnsentScores) -> Sequence[Score]:
        shown = self._with_comments
        return [
            Score(one.trace_id, "", each.name, each.value, each.comment if shown else "", each.moment, each.source)
            for each in one.scores
        ]

    def _report(self, done: _Delivery) -> None:
        """Log what was refused, and outages of Langfuse; set the pause."""
        for one, reason in done.refused:
            text = "%s refused scores of run %s, they are not sent again: %s"
            _log.warning(text, self._client.address, one.run_id, reason)
        if done.failure:
            self._outage.failed(done.failure)
        else:
            self._outage.recovered()
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE) if done.failure else 0.0
        self._next = Deadline(self._clock, self._pause)


@asynccontextmanager
async def relay_scores(settings: Settings, unsent: UnsentScoreRepository, hub: NotificationHub) -> AsyncGenerator[None]:
    """Deliver for as long as the context lasts, and once more at its end; do nothing without Langfuse.

    Raises ConfigurationError.
    """
    destination = langfuse_of(settings)
    if destination is None:
        yield
        return
    with closing(ScoreClient(destination, timeout=_SEND_SECONDS)) as client:
        relay = ScoreRelay(unsent, client, SystemClock(), with_comments=settings.trace_content)
        async with in_background(relay.deliver_forever(hub), "deliver-scores"):
            try:
                yield
            finally:
                async with in_background(relay.deliver(), "deliver-last-scores") as last:
                    await asyncio.wait([last], timeout=_LAST_SECONDS)
