"""All errors of Starling. Their typed arguments make the message; HTTP, worker and CLI translate them once."""

from typing import ClassVar

_LIST_HINTS = {
    "run": "`GET /v1/runs` and `starling run list` show the runs of your tenant.",
    "interrupt": "`GET /v1/approvals` and `starling run approve` show the open interrupts.",
}


class StarlingError(Exception):
    """Base class of errors whose text is meant for users.

    `message` states what is wrong and where, `remedy` what to do; `code` is the stable name that APIs, events and
    exit codes use.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class ConfigurationError(StarlingError):
    """A setting or a configuration file is invalid; nothing was changed."""

    code = "configuration_invalid"


class InvalidRequestError(StarlingError):
    """The request is malformed or not allowed."""

    code = "invalid_request"


class IdempotencyKeyReusedError(InvalidRequestError):
    """An idempotency key was sent again with a different request."""

    code = "idempotency_key_reused"

    def __init__(self, key: str, run_id: str) -> None:
        super().__init__(
            f"The idempotency key {key!r} was already used for a different request, which created run {run_id}.",
            "Send a new key with each new request, or repeat the earlier request unchanged.",
        )


class NotFoundError(StarlingError):
    """The named object does not exist for this tenant."""

    code = "not_found"

    def __init__(self, kind: str, name: str, remedy: str = "") -> None:
        super().__init__(f"There is no {kind} {name!r}.", remedy or _LIST_HINTS.get(kind, ""))


class UnauthorizedError(StarlingError):
    """No valid key was sent although one is required."""

    code = "unauthorized"


class ForbiddenError(StarlingError):
    """The caller's key does not permit this."""

    code = "forbidden"


class RateLimitedError(StarlingError):
    """Too many requests were made with one key."""

    code = "rate_limited"

    def __init__(self, per_minute: int, retry_after: float) -> None:
        super().__init__(
            f"The key has used up its limit of {per_minute} requests per minute.",
            f"Try again in {retry_after:.1f} s, or raise the setting `rate_per_minute`.",
        )
        self.retry_after = retry_after  # seconds until the next request is accepted


class TooManyWrongKeysError(StarlingError):
    """A wrong key from an address that sent too many of them."""

    code = "too_many_wrong_keys"

    def __init__(self, retry_after: float) -> None:
        super().__init__(
            "Too many wrong keys came from your address.", f"Try again in {retry_after:.1f} s, with the right key."
        )
        self.retry_after = retry_after  # seconds until the address has another try


class BacklogFullError(StarlingError):
    """A tenant has as many queued runs as it may have; nothing was accepted."""

    code = "backlog_full"

    def __init__(self, limit: int, retry_after: float) -> None:
        super().__init__(
            f"{limit} runs of your tenant are queued already, as many as may be.",
            f"Try again in {retry_after:.0f} s, cancel some of them, or raise `limits.queued_runs_per_tenant`.",
        )
        self.retry_after = retry_after  # seconds


class DatabaseUnavailableError(StarlingError):
    """Postgres can't be reached within the time limit."""

    code = "database_unavailable"


class RunUnwritableError(DatabaseUnavailableError):
    """A write of a run failed for as long as the worker waits for Postgres.

    If the writes of other runs succeeded in this time, the data of this run is the cause.
    """


class DatabaseUnsuitableError(StarlingError):
    """Postgres is too old, lacks an extension or has a schema that this version can't use."""

    code = "database_unsuitable"


class DrainingError(StarlingError):
    """This process is shutting down; send the request to another one."""

    code = "draining"


class LeaseLostError(StarlingError):
    """Another worker owns the run now; nothing more may be written under this fence."""

    code = "lease_lost"

    def __init__(self, run_id: str, fence: int) -> None:
        super().__init__(f"This worker no longer owns run {run_id} (fence {fence}).")


class JournalDivergedError(StarlingError):
    """The model request of a resumed step differs from the recorded one; the model is not called again."""

    code = "journal_diverged"

    def __init__(self, path: str, position: int) -> None:
        super().__init__(
            f"The wording, the tools or the settings of this run have changed since its step {path} began: request"
            f" {position + 1} to the model differs from the recorded one.",
            "The step was stopped, and nothing that it did is repeated.",
        )


