"""Which candidates serve the parts of a goal, and which parts nothing serves."""

from collections.abc import Sequence

import pytest

from architect.design.selection import Fit, Selection, searched_texts, select, shortlist
from starling.core.events.build_events import MissingPart
from starling.core.teams.building import Candidate
from starling.core.tool_calls import Effect
from tests.support.in_memory_build import tool

CLOCK = tool("clock.now", "Tell the current time in a city")
MAIL = tool("mail.send", "Send a message", Effect.UNSAFE)
POST = tool("post.deliver", "Deliver a letter", Effect.UNSAFE)
_TOOLS = {one.server: one for one in (CLOCK, MAIL, POST)}


def ranked(**scores: float) -> list[Candidate]:
    """Candidates by server, best first."""
    found = [Candidate(name, "", "", [_TOOLS[name]], score, _TOOLS[name].name) for name, score in scores.items()]
    return sorted(found, key=lambda one: -one.score)


def selected(
    *parts: str, goal: Sequence[Candidate] = (), population: int = 30, **found: Sequence[Candidate]
) -> Selection:
    """Select for parts that are found by their first words."""
    rankings = {text: found.get(text.split()[0], []) for text in searched_texts(parts)}
    return select(parts, goal, rankings, population)


def names(selection: Selection) -> list[str]:
    """The servers that fit a part well, and those that fit the whole goal."""
    found = [part.candidates[0] for part in selection.parts if part.fit == "good"]
    return list(dict.fromkeys(one.server for one in (*found, *selection.for_goal)))


def fits(selection: Selection) -> list[Fit]:
    return [part.fit for part in selection.parts]


def test_each_part_gets_the_candidate_that_fits_it_best() -> None:
    found = selected(
        "tell", "send", "again", tell=ranked(clock=20, mail=1), send=ranked(mail=18), again=ranked(clock=19)
    )

    assert names(found) == ["clock", "mail"]


def test_goal_decides_between_candidates_that_fit_a_part_nearly_alike() -> None:
    near = ranked(mail=18, post=17)

    assert names(selected("send it", send=near)) == ["mail"]
    assert names(selected("send it", send=near, goal=ranked(post=10, mail=1))) == ["post"]


def test_servers_within_a_share_of_the_best_for_the_whole_goal_are_selected_too() -> None:
    goal = ranked(mail=20, post=15.1, clock=14.9)

    assert names(selected("send it", send=ranked(mail=20), goal=goal)) == ["mail", "post"]
    assert names(selected("send it", send=ranked(mail=20), goal=goal, population=9)) == ["mail"]


def test_part_that_is_served_much_worse_than_another_selects_nothing() -> None:
    found = selected("tell the time", "do it kindly", tell=ranked(clock=40), do=ranked(post=15))

    assert fits(found) == ["good", "weak"]
    assert names(found) == ["clock"]


def test_part_that_nothing_serves_names_what_came_nearest() -> None:
    (part,) = selected("order a pizza", order=ranked(post=5, mail=4, clock=1)).parts

    assert (part.fit, part.missing) == ("none", MissingPart(part="order a pizza", nearest=["post", "mail", "clock"]))


@pytest.mark.parametrize(
    ("population", "fit"),
    [
        pytest.param(9, "good", id="of nine, the best of which is always found"),
        pytest.param(10, "good", id="of ten"),
        pytest.param(1_000, "none", id="of a thousand"),
    ],
)
def test_score_counts_less_the_more_agents_were_ranked(population: int, fit: Fit) -> None:
    assert fits(selected("tell everybody", tell=ranked(clock=8), population=population)) == [fit]


@pytest.mark.parametrize("population", [2, 300])
@pytest.mark.parametrize(
    ("part", "second", "parts"),
    [
        pytest.param("deliver it and the time now", ranked(clock=20, post=1), 2, id="different ones"),
        pytest.param("deliver it and the time now", ranked(post=20, clock=1), 1, id="the same one"),
        pytest.param("deliver a letter and a pizza", ranked(clock=20, post=1), 1, id="no word of the second one"),
    ],
)
def test_part_is_split_where_its_first_two_candidates_serve_different_pieces(
    part: str, second: Sequence[Candidate], parts: int, population: int
) -> None:
    first, other = part.split(" and ")
    whole = ranked(post=20, clock=19)
    rankings = {part: whole, first: ranked(post=20, clock=2), other: second}

    found = select([part], whole[:1], rankings, population)

    assert [one.text for one in found.parts] == ([first, other] if parts == 2 else [part])


def test_nothing_is_selected_among_no_candidates() -> None:
    found = selected("tell the time")

    assert (names(found), fits(found), found.parts[0].missing.nearest) == ([], ["none"], [])


def test_shortlist_takes_the_best_of_each_part_in_turn() -> None:
    found = selected("a", "b", a=ranked(clock=20, mail=1), b=ranked(mail=18, post=9)).parts

    assert [one.server for one in shortlist(found, ranked(post=3), 2)] == ["clock", "mail"]
    assert [one.server for one in shortlist(found, ranked(post=3), 9)] == ["clock", "mail", "post"]


@pytest.mark.parametrize(
    ("part", "first"), [("tells the current time", "clock"), ("asks the travellers", "travellers")]
)
def test_server_that_serves_a_part_goes_before_a_team_that_the_part_does_not_name(part: str, first: str) -> None:
    team = Candidate("", "travellers", "Tells the current time and asks for tickets.", [CLOCK, MAIL], 9.0)
    server = Candidate("clock", "", "", [CLOCK], 3.0, "now")

    (found,) = select([part], [team, server], {part: [team, server]}, 2).parts

    assert found.nearest[0] == first
