"""Servers and tools, and what a call of one comes to."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from starling.core.clock import Deadline
from starling.core.json import JsonObject
from starling.core.principal import DEFAULT_TENANT, Grant
from starling.core.tool_calls import Effect


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool of a server, pinned by `hash`, the digest of its whole canonical definition as listed."""

    server: str
    name: str
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    effect: Effect
    hash: str

    @property
    def full_name(self) -> str:
        """The name everywhere but inside the server: `server.tool`."""
        return f"{self.server}.{self.name}"


@dataclass(frozen=True, slots=True)
class ServerListing:
    """A server as it was last listed. `error` and `remedy` are set where `state` isn't `ready`."""

    name: str
    description: str
    config_hash: str
    state: Literal["ready", "degraded"]
    tools: tuple[ToolDefinition, ...] = ()
    error: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: who makes it (`run_id`, `path` of the task), of what, with which arguments, under which grant.

    `position` and `index` say which call of which answer of the task it is. `key` tells the call from every other one
    and is the same in each life of the run; servers are offered it, so that they can tell a repetition.
    """

    id: str
    run_id: str
    path: str
    tool: ToolDefinition
    arguments: JsonObject
    grant: Grant | None = None
    tenant: str = DEFAULT_TENANT
    agent: str = ""
    caller: str = ""  # the id of the key that the run was asked for with
    position: int = 0
    index: int = 0
    key: str = ""
    record: "CallRecord | None" = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call came to. Failures are values that an agent can read and correct.

    `text` is what a model and a person see; `data` the structured content where the server gave one.
    `code` says why a failed call failed: `tool_error` (the tool said so), `invalid_arguments`, `not_allowed`,
    `timeout`, `server_unavailable`, `invalid_result`, `removed`, `switched_off`, `not_approved`, `interrupted` (the
    process that waited ended). `unknown` means that a failed call may have changed something all the same: it was cut
    off after it may have left. Where `truncated`, the whole had so many `characters` and is kept as `artifact`, an
    empty id if it couldn't be.
    """

    status: Literal["succeeded", "failed"]
    text: str
    data: JsonObject | None = None
    code: str = ""
    truncated: bool = False
    duration_ms: float = 0.0
    unknown: bool = False
    artifact: str = ""
    characters: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What somebody found out about a call whose own answer was lost: whether it was done, and its result then.

    `by` is the full name of the tool that said so, or whoever did.
    """

    done: bool
    result: str
    by: str


type Find = Callable[[], Awaitable[Finding | None]]
"""Asks the call's server whether the call was done; None where nobody there can tell."""


class CallRecord(Protocol):
    """What a run remembers of its calls that may change something. The gateway asks it on the way of each of them."""

    async def approve(self, call: ToolCall, reason: str) -> ToolOutcome | None:
        """Return None where a person approved exactly this call, else the outcome that says that it isn't to be made.

        Raises SuspendedError while nobody has answered.
        """
        ...

    async def dispatch(self, call: ToolCall, find: Find) -> ToolOutcome | None:
        """Make durable that the call leaves now and return None, or return what it came to in an earlier life.

        Raises SuspendedError where a person has to say what it came to, LeaseLostError, DatabaseUnavailableError:
        then the call must not be made.
        """
        ...

    async def leave(self, call: ToolCall) -> None:
        """Make sure, at the last moment before a dispatched call is sent, that the run is still this process' own.

        Raises LeaseLostError, DatabaseUnavailableError: then the call must not be made.
        """
        ...

    async def settle(self, call: ToolCall, outcome: ToolOutcome, find: Find) -> ToolOutcome:
        """Write down what the call came to, with the next flush, and return what the run goes on with.

        Its result isn't used before that flush. Raises SuspendedError where a person has to say what it came to.
        """
        ...


class Halts(Protocol):
    """What was switched off, for whom, as it stands now. Answers are reasons; an empty one means that nothing was."""

    def reason(self, call: ToolCall) -> str:
        """Return why a call must not be made."""
        ...

    def everything(self, tenant: str, caller: str) -> str:
        """Return why no call may be made for a tenant, in a run that was asked for with the key `caller`."""
        ...

    def named(self, kind: Literal["agent", "server"], tenant: str) -> Mapping[str, str]:
        """Return which agents or servers are switched off for a tenant, each with the reason."""
        ...


class NoHalts(Halts):
    """Nothing is ever switched off."""

    def reason(self, call: ToolCall) -> str:
        del call
        return ""

    def everything(self, tenant: str, caller: str) -> str:
        del tenant, caller
        return ""

    def named(self, kind: Literal["agent", "server"], tenant: str) -> Mapping[str, str]:
        del kind, tenant
        return {}


NO_HALTS: Final = NoHalts()


class ToolGateway(Protocol):
    """The one way to MCP servers."""

    async def call(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        """Make a call down the whole path. Never raises for what a server or a tool does.

        Raises SuspendedError, LeaseLostError and DatabaseUnavailableError of the call's record: it was not made then.
        """
        ...

    def warm(self, server: str) -> None:
        """Begin to open a session in the background, so that the first call finds it open."""
        ...

    def listing(self, server: str) -> ServerListing | None:
        """Return the server as it stands now, None if it was removed."""
        ...
