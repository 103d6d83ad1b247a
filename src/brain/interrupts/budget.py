"""The time and tokens that a run may use, and the request for more tokens."""

from dataclasses import dataclass
from typing import Final, cast

from brain.interrupts.requests import InterruptRequest, Interrupts
from starling.core.clock import Deadline
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError
from starling.core.events.run_events import Usage
from starling.core.json import JsonObject
from starling.core.llm import TokenUsage

OUT_OF_TIME: Final = "The run's time ran out."
OUT_OF_TOKENS: Final = "The run's budget is used up."
_OF_TEAM: Final = {OUT_OF_TIME: "The team's time ran out.", OUT_OF_TOKENS: "The team's budget is used up."}
_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "tokens": {"type": "integer", "minimum": 1, "maximum": 10**9, "description": "How many more may be used."}
    },
    "required": ["tokens"],
    "additionalProperties": False,
}


@dataclass(slots=True)
class Meter:
    """What a run, or one call of a team, has used over all executions; `whole` is that of what it is a part of."""

    tokens: TokenUsage = TokenUsage()
    model_calls: int = 0
    tool_calls: int = 0
    exhausted: bool = False  # more tokens were asked for and refused
    whole: "Meter | None" = None

    @property
    def estimated(self) -> bool:
        """Whether tokens of the whole run were estimated."""
        return self.whole.estimated if self.whole else self.tokens.estimated

    def add(self, tokens: TokenUsage = TokenUsage(), *, model_calls: int = 0, tool_calls: int = 0) -> None:
        """Count what was used, here and in what this is a part of."""
        self.tokens += tokens
        self.model_calls += model_calls
        self.tool_calls += tool_calls
        if self.whole:
            self.whole.add(tokens, model_calls=model_calls, tool_calls=tool_calls)

    def usage(self) -> Usage:
        """Return the usage as events and results show it."""
        return Usage(
            tokens=self.tokens.total,
            input_tokens=self.tokens.input_tokens,
            output_tokens=self.tokens.output_tokens,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            estimated=self.tokens.estimated,
        )


@dataclass(frozen=True, slots=True)
class RunBudget:
    """What a run may still use; without `tokens` there is no limit on them.

    What a call of a team may use is a part of the `whole`; a person is never asked for more of it.
    """

    deadline: Deadline
    meter: Meter
    interrupts: Interrupts
    tokens: int | None = None
    whole: "RunBudget | None" = None

    @property
    def exhausted_reason(self) -> str:
        """Why no model may be asked any more; empty while one may."""
        if self.whole and (reason := self.whole.exhausted_reason):
            return reason
        if self.deadline.passed:
            return self._said(OUT_OF_TIME)
        return self._said(OUT_OF_TOKENS) if self.meter.exhausted else ""

    def check(self, path: str) -> None:
        """Return if a model may be asked now.

        Raises DeadlineExceededError, SuspendedError while a request for more tokens is open, BudgetExhaustedError
        where it was refused, or where the call of a team has used what is its own.
        """
        if self.deadline.passed:
            raise DeadlineExceededError(self.exhausted_reason)
        used = self.meter.tokens.total
        if self.whole:
            if self.tokens is not None and used >= self.tokens:  # first, for a person can't give a team more
                self.meter.exhausted = True
                raise BudgetExhaustedError(used, self.tokens, "team")
            self.whole.check(path)
            return
        if self.tokens is None:
            return
        allowed, requests = self.tokens, 0
        while used >= allowed:
            answer = self.interrupts.answer_to(
                InterruptRequest(
                    kind="budget",
                    key=f"budget/{requests}",
                    path=path,
                    reason=f"The run has used {used} of {allowed} tokens.",
                    message="How many more tokens may it use? If you cancel, it answers with the results so far.",
                    response_schema=_SCHEMA,
                )
            )
            if answer.state != "resolved":
                self.meter.exhausted = True
                raise BudgetExhaustedError(used, allowed)
            more = int(cast("float", answer.payload["tokens"]))  # JSON schema takes 10.0 for an integer too
            allowed, requests = allowed + more, requests + 1

    def _said(self, reason: str) -> str:
        return _OF_TEAM[reason] if self.whole else reason


def tightest_budget(most: int, requested: int | None) -> int | None:
    """Return the tokens that a run may use: what its caller requested, at most `most`, of which 0 means no limit."""
    if not most:
        return requested
    return most if requested is None else min(most, requested)
