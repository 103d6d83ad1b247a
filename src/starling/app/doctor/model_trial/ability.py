"""An ability of a model, the trial of a model, and what a check may find."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from starling.core.clock import Clock, SystemClock
from starling.core.llm import FailedAttempt, ModelReply, ModelRequest, ModelRole, TextDelta
from starling.infra.llm.chat_model import ChatModel
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.endpoint_capabilities import Dialect
from starling.infra.llm.output_reader import OutputReader

type State = Literal["works", "emulated", "missing", "untried"]


class AbilityMissingError(Exception):
    """The answer does not show the ability; the text is the observation."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What showed the ability. `emulated`: only with the help of the platform, which `detail` describes."""

    detail: str
    emulated: bool = False


@dataclass(slots=True)
class Trial:
    """A model that has learned nothing yet, with retries, until `deadline` of the event loop's clock."""

    model: ChatModel
    deadline: float
    clock: Clock = field(default_factory=SystemClock)
    requests: int = 0

    @property
    def lacking(self) -> Dialect:
        """Features that the endpoint refused in this trial, or is set to lack."""
        return self.model.lacking

    async def ask(self, request: ModelRequest, *, as_runs_do: bool = True) -> ModelReply:
        """Return the answer, read as in runs or as the endpoint gives it. Raises ModelError."""
        reply = await self._client(as_runs_do=as_runs_do).respond(self._limited(request))
        self.requests += 1
        return reply

    async def pieces(self, request: ModelRequest) -> tuple[list[str], ModelReply]:
        """Return the pieces of text of a streamed answer, and the answer. Raises ModelError."""
        pieces: list[str] = []
        async for item in self._client(as_runs_do=False).stream_respond(self._limited(request)):
            if isinstance(item, ModelReply):
                self.requests += 1
                return pieces, item
            pieces = [] if item.restart else [*pieces, *_text(item)]
        raise AbilityMissingError("the stream had no end")

    def _client(self, *, as_runs_do: bool) -> FallbackModelClient:
        model = OutputReader(self.model) if as_runs_do else self.model
        return FallbackModelClient(dict.fromkeys(ModelRole, (model,)), self.clock, lambda _: model)

    def _limited(self, request: ModelRequest) -> ModelRequest:
        seconds = max(0.1, self.deadline - asyncio.get_running_loop().time())
        return replace(request, timeout=seconds, on_failed_attempt=self._count)

    def _count(self, failed: FailedAttempt) -> None:
        del failed
        self.requests += 1


type Check = Callable[[Trial], Awaitable[Seen]]
"""Asks and looks at the answer. Raises AbilityMissingError, ModelError."""


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that a model can do or not; requests of the check do without the features in `without`."""

    code: str
    name: str
    check: Check
    without: Dialect = frozenset()
    slow: bool = False  # tried after the others, so that it does not keep them waiting


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one ability."""

    ability: Ability
    state: State
    detail: str
    seconds: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether runs can rely on it."""
        return self.state in ("works", "emulated")


type Results = Mapping[str, Result]
"""Results by the code of the ability."""


def _text(delta: TextDelta) -> list[str]:
    return [delta.text] if delta.text else []