class RuntimeUnavailableError(StarlingError):
    """A task was begun by an agent runtime that this worker doesn't have; no other one goes on with it."""

    code = "runtime_unavailable"

    def __init__(self, path: str, runtime: str) -> None:
        super().__init__(
            f"Task {path} was begun by the runtime {runtime!r}, which this worker doesn't have.",
            f"Install the extra `{runtime}` on every worker.",
        )


class RuntimeFailedError(StarlingError):
    """An agent runtime failed by itself: neither the model nor a tool is the cause."""

    code = "runtime_failed"

    def __init__(self, path: str, runtime: str, reason: str) -> None:
        super().__init__(f"The runtime {runtime!r} failed at task {path}: {reason}.")
        self.reason = reason


class OutcomeUnknownError(StarlingError):
    """A call with possible effects was interrupted; whether it took effect is unknown."""

    code = "outcome_unknown"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"The call of {tool} was interrupted; whether it took effect is unknown.",
            "Check what the tool changed before you repeat the request.",
        )


class SuspendedError(StarlingError):
    """The run is suspended until its interrupts, which are stored, are answered."""

    code = "suspended"

    def __init__(self, *interrupts: str) -> None:
        super().__init__("The run waits for an answer.", "Send it with `POST /v1/runs/{id}/resume`.")
        self.interrupts = interrupts  # ids


class ConflictError(StarlingError):
    """The request conflicts with the current state: the object was already changed, ended or answered."""

    code = "conflict"


class QuotaExceededError(StarlingError):
    """A tenant has as many objects of a kind, such as teams, as it may have."""

    code = "quota_exceeded"

    def __init__(self, kind: str, limit: int, remedy: str) -> None:
        super().__init__(f"Your tenant has its {limit} {kind} already.", remedy)


class RunCancelledError(StarlingError):
    """The run was cancelled."""

    code = "cancelled"


class BudgetExhaustedError(StarlingError):
    """The token budget of the run, or of one call of a team, is used up and was not raised."""

    code = "budget_exhausted"

    def __init__(self, used: int, budget: int, of: str = "run") -> None:
        super().__init__(f"The token budget of the {of} is used up: {used} of {budget} tokens.")


class DeadlineExceededError(StarlingError):
    """The deadline of the run has passed."""

    code = "deadline_exceeded"


class ServerUnavailableError(StarlingError):
    """An MCP server can't be started or reached, or its answers are invalid."""

    code = "server_unavailable"

    def __init__(self, server: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"MCP server {server!r}: {reason}", remedy)
        self.server = server
        self.reason = reason


class PromptSourceUnavailableError(StarlingError):
    """The texts of prompts can't be fetched."""

    code = "prompt_source_unavailable"

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source} can't be asked for prompts: {reason}.", "`starling doctor` checks it.")


class ModelError(StarlingError):
    """A model call failed; the four subclasses tell the kind of failure."""

    code = "model_error"

    def __init__(self, model: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"Model {model}: {reason}", remedy)
        self.model = model
        self.reason = reason


class LLMTimeout(ModelError):  # noqa: N818 - the seeds' names are a contract
    """The model did not answer within the time limit."""

    code = "llm_timeout"


class LLMInvalidResponse(ModelError):  # noqa: N818
    """The answer of the model violates the protocol or the response schema; `written` is its text, where there is."""

    code = "llm_invalid_response"

    def __init__(self, model: str, reason: str, remedy: str = "", *, written: str = "") -> None:
        super().__init__(model, reason, remedy)
        self.written = written


class LLMConnectionError(ModelError):
    """The endpoint of the model can't be reached."""

    code = "llm_connection_error"


class LLMServerError(ModelError):
    """The endpoint of the model failed (5xx), is overloaded (429) or refused the request (4xx)."""

    code = "llm_server_error"

    def __init__(
        self, model: str, reason: str, remedy: str = "", *, status: int = 500, retry_after: float | None = None
    ) -> None:
        super().__init__(model, reason, remedy)
        self.status = status
        self.quota_used_up = "insufficient_quota" in reason  # OpenAI's code; waiting doesn't help
        self.retry_after = retry_after  # seconds, as requested by the endpoint

    @property
    def retryable(self) -> bool:
        """Return whether the same request may succeed later: overload and server faults, not refusals."""
        return not self.quota_used_up and (self.status in (408, 429) or self.status >= 500)
