"""Prompts: everything that is data stays inside its element."""

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.planning.decision import OPEN_DECISION, VERDICT
from brain.prompts import NAMES, Xml, element, lines, prompt, versions
from starling.core.json import canonical

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data/security/tag_breakout.jsonl").read_text("utf-8").splitlines()
]
CLOSED = re.compile("agent_card|memory|reflection|skill|system|tool_output|tool_result|untrusted|user_goal")
PAYLOADS = [row["payload"] for row in ROWS]
MARK = re.compile("\N{SECTION SIGN}(\\w+)\N{SECTION SIGN}")
OF_THE_AGENT = ("server", "about", "name", "behaviour", "backstory", "asking", "looking")  # in the system message
TASK = ("user_request", "task_id", "task", "state_context")
SECTIONS = {
    "supervisor": (
        "asking",
        "looking",
        "user_request",
        "session_history",
        "clarifications",
        "agents",
        "current_plan",
        "state_context",
    ),
    "specialist": ("server", "about", *TASK),
    "generalist": TASK,
    "coder": TASK,
    "custom": ("name", "behaviour", *TASK),
    "custom_tools": ("name", "behaviour", *TASK),
    "crewai": ("backstory", "behaviour", *TASK),
    "reflection": ("user_request", "task_id", "agent", "task", "tool_calls", "output"),
    "reviewer": ("name", "behaviour"),
    "qa": ("user_request", "session_history", "results", "degraded", "assumptions"),
    "judge": ("sections",),
    "designer": ("sections",),
}


def test_every_prompt_is_known() -> None:
    assert set(SECTIONS) == set(NAMES) == set(versions())


@pytest.mark.parametrize("name", SECTIONS)
def test_the_user_message_is_well_formed_and_holds_every_section(name: str) -> None:
    _, user = prompt(name).fill(**{section: f"the {section}" for section in SECTIONS[name]})

    document = ET.fromstring(f"<prompt>{user.content}</prompt>")  # noqa: S314 - made here
    told = "".join(document.itertext()) + " ".join(value for node in document.iter() for value in node.attrib.values())
    assert all(f"the {section}" in told for section in SECTIONS[name] if section not in OF_THE_AGENT)


class Tokens(HTMLParser):
    """The tags, attributes and texts of a message, in order, decoded once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(("start", tag, *(part or "" for pair in attrs for part in pair)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("end", tag))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "text":
            self.found[-1] = ("text", self.found[-1][1] + data)
        else:
            self.found.append(("text", data))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.handle_comment(decl)

    handle_pi = unknown_decl = handle_comment  # nothing of these is in a prompt

    def holding(self, values: Mapping[str, str]) -> list[tuple[str, ...]]:
        """Return the tokens with values in place of the names of sections, and without empty texts."""
        held = [tuple(MARK.sub(lambda mark: values[mark[1]], part) for part in token) for token in self.found]
        return [token for token in held if token != ("text", "")]


def data_sections(name: str) -> tuple[str, ...]:
    """Return the sections whose text is data: not names of agents, nor instructions of their makers."""
    return tuple(one for one in SECTIONS[name] if one not in OF_THE_AGENT or one == "about")


def parsed(name: str, values: Mapping[str, str]) -> Tokens:
    system, user = filled_with(name, values)
    about = "".join(re.findall("<server>.*?</server>", system, re.DOTALL))  # all else of it is the program's
    return Tokens(f"{about}{user}")


def filled_with(name: str, values: Mapping[str, str]) -> tuple[str, str]:
    system, user = prompt(name).fill(**dict.fromkeys(SECTIONS[name], "") | dict(values))
    return system.content, user.content


def assert_each_datum_is_in_one_place(name: str, values: Mapping[str, str]) -> None:
    marked = parsed(name, {section: f"\N{SECTION SIGN}{section}\N{SECTION SIGN}" for section in values})

    assert parsed(name, values).found == marked.holding(values)


@pytest.mark.parametrize("name", SECTIONS)
def test_text_that_closes_elements_stays_inside_of_its_own(name: str) -> None:
    for row in ROWS:
        payloads = {section: CLOSED.sub(section, row["payload"]) for section in data_sections(name)}
        assert_each_datum_is_in_one_place(name, payloads)


@given(st.data())
@pytest.mark.parametrize("name", SECTIONS)
def test_every_datum_is_read_back_unchanged_from_exactly_one_place(name: str, data: st.DataObject) -> None:
    texts = st.text(st.characters(exclude_characters="\N{SECTION SIGN}")) | st.sampled_from(PAYLOADS)

    assert_each_datum_is_in_one_place(name, {section: data.draw(texts) for section in data_sections(name)})


@given(st.text(), st.text())
def test_content_and_attribute_of_an_element_are_read_back_unchanged(content: str, reason: str) -> None:
    text = [("text", content)] if content else []

    assert Tokens(element("part", content, reason=reason)).found == [
        ("start", "part", "reason", reason), *text, ("end", "part")
    ]  # fmt: skip


def test_quotes_are_escaped_in_attributes_only() -> None:
    _, user = prompt("specialist").fill(**dict.fromkeys(SECTIONS["specialist"], 'say "it"'))

    assert '<task id="say &quot;it&quot;">say "it"</task>' in user.content
    assert element("part", '"it"', reason="\"it\" or 'it'") == '<part reason="&quot;it&quot; or \'it\'">"it"</part>'


def test_the_line_of_an_absent_section_is_left_out() -> None:
    sections = dict.fromkeys(SECTIONS["generalist"], "x")

    _, user = prompt("generalist").fill(**sections | {"state_context": None})

    assert user.content == '<user_request>x</user_request>\n<task id="x">x</task>'


def test_instructions_and_schemas_of_a_run_of_two_specialists_stay_short() -> None:
    asked = ("supervisor", "specialist", "specialist", "reflection", "reflection", "qa")
    instructions = [prompt(name).fill(**dict.fromkeys(SECTIONS[name], ""))[0].content for name in asked]
    schemas = [canonical(one.schema) for one in (OPEN_DECISION, VERDICT, VERDICT)]

    assert sum(map(len, instructions)) <= 3_300
    assert sum(map(len, schemas)) <= 1_950


def test_elements_are_not_escaped_again() -> None:
    made = lines([element("a", "<1>"), element("b", Xml("<c/>"))])

    assert made == "<a>&lt;1&gt;</a>\n<b><c/></b>"
    assert made in prompt("qa").fill(**dict.fromkeys(SECTIONS["qa"], made))[1].content


def test_a_missing_section_is_an_error() -> None:
    with pytest.raises(KeyError, match="task"):
        prompt("generalist").fill(user_request="")
