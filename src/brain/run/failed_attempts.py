"""Failed attempts of one model call: counted as model calls, recorded as steps, announced before a wait."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from brain.durability.journal import Journal
from brain.interrupts.budget import Meter
from brain.run.recorder import RunRecorder
from starling.core.errors import LLMInvalidResponse, ModelError
from starling.core.llm import FailedAttempt, ModelRequest
from starling.core.runs import Step


@dataclass(slots=True)
class FailedAttempts:
    """Observes one model call from when it begins.

    `count` is the number of failed attempts, `announced` the warnings that the user got.
    """

    path: str
    request: ModelRequest
    meter: Meter
    recorder: RunRecorder
    count: int = 0
    announced: list[str] = field(default_factory=list[str])
    _begun: float = 0.0

    def __post_init__(self) -> None:
        self._begun = perf_counter()

    def elapsed_ms(self) -> float:
        """Return the milliseconds since the call began, or since the attempt before failed; a wait is part of them."""
        begun, self._begun = self._begun, perf_counter()
        return round((self._begun - begun) * 1000, 1)

    def add(self, attempt: FailedAttempt) -> None:
        """Count and record an attempt, and warn the user at once if the next one has to wait."""
        self.count += 1
        self.meter.add_failed_call()
        self.recorder.step(
            Step(
                type="llm_call",
                description=f"{self.path}: asked {attempt.model}, which failed: {attempt.reason}",
                metadata={
                    "model_role": self.request.role.value,
                    "model": attempt.model,
                    "error": attempt.code,
                    "path": self.path,
                    "is_error": True,
                    "duration_ms": self.elapsed_ms(),
                    **self.request.prompt_named(),
                },
            )
        )
        if attempt.warning:
            self.announced.append(attempt.warning)
            self.recorder.warn("model", attempt.warning)

    @contextmanager
    def journalled(self, journal: Journal, position: int) -> Generator[None]:
        """Record the count in the journal if the call ends without an answer that is recorded there."""
        try:
            yield
        except ModelError as error:
            if isinstance(error, LLMInvalidResponse):
                self.add(FailedAttempt(error.model, error.code, error.reason))
            journal.append(self.path, "failed_call", {"failed_attempts": self.count}, position)
            raise
