"""The one error tree. Typed arguments make the message; edges translate it once."""

from typing import ClassVar

_LISTED = {
    "run": "`GET /v1/runs` and `starling run list` show your tenant's.",
    "interrupt": "`GET /v1/approvals` and `starling run approve` show what waits.",
}


class StarlingError(Exception):
    """Something went wrong that a person can be told about.

    `message` says what and where, `remedy` what to do about it; `code` is the stable name that
    APIs, events and exit codes carry.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class ConfigurationError(StarlingError):
    """A setting or a configuration file is wrong; nothing was changed."""

    code = "configuration_invalid"


class InvalidRequestError(StarlingError):
    """A caller asked for something that can't be understood or isn't allowed."""

    code = "invalid_request"


class IdempotencyKeyReusedError(InvalidRequestError):
    """An idempotency key that stands for one request came with another one."""

    code = "idempotency_key_reused"

    def __init__(self, key: str, run_id: str) -> None:
        super().__init__(
            f"The idempotency key {key!r} stands for another request, which made run {run_id}.",
            "Send a new key with a new request, and the same request with the same key.",
        )
        self.key = key
        self.run_id = run_id


class NotFoundError(StarlingError):
    """The named thing doesn't exist for this tenant."""

    code = "not_found"

    def __init__(self, kind: str, name: str, remedy: str = "") -> None:
        super().__init__(f"There is no {kind} {name!r}.", remedy or _LISTED.get(kind, ""))
        self.kind = kind
        self.name = name


class UnauthorizedError(StarlingError):
    """The caller showed no key where one is needed, or one that doesn't count."""

    code = "unauthorized"


class ForbiddenError(StarlingError):
    """The caller's key isn't for this."""

    code = "forbidden"


class RateLimitedError(StarlingError):
    """The key is used too often."""

    code = "rate_limited"

    def __init__(self, per_minute: int, retry_after: float) -> None:
        super().__init__(
            f"The key may make {per_minute} requests a minute, and made them.",
            f"Wait {retry_after:.1f} s, or ask for a higher `rate_per_minute`.",
        )
        self.retry_after = retry_after  # seconds until the next request is let in


class DatabaseUnavailableError(StarlingError):
    """Postgres can't be reached, or not within the time limit."""

    code = "database_unavailable"


class RunUnwritableError(DatabaseUnavailableError):
    """What a run writes was tried for as long as it waits for a Postgres that is away.

    Where others fare better meanwhile, it is the run that can't be written.
    """


class DatabaseUnsuitableError(StarlingError):
    """Postgres answers, but is too old, lacks an extension or has a schema out of range."""

    code = "database_unsuitable"


class DrainingError(StarlingError):
    """This process is being stopped: whoever has a choice asks another one."""

    code = "draining"


class LeaseLostError(StarlingError):
    """Another worker owns the run now: nothing more may be written under this fence."""

    code = "lease_lost"

    def __init__(self, run_id: str, fence: int) -> None:
        super().__init__(f"Run {run_id} is no longer held under fence {fence}.")
        self.run_id = run_id
        self.fence = fence


class JournalDivergedError(StarlingError):
    """A resumed task would ask something else than before the crash; it never asks again."""

    code = "journal_diverged"

    def __init__(self, path: str, position: int) -> None:
        super().__init__(
            f"The request at {path} position {position} differs from the one that was recorded.",
            "The task was stopped so that nothing is done twice; send the request again as a new run.",
        )


class OutcomeUnknownError(StarlingError):
    """A call that may change things outside was cut off; whether it happened isn't known."""

    code = "outcome_unknown"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"The call of {tool} was cut off: its outcome is unknown.",
            "Check what the tool changed before you ask for it again.",
        )
        self.tool = tool


class SuspendedError(StarlingError):
    """The run can't go on before somebody answers; what it waits for is written down."""

    code = "suspended"

    def __init__(self, *interrupts: str) -> None:
        super().__init__("The run waits for an answer.", "`POST /v1/runs/{id}/resume` gives it.")
        self.interrupts = interrupts  # ids


class ConflictError(StarlingError):
    """What is asked for can't be done as things stand: they were changed, ended or answered already."""

    code = "conflict"


class RunCancelledError(StarlingError):
    """Somebody asked for the run's end."""

    code = "cancelled"


class BudgetExhaustedError(StarlingError):
    """The run has used the tokens that it may use, and nobody gave it more."""

    code = "budget_exhausted"

    def __init__(self, used: int, budget: int) -> None:
        super().__init__(f"The run's budget is used up: {used} of {budget} tokens.")


class DeadlineExceededError(StarlingError):
    """The run's time is used up."""

    code = "deadline_exceeded"


class ServerUnavailableError(StarlingError):
    """An MCP server can't be started, reached or understood."""

    code = "server_unavailable"

    def __init__(self, server: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"MCP server {server!r}: {reason}", remedy)
        self.server = server
        self.reason = reason


class ModelError(StarlingError):
    """A model call failed; the four classes below say how."""

    code = "model_error"

    def __init__(self, model: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"Model {model}: {reason}", remedy)
        self.model = model
        self.reason = reason


class LLMTimeout(ModelError):  # noqa: N818 - the seeds' names are a contract
    """The model didn't answer in time."""

    code = "llm_timeout"


class LLMInvalidResponse(ModelError):  # noqa: N818
    """The model answered something that isn't what the protocol or the schema promises."""

    code = "llm_invalid_response"


class LLMConnectionError(ModelError):
    """The model's endpoint can't be reached."""

    code = "llm_connection_error"


class LLMServerError(ModelError):
    """The model's endpoint answered with a failure of its own (5xx, 429) or refused us (4xx)."""

    code = "llm_server_error"

    def __init__(
        self, model: str, reason: str, remedy: str = "", *, status: int = 500, retry_after: float | None = None
    ) -> None:
        super().__init__(model, reason, remedy)
        self.status = status
        self.retry_after = retry_after  # seconds the endpoint asked us to wait

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later: overload and server faults, not refusals."""
        return self.status in (408, 429) or self.status >= 500
