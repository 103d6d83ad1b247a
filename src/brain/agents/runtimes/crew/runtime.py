"""CrewAI, and all that knows it: an agent whose model and tools are ours. Importing it takes seconds."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from typing import Any, Final, override

from crewai import Agent, BaseLLM
from crewai.events.event_bus import crewai_event_bus
from crewai.tools import BaseTool
from crewai.utilities.types import LLMMessage
from pydantic import BaseModel, PrivateAttr

from brain.agents.runtimes.crew.bridge import CrewBridge, CrewStoppedError
from brain.agents.runtimes.crew.conversation import CrewTask, place
from starling.core.llm import Message

_TOOL: Final = "tool_call"
_CALL_MADE: Final = "The call was made."
_LAST_ANSWER: Final = "Final Answer: it was given."
_TEXT_CHARS: Final = 4  # of a token, about
_THREADS: Final = 2  # of an attempt, for CrewAI's own steps; its tool calls have others
_NO_LIMIT: Final = 2**31


def execute(task: CrewTask, bridge: CrewBridge) -> None:
    """Let an agent do a task, in this thread and a few others. Returns when it has answered or was stopped.

    Raises what fails inside CrewAI.
    """
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.get_loop().set_default_executor(_StepThreads(_THREADS, thread_name_prefix="crew_step"))
        try:
            runner.run(_execute(task, bridge))
        except CrewStoppedError:
            return


async def _execute(task: CrewTask, bridge: CrewBridge) -> None:
    agent = Agent(
        role=place("role"),
        goal=place("goal"),
        backstory=place("backstory"),
        llm=_BridgedModel.over(bridge, has_tools=task.has_tools),
        tools=[_BridgedTool.over(bridge)] if task.has_tools else [],
        max_iter=task.iterations,
        verbose=False,
        cache=False,
        memory=None,
        allow_delegation=False,
        respect_context_window=False,
        use_better_compaction=False,
    )
    await agent.kickoff_async([{"role": "user", "content": place("task")}])


@cache
def remove_listeners() -> ExitStack:
    """Take away CrewAI's own listeners, which print panels and report what is done; they are never put back.

    To be called by one thread at a time: a second result is dropped, which puts listeners back.
    """
    stack = ExitStack()
    stack.enter_context(crewai_event_bus.scoped_handlers())
    return stack


class _StepThreads(ThreadPoolExecutor):
    """The threads of CrewAI's own steps. An interpreter that exits begins no more, which CrewAI would log and print."""

    @override
    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            raise CrewStoppedError from None


class _AnswerInWords(BaseModel):
    """Ends CrewAI's work, in a form in which it doesn't look for actions."""


class _Handle(BaseModel):
    handle: str


class _BridgedTool(BaseTool):
    """Waits for a call that has begun, whatever tool it is of."""

    name: str = _TOOL
    description: str = "A call of a tool."
    args_schema: type[BaseModel] = _Handle
    max_usage_count: int | None = _NO_LIMIT  # so CrewAI waits for calls, which run in parallel, in one thread
    _bridge: CrewBridge = PrivateAttr()

    @classmethod
    def over(cls, bridge: CrewBridge) -> "_BridgedTool":
        tool = cls()
        tool._bridge = bridge
        return tool

    @override
    def _run(self, handle: str) -> str:
        self._bridge.wait_for(handle)
        return _CALL_MADE


class _BridgedModel(BaseLLM):
    """Asks our models, with our messages. Limits and costs are ours, so nothing is counted here.

    CrewAI gets no answer and no result itself, only what comes next: it would look through each with expressions that
    take hours for some texts, and stop the whole process meanwhile.
    """

    _bridge: CrewBridge = PrivateAttr()
    _has_tools: bool = PrivateAttr()

    @classmethod
    def over(cls, bridge: CrewBridge, *, has_tools: bool) -> "_BridgedModel":
        model = cls(model="starling", provider="starling")
        model._bridge, model._has_tools = bridge, has_tools
        return model

    @override
    def call(
        self,
        messages: str | list[LLMMessage],
        tools: list[dict[str, Any]] | None = None,
        callbacks: list[Any] | None = None,
        available_functions: dict[str, Any] | None = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: type[BaseModel] | None = None,
    ) -> Any:
        shown = (
            []
            if isinstance(messages, str)
            else [
                Message("system" if message["role"] == "system" else "user", str(message.get("content") or ""))
                for message in messages
            ]
        )
        calls = self._bridge.ask(shown, with_tools=bool(tools))
        if not calls:
            is_forced = self._has_tools and not tools  # at the limit of iterations, where CrewAI takes text only
            return _LAST_ANSWER if is_forced else _AnswerInWords()
        return [
            {"id": call.id, "type": "function", "function": {"name": _TOOL, "arguments": {"handle": call.place}}}
            for call in calls
        ]

    def supports_function_calling(self) -> bool:
        return True

    @override
    def supports_stop_words(self) -> bool:
        return False

    @override
    def get_context_window_size(self) -> int:
        return _NO_LIMIT

    @override
    def get_input_tokens_count(self, messages: Any, *_: Any, **__: Any) -> int:
        return len(str(messages)) // _TEXT_CHARS

    @override
    def is_tool_result_overflowing_threshold(self, tool_result: str) -> tuple[bool, int]:
        return False, len(tool_result) // _TEXT_CHARS

    @override
    def is_context_window_overflowing_threshold(self, *_: Any, **__: Any) -> bool:
        return False
