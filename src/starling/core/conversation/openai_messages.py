"""Messages as OpenAI's chat API has them, read as states."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, Field, Json

from starling.core.conversation.states import (
    AskedCall,
    AssistantMessageState,
    BaseState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
)


class TextPart(BaseModel):
    """A part of a message; only text can be imported."""

    type: Literal["text"]
    text: str


class CalledFunction(BaseModel):
    """A function with its arguments, JSON in a text."""

    name: str
    arguments: Annotated[Json[dict[str, Any]], BeforeValidator(lambda given: given or "{}")]


class MessageCall(BaseModel):
    """A call that a message of the assistant asks for."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class _Message(BaseModel):
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        parts = self.content or ""
        return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)


class UserMessage(_Message):
    """A message of the user."""

    role: Literal["user"]


class AssistantMessage(_Message):
    """A message of the assistant."""

    role: Literal["assistant"]
    tool_calls: list[MessageCall] | None = None


class ToolMessage(_Message):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str


type ChatMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""A message of user, assistant or tool: others, such as `system`, aren't part of a conversation here."""


def states_of_messages(messages: Sequence[ChatMessage]) -> list[BaseState]:
    """Return the states that messages stand for, in order."""
    found: list[BaseState] = []
    called: dict[str, str] = {}
    for message in messages:
        match message:
            case UserMessage():
                found.append(UserMessageState(text=message.text))
            case AssistantMessage(tool_calls=calls):
                asked = [
                    cast("AskedCall", call.model_dump(round_trip=True)) for call in calls or ()
                ]  # arguments as a text
                found.append(AssistantMessageState(content=message.text, tool_calls=asked))
                for call in calls or ():
                    called[call.id] = call.function.name
                    state = ToolCallState(
                        id=call.id, function_name=call.function.name, arguments=call.function.arguments
                    )
                    found.append(state)
            case ToolMessage(tool_call_id=call_id):
                result = {"status": "succeeded", "content": message.text}
                found.append(ToolResultState(tool_call_id=call_id, tool_name=called.get(call_id, ""), result=result))
    return found
