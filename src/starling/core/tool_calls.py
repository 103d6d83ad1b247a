"""The states of a tool call, and what each observation means for it. Pure: stores nothing and calls nothing.

A call is `announced` once the model's answer that asks for it is in the journal. A call of a `read` tool goes from
there to `succeeded` or `failed`. A call that may change something has a row in the ledger and goes through all states:

    announced → intended → dispatched → succeeded | unusable | failed | in_doubt
                       └→ reused

`reused`: it was not sent, and has the result of an equal call that had succeeded. `failed` needs proof that the server
did not act. `unusable`: the server answered, so the call was done or may have been, and its result must not be used.
`in_doubt`: no answer came.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from starling.core.errors import StarlingError

type AnswerSource = Literal["live", "fixture", "simulated"]
"""Where the result of a call in a trial came from: the server, a fixture of the case, or the recorder alone.

A call that was stopped before it left, which no server answered, counts as `simulated`.
"""


class Effect(StrEnum):
    """What a call may change outside. Unmarked means `UNSAFE`."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


type ApprovalPolicy = Literal["never", "unsafe", "always"]
type ReviewPolicy = Literal["always", "risky", "never"]
type MemberApproval = Literal["policy", "effects"]
"""Which calls a person has to approve: none, those of tools that count as unsafe, or all."""


class CallState(StrEnum):
    """Where a call stands."""

    ANNOUNCED = "announced"
    INTENDED = "intended"
    DISPATCHED = "dispatched"
    SUCCEEDED = "succeeded"
    REUSED = "reused"
    UNUSABLE = "unusable"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"


class Observation(StrEnum):
    """What can be observed of a call."""

    INTENDED = "intended"  # its row is in the ledger
    SENT = "sent"  # it leaves now; for a call that was dispatched before: it leaves again, under the same key
    NOT_SENT = "not_sent"  # it was stopped before it left
    NOT_SENT_AGAIN = "not_sent_again"  # stopped this time, but an earlier process may have sent it
    REJECTED = "rejected"  # JSON-RPC INVALID_PARAMS or METHOD_NOT_FOUND
    TOOL_ERROR = "tool_error"  # the tool's own `isError`
    COMPLETED = "completed"  # a result that can be used
    REUSED = "reused"  # it wasn't sent: it has the result of an equal call, of this run or of the same principal
    INVALID_RESULT = "invalid_result"  # a result that is malformed or violates the tool's output schema
    INTERNAL_ERROR = "internal_error"  # any other JSON-RPC error, for example -32603
    TIMED_OUT = "timed_out"
    CONNECTION_LOST = "connection_lost"
    INTERRUPTED = "interrupted"  # the process that waited for the answer ended
    PLATFORM_ERROR = "platform_error"  # a fault of Starling's own, at whatever point
    FOUND_DONE = "found_done"  # by a reconcile tool or a person
    FOUND_NOT_DONE = "found_not_done"  # likewise; from here on the call counts as never sent
    GIVEN_UP = "given_up"  # a person gave the call up, or there was no answer in time


class InvalidTransitionError(StarlingError):
    """An observation that is impossible in the call's state."""

    code = "invalid_transition"

    def __init__(self, state: CallState, observation: Observation, effect: Effect) -> None:
        super().__init__(f"A call of a tool with the effect {effect} can't be {observation} while it is {state}.")


type _Transitions = Mapping[CallState, Mapping[Observation, CallState]]

