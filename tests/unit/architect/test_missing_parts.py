"""Which parts of a goal a design leaves out."""

import pytest

from architect.design.document import DesignDocument, DesignedMember
from architect.design.missing_parts import missing_parts
from architect.design.selection import Fit, PartFit, Selection
from starling.core.teams.building import Candidate
from tests.support.in_memory_build import tool

DISK = Candidate("machine", "", "Watches a machine", [tool("machine.disk", "Show the disk")], 5, "disk")
MAIL = Candidate("mail", "", "Sends mail", [tool("mail.send", "Send a mail")], 4, "send")
WITH_TOOLS, WRITER = {"server": "machine"}, {"server": ""}


def selection(text: str, fit: Fit) -> Selection:
    return Selection([PartFit(text, fit, [DISK, MAIL])])


def missing(found: Selection, *members: DesignedMember, named: tuple[str, ...] = ()) -> list[tuple[str, list[str]]]:
    document = DesignDocument(members=[*members], missing=[*named])
    return [(one.part, one.nearest) for one in missing_parts(document, found, [DISK, MAIL])]


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
    member = DesignedMember(name="one", parts=parts, server=source["server"])

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
