"""Starling: a self-extending supervisor swarm platform. Conversations from Python are in `starling.client`."""

from importlib import import_module
from typing import Any, Final

_STATES: Final = (
    *("BaseState", "UserMessageState", "UserResponseState", "AssistantMessageState", "ToolCallState"),
    *("ToolResultState", "AgentCallState", "AgentResultState", "WaitingState", "FinishedState"),
)
_STACK: Final = ("Client", "InteractionStack", "fork", "checkout", "rewind", "encode", "decode")
_MODULES: Final = {
    **dict.fromkeys(_STATES, "starling.core.conversation.states"),
    **dict.fromkeys(("render_for_llm", "register_policy"), "starling.core.conversation.rendering"),
    **dict.fromkeys(_STACK, "starling.client.conversations"),
    **dict.fromkeys(("Orchestrator", "OrchestratorResult", "OrchestratorStep"), "starling.client.orchestrator"),
    "in_process": "starling.app.in_process",
    "tool": "starling.core.function_tools",
    **dict.fromkeys(("AgentRegistry", "tool_registry"), "starling.client.registries"),
}


def __getattr__(name: str) -> Any:
    """Import what is named only when it is used: the command line needs none of it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
