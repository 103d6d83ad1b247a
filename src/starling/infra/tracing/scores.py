"""Sends scores to Langfuse in a thread of its own, since OTLP has no scores."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

import httpx
from tenacity.wait import wait_base

from starling.core.outages import Outage
from starling.infra.tracing.content import content_text
from starling.infra.tracing.delivery import PAUSE, BatchThread, attempts
from starling.infra.tracing.destination import Destination

_QUEUE_SIZE: Final = 2_048
_BATCH_SIZE: Final = 50
_REASON_CHARS: Final = 300  # of what is logged of an answer
_REFUSED: Final = {400, 413, 422}  # the others are about the key, the address or Langfuse, not about the scores
_log = logging.getLogger(__name__)


class Score(NamedTuple):
    """A score of one span, or of the whole trace without a span. A text as `value` makes it a category.

    The comment is shortened, and what looks like a key in it masked, when the score is sent.

    Ids are hexadecimal, as for Langfuse. A score of the same place and `source` replaces an earlier one, if it has the
    same moment, too.
    """

    trace_id: str
    span_id: str
    name: str
    value: float | str
    comment: str
    moment: datetime
    source: str = ""

    @property
    def id(self) -> str:
        """The id in Langfuse, computed from the place."""
        place = f"{self.trace_id}/{self.span_id}/{self.name}"
        return hashlib.sha256((f"{place}/{self.source}" if self.source else place).encode()).hexdigest()[:32]


class ScoreError(Exception):
    """Scores could not be delivered to Langfuse."""


class ScoresRefusedError(ScoreError):
    """Langfuse refused scores for what they are: some of a request, or all."""


class ScoreClient:
    """Sends scores with the client of Langfuse's API, and waits for its answer.

    The package's own queue of scores belongs to a client that also installs a tracer provider and exports spans, so
    only its generated API client is used. It is imported by the first score.
    """

    def __init__(self, destination: Destination, *, timeout: float, pause: wait_base = PAUSE) -> None:
        self.address = destination.langfuse
        self._http = httpx.Client(timeout=timeout)
        self._headers = dict(destination.headers)
        self._pause = pause

    def send(self, scores: Sequence[Score]) -> None:
        """Send scores in one request, up to three times while Langfuse can't take them.

        Raises ScoresRefusedError if it would refuse some of them again, ScoreError after all other failures.
        """
        try:
            answer = attempts(self._pause)(self._create, tuple(map(_request, scores)))
        except (httpx.HTTPError, _langfuse().core.ApiError) as error:
            refused = getattr(error, "status_code", None) in _REFUSED
            raise (ScoresRefusedError if refused else ScoreError)(_reason(error)) from error
        except (ValueError, TypeError, AttributeError) as error:  # its client checks little of an answer
            raise ScoreError("its answer is none of Langfuse's API") from error
        if getattr(answer, "rejected", 0) or getattr(answer, "errors", None):
            raise ScoresRefusedError(_rejections(getattr(answer, "errors", None)))

    def close(self) -> None:
        self._http.close()

    @cached_property
    def _api(self):
        return _langfuse().LangfuseAPI(base_url=self.address, headers=self._headers, httpx_client=self._http)

    def _create(self, scores: Sequence[object]) -> object:
        """Pass scores on as a tuple, which the client sends as it is: it would look for names to replace in a list."""
        return self._api.scores.create(request=cast("Any", scores), request_options={"max_retries": 0})


class ScoreSender:
    """Sends scores in order and in batches. Drops undeliverable ones, also if too many wait, and logs outages."""

    def __init__(self, client: ScoreClient) -> None:
        self._client = client
        failing = f"scores can't be delivered to {client.address}; they are dropped"
        self._outage = Outage(_log, failing, f"scores are delivered to {client.address} again")
        self._batches = BatchThread("send-scores", self._deliver, limit=_QUEUE_SIZE, batch=_BATCH_SIZE)

    def send(self, score: Score) -> None:
        """Queue a score. Does not block."""
        if not self._batches.add(score):
            self._outage.failed("the queue is full")

    def close(self) -> None:
        """Send the queued scores, then stop."""
        self._batches.close()
        self._client.close()

    def _deliver(self, batch: Sequence[Score]) -> None:
        try:
            self._client.send(batch)
            self._outage.recovered()
        except ScoreError as error:
            self._outage.failed(error)


def _langfuse():
    """Return the client of Langfuse's API. Imports the package, for half a second: never in the event loop."""
    from langfuse import api

    return api


def _request(score: Score) -> Mapping[str, object]:
    """Return a score as the API takes it, without fields that would be null.

    It is the JSON of the client's type, which the client sends as it is, as it does for the package's own scores:
    converting the type costs as much as ten spans.
    """
    given = {
        "id": score.id,
        "traceId": score.trace_id,
        "observationId": score.span_id,
        "name": score.name,
        "value": score.value,
        "dataType": "CATEGORICAL" if isinstance(score.value, str) else "NUMERIC",
        "comment": content_text(score.comment),
        "timestamp": score.moment.isoformat(),
    }
    return {name: value for name, value in given.items() if value != ""}


def _reason(error: Exception) -> str:
    status: Any = getattr(error, "status_code", None)
    if status is None:
        return str(error) or type(error).__name__
    return f"HTTP {status}: {getattr(error, 'body', '')}"[:_REASON_CHARS]


def _rejections(errors: object) -> str:
    """Return why Langfuse took some scores of a request and not others; its client checks little of an answer."""
    found = cast("Sequence[object]", errors) if isinstance(errors, list) else [errors]
    return "; ".join(sorted({str(getattr(error, "message", error)) for error in found}))[:_REASON_CHARS]
