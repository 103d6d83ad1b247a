"""A conversation as a stack of states, over the HTTP API."""

import base64
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import time
from typing import Any, Final

from starling.client.api import Api, path_of
from starling.client.api_errors import MissingError
from starling.core.conversation import states
from starling.core.conversation.states import BaseState, Envelope, fields_of, state_of
from starling.core.settings.schema import environment

_PAGE: Final = 200
_LOCAL: Final = "http://127.0.0.1:8000"


class Client(Api):
    """The API of a platform: at `url`, else STARLING_URL; with `key`, else STARLING_API_KEY."""

    def __init__(self, url: str = "", key: str = "") -> None:
        given = environment()
        super().__init__(url or given.get("STARLING_URL", _LOCAL), key or given.get("STARLING_API_KEY", ""))


@dataclass(frozen=True, slots=True)
class StackEntry:
    """A state with its position on the line, its agent, and its reference `thread/branch/run/position`."""

    state: BaseState
    position: int
    agent: str
    reference: str


class InteractionStack:
    """The states of one branch of a conversation; with `agent_id`, those of this agent alone.

    It begins on the current branch of the conversation. Positions count from 1; an `index` is the position of the last
    state that stays. Raises StarlingError for what the API refuses.
    """

    def __init__(self, client: Client, conversation_id: str, agent_id: str | None = None) -> None:
        self.client = client
        self.conversation_id = conversation_id
        self.agent_id = agent_id
        self.branch: str | None = None
        self._path = path_of("threads", conversation_id)

    def __iter__(self) -> Iterator[BaseState]:
        return (entry.state for entry in self.entries())

    def entries(self, *, after: int = 0) -> Iterator[StackEntry]:
        """Yield the states after a position, oldest first, with those of the run that goes on."""
        query = {"branch": self.branch, "agent": self.agent_id, "after": after}
        with self._none_before_the_first():
            for found in self.client.pages(f"{self._path}/states", "states", query, most=_PAGE, cursor="after"):
                state = state_of(found["t"], found["v"], found["data"])
                yield StackEntry(state, found["position"], found["agent"], found["reference"])

    def push(self, state: BaseState) -> None:
        """Add a state to the end of the branch; the conversation begins with it if there is none."""
        item = {"t": type(state).__name__, "v": state.__version__, "data": fields_of(state), "agent": self.agent_id}
        self.client.post(f"{self._path}/states", {"branch": self.branch, "states": [item]})

    def current(self) -> BaseState | None:
        """Return the latest state, None of an empty stack."""
        return next((entry.state for entry in self.iter_last_n(1)), None)

    def length(self) -> int:
        """Return the number of states."""
        return sum(1 for _ in self.entries())

    def iter_last_n(self, n: int) -> Iterator[StackEntry]:
        """Return the last `n` states, oldest first. Those of one agent may be anywhere, so all are read for them."""
        after = 0 if self.agent_id else max(0, self._tip() - n)
        return iter(deque(self.entries(after=after), n))

    def fork(self, index: int | None = None, name: str | None = None) -> str:
        """Begin a branch after a position, or at the end; return its id. The stack stays where it is."""
        made = self.client.post(f"{self._path}/fork", {"branch": self.branch, "position": index, "name": name})
        return str(made["id"])

    def checkout(self, branch: str) -> None:
        """Go to a branch, here and for runs that name none."""
        self.client.post(f"{self._path}/checkout", {"branch": branch})
        self.branch = branch

    def rewind(self, index: int) -> None:
        """Move what lies beyond a position to a hidden branch."""
        self.client.post(f"{self._path}/rewind", {"branch": self.branch, "position": index})

    def get_branch_info(self) -> Sequence[Mapping[str, Any]]:
        """Return the branches, oldest first, as the API has them."""
        with self._none_before_the_first():
            return self.client.get(f"{self._path}/branches")["branches"]
        return []

    def _tip(self) -> int:
        with self._none_before_the_first():
            thread = self.client.get(self._path)
            tips = {one["id"]: one["tip"] for one in thread["branches"]}
            return tips.get(self.branch or thread["branch"], 0)  # `entries` raises for a branch that isn't there
        return 0

    @contextmanager
    def _none_before_the_first(self) -> Generator[None]:
        """Leave the block where the conversation has no state yet."""
        try:
            yield
        except MissingError:
            if self.branch is not None:
                raise


fork, checkout, rewind = InteractionStack.fork, InteractionStack.checkout, InteractionStack.rewind
"""The same as functions, whose first argument is the stack."""


def encode(state: BaseState) -> dict[str, Any]:
    """Return the envelope of a state: `v, t, ts, data, compressed`; compressed data (from 2 KiB on) as base64."""
    stored = states.encode(state, time())
    data = base64.b64encode(stored.data) if stored.compressed else stored.data
    return {"v": stored.v, "t": stored.t, "ts": stored.ts, "data": data.decode(), "compressed": stored.compressed}


def decode(envelope: Mapping[str, Any]) -> BaseState:
    """Return the state in an envelope that `encode` made, in this version or an earlier one.

    Raises InvalidRequestError for a kind or a version that isn't known.
    """
    text = str(envelope["data"])
    data = base64.b64decode(text) if envelope["compressed"] else text.encode()
    return states.decode(Envelope(envelope["v"], envelope["t"], envelope["ts"], data, envelope["compressed"]))
