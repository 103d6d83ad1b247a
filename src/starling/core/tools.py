"""Servers, tools and calls of them, with the ports of the gateway and of a run's record of its calls."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal, Protocol, Self, cast

from starling.core.artifacts import Binary
from starling.core.clock import Deadline
from starling.core.json import Json, JsonObject
from starling.core.principal import DEFAULT_TENANT, Grant
from starling.core.tool_calls import ApprovalPolicy, Effect, MemberApproval, Observation, ReviewPolicy

FIND_TOOLS: Final = "find_tools"  # the built-in tool that shows an agent others of its tools
CONTINUE: Final = "continue"  # the built-in tool that gives an agent another turn
NOTE: Final = "note"  # the built-in tool that keeps a value for the tasks that depend on one
READ_RESOURCE: Final = "read_resource"  # the built-in tool that follows links of results
OVER_LIMIT: Final = "over_limit"


type Repeat = Literal["made", "reused", "asked"]
"""What becomes of a call in a later attempt at a task: it is made as any other; it gets the result of an equal one that
succeeded before; or, where there is no equal one but an unlike one that succeeded before, a person is asked as well."""

type ServerSource = Literal["file", "host", "api"]
"""How a server got in: by a file, by an admin of the machine, or by a document over HTTP."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool of a server, pinned by `hash`, the digest of its whole canonical definition as listed.

    Description and schemas are what agents see: the admin's own where there are some. `narrowing` is the digest of the
    admin's schemas, empty where both are the server's. `reflect` is the review policy of its results, None where that
    of the agent holds. `own_name` is what the server calls it, where agents call it otherwise. `declared`: an admin set
    the effect, which is `unsafe` without that; `hinted` is the effect that the server's annotations suggest, if any.
    """

    server: str
    name: str
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    effect: Effect
    hash: str
    narrowing: str = ""
    reflect: ReviewPolicy | None = None
    own_name: str = ""
    declared: bool = True
    hinted: Effect | None = None

    @property
    def repeat(self) -> Repeat:
        """What becomes of its calls in a later attempt at a task."""
        match self.effect if self.declared else self.hinted:
            case Effect.READ:
                return "made"
            case Effect.UNSAFE:
                return "asked"
            case Effect.IDEMPOTENT | None:
                return "reused"

    @property
    def schemas_key(self) -> str:
        """A key that changes with the schemas."""
        return f"{self.hash}{self.narrowing}"

    @property
    def full_name(self) -> str:
        """`server.tool`: the name everywhere but inside the server."""
        return f"{self.server}.{self.name}"

    def reading(self) -> Self:
        """Return the tool as one that only reads: for reads of what it linked to."""
        return replace(self, effect=Effect.READ)


def hinted_effect(definition: Mapping[str, Any]) -> Effect | None:
    """Return the effect that the annotations of a tool's definition suggest, None where they don't say enough.

    They are those of MCP. A missing hint says nothing, though MCP has defaults for them.
    """
    given = definition.get("annotations")
    hints: Mapping[str, Any] = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    reads, destroys = hints.get("readOnlyHint"), hints.get("destructiveHint")
    if reads is True and destroys is not True:
        return Effect.READ
    if reads is not True and hints.get("idempotentHint") is True and destroys is False:
        return Effect.IDEMPOTENT
    return Effect.UNSAFE if reads is False or destroys is True else None


def own_name_of(name: str, definition: Mapping[str, Any]) -> str:
    """Return the `own_name` of a tool that agents call `name`."""
    listed = definition.get("name")
    return listed if isinstance(listed, str) and listed != name else ""


@dataclass(frozen=True, slots=True)
class ServerListing:
    """A server as it was last listed. `error` and `remedy` are set where `state` isn't `ready`.

    `tools` are those that were approved; `quarantined` are others, which aren't offered, with the reasons.
    """

    name: str
    description: str
    config_hash: str
    state: Literal["ready", "degraded"]
    tools: tuple[ToolDefinition, ...] = ()
    error: str = ""
    remedy: str = ""
    quarantined: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result that a call in a trial gets; of any call of the tool where `arguments` is None.

    In the trial of a run it is the whole `outcome` of an equal call, also that of one that failed.
    """

    tool: str
    arguments: JsonObject | None
    result: Json = None
    outcome: "ToolOutcome | None" = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial: calls in it that may change something are not made but answered, at best by a fixture.

    It is that of a team with a case, or `of_run`: then the user may be asked, skills are recalled, and tasks keep no
    list of their calls for a judge.
    """

    fixtures: tuple[TrialResult, ...] = ()
    of_run: bool = False


@dataclass(frozen=True, slots=True)
class ToolNotice:
    """What a server says while it answers a call: its progress, or a message of its log, which has a `level`."""

    message: str
    progress: float | None = None
    total: float | None = None
    level: str = ""
    logger: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task. It is later if something was tried before it that was rejected or failed.

    `after_failure`: the task was planned after another one had failed.
    """

    number: int = 1
    is_later: bool = False
    after_failure: bool = False


