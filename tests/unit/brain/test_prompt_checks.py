"""Texts of prompts from elsewhere: completed with the program's data part, and refused with the reason."""

import pytest

from brain.prompts import NAMES, Prompt, divided, program_text
from brain.prompts.checks import fault_of, whole_text
from starling.core.llm import PromptVersion
from starling.core.prompts import LONGEST_PROMPT

INSTRUCTIONS = "Answer as a pirate. {{name}}: {{behaviour}}"
DATA = '<request>{{user_request}}</request>\n<do id="{{task_id}}">{{task}}</do>\n<state>\n{{ state_context }}\n</state>'
_SHOWN = '<request>r</request>\n<do id="t">d</do>\n'


def text(instructions: str = INSTRUCTIONS, data: str = DATA) -> str:
    return f"{instructions}\n---\n{data}"


@pytest.mark.parametrize("name", NAMES)
def test_text_of_the_program_is_usable_and_complete(name: str) -> None:
    assert fault_of(name, program_text(name)) == ""
    assert whole_text(name, program_text(name)) == program_text(name)


@pytest.mark.parametrize("name", NAMES)
def test_instructions_alone_get_the_data_part_of_the_program(name: str) -> None:
    instructions, data = divided(program_text(name))

    whole = whole_text(name, f"  {instructions}\r\n\r\n")

    assert (whole, divided(whole)[1]) == (program_text(name), data)


def test_text_with_a_data_part_of_its_own_is_filled_with_the_same_sections() -> None:
    whole = whole_text("custom", text())
    sections = {"user_request": "<b>", "task_id": 'a"b', "task": "&", "state_context": None}

    system, user = Prompt.of(whole, PromptVersion("custom", "h")).fill(name="n", behaviour="b", **sections)

    assert fault_of("custom", whole) == ""
    assert system.content == "Answer as a pirate. n: b"
    assert user.content == '<request>&lt;b&gt;</request>\n<do id="a&quot;b">&amp;</do>\n<state>\n</state>'


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (text(INSTRUCTIONS + " {{behavior}}"), "names the unknown variable {{behavior}}"),
        (text("Answer. {{name}}"), "lacks the variable {{behaviour}}"),
        (text(data=DATA.replace("<request>{{user_request}}</request>", "")), "lacks the variable {{user_request}}"),
        (text(INSTRUCTIONS + " {{user_request}}"), "{{user_request}} is data: it belongs into the part below"),
        (text(data=f"{DATA}{{{{name}}}}"), "{{name}} belongs into the instructions"),
        (text(INSTRUCTIONS + " {{#if x}}"), "This is not a variable: {{#if x}}"),
        (text(INSTRUCTIONS + " {{name"), "This is not a variable: {{name"),
        (text(INSTRUCTIONS + " {{user.name}}"), "This is not a variable: {{user.name}}"),
        (text(data=DATA.replace("<request>{{user_request}}</request>", "{{user_request}}")), "has to stand alone"),
        (text(data=DATA.replace("{{user_request}}</", "The {{user_request}}</")), "has to stand alone"),
        (text(data=DATA.replace("</request>", "</question>")), "not well-formed XML: mismatched tag"),
        (text(data=DATA.replace("</request>", "<b/></request>")), "{{user_request}} is data and has to stand alone"),
        (
            text(data=DATA.replace("<request>", "<request><request />")),
            "{{user_request}} is data and has to stand alone",
        ),
        (text(data=DATA.replace("<request>", "<!--<request>").replace("</request>", "</request>-->")), "in a comment"),
        (text(data=DATA.replace("<request>", "<![CDATA[<r>").replace("</request>", "</r>]]>")), "a CDATA section"),
        (text(data=DATA.replace("{{user_request}}", "<![CDATA[{{user_request}}]]>")), "has to stand alone"),
        (text(data=DATA.replace("<request>", "<?r > <r>").replace("</request>", "</r> ?>")), "has to stand alone"),
        (
            text(data=DATA.replace('id="{{task_id}}"', "of='id=\"{{task_id}}\"'")),
            "{{task_id}} is data and has to stand",
        ),
        (text(data=f"{DATA}\n<again>{{{{task}}}}</again>"), "stands in it more than once"),
        (text(data=DATA.replace("<request>", '<request of="{{task}}">')), "more than once"),
        (text(data=DATA.replace('"{{task_id}}"', "'{{task_id}}'")), "{{task_id}} is data and has to stand alone"),
        (text(data=f"{DATA}\n<p>"), "not well-formed XML: mismatched tag"),
        (text(data=f"{DATA}\nR&D"), "not well-formed XML"),
        (text(""), "It has no instructions"),
        (text(INSTRUCTIONS + "x" * LONGEST_PROMPT), "longer than 50,000 characters"),
    ],
)
def test_unusable_text_is_refused_with_the_reason(wrong: str, told: str) -> None:
    assert told in fault_of("custom", whole_text("custom", wrong))


@pytest.mark.parametrize("hidden", ["<!-- {{sections}} -->", "<a><![CDATA[{{sections}}]]></a>"])
def test_elements_of_a_program_have_to_stand_where_elements_can(hidden: str) -> None:
    own = program_text("judge")

    assert fault_of("judge", own.replace("{{sections}}", "<all>Look: {{sections}}</all>")) == ""
    assert "{{sections}} must not stand in a comment" in fault_of("judge", own.replace("{{sections}}", hidden))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (DATA.replace("\n", " "), '<request>r</request> <do id="t">d</do> <state>  </state>'),
        (DATA.replace("{{ state_context }}\n", "{{state_context}}"), f"{_SHOWN}<state>\n</state>"),
        (DATA.replace("\n{{ state_context }}", "{{state_context}}"), f"{_SHOWN}<state>\n</state>"),
    ],
    ids=["one line", "line with an end", "line with a beginning"],
)
def test_absent_section_takes_no_half_of_an_element_with_it(data: str, shown: str) -> None:
    sections = {"user_request": "r", "task_id": "t", "task": "d", "state_context": None}

    _, user = Prompt.of(text(data=data), PromptVersion("custom", "h")).fill(name="n", behaviour="b", **sections)

    assert (fault_of("custom", text(data=data)), user.content) == ("", shown)


def test_variables_of_a_text_may_have_spaces_and_repeat_in_the_instructions() -> None:
    assert fault_of("custom", text("{{ name }} and {{name}}: {{ behaviour }}")) == ""


def test_braces_and_dollars_that_are_no_variables_stay_as_they_are() -> None:
    told = 'Answer {"a": {"b": 1}} for $5, $name and }}. {{name}}{{behaviour}}'

    made = Prompt.of(text(told), PromptVersion("custom", "h"))

    assert fault_of("custom", text(told)) == ""
    assert made.system.fill({"name": "", "behaviour": ""}) == told.removesuffix("{{name}}{{behaviour}}")
