"""The examples of the document on conversations, on a real platform: they differ in the import and in the client."""

import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from anyio.from_thread import start_blocking_portal

import starling
from starling.client.conversations import Client, InteractionStack, checkout, decode, encode, fork, rewind
from starling.client.registries import AgentRegistry, tool_registry
from starling.core.conversation.rendering import POLICIES, register_policy, render_for_llm
from starling.core.conversation.states import (
    KINDS,
    AgentCallState,
    AgentResultState,
    AskedCall,
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
    migration,
)
from starling.core.errors import InvalidRequestError
from starling.core.ids import new_id
from tests.integration.http.conftest import SERVERS, running_api
from tests.support.local_access import TOKEN

CALL: AskedCall = {"id": "unique_id", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
ASKING = AssistantMessageState(content="", tool_calls=[{**CALL, "id": "a"}, {**CALL, "id": "b"}])
STATES: Sequence[tuple[BaseState, Sequence[Any]]] = [  # as the document makes them, and what they are made of by place
    (
        UserMessageState(text="What's the weather?", meta="optional metadata"),
        ("What's the weather?", "optional metadata"),
    ),
    (
        AssistantMessageState(content="Here's the weather information", tool_calls=[CALL], meta="reflection:weather"),
        ("Here's the weather information", [CALL], "reflection:weather"),
    ),
    (
        ToolCallState(id="unique_id", function_name="get_weather", arguments={"location": "Paris"}),
        ("unique_id", "get_weather", {"location": "Paris"}),
    ),
    (WaitingState(kind="tool", deadline=time.time() + 86_400, correlation_id="unique_id"), ()),
    (
        ToolResultState(
            tool_call_id="unique_id",
            tool_name="get_weather",
            result={"status": "success", "data": {"degrees": 18}},
            reward=0.8,
        ),
        ("unique_id", "get_weather", {"status": "success", "data": {"degrees": 18}}, 0.8),
    ),
    (
        AgentCallState(agent_id="helper_agent", message="Please analyze this data"),
        ("helper_agent", "Please analyze this data"),
    ),
    (WaitingState(kind="agent", deadline=time.time() + 86_400, correlation_id="correlation_id"), ()),
    (
        AgentResultState(
            correlation_id="correlation_id", result={"status": "success", "content": "Analysis complete"}, score=0.9
        ),
        ("correlation_id", {"status": "success", "content": "Analysis complete"}, 0.9),
    ),
    (AssistantMessageState(content="Shall I?"), ("Shall I?",)),
    (UserResponseState(text="Yes, please proceed"), ("Yes, please proceed",)),
    (FinishedState(), ()),
]


@dataclass(slots=True, frozen=True)
class CustomState(BaseState):
    custom_field: str
    optional_field: int | None = None

    __version__: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Caller:
    """A client of the platform, and a run on a conversation."""

    client: Client
    ask: Callable[[str], object]


@pytest.fixture(scope="module")
def caller(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Caller]:
    folder = tmp_path_factory.mktemp("api")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running_api(module_database_url, folder, SERVERS)) as api,
        closing(Client(api.url, TOKEN)) as client,
    ):
        yield Caller(client, lambda thread: portal.call(api.ask, "How full is this disk?", thread))


@pytest.fixture
def client(caller: Caller) -> Client:
    return caller.client


def test_the_package_offers_all_names_and_no_other() -> None:
    names = [Client, InteractionStack, AgentRegistry, BaseState, *list(KINDS.values())[:9]]
    names += [fork, checkout, rewind, encode, decode, render_for_llm, register_policy]

    assert [getattr(starling, one.__name__) for one in names] == names
    assert starling.tool_registry is tool_registry
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = starling.nothing


