"""The platform as one call from Python: a request in, the reply with its steps out."""

from typing import Any, Final, Literal, TypedDict

from starling.client.api import Api
from starling.client.conversations import Client
from starling.core.ids import new_id

_LONGEST_SECONDS: Final = 86_400.0  # a run ends by its own time limit


class OrchestratorStep(TypedDict):
    """An entry of a run's record.

    `metadata` has what is known of it, such as `model_role`, `tool_name`, `span_id`, `path`, `is_error`, `duration_ms`.
    """

    type: Literal["llm_call", "tool_call", "plan", "summary", "warning"]
    description: str
    metadata: dict[str, Any]


class OrchestratorResult(TypedDict):
    """The reply to a request. `trace_id` is that of its run."""

    reply: str
    steps: list[OrchestratorStep]
    trace_id: str | None


class Orchestrator:
    """Sends requests to the platform of a client: without one, that at STARLING_URL with STARLING_API_KEY."""

    def __init__(self, client: Api | None = None) -> None:
        self.client = client or Client()

    def handle_user_request(
        self, session_id: str, user_message: str, mode: str = "MODERATE", channel: str = "CHAT"
    ) -> OrchestratorResult:
        """Run one turn of a session to its end.

        The reply of a run that waits for an answer is its question: the next message answers one to the user, other
        answers are given with `starling run approve`. Raises StarlingError for what the API refuses, and where it
        can't be reached.
        """
        body = {"message": user_message, "session_id": session_id, "config": {"mode": mode, "channel": channel}}
        headers = {"Idempotency-Key": new_id()}
        sent = self.client.send("POST", "/process", body, seconds=_LONGEST_SECONDS, headers=headers)
        answer = self.client.document(sent)
        if "reply" in answer:
            return OrchestratorResult(reply=answer["reply"], steps=answer["steps"], trace_id=answer["trace_id"])
        asked = [
            OrchestratorStep(
                type="warning",
                description=f"The run waits for an answer: {one['message']}",
                metadata={"code": f"waits_for_{one['kind']}", "run_id": answer["run_id"], "interrupt_id": one["id"]},
            )
            for one in answer["interrupts"]
        ]
        reply = "\n\n".join(one["message"] for one in answer["interrupts"])
        return OrchestratorResult(reply=reply, steps=[*answer["steps"], *asked], trace_id=answer["trace_id"])
