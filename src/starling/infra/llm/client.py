"""The `ModelClient`: the models of each role in order, with retries, fallbacks and one time limit for all of them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

from starling.core.clock import Clock
from starling.core.errors import ModelError
from starling.core.llm import ModelReply, ModelRequest, ModelRole, TextDelta
from starling.infra.llm.chat_model import ChatModel, ReplyStream
from starling.infra.llm.fallback import Backoff, Candidate, FallbackChain, ModelHealth, jittered_backoff

type ResolveModel = Callable[[str], ChatModel]
"""Returns the model of a name; results are cached."""


class FallbackModelClient:
    """Tries the models of a role until one answers within the time limit; a model named by the request comes first.

    After connection and server errors: at most two retries, then the next model of the role, finally the models of
    the router. After a timeout: the next model at once. Invalid responses are raised to the caller.
    """

    def __init__(
        self,
        chains: Mapping[ModelRole, Sequence[ChatModel]],
        clock: Clock,
        resolve_model: ResolveModel,
        backoff: Backoff = jittered_backoff,
    ) -> None:
        self._resolve_model = resolve_model
        self._candidates = {role: _candidates(role, chains) for role in ModelRole}
        self.names = frozenset(model.name for chain in chains.values() for model in chain)  # chosen by the settings
        self._clock = clock
        self._backoff = backoff
        self._health = ModelHealth(clock)

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

    def describe(self, role: ModelRole) -> str:
        """Return `provider:model` of the first model of a role."""
        return self._candidates[role][0].model.name

    def _fallback_chain(self, request: ModelRequest) -> FallbackChain:
        return FallbackChain(self._candidates_for(request), request, self._health, self._clock, self._backoff)

    def _candidates_for(self, request: ModelRequest) -> Sequence[Candidate]:
        fallbacks = self._candidates[request.role]
        if request.model is None:
            return fallbacks
        named = self._resolve_model(request.model)
        return (Candidate(named), *(other for other in fallbacks if other.model.name != named.name))


def _candidates(role: ModelRole, chains: Mapping[ModelRole, Sequence[ChatModel]]) -> tuple[Candidate, ...]:
    own = chains[role]
    names = {model.name for model in own}
    router_models = [model for model in chains[ModelRole.ROUTER] if model.name not in names]
    return (*(Candidate(model) for model in own), *(Candidate(model, downgraded=True) for model in router_models))