@dataclass(frozen=True, slots=True)
class DoneCall:
    """A call that succeeded in an earlier attempt at a task, whose result was rejected for `reason`."""

    id: str
    name: str
    arguments: JsonObject
    result: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: who makes it (`run_id`, `path` of the task), of what, with which arguments, under which grant.

    `position` and `index` say which call of which answer of the task it is. `key` identifies the call among all calls
    and is the same each time that its run is resumed. `idempotency_key` is what the server is sent: repeats of an
    idempotent call of the same task share it. `teams` are those whose member `agent` is, the outermost first. With
    `approval` `effects`, a person has to approve the call if it may change something; `least_approval` holds where the
    policy of its server asks for fewer. A call of a `trial` isn't made then. `meta` is sent beside the arguments. With
    a `resource`, that resource, to which a result of `tool` linked, is read instead: the tool isn't called. `attempt`
    is the one that makes it. `wanted` is the text of request and task, by which a result that is too long is fitted;
    without it, the beginning is shown. `fence` is that of the process that makes it; once it leaves, it ends after so
    many `seconds`.
    """

    id: str
    run_id: str
    path: str
    tool: ToolDefinition
    arguments: JsonObject
    grant: Grant | None = None
    tenant: str = DEFAULT_TENANT
    agent: str = ""
    caller: str = ""  # the id of the key that the run was requested with
    position: int = 0
    index: int = 0
    key: str = ""
    idempotency_key: str = ""
    teams: tuple[str, ...] = ()
    approval: MemberApproval = "policy"
    least_approval: ApprovalPolicy = "never"
    trial: Trial | None = None
    thread_id: str = ""
    meta: Mapping[str, str] = field(default_factory=dict[str, str])
    on_notice: Callable[[ToolNotice], None] | None = field(default=None, compare=False, repr=False)
    resource: str = ""
    attempt: Attempt = Attempt()
    wanted: str = field(default="", compare=False, repr=False)
    fence: int = 0
    seconds: float | None = None

    @property
    def shown_name(self) -> str:
        """What people see: the tool's full name, or that a resource of its server is read."""
        return f"{self.tool.server}.{READ_RESOURCE}" if self.resource else self.tool.full_name


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What was observed of a call. Failures are values that an agent can read and correct.

    `text` is what a model and a person see; `data` the structured content where the server gave one.
    `code` says why a failed call failed: `tool_error` (the tool or its server said so), `invalid_arguments`,
    `not_allowed`, `over_limit`, `timeout`, `server_unavailable`, `memory_limit` (its server used too much and was
    ended), `invalid_result`, `removed`, `quarantined` (its definition isn't the approved one), `switched_off`,
    `not_approved`, `repeat_refused` (what an earlier attempt did stays as it is), `not_repeated` (an earlier equal call
    may have been done), `duplicate` (an equal call hasn't ended), `no_context` (there is no run to tell the tool),
    `interrupted` (the process that waited ended), `lease_lost` (or may not have ended). Where `truncated`, the whole
    had so many `characters` and is kept as `artifact`, an empty id if it couldn't be. `simulated` says what answered in
    place of the tool: a `fixture`, or the recorder alone.
    `events` are to be emitted with the result; `resources` are the addresses that it links to. `large_data` is
    structured content as JSON that is too large to be `data`; only the gateway's checks see it, it is never stored.
    `binaries` are the binary parts of the result until the gateway has stored them, `binary_artifacts` their ids then.
    """

    observation: Observation
    text: str
    data: JsonObject | None = None
    code: str = ""
    truncated: bool = False
    duration_ms: float = 0.0
    artifact: str = ""
    characters: int = 0
    simulated: Literal["", "fixture", "simulated"] = ""
    events: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    large_data: bytes = field(default=b"", compare=False, repr=False)
    binaries: tuple[Binary, ...] = field(default=(), compare=False, repr=False)
    binary_artifacts: tuple[str, ...] = ()

    @property
    def status(self) -> Literal["succeeded", "failed"]:
        """Whether there is a result to use."""
        done = self.observation in (Observation.COMPLETED, Observation.REUSED, Observation.FOUND_DONE)
        return "succeeded" if done else "failed"

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as it is stored: with its status, without empty fields."""
        values = {"status": self.status} | asdict(self)
        del values["large_data"], values["binaries"]
        return {name: value for name, value in values.items() if name == "text" or value not in (None, "", 0, ())}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return a stored outcome. Those of earlier versions have a status, and `unknown`, but no observation."""
        names = {field.name for field in fields(cls)}
        values: dict[str, Any] = {name: value for name, value in stored.items() if name in names}
        earlier = Observation.CONNECTION_LOST if stored.get("unknown") else Observation.TOOL_ERROR
        earlier = Observation.COMPLETED if stored.get("status") == "succeeded" else earlier
        values["observation"] = Observation(stored.get("observation") or earlier)
        values |= {name: tuple(stored.get(name, ())) for name in ("events", "resources", "binary_artifacts")}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class CallFinding:
    """What a tool or a person found out about a call whose own answer was lost or can't be used.

    `by` is the full name of the tool, or who the person is; `result` that of a call that was done.
    """

    observation: Literal[Observation.FOUND_DONE, Observation.FOUND_NOT_DONE, Observation.GIVEN_UP]
    result: str
    by: str
    by_person: bool = False


type Find = Callable[[], Awaitable[CallFinding | None]]
"""Asks the call's server whether the call was done; None if no tool of it can answer that."""


class CallRecord(Protocol):
    """A run's durable record of its calls that may change something. The gateway consults it on the way of each."""

    async def approve(self, call: ToolCall, reason: str, done: DoneCall | None = None) -> ToolOutcome | None:
        """Return None where a person approved exactly this call, else the outcome that says that it isn't made.

        `done` is what an earlier attempt did, if that is why a person is asked. Raises SuspendedError while there is no
        answer.
        """
        ...

    def reuse(self, call: ToolCall, note: str) -> ToolOutcome | None:
        """Settle a call by the result of an equal one of an earlier attempt, which this one hasn't used yet.

        Returns that result with the note, None where there is none.
        """
        ...

    def done_before(self, call: ToolCall) -> DoneCall | None:
        """Return the last call of the same tool that succeeded in a rejected or failed attempt that this one repeats.

        None where there is none, and for a call that left before anybody was asked.
        """
        ...

    def sent_by_original(self, call: ToolCall) -> str:
        """Return the id of an equal call that the original of this fork sent, empty where there is none."""
        ...

    async def dispatch(self, call: ToolCall, find: Find) -> ToolOutcome | None:
        """Return None for a call that may leave, else the outcome of one that must not.

        That is one that has an outcome already, or that repeats a call which may have been done. Raises SuspendedError
        where a person has to decide whether it was done: then it isn't made.
        """
        ...

    async def leave(self, call: ToolCall) -> None:
        """Make durable, right before the call is sent, that it leaves, and that this process still holds the run.

        Raises LeaseLostError, DatabaseUnavailableError: then the call must not be made.
        """
        ...

    def is_intended(self, call: ToolCall) -> bool:
        """Whether the call has no outcome and has not left, in this process or an earlier one."""
        ...

    def has_left(self, call: ToolCall) -> bool:
        """Whether this process has recorded with `leave` that the call leaves."""
        ...

    async def settle(self, call: ToolCall, outcome: ToolOutcome, find: Find) -> ToolOutcome:
        """Record what was observed of the call, with the next flush, and return the outcome that the run goes on with.

        Its result isn't used before that flush. Raises SuspendedError where a person has to decide whether it was done.
        """
        ...


class Halts(Protocol):
    """What kill switches stop at this moment. A reason is empty where nothing is switched off."""

    def reason(self, call: ToolCall) -> str:
        """Return why a call must not be made."""
        ...

    def everything(self, tenant: str, caller: str) -> str:
        """Return why no call may be made for a tenant, in a run that was requested with the key `caller`."""
        ...

    def named(self, kind: Literal["agent", "server"], tenant: str) -> Mapping[str, str]:
        """Return which agents or servers are switched off for a tenant, each with the reason."""
        ...


class ToolGateway(Protocol):
    """The only way to MCP servers."""

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        """Make a call through all checks. Never raises for what a server or a tool does.

        Raises SuspendedError, LeaseLostError and DatabaseUnavailableError of `record`, the record of the call's run.
        """
        ...

    def warm(self, server: str) -> None:
        """Begin to open a session in the background, so that the first call finds it open."""
        ...

    def listing(self, server: str) -> ServerListing | None:
        """Return the server as it is now, None if it was removed."""
        ...
