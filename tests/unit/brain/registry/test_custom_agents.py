"""Names of tools, and what they come to."""

from brain.registry.cards import AgentCard, Roster
from brain.registry.custom_agents import custom_card, select_tools
from starling.core.agents import LLMAgentConfig
from starling.core.principal import Grant
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition

OFFER = {"git": ("log", "add"), "time": ("now",), "empty": ()}


def tool(server: str, name: str, effect: Effect = Effect.READ) -> ToolDefinition:
    return ToolDefinition(server, name, "", {"type": "object"}, None, effect, "0" * 64)


GIT = AgentCard("mcp_agent_git", "specialist", "", "git", (tool("git", "log"), tool("git", "add", Effect.UNSAFE)))


def config(*tools: str, **fields: str) -> LLMAgentConfig:
    return LLMAgentConfig.model_validate({"id": "mine", "tools": tools, **fields})


def test_a_star_means_every_tool_of_a_server_and_each_tool_comes_once() -> None:
    asked = select_tools(["git.log", "git.*", "time.now"], OFFER)

    assert asked.found == (("git", "log"), ("git", "add"), ("time", "now"))
    assert asked.missing == ()


def test_names_that_mean_nothing_are_told() -> None:
    asked = select_tools(["git.push", "gone.*", "empty.*", "git", "*.*", "git.log"], OFFER)

    assert asked.missing == ("git.push", "gone.*", "empty.*", "git", "*.*")


def test_an_agent_whose_tools_are_gone_is_degraded_and_never_one_that_writes() -> None:
    card = custom_card(config("git.push"), {GIT.name: GIT}, {})

    assert card.tools == ()
    assert card.degraded == "It needs tools that aren't there: git.push."
    assert Roster({"mine": card}).limited(frozenset(Effect), {}).cards["mine"].degraded


def test_an_agent_says_which_server_it_waits_for() -> None:
    card = custom_card(config("git.*"), {GIT.name: GIT}, {})

    limited = Roster({"mine": card}).limited(frozenset(Effect), {"git": "It doesn't answer."})

    assert limited.cards["mine"].degraded == "git: It doesn't answer."


def test_an_agent_is_limited_as_specialists_are() -> None:
    roster = Roster({"mine": custom_card(config("git.*"), {GIT.name: GIT}, {})})

    reading = roster.limited(frozenset({Effect.READ}), {})
    granted = roster.limited(frozenset(Effect), {}, Grant(tools=frozenset({"git.add"})))
    neither = roster.limited(frozenset({Effect.READ}), {}, Grant(tools=frozenset({"git.add"})))

    assert [one.name for one in reading.cards["mine"].tools] == ["log"]
    assert [one.name for one in granted.cards["mine"].tools] == ["add"]
    assert neither.cards == {}


def test_an_agent_without_its_reviewer_is_degraded() -> None:
    card = custom_card(config(reflection_agent_id="critic"), {}, {})

    assert "There is no agent 'critic'" in card.degraded


def test_a_long_instruction_is_cut_where_it_describes() -> None:
    card = custom_card(config(behavior_template="You write.\n" + "word " * 200), {}, {})

    assert len(card.description) == 300
    assert card.description.startswith("You write. word")
