"""What a run uses, and how many tokens it may use. More can be given; without that it answers with what there is."""

from dataclasses import dataclass
from typing import Final, cast

from brain.interrupts.requests import InterruptRequest, Interrupts
from starling.core.errors import BudgetExhaustedError
from starling.core.events import Usage
from starling.core.json import JsonObject
from starling.core.llm import TokenUsage

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
    """What the run used so far, over all its lives."""

    tokens: TokenUsage = TokenUsage()
    model_calls: int = 0
    tool_calls: int = 0
    exhausted: bool = False  # it may use no more tokens

    def usage(self) -> Usage:
        """Return the usage as the stream tells it."""
        return Usage(
            tokens=self.tokens.total,
            input_tokens=self.tokens.input_tokens,
            output_tokens=self.tokens.output_tokens,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tokens a run may use; None is no limit."""

    tokens: int | None = None

    def check(self, meter: Meter, interrupts: Interrupts, path: str) -> None:
        """Let the next model call go ahead.

        Raises SuspendedError where that has to be asked for, BudgetExhaustedError where nobody gave more.
        """
        if self.tokens is None:
            return
        used, budget, asked = meter.tokens.total, self.tokens, 0
        while used >= budget:
            answered = interrupts.answer_to(_wish(f"budget/{asked}", path, used, budget))
            if answered.state != "resolved":
                meter.exhausted = True
                raise BudgetExhaustedError(used, budget)
            budget, asked = budget + int(cast("float", answered.payload["tokens"])), asked + 1  # 10.0 is an integer too


def _wish(key: str, path: str, used: int, budget: int) -> InterruptRequest:
    return InterruptRequest(
        kind="budget",
        key=key,
        path=path,
        reason=f"The run has used {used} of {budget} tokens.",
        message="How many more tokens may it use? Cancelled, it answers with what there is.",
        response_schema=_SCHEMA,
    )
