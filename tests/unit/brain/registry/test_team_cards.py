"""Cards of teams: bound to an epoch's tools, limited to what a run may use."""

import pytest

from brain.registry.cards import AgentCard, Roster, degraded_members, with_members
from brain.registry.manifest import Manifest
from brain.registry.team_cards import missing_tools, pinned_teams, team_card, tools_of, with_team, without_team
from starling.core.agents import Persona
from starling.core.llm import ModelRole
from starling.core.principal import Grant
from starling.core.teams.stars import Member, StarSpec
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition


def tool(server: str, name: str, effect: Effect = Effect.READ) -> ToolDefinition:
    return ToolDefinition(server, name, "", {"type": "object"}, None, effect, "0" * 64)


GIT = AgentCard("mcp_agent_git", "specialist", "", "git", (tool("git", "log"), tool("git", "add", Effect.UNSAFE)))
WEB = AgentCard("mcp_agent_web", "specialist", "", "web", (tool("web", "search"),))
OFFER = tools_of({card.name: card for card in (GIT, WEB)})


def member(name: str, *tools: str, team: StarSpec | None = None) -> Member:
    """Return a member of the server that its tools belong to."""
    persona = Persona(role=f"The {name}", goal="Find out. And say it.")
    server = tools[0].partition(".")[0] if tools else None
    return Member(name=name, persona=persona, server=server, tools=tools, team=team)


def star(*members: Member, name: str = "crew") -> StarSpec:
    return StarSpec(name=name, purpose="Researches things.", members=members)


CREW = star(member("historian", "git.log", "git.add"), member("searcher", "web.search"), member("writer"))


def limited(
    card: AgentCard,
    *,
    effects: frozenset[Effect] = frozenset(Effect),
    degraded: dict[str, str] | None = None,
    grant: Grant | None = None,
) -> AgentCard:
    return Roster({card.name: card}).limited(effects, degraded or {}, grant).cards[card.name]


def names(card: AgentCard) -> list[str]:
    return [one.full_name for one in card.tools]


def test_a_team_has_the_servers_and_tools_of_its_members() -> None:
    card = team_card(CREW, OFFER)

    assert (card.name, card.kind, card.description, card.degraded) == ("crew", "team", "Researches things.", "")
    assert card.servers == ("git", "web")
    assert names(card) == ["git.log", "git.add", "web.search"]
    assert card.star == CREW


def test_a_member_is_what_its_star_says() -> None:
    persona = Persona(role="Searcher", goal="Find pages. Name them.", backstory="A librarian.")
    spec = star(
        Member(
            name="searcher",
            persona=persona,
            server="web",
            tools=("web.search",),
            runtime="native",
            role=ModelRole.CODING,
        )
    )

    card = team_card(spec, OFFER).members["searcher"]

    assert (card.kind, card.server, card.role, card.runtime) == ("member", "web", ModelRole.CODING, "native")
    assert (card.description, card.persona) == ("Searcher: Find pages", persona)


def test_a_team_inside_a_team_is_executed_by_no_runtime_of_agents() -> None:
    inner = star(member("searcher", "web.search"), name="press")
    asked = member("reporters", team=inner)

    card = team_card(star(asked), OFFER).members["reporters"]

    assert (asked.runtime, card.runtime, card.members["searcher"].runtime) == ("crewai", "native", "crewai")


def test_approval_of_effects_that_a_team_inside_a_team_needs_is_that_of_all_inside() -> None:
    deepest = member("git", team=star(member("historian", "git.add"), name="git"))
    careful = member("press", team=star(deepest, name="press")).model_copy(update={"approval": "effects"})

    card = team_card(star(careful, member("historian", "git.add")), OFFER)

    assert card.members["press"].members["git"].members["historian"].approval == "effects"
    assert card.members["historian"].approval == "policy"


def test_a_team_inside_a_team_is_a_card_of_its_own() -> None:
    inner = star(member("searcher", "web.search"), name="press")
    outer = star(member("historian", "git.log"), member("reporters", team=inner))

    card = team_card(outer, OFFER)

    reporters = card.members["reporters"]
    assert (reporters.kind, reporters.name, reporters.star) == ("team", "reporters", inner)
    assert names(reporters.members["searcher"]) == ["web.search"]
    assert card.servers == ("git", "web")
    assert names(card) == ["git.log", "web.search"]


@pytest.mark.parametrize(
    ("compiled", "reason"),
    [
        (("gone.look",), "Its server 'gone' was removed."),
        (("git.push", "git.pull"), "Its tools git.push, git.pull aren't there."),
    ],
)
def test_a_member_without_what_it_was_compiled_with_is_degraded(compiled: tuple[str, ...], reason: str) -> None:
    card = team_card(star(member("pusher", *compiled), member("searcher", "web.search")), OFFER)

    assert card.members["pusher"].degraded == reason
    assert (card.degraded, names(card)) == ("", ["web.search"])


def test_a_member_that_lost_one_of_its_tools_works_with_the_others() -> None:
    spec = star(member("historian", "git.log", "git.push"))

    card = team_card(spec, OFFER)

    assert (card.members["historian"].degraded, names(card)) == ("", ["git.log"])
    assert missing_tools(spec, OFFER) == {"historian": "Its tools git.push aren't there."}


