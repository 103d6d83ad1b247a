"""The `ModelClient`: each role's models in order, with retries, fallbacks and one budget for all of them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

from starling.core.clock import Clock
from starling.core.errors import ModelError
from starling.core.llm import ModelReply, ModelRequest, ModelRole, TextDelta
from starling.infra.llm.chat_model import ChatModel, ReplyStream
from starling.infra.llm.fallback import Backoff, Candidate, Course, Health, jittered

type Named = Callable[[str], ChatModel]
"""Gives the model of a name, at once the second time."""


class Models:
    """Asks the models of a role until one answers within the request's time; before them, one that a request names.

    Connection and server errors: at most two more tries, then the role's next model, at last the router's
    models. A timeout goes to the next model at once. An invalid response is the caller's to deal with.
    """

    def __init__(
        self,
        chains: Mapping[ModelRole, Sequence[ChatModel]],
        clock: Clock,
        named: Named,
        backoff: Backoff = jittered,
    ) -> None:
        self._named = named
        self._candidates = {role: _candidates(role, chains) for role in ModelRole}
        self.names = frozenset(model.name for chain in chains.values() for model in chain)  # that the settings choose
        self._clock = clock
        self._backoff = backoff
        self._health = Health(clock)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the whole answer. `warnings` says what went wrong on the way to it."""
        course = self._course(request)
        while True:
            try:
                return course.answered(await course.model.respond(course.request()))
            except ModelError as error:
                await course.recover(error)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it comes, then the whole reply. `restart` comes before the text of another attempt."""
        course = self._course(request)
        spoken = False
        while True:
            try:
                async with aclosing(course.model.stream_respond(course.request())) as items:
                    async for item in items:
                        if isinstance(item, ModelReply):
                            yield course.answered(item)
                            return
                        spoken = True
                        yield item
            except ModelError as error:
                await course.recover(error)
            if spoken:
                yield TextDelta("", restart=True)
                spoken = False

    def describe(self, role: ModelRole) -> str:
        """Return `provider:model` of the model that a role asks first."""
        return self._candidates[role][0].model.name

    def _course(self, request: ModelRequest) -> Course:
        return Course(self._candidates_for(request), request, self._health, self._clock, self._backoff)

    def _candidates_for(self, request: ModelRequest) -> Sequence[Candidate]:
        fallbacks = self._candidates[request.role]
        if request.model is None:
            return fallbacks
        named = self._named(request.model)
        return (Candidate(named), *(other for other in fallbacks if other.model.name != named.name))


def _candidates(role: ModelRole, chains: Mapping[ModelRole, Sequence[ChatModel]]) -> tuple[Candidate, ...]:
    own = chains[role]
    names = {model.name for model in own}
    lesser = [model for model in chains[ModelRole.ROUTER] if model.name not in names]
    return (*(Candidate(model) for model in own), *(Candidate(model, downgraded=True) for model in lesser))
