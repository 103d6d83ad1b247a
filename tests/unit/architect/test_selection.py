"""Which candidates serve the parts of a goal, and which parts nothing serves."""

from collections.abc import Sequence

import pytest

from architect.design.document import DesignDocument, MemberDraft
from architect.design.selection import Fit, PartFit, missing_parts, name_of, select, shortlist
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
    *parts: tuple[str, Sequence[Candidate]], goal: Sequence[Candidate] = (), population: int = 30
) -> Sequence[PartFit]:
    return select([text for text, _ in parts], goal, [found for _, found in parts], population)


def chosen(parts: Sequence[PartFit]) -> list[str]:
    return list(dict.fromkeys(name_of(part.candidates[0]) for part in parts if part.fit == "good"))


def gaps(parts: Sequence[PartFit]) -> list[MissingPart]:
    return [part.missing for part in parts if part.fit == "none"]


def test_each_part_gets_the_candidate_that_fits_it_best() -> None:
    found = selected(
        ("tell the time", ranked(clock=20, mail=1)),
        ("send a message", ranked(mail=18, post=9)),
        ("the time again", ranked(clock=19)),
    )

    assert chosen(found) == ["clock", "mail"]
    assert gaps(found) == []


def test_goal_decides_between_candidates_that_fit_a_part_nearly_alike() -> None:
    near = ranked(mail=18, post=17)

    assert chosen(selected(("send it", near))) == ["mail"]
    assert chosen(selected(("send it", near), goal=ranked(post=10, mail=1))) == ["post"]


def test_part_that_is_served_much_worse_than_another_selects_nothing() -> None:
    found = selected(("tell the time", ranked(clock=40)), ("and kindly", ranked(post=15)))

    assert [part.fit for part in found] == ["good", "weak"]
    assert chosen(found) == ["clock"]
    assert gaps(found) == []


def test_part_that_nothing_serves_is_missing_with_what_came_nearest() -> None:
    found = selected(("order a pizza", ranked(post=5, mail=4, clock=1)), ("tell the time", ranked(clock=20)))

    assert [(one.part, one.nearest) for one in gaps(found)] == [("order a pizza", ["post", "mail", "clock"])]
    assert chosen(found) == ["clock"]


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        pytest.param("save the time", False, id="order of a change"),
        pytest.param("then writes the time into a file", False, id="after a connecting word"),
        pytest.param("show the time", True, id="no change"),
    ],
)
def test_change_is_not_served_by_tools_that_only_read(part: str, fits: bool) -> None:
    found = selected((part, ranked(clock=30)))

    assert (chosen(found), len(gaps(found))) == ((["clock"], 0) if fits else ([], 1))


def test_change_is_given_to_a_candidate_that_can_make_it() -> None:
    assert chosen(selected(("send the time", ranked(clock=30, mail=20)))) == ["mail"]


def test_part_about_the_caller_is_no_gap_beside_a_part_that_is_served() -> None:
    about = ("I'm planning a party and need cakes", ranked(post=1))

    assert gaps(selected(about, ("tell the time", ranked(clock=20)))) == []
    assert [one.part for one in gaps(selected(about))] == [about[0]]


@pytest.mark.parametrize(
    ("population", "fit"), [pytest.param(10, "good", id="of ten"), pytest.param(1_000, "none", id="of a thousand")]
)
def test_score_counts_less_the_more_agents_were_ranked(population: int, fit: Fit) -> None:
    assert selected(("tell everybody", ranked(clock=12)), population=population)[0].fit == fit


@pytest.mark.parametrize(
    ("part", "fit"), [pytest.param("the time in a city", "good", id="words"), pytest.param("pizzas", "none", id="none")]
)
def test_words_decide_where_one_candidate_is_the_only_one(part: str, fit: Fit) -> None:
    assert selected((part, ranked(clock=0)), population=1)[0].fit == fit


@pytest.mark.parametrize(
    ("part", "fit"),
    [
        pytest.param("summarise the findings", "text", id="about results"),
        pytest.param("then write a report about it", "text", id="after a connecting word"),
        pytest.param("write the findings into a file", "none", id="to a place"),
        pytest.param("summarise the news", "none", id="about something else"),
        pytest.param("order them", "none", id="no writing"),
    ],
)
def test_part_that_only_writes_about_results_needs_no_tool(part: str, fit: Fit) -> None:
    assert selected((part, ranked(post=1)))[0].fit == fit