_UNANSWERED: Final = (Observation.TIMED_OUT, Observation.CONNECTION_LOST, Observation.PLATFORM_ERROR)
_UNREADABLE: Final = (Observation.INVALID_RESULT, Observation.INTERNAL_ERROR)
_NOT_DONE: Final = (Observation.NOT_SENT, Observation.REJECTED, Observation.TOOL_ERROR)
_FOUND: Final = {Observation.FOUND_DONE: CallState.SUCCEEDED, Observation.FOUND_NOT_DONE: CallState.INTENDED}
_READ: Final[_Transitions] = {
    CallState.ANNOUNCED: {
        Observation.COMPLETED: CallState.SUCCEEDED,
        **dict.fromkeys((*_NOT_DONE, *_UNREADABLE, *_UNANSWERED), CallState.FAILED),
    }
}
_UNSAFE: Final[_Transitions] = {
    CallState.ANNOUNCED: {Observation.INTENDED: CallState.INTENDED},
    CallState.INTENDED: {
        Observation.SENT: CallState.DISPATCHED,
        Observation.REUSED: CallState.REUSED,
        Observation.NOT_SENT: CallState.FAILED,
        Observation.PLATFORM_ERROR: CallState.FAILED,
    },
    CallState.DISPATCHED: {
        Observation.COMPLETED: CallState.SUCCEEDED,
        **dict.fromkeys(_NOT_DONE, CallState.FAILED),
        **dict.fromkeys(_UNREADABLE, CallState.UNUSABLE),
        **dict.fromkeys((*_UNANSWERED, Observation.NOT_SENT_AGAIN, Observation.INTERRUPTED), CallState.IN_DOUBT),
    },
    CallState.UNUSABLE: _FOUND,
    CallState.IN_DOUBT: {**_FOUND, Observation.GIVEN_UP: CallState.IN_DOUBT},
}
_IDEMPOTENT: Final[_Transitions] = {
    **_UNSAFE,
    CallState.DISPATCHED: {**_UNSAFE[CallState.DISPATCHED], Observation.SENT: CallState.DISPATCHED},
}
TRANSITIONS: Final[Mapping[Effect, _Transitions]] = MappingProxyType(
    {Effect.READ: _READ, Effect.IDEMPOTENT: _IDEMPOTENT, Effect.UNSAFE: _UNSAFE}
)
"""All that can happen to a call, by its effect. What isn't here is an error."""

UNCERTAIN: Final = frozenset({CallState.UNUSABLE, CallState.IN_DOUBT})
"""The states of calls that may have changed something, with no result to show for it."""

AFTER_RUN_END: Final[Mapping[CallState, CallState]] = MappingProxyType(
    {CallState.DISPATCHED: CallState.IN_DOUBT, CallState.IN_DOUBT: CallState.IN_DOUBT}
)
"""The states in which the outcome of a call is unknown unless it is settled, each with the state that the call has
once its run has ended, which is no longer waiting for an answer or a decision about it."""


def next_state(state: CallState, observation: Observation, effect: Effect) -> CallState:
    """Return the state after an observation. Raises InvalidTransitionError."""
    try:
        return TRANSITIONS[effect][state][observation]
    except KeyError:
        raise InvalidTransitionError(state, observation, effect) from None


def state_after_answer(observation: Observation, effect: Effect) -> CallState:
    """Return the state of a call of which this was observed once it was made."""
    return next_state(CallState.ANNOUNCED if effect is Effect.READ else CallState.DISPATCHED, observation, effect)


def after_restart(effect: Effect) -> Observation:
    """Return what happens to a dispatched call whose process ended: only an idempotent one is sent again."""
    return Observation.SENT if effect is Effect.IDEMPOTENT else Observation.INTERRUPTED


def needs_a_person(state: CallState, effect: Effect) -> bool:
    """Whether the run waits until a tool or a person has found whether the call was done."""
    return state is CallState.IN_DOUBT and effect is Effect.UNSAFE


def refuses_repeat(state: CallState, effect: Effect, *, found: bool, same_key: bool) -> bool:
    """Whether a call in this state keeps its run from making another one of the same tool with the same arguments.

    `found`: a tool or a person, not the call's own answer, decided the state. `same_key`: the other call would carry
    the same idempotency key, so that its server can recognize the repetition.
    """
    match state:
        case CallState.UNUSABLE:
            return True
        case CallState.IN_DOUBT:
            return effect is not Effect.IDEMPOTENT or not same_key
        case CallState.SUCCEEDED:
            return found
        case _:
            return False