def test_what_is_missing_in_a_team_inside_a_team_is_named_with_its_place() -> None:
    inner = star(member("looker", "gone.look"), name="press")

    found = missing_tools(star(member("reporters", team=inner), member("writer")), OFFER)

    assert found == {"reporters/looker": "Its server 'gone' was removed."}


def test_members_have_only_tools_of_allowed_effects_that_are_granted() -> None:
    card = team_card(CREW, OFFER)

    reading = limited(card, effects=frozenset({Effect.READ}))
    granted = limited(card, grant=Grant(tools=frozenset({"git.add"})))

    assert names(reading.members["historian"]) == ["git.log"]
    assert names(reading) == ["git.log", "web.search"]
    assert names(granted.members["historian"]) == ["git.add"]
    assert granted.members["searcher"].degraded == "This run may call none of its tools."
    assert (granted.degraded, names(granted)) == ("", ["git.add"])


def test_a_member_whose_server_is_away_is_degraded_and_the_rest_of_the_team_works() -> None:
    card = limited(team_card(CREW, OFFER), degraded={"git": "It doesn't answer."})

    assert {name: one.degraded for name, one in card.members.items()} == {
        "historian": "It doesn't answer.",
        "searcher": "",
        "writer": "",
    }
    assert (card.degraded, names(card)) == ("", ["web.search"])


@pytest.mark.parametrize(
    ("degraded", "grant", "reason"),
    [
        ({"git": "It hangs.", "web": "It left."}, None, "historian: It hangs. searcher: It left."),
        ({"git": "It hangs."}, Grant(servers=frozenset({"git"})), "historian: It hangs. searcher: This run may call"),
    ],
)
def test_a_team_none_of_whose_members_can_use_tools_is_refused_with_each_reason(
    degraded: dict[str, str], grant: Grant | None, reason: str
) -> None:
    card = limited(team_card(CREW, OFFER), degraded=degraded, grant=grant)

    assert card.degraded.startswith(f"No member that uses tools can work: {reason}")
    assert card.tools == ()


def test_limits_reach_the_members_of_a_team_inside_a_team() -> None:
    inner = star(member("searcher", "web.search"), member("writer"), name="press")
    card = team_card(star(member("historian", "git.log"), member("reporters", team=inner)), OFFER)

    without = limited(card, degraded={"web": "It left."})

    assert without.members["reporters"].members["searcher"].degraded == "It left."
    assert without.members["reporters"].degraded == "No member that uses tools can work: searcher: It left."
    assert (without.degraded, names(without)) == ("", ["git.log"])


def test_degraded_members_of_a_team_have_their_paths_and_reasons() -> None:
    inner = star(member("historian", "git.log"), member("searcher", "web.search"), name="inner")
    gone = star(member("searcher", "web.search"), name="gone")
    card = team_card(star(member("archive", team=inner), member("reporters", team=gone), member("writer")), OFFER)

    without = limited(card, degraded={"web": "It left."})

    assert degraded_members(card) == {}
    assert degraded_members(without) == {
        "archive/searcher": "It left.",
        "reporters": "No member that uses tools can work: searcher: It left.",
    }


def test_a_team_of_writers_needs_no_server() -> None:
    card = limited(team_card(star(member("writer")), {}), effects=frozenset(), grant=Grant())

    assert (card.degraded, card.servers) == ("", ())


def test_a_tool_means_its_specialist_where_a_team_has_it_too() -> None:
    roster = Roster({card.name: card for card in (WEB, team_card(CREW, OFFER))})

    assert roster.resolve("web.search") == "mcp_agent_web"
    assert roster.resolve("Crew") == "crew"


def test_limiting_again_what_is_limited_changes_nothing() -> None:
    once = limited(team_card(CREW, OFFER), degraded={"git": "It doesn't answer."})

    assert with_members(once, once.members) == once


def test_teams_in_a_manifest_belong_to_their_tenant() -> None:
    manifest = with_team(with_team(Manifest(), "us", CREW), "us/them", star(name="crew"))

    assert pinned_teams(manifest, "us") == {"crew": CREW.hash}
    assert pinned_teams(without_team(manifest, "us", "crew"), "us") == {}
    assert pinned_teams(without_team(manifest, "us", "crew"), "us/them") == {"crew": star(name="crew").hash}


def test_a_team_that_is_switched_off_works_nowhere_and_a_member_of_its_name_does() -> None:
    inner = star(member("historian", "git.log"), name="inner")
    both = star(member("archive", team=inner), member("inner", "web.search"), name="outer")
    roster = Roster({"inner": team_card(inner, OFFER), "outer": team_card(both, OFFER)})

    halted = roster.halted({"inner": "It is wrong."}).cards

    members = halted["outer"].members
    assert (halted["inner"].degraded, members["archive"].degraded) == ("It is wrong.", "It is wrong.")
    assert (halted["outer"].degraded, members["inner"].degraded) == ("", "")