def test_nothing_is_selected_among_no_candidates() -> None:
    found = selected(("tell the time", []))

    assert chosen(found) == []
    assert [(one.part, one.nearest) for one in gaps(found)] == [("tell the time", [])]


def test_shortlist_takes_the_best_of_each_part_in_turn() -> None:
    found = selected(("a", ranked(clock=20, mail=1)), ("b", ranked(mail=18, post=9)))

    assert [one.server for one in shortlist(found, ranked(post=3), 2)] == ["clock", "mail"]
    assert [one.server for one in shortlist(found, ranked(post=3), 9)] == ["clock", "mail", "post"]


@pytest.mark.parametrize("population", [1, 2, 3, 9])
def test_part_without_a_common_word_is_missing_among_few_candidates_whatever_their_scores(population: int) -> None:
    best = Candidate("machine", "", "Shows the load of this machine.", (), 6.0)

    selection = select(["writes poems on Mars rocks"], [best], [[best]], population)

    assert [part.part for part in gaps(selection)] == ["writes poems on Mars rocks"]


@pytest.mark.parametrize(
    ("part", "first"), [("tells the current time", "clock"), ("asks the travellers", "travellers")]
)
def test_server_that_serves_a_part_goes_before_a_team_that_the_part_does_not_name(part: str, first: str) -> None:
    team = Candidate("", "travellers", "Tells the current time and asks for tickets.", [CLOCK, MAIL], 9.0)
    server = Candidate("clock", "", "", [CLOCK], 3.0, "now")

    (found,) = select([part], [team, server], [[team, server]], 2)

    assert found.best
    assert name_of(found.best) == first


DISK = Candidate("machine", "", "Watches a machine", [tool("machine.disk", "Show the disk")], 5, "disk")
MAILER = Candidate("mail", "", "Sends mail", [tool("mail.send", "Send a mail")], 4, "send")
WITH_TOOLS, WRITER = {"server": "machine"}, {"server": ""}


def selection(text: str, fit: Fit) -> Sequence[PartFit]:
    return [PartFit(text, fit, [DISK, MAILER])]


def missing(
    found: Sequence[PartFit], *members: MemberDraft, named: tuple[str, ...] = ()
) -> list[tuple[str, list[str]]]:
    document = DesignDocument(members=[*members], missing=[*named])
    return [(one.part, one.nearest) for one in missing_parts(document, found, [DISK, MAILER])]


@pytest.mark.parametrize("fit", ["good", "weak", "text"])
def test_part_that_something_may_serve_is_not_missing(fit: Fit) -> None:
    assert missing(selection("order a pizza", fit)) == []


@pytest.mark.parametrize(
    ("text", "source", "parts", "is_missing"),
    [
        pytest.param("guard the machine", WITH_TOOLS, [1], False, id="claimed, with a word in common"),
        pytest.param("guard the machine", WITH_TOOLS, [2], True, id="not claimed"),
        pytest.param("guard the machine", WRITER, [1], True, id="claimed by a writer without tools"),
        pytest.param("order a pizza", WITH_TOOLS, [1], True, id="claimed, without a word in common"),
    ],
)
def test_part_without_a_find_is_missing_unless_a_member_with_tools_claims_it(
    text: str, source: dict[str, str], parts: list[int], is_missing: bool
) -> None:
    member = MemberDraft(name="one", parts=parts, server=source["server"])

    assert missing(selection(text, "none"), member) == [(text, ["machine", "mail"])] * is_missing


def test_part_that_the_designer_names_is_missing_under_the_words_of_the_goal() -> None:
    assert missing(selection("order a pizza now", "good"), named=("pizza orders",)) == [
        ("order a pizza now", ["machine", "mail"])
    ]


def test_part_in_other_words_is_missing_with_what_came_nearest_to_the_goal() -> None:
    assert missing(selection("order it", "good"), named=("a phone call",)) == [("a phone call", ["machine", "mail"])]


def test_part_is_missing_once() -> None:
    found = selection("order a pizza", "none")

    assert [part for part, _ in missing(found, named=("order pizza", "a pizza"))] == ["order a pizza"]