def test_interaction_stack(client: Client, caller: Caller) -> None:
    conversation_id, agent_id = new_id(), "helper_agent"
    stack = InteractionStack(client, conversation_id, agent_id)
    stack.push(UserMessageState(text="Hello!"))
    stack.push(AssistantMessageState(content="Hi! How can I help?"))
    caller.ask(conversation_id)

    current = stack.current()
    length = stack.length()
    entries = list(stack.iter_last_n(10))
    new_branch = stack.fork(index=5)
    stack.checkout(new_branch)
    caller.ask(conversation_id)
    stack.checkout("main")
    branches = stack.get_branch_info()

    assert (current, length) == (AssistantMessageState(content="Hi! How can I help?"), 2)
    assert [entry.reference for entry in entries] == [f"{conversation_id}/main/-/{number}" for number in (1, 2)]
    whole, other = InteractionStack(client, conversation_id), InteractionStack(client, conversation_id)
    other.branch = new_branch
    assert whole.current() == other.current() == FinishedState()
    assert [entry.position for entry in whole.iter_last_n(2)] == [whole.length() - 1, whole.length()]
    assert [(one["id"], one["parent"], one["runs"]) for one in branches] == [("main", None, 1), (new_branch, "main", 1)]
    assert list(whole)[:5] == list(other)[:5]


@pytest.mark.parametrize(("state", "values"), [pair for pair in STATES if pair[1]])
def test_states_are_made_by_name_or_by_place(state: BaseState, values: Sequence[Any]) -> None:
    assert type(state)(*values) == state


def test_every_state_is_stored_and_read(client: Client, caller: Caller) -> None:
    stack = InteractionStack(client, conversation_id := new_id())
    for state, _ in STATES:
        stack.push(state)
    caller.ask(conversation_id)

    assert list(stack)[: len(STATES)] == [state for state, _ in STATES]
    with pytest.raises(InvalidRequestError, match="UserResponseState can't be after FinishedState"):
        stack.push(UserResponseState("Too late."))


@pytest.mark.parametrize("begun_by", [[ToolCallState(name, "f", {}) for name in "ab"], [ASKING]])
def test_results_of_parallel_calls_are_pushed_one_by_one(client: Client, begun_by: Sequence[BaseState]) -> None:
    stack = InteractionStack(client, new_id())
    pushed = [UserMessageState("Hi."), *begun_by, *(ToolResultState(name, "f", {}, reward=0.5) for name in "ab")]

    for state in pushed:
        stack.push(state)

    assert list(stack) == pushed
    with pytest.raises(InvalidRequestError, match="no call 'a' that waits"):
        stack.push(ToolResultState("a", "f", {}))


def test_wait_past_its_deadline_is_the_current_state_as_a_result(client: Client) -> None:
    stack = InteractionStack(client, new_id())
    for state in (UserMessageState("Hi."), ToolCallState("a", "f", {})):
        stack.push(state)
    stack.push(WaitingState("tool", time.time() - 1, correlation_id="a"))

    late = stack.current()
    stack.push(UserMessageState("Then not."))

    assert isinstance(late, ToolResultState)
    assert (late.tool_call_id, late.result["status"]) == ("a", "expired")
    assert list(stack)[2:] == [late, UserMessageState("Then not.")]


def test_stack_of_a_new_conversation_is_empty(client: Client) -> None:
    stack = InteractionStack(client, new_id())

    assert (stack.length(), stack.current(), list(stack.entries()), list(stack.iter_last_n(5))) == (0, None, [], [])
    assert list(stack.get_branch_info()) == []
    assert render_for_llm(stack) == []

    stack.push(UserMessageState("Hi."))
    assert stack.current() == UserMessageState("Hi.")


@pytest.mark.parametrize("begun", [False, True])
def test_stack_on_a_branch_that_does_not_exist_raises(client: Client, begun: bool) -> None:
    stack = InteractionStack(client, new_id())
    if begun:
        stack.push(UserMessageState("Hi."))
    stack.branch = "none"

    for read in (stack.length, stack.current, lambda: list(stack.entries()), lambda: list(stack.iter_last_n(5))):
        with pytest.raises(InvalidRequestError, match=r"There is no (branch|thread)"):
            read()
    with pytest.raises(InvalidRequestError, match=r"There is no (branch|thread)"):
        stack.push(UserMessageState("Hi."))


