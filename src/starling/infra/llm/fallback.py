"""The way of one request through the models that may answer it."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from starling.core.clock import Clock, Deadline
from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, LLMTimeout, ModelError
from starling.core.llm import ModelReply, ModelRequest
from starling.infra.llm.chat_model import ChatModel

_RETRIES = 2
_DEGRADED_SECONDS = 60.0
_SHARE = 2 / 3  # of the time that is left, for a model that isn't the last
_PATIENCE_SECONDS = 5.0  # how long an endpoint may make us wait while another model could answer

type Backoff = Callable[[int], float]  # from the number of the retry, from 1, to seconds


def jittered(retry: int) -> float:
    """Return a random wait of up to 0.2 s, 0.4 s and so on: clients that failed together don't return together."""
    return random.uniform(0.0, 0.1 * 2**retry)  # noqa: S311 - nothing secret


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer; `downgraded` where it is the router's, standing in for a stronger one."""

    model: ChatModel
    downgraded: bool = False


class Health:
    """Which models timed out or couldn't be reached lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._degraded_until: dict[str, float] = {}

    def degrade(self, model: str) -> None:
        """Have `model` skipped for a while where another one can answer."""
        self._degraded_until[model] = self._clock.monotonic() + _DEGRADED_SECONDS

    def restore(self, model: str) -> None:
        """Forget that `model` failed."""
        self._degraded_until.pop(model, None)

    def is_degraded(self, model: str) -> bool:
        """Return whether `model` failed so lately."""
        until = self._degraded_until.get(model)
        return until is not None and self._clock.monotonic() < until


class Course:
    """Knows which model is asked now and for how long, and after a failure whether and when another try follows.

    Each model but the last gets two thirds of the time that is left, its retries included.
    """

    def __init__(
        self, candidates: Sequence[Candidate], request: ModelRequest, health: Health, clock: Clock, backoff: Backoff
    ) -> None:
        self._request = request
        self._health = health
        self._clock = clock
        self._backoff = backoff
        self._deadline = Deadline(clock, request.timeout)
        self._warnings: dict[str, None] = {}  # in order, each text once
        self._ahead = self._healthy(candidates)
        self._begin(self._ahead.pop(0))

    @property
    def model(self) -> ChatModel:
        """The model to ask now."""
        return self._candidate.model

    def request(self) -> ModelRequest:
        """Return the request with the time that this attempt has."""
        return replace(self._request, timeout=self._window.remaining())

    def answered(self, reply: ModelReply) -> ModelReply:
        """Return the reply with everything that went wrong before it."""
        self._health.restore(self.model.name)
        return replace(reply, warnings=(*self._warnings, *reply.warnings)) if self._warnings else reply

    async def recover(self, error: ModelError) -> None:
        """Make ready for another attempt after `error`, waiting where it has to; raise it where none follows."""
        if isinstance(error, LLMInvalidResponse):
            raise error
        if isinstance(error, LLMTimeout):
            self._health.degrade(self.model.name)
        self._warn(error.message)
        pause = self._pause(error)
        if _is_retryable(error) and self._retries < _RETRIES and self._can_wait(pause):
            self._retries += 1
            await asyncio.sleep(pause)
            return
        if isinstance(error, LLMConnectionError):
            self._health.degrade(self.model.name)
        if not self._moves_on():
            raise error

    def _warn(self, text: str) -> None:
        self._warnings[text] = None

    def _pause(self, error: ModelError) -> float:
        asked = error.retry_after if isinstance(error, LLMServerError) else None
        return self._backoff(self._retries + 1) if asked is None else asked

    def _can_wait(self, seconds: float) -> bool:
        left = self._window.remaining()
        return seconds < (min(left, _PATIENCE_SECONDS) if self._ahead else left)

    def _moves_on(self) -> bool:
        if not self._ahead or self._deadline.passed:
            return False
        self._begin(self._ahead.pop(0))
        return True

    def _begin(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._retries = 0
        left = self._deadline.remaining()
        self._window = Deadline(self._clock, left * _SHARE if self._ahead else left)
        if candidate.downgraded:
            self._warn(f"{candidate.model.name} stands in for the model of role {self._request.role}.")

    def _healthy(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        healthy = [candidate for candidate in candidates if not self._health.is_degraded(candidate.model.name)]
        if not healthy or len(healthy) == len(candidates):
            return list(candidates)
        for candidate in candidates:
            if candidate not in healthy:
                self._warn(f"Model {candidate.model.name} is skipped for a while: it didn't answer lately.")
        return healthy


def _is_retryable(error: ModelError) -> bool:
    return isinstance(error, LLMConnectionError) or (isinstance(error, LLMServerError) and error.retryable)
