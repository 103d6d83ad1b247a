"""The way of one request through the models that may answer it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tenacity import RetryCallState
from tenacity.wait import wait_base

from starling.core.clock import Clock, Deadline
from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, LLMTimeout, ModelError
from starling.core.llm import ModelReply, ModelRequest
from starling.infra.llm.chat_model import ChatModel

_RETRIES = 2
_DEGRADED_SECONDS = 60.0
_SHARE = 2 / 3  # of the time that is left, for a model that isn't the last
_PATIENCE_SECONDS = 5.0  # how long an endpoint may make us wait while another model could answer


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer; `downgraded` where it is the router's, standing in for a stronger one."""

    model: ChatModel
    downgraded: bool = False


class Health:
    """Which models timed out lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._degraded_until: dict[str, float] = {}

    def degrade(self, model: str) -> None:
        """Have `model` skipped for a while where another one can answer."""
        self._degraded_until[model] = self._clock.monotonic() + _DEGRADED_SECONDS

    def restore(self, model: str) -> None:
        """Forget that `model` timed out."""
        self._degraded_until.pop(model, None)

    def is_degraded(self, model: str) -> bool:
        """Return whether `model` timed out lately."""
        until = self._degraded_until.get(model)
        return until is not None and self._clock.monotonic() < until


class Course:
    """Knows which model is asked now and for how long, and after a failure whether and when another try follows.

    Each model but the last gets two thirds of the time that is left, its retries included.
    """

    def __init__(
        self, candidates: Sequence[Candidate], request: ModelRequest, health: Health, clock: Clock, backoff: wait_base
    ) -> None:
        self._request = request
        self._health = health
        self._clock = clock
        self._backoff = backoff
        self._deadline = Deadline(clock, request.timeout)
        self._warnings: list[str] = []
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

    def goes_on(self, state: RetryCallState) -> bool:
        """Return whether another attempt follows the one that just ended, and make ready for it."""
        error = state.outcome.exception() if state.outcome is not None else None
        if not isinstance(error, ModelError) or isinstance(error, LLMInvalidResponse):
            return False
        if isinstance(error, LLMTimeout):
            self._health.degrade(self.model.name)
        self._warnings.append(error.message)
        return self._tries_again(error, state) or self._moves_on()

    def pause(self, state: RetryCallState) -> float:
        """Return the seconds to wait before the next attempt."""
        del state
        return self._pause

    def _tries_again(self, error: ModelError, state: RetryCallState) -> bool:
        pause = _asked_pause(error)
        self._pause = self._backoff(state) if pause is None else pause
        patience = _PATIENCE_SECONDS if self._ahead else self._deadline.remaining()
        if not _is_retryable(error) or self._retries_left == 0 or self._pause >= self._window.cap(patience):
            return False
        self._retries_left -= 1
        return True

    def _moves_on(self) -> bool:
        if not self._ahead or self._deadline.passed:
            return False
        self._begin(self._ahead.pop(0))
        return True

    def _begin(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._retries_left = _RETRIES
        self._pause = 0.0
        left = self._deadline.remaining()
        self._window = Deadline(self._clock, left * _SHARE if self._ahead else left)
        if candidate.downgraded:
            self._warnings.append(f"{candidate.model.name} stands in for the model of role {self._request.role}.")

    def _healthy(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        healthy = [candidate for candidate in candidates if not self._health.is_degraded(candidate.model.name)]
        if not healthy or len(healthy) == len(candidates):
            return list(candidates)
        skipped = [candidate.model.name for candidate in candidates if candidate not in healthy]
        self._warnings += [f"Model {name} is skipped for a while: it didn't answer in time." for name in skipped]
        return healthy


def _is_retryable(error: ModelError) -> bool:
    return isinstance(error, LLMConnectionError) or (isinstance(error, LLMServerError) and error.retryable)


def _asked_pause(error: ModelError) -> float | None:
    return error.retry_after if isinstance(error, LLMServerError) else None