def test_rendering(client: Client, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "summary", POLICIES["summary"])  # put back in the end

    @register_policy("summary")
    def summary_policy(messages: list[dict[str, Any]], **kwargs: Any) -> list[dict[str, Any]]:
        return [*messages[:1], {"role": "assistant", "content": str(kwargs["last_n"])}]

    stack = InteractionStack(client, conversation_id := new_id())
    stack.push(UserMessageState("Hello"))
    for state, _ in STATES[1:5]:
        stack.push(state)
    caller.ask(conversation_id)

    messages = render_for_llm(stack, last_n=10)
    assert [message["role"] for message in render_for_llm(stack)[:4]] == ["user", "assistant", "assistant", "tool"]
    assert messages == render_for_llm(stack)[-len(messages) :]
    reply = list(stack)[-2]
    assert isinstance(reply, AssistantMessageState)
    assert messages[-1] == {"role": "assistant", "content": reply.content}
    messages = render_for_llm(stack, last_n=20, policy_name="summary", exclude_types=[WaitingState, ToolCallState])
    assert messages == summary_policy(messages, last_n=20)


def test_branching(client: Client, caller: Caller) -> None:
    stack = InteractionStack(client, conversation_id := new_id())
    caller.ask(conversation_id)
    caller.ask(conversation_id)

    new_branch_id = fork(stack, index=10)
    checkout(stack, "main")
    checkout(stack, new_branch_id)
    assert stack.length() == 10
    rewind(stack, index=5)
    assert stack.length() == 5
    made = stack.fork(index=4)
    assert [one["id"] for one in stack.get_branch_info() if not one["hidden"]] == ["main", new_branch_id, made]


@pytest.mark.parametrize("text", ["Short message", "Long message... " * 200])
def test_serialization(text: str) -> None:
    state = UserMessageState(text=text)

    envelope = json.loads(json.dumps(encode(state)))

    assert envelope == {**envelope, "v": 1, "t": "UserMessageState", "compressed": len(text) > 2_048}
    assert time.time() - 60 < envelope["ts"] <= time.time()
    assert isinstance(envelope["data"], str)
    assert decode(envelope) == state


def test_custom_state_is_migrated_once_its_kind_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    envelope = encode(CustomState("a", 1))
    with pytest.raises(InvalidRequestError, match="'CustomState' of version 1 isn't known") as refused:
        decode(envelope)
    assert "install the package" in refused.value.remedy

    monkeypatch.setitem(KINDS, "CustomState", CustomState)
    assert decode(envelope) == CustomState("a", 1)

    monkeypatch.setattr(CustomState, "__version__", 2)
    monkeypatch.setattr("starling.core.conversation.states._MIGRATIONS", {})
    migration("CustomState", 1)(lambda fields: {"custom_field": fields["custom_field"] * 2})
    assert decode(envelope) == CustomState("aa")


def test_registries_are_views(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_URL", client.url)
    monkeypatch.setenv("STARLING_API_KEY", client.key)

    tools = tool_registry.get_tools()
    tool_names = tool_registry.list_tools()
    tool = tool_registry.get_tool_by_name("disk")
    unknown = tool_registry.get_tool_by_name("get_weather")
    vars(tool_registry)["_client"].close()
    monkeypatch.setattr(tool_registry, "_client", None)

    assert tool in tools
    assert tool_names == {one["name"]: one["description"] for one in tools}
    assert unknown is None
    with pytest.raises(InvalidRequestError, match="can't be registered") as refused:
        tool_registry.register("my_tool")
    assert "starling server add" in refused.value.remedy

    registry = AgentRegistry(client, agent_factory=None)
    agents = registry.list_agents()
    name = next(iter(agents))
    assert registry.get_agent(name)["kind"] == agents[name]
    with pytest.raises(InvalidRequestError, match="There is no agent 'agent_alpha'"):
        registry.get_agent("agent_alpha")
    with pytest.raises(InvalidRequestError, match="can't be registered") as refused:
        registry.register("agent", "config")
    assert "starling agent create" in refused.value.remedy
