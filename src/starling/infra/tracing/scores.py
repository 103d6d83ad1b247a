"""Sends scores to Langfuse one by one in a thread of its own, since OTLP has no scores."""

import hashlib
import logging
import queue
import threading
from typing import Final

import httpx

from starling.infra.tracing.destination import Destination
from starling.infra.tracing.spans import Score

_QUEUE_SIZE: Final = 2_048
_log = logging.getLogger(__name__)


class ScoreSender:
    """Sends scores in order. Drops undeliverable ones, also if the queue is full, and logs the first."""

    def __init__(self, destination: Destination, *, timeout: float) -> None:
        self._url = destination.scores
        self._client = httpx.Client(headers=dict(destination.headers), timeout=timeout)
        self._queue: queue.Queue[Score | None] = queue.Queue(_QUEUE_SIZE)
        self._unavailable = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="send-scores")
        self._thread.start()

    def send(self, score: Score) -> None:
        """Queue a score. Does not block."""
        try:
            self._queue.put_nowait(score)
        except queue.Full:
            self._report("the queue is full")

    def close(self) -> None:
        """Send the queued scores, then stop."""
        self._queue.put(None)
        self._thread.join()
        self._client.close()

    def _work(self) -> None:
        while (score := self._queue.get()) is not None:
            try:
                self._client.post(self._url, json=_body(score)).raise_for_status()
                self._unavailable = False
            except httpx.HTTPError as error:
                self._report(str(error) or type(error).__name__)

    def _report(self, reason: str) -> None:
        if not self._unavailable:
            _log.warning("scores can't be delivered to %s; they are dropped: %s", self._url, reason)
        self._unavailable = True


def _body(score: Score) -> dict[str, str | float]:
    """Return the request body. The id is derived from the place, so that a repeated score replaces the first."""
    place = f"{score.trace_id}/{score.span_id}/{score.name}"
    return {
        "id": hashlib.sha256(place.encode()).hexdigest()[:32],
        "traceId": score.trace_id,
        "observationId": score.span_id,
        "name": score.name,
        "value": score.value,
        "dataType": "NUMERIC",
        "comment": score.comment,
    }
