"""The `ModelClient`: the models of each role in order, with retries, fallbacks and one time limit for all of them."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta

from starling.core.clock import Clock, Deadline
from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, LLMTimeout, ModelError
from starling.core.llm import ModelReply, ModelRequest, ModelRole, TextDelta
from starling.infra.llm.chat_model import ChatModel, ReplyStream, report_failed_attempt

_RETRIES = 2
_DEGRADED_SECONDS = 60.0
_SHARE = 2 / 3  # of the remaining time, for each model but the last
_MAX_RETRY_WAIT_SECONDS = 5.0  # while another model is available
_MAX_BACKOFF_SECONDS = 10.0

type Backoff = Callable[[int], float]
"""Returns the seconds to wait before retry number 1, 2, …"""


def jittered_backoff(retry: int) -> float:
    """Return a random wait of up to 0.2 s, 0.4 s and so on to 10 s, so that clients do not all retry at once."""
    return random.uniform(0.0, min(_MAX_BACKOFF_SECONDS, 0.1 * 2**retry))  # noqa: S311 - not for cryptography


@dataclass(frozen=True, slots=True)
class FallbackCandidate:
    """A model to try; `downgraded` if it is the router's model in place of a stronger one."""

    model: ChatModel
    downgraded: bool = False


type DegradedModels = dict[str, Deadline]
"""Models that recently timed out or could not be reached, each until when it is skipped if another one is available."""


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What this process knows of models: those that are `degraded`, and providers whose endpoint has `answered`."""

    degraded: DegradedModels = field(default_factory=dict[str, Deadline])
    answered: set[str] = field(default_factory=set[str])


class FallbackChain:
    """Selects the model of each attempt and decides after a failure whether to retry, fall back or give up.

    Each model but the last gets two thirds of the remaining time, including its retries. Once all have failed, those
    that fail for now are waited for and asked again, each when it is due, as long as `ModelRequest.wait` says.
    """

    def __init__(
        self,
        candidates: Sequence[FallbackCandidate],
        request: ModelRequest,
        memory: "ModelMemory",
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._request = request
        self._degraded, self._answered = memory.degraded, memory.answered
        self._first = candidates[0].model.name
        self._failed: list[tuple[float, FallbackCandidate]] = []  # for now, each with the moment when it is due
        self._rounds = 0  # of waiting
        self._clock = clock
        self._backoff = backoff
        self._deadline = Deadline(clock, request.timeout)
        self._warnings: dict[str, None] = {}  # in order, without duplicates
        self._was_invalid = False
        self._remaining = self._without_degraded(candidates)
        self._select(self._remaining.pop(0))

    @property
    def model(self) -> ChatModel:
        """The model of the current attempt."""
        return self._candidate.model

    def request(self) -> ModelRequest:
        """Return the request with the time limit of the current attempt."""
        return replace(self._request, timeout=self._window.remaining())

    def with_warnings(self, reply: ModelReply) -> ModelReply:
        """Return the reply with the warnings of the attempts before it."""
        self._degraded.pop(self.model.name, None)
        self._answered.add(_provider(self.model))
        if self._request.wait:
            self._request.wait.outages.pop(self._first, None)
        return replace(reply, warnings=(*self._warnings, *reply.warnings)) if self._warnings else reply

    async def recover(self, error: ModelError) -> None:
        """Prepare the next attempt after `error`, with a wait if needed; raise `error` if there is none.

        The failed attempt is reported before the wait. An invalid response in place of a document is raised: the caller
        sends it back with what is wrong. Any other is asked for once more, from the next model if there is one.
        """
        if isinstance(error, LLMInvalidResponse | LLMServerError):
            self._answered.add(_provider(self.model))
        if isinstance(error, LLMInvalidResponse):
            if self._request.response is not None or self._was_invalid:
                raise error
            self._was_invalid = True
            self._warn(error.message)
            report_failed_attempt(self._request, error)
            if self._remaining:
                self._select(self._remaining.pop(0))
            return
        asked = error.retry_after if isinstance(error, LLMServerError) else None
        backoff = self._backoff(self._retries + 1 + (_RETRIES + self._rounds if self._rounds else 0))
        pause = backoff if asked is None else asked
        left = self._window.remaining()
        may_wait = pause < (min(left, _MAX_RETRY_WAIT_SECONDS) if self._remaining else left)
        retryable = error.retryable if isinstance(error, LLMServerError) else isinstance(error, LLMConnectionError)
        retries = retryable and self._retries < _RETRIES and may_wait and not self._rounds
        announced = _announced_wait(error, pause) if retries else ""
        self._warn(announced or error.message)
        report_failed_attempt(self._request, error, announced)
        if retries:
            self._retries += 1
            await (self._request.wait.sleep if self._request.wait else asyncio.sleep)(pause)
            return
        if isinstance(error, LLMConnectionError | LLMTimeout):
            self._degraded[self.model.name] = Deadline(self._clock, _DEGRADED_SECONDS)
        is_known = _provider(self.model) in self._answered
        if isinstance(error, LLMTimeout) or (retryable and (is_known or isinstance(error, LLMServerError))):
            spread = 0.0 if asked is None else backoff  # or all runs would ask at the moment that the endpoint named
            self._failed.append((self._clock.monotonic() + pause + spread, self._candidate))
        if not self._remaining or self._deadline.passed:
            await self._wait(error)
        self._select(self._remaining.pop(0))

    async def _wait(self, error: ModelError) -> None:
        """Wait until a model that fails for now is due; raise `error` if the run has no time for that."""
        wait = self._request.wait
        if wait is None or not wait.seconds or not self._failed:
            raise error
        window = wait.outages.setdefault(self._first, Deadline(self._clock, wait.seconds))
        due, candidate = min(self._failed, key=lambda failed: failed[0])
        pause = max(0.0, due - self._clock.monotonic())
        moment = f"in {pause:.3g} s, at {self._clock.now() + timedelta(seconds=pause):%H:%M:%S} UTC"
        if pause >= min(window.remaining(), wait.deadline.remaining()):
            limit = "limits.model_wait_seconds" if pause >= window.remaining() else "the run's time"
            last = f"It isn't waited for any longer ({limit}); it could be asked again {moment}."
            reason = f"{error.reason.rstrip('.')}. {last}"
            error.reason, error.message = reason, f"Model {error.model}: {reason}"
            raise error
        text = f"{error.message.rstrip('.')}. Model {candidate.model.name} is asked again {moment}."
        self._warn(text)
        wait.warn(text)
        await wait.sleep(pause)
        self._rounds += 1
        now = max(due, self._clock.monotonic())
        self._remaining = [one for moment, one in self._failed if moment <= now]
        self._failed = [failed for failed in self._failed if failed[0] > now]
        self._deadline = Deadline(self._clock, wait.deadline.cap(self._request.timeout))

    def _warn(self, text: str) -> None:
        self._warnings[text] = None

    def _select(self, candidate: FallbackCandidate) -> None:
        self._candidate = candidate
        self._retries = 0
        left = self._deadline.remaining()
        self._window = Deadline(self._clock, left * _SHARE if self._remaining else left)
        if candidate.downgraded:
            self._warn(f"{candidate.model.name} is used instead of the model of role {self._request.role}.")

    def _without_degraded(self, candidates: Sequence[FallbackCandidate]) -> list[FallbackCandidate]:
        skipped = {name for name, until in self._degraded.items() if not until.passed}
        healthy = [candidate for candidate in candidates if candidate.model.name not in skipped]
        if not healthy:
            return list(candidates)
        for candidate in candidates:
            if candidate.model.name in skipped:
                self._warn(f"Model {candidate.model.name} is skipped for a while because it did not answer recently.")
        return healthy


def _provider(model: ChatModel) -> str:
    return model.name.partition(":")[0]


def _announced_wait(error: ModelError, seconds: float) -> str:
    """Return the warning for the user before a wait that the endpoint asked for; empty for any other wait."""
    if not isinstance(error, LLMServerError) or error.retry_after is None:
        return ""
    state = "is rate limited" if error.status == 429 else f"answered {error.status}"
    return f"Model {error.model} {state}, again in {seconds:.3g} s."


type ResolveModel = Callable[[str], ChatModel]
"""Returns the model of a name; results are cached."""


class FallbackModelClient:
    """Tries the models of a role until one answers within the time limit; a model named by the request comes first.

    After connection and server errors: at most two retries, then the next model of the role, finally the models of
    the router, unless the request forbids it. After a timeout: the next model at once. Invalid responses are asked for
    once more, those in place of documents raised to the caller. `supervisor` are the models that supervisors ask
    instead of those of `reasoning`; without any, those.
    """

    def __init__(
        self,
        chains: Mapping[ModelRole, Sequence[ChatModel]],
        clock: Clock,
        resolve_model: ResolveModel,
        backoff: Backoff = jittered_backoff,
        supervisor: Sequence[ChatModel] = (),
    ) -> None:
        self._resolve_model = resolve_model
        self._candidates = {role: _candidates(chains[role], chains) for role in ModelRole}
        self._supervisor = _candidates(supervisor or chains[ModelRole.REASONING], chains)
        chosen = (*chains.values(), supervisor)
        self.names = frozenset(model.name for chain in chosen for model in chain)  # chosen by the settings
        self._clock = clock
        self._backoff = backoff
        self._memory = ModelMemory()

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer with warnings about retries and fallbacks."""
        chain = self._fallback_chain(request)
        while True:
            try:
                return chain.with_warnings(await chain.model.respond(chain.request()))
            except ModelError as error:
                await chain.recover(error)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete reply. `restart` precedes the text of a further attempt."""
        chain = self._fallback_chain(request)
        text_was_sent = False
        while True:
            try:
                async with aclosing(chain.model.stream_respond(chain.request())) as items:
                    async for item in items:
                        if isinstance(item, ModelReply):
                            yield chain.with_warnings(item)
                            return
                        text_was_sent = True
                        yield item
            except ModelError as error:
                await chain.recover(error)
            if text_was_sent:
                yield TextDelta("", restart=True)
                text_was_sent = False

    def describe(self, role: ModelRole, *, supervisor: bool = False) -> str:
        """Return `provider:model` of the model that a role, or a supervisor in it, asks first."""
        return self._models_of(role, supervisor=supervisor)[0].model.name

    def _models_of(self, role: ModelRole, *, supervisor: bool) -> Sequence[FallbackCandidate]:
        return self._supervisor if supervisor and role is ModelRole.REASONING else self._candidates[role]

    def _fallback_chain(self, request: ModelRequest) -> FallbackChain:
        candidates = self._models_of(request.role, supervisor=request.supervisor)
        if not request.downgrades:
            candidates = tuple(one for one in candidates if not one.downgraded)
        if request.model is not None:
            named = self._resolve_model(request.model)
            candidates = (FallbackCandidate(named), *(one for one in candidates if one.model.name != named.name))
        return FallbackChain(candidates, request, self._memory, self._clock, self._backoff)


def _candidates(
    own: Sequence[ChatModel], chains: Mapping[ModelRole, Sequence[ChatModel]]
) -> tuple[FallbackCandidate, ...]:
    names = {model.name for model in own}
    router_models = [model for model in chains[ModelRole.ROUTER] if model.name not in names]
    return (
        *(FallbackCandidate(model) for model in own),
        *(FallbackCandidate(model, downgraded=True) for model in router_models),
    )
