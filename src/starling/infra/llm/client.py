"""The `ModelClient`: each role's models in order, with retries, fallbacks and one budget for all of them."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from tenacity import AsyncRetrying, wait_random_exponential
from tenacity.wait import wait_base

from starling.core.clock import Clock
from starling.core.llm import ModelReply, ModelRequest, ModelRole, TextDelta
from starling.infra.llm.chat_model import ChatModel, ReplyStream
from starling.infra.llm.course import Candidate, Course, Health

_BACKOFF = wait_random_exponential(multiplier=0.1, max=2.0)


class Models:
    """Asks the models of a role until one answers within the request's time.

    Connection and server errors: at most two more tries, then the role's next model, at last the router's
    models. A timeout goes to the next model at once. An invalid response is the caller's to deal with.
    """

    def __init__(
        self, chains: Mapping[ModelRole, Sequence[ChatModel]], clock: Clock, backoff: wait_base = _BACKOFF
    ) -> None:
        self._candidates = {role: _candidates(role, chains) for role in ModelRole}
        self._clock = clock
        self._backoff = backoff
        self._health = Health(clock)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the whole answer. `warnings` says what went wrong on the way to it."""
        course = self._course(request)
        return await self._attempts(course)(_ask, course)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it comes, then the whole reply. `restart` comes before the text of another attempt."""
        course = self._course(request)
        spoken = False
        async for attempt in self._attempts(course):
            with attempt:
                if spoken:
                    yield TextDelta("", restart=True)
                    spoken = False
                async with aclosing(course.model.stream_respond(course.request())) as items:
                    async for item in items:
                        spoken = True
                        yield course.answered(item) if isinstance(item, ModelReply) else item

    def describe(self, role: ModelRole) -> str:
        """Return `provider:model` of the model that a role asks first."""
        return self._candidates[role][0].model.name

    def _course(self, request: ModelRequest) -> Course:
        return Course(self._candidates[request.role], request, self._health, self._clock, self._backoff)

    def _attempts(self, course: Course) -> AsyncRetrying:
        return AsyncRetrying(retry=course.goes_on, wait=course.pause, reraise=True)


async def _ask(course: Course) -> ModelReply:
    return course.answered(await course.model.respond(course.request()))


def _candidates(role: ModelRole, chains: Mapping[ModelRole, Sequence[ChatModel]]) -> tuple[Candidate, ...]:
    own = chains[role]
    names = {model.name for model in own}
    lesser = [model for model in chains[ModelRole.ROUTER] if model.name not in names]
    return (*(Candidate(model) for model in own), *(Candidate(model, downgraded=True) for model in lesser))
