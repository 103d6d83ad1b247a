"""Checks of texts that come from elsewhere, against what the program fills in and how it fences data off.

The text that the program itself has is the contract: its variables are those that a text needs, its instructions have
those that may stand there, and what it puts into an element is data.
"""

import re
from collections.abc import Iterator
from typing import Final
from xml.parsers import expat

from brain.prompts import Prompt, program_text, prompt
from brain.prompts.templates import Template, divided, joined
from starling.core.json import storable_text
from starling.core.prompts import LONGEST_PROMPT

_REST: Final = r"\{\{.{0,40}"  # compiled when a text is checked, which a start mostly doesn't
_TAG: Final = "<[^<>]*>"


def whole_text(name: str, text: str) -> str:
    """Return a text with both its parts; where it has no line `---`, the data part is the program's."""
    instructions, data = divided(storable_text(text))
    return joined(instructions, data if data is not None else divided(program_text(name))[1] or "")


def fault_of(name: str, text: str) -> str:
    """Return why a whole text can't be used as a prompt, empty if it can."""
    instructions, data = divided(text)
    return next(_faults(prompt(name), instructions, data or ""), "")


def _faults(own: Prompt, instructions: str, data: str) -> Iterator[str]:
    if len(instructions) + len(data) > LONGEST_PROMPT:
        yield f"It is longer than {LONGEST_PROMPT:,} characters."
    if not instructions:
        yield "It has no instructions."
    if broken := [found for part in (instructions, data) for found in _broken(part)]:
        yield f"This is no variable: {broken[0]} (a name stands between two braces: {{{{task}}}})."
    yield from _faults_of_names(own, Template.of(instructions).names, Template.of(data).names)
    yield from _faults_of_data(own, instructions, data)


def _broken(part: str) -> list[str]:
    return [found for literal in Template.of(part).literals for found in re.findall(_REST, literal)]


def _faults_of_names(own: Prompt, told: tuple[str, ...], shown: tuple[str, ...]) -> Iterator[str]:
    above, below = dict.fromkeys(own.system.names), dict.fromkeys(own.user.names)
    known = ", ".join(f"{{{{{name}}}}}" for name in (*above, *below)) or "none"
    for name in (*told, *shown):
        if name not in above and name not in below:
            yield f"It names the unknown variable {{{{{name}}}}}; this prompt has: {known}."
    for name in told:
        if name not in above:
            yield f"{{{{{name}}}}} is data: it belongs into the part below the line `---`."
    for name in shown:
        if name not in below:
            yield f"{{{{{name}}}}} belongs into the instructions, above the line `---`."
    for name in (*above, *below):
        if name not in told and name not in shown:
            yield f"It lacks the variable {{{{{name}}}}}; this prompt needs: {known}."


def _faults_of_data(own: Prompt, instructions: str, data: str) -> Iterator[str]:
    """Yield what would let data leave its element, or stand in more than one."""
    own_instructions, own_data = divided(program_text(own.used.name))
    for part, own_part in ((instructions, own_instructions), (data, own_data or "")):
        for name in dict.fromkeys(Template.of(own_part).names):
            if name in own.attributes or _is_fenced(own_part, name):
                yield from _faults_of_place(part, name, in_attribute=name in own.attributes)
        for tag in re.findall(_TAG, part):
            for name in Template.of(tag).names:
                if name not in own.attributes or not re.search(rf'="{_variable(name)}"', tag):
                    yield f"{{{{{name}}}}} must not stand inside of a tag: {tag}"
    if fault := _xml_fault(data):
        yield f"Its data part is no well-formed XML: {fault}."


def _faults_of_place(part: str, name: str, *, in_attribute: bool) -> Iterator[str]:
    if Template.of(part).names.count(name) > 1:
        yield f"{{{{{name}}}}} is data and stands in it more than once."
    if not _is_fenced(part, name) and not (in_attribute and re.search(rf'="{_variable(name)}"', part)):
        yield f"{{{{{name}}}}} is data and has to stand alone in an element, such as <{name}>{{{{{name}}}}}</{name}>."


def _is_fenced(part: str, name: str) -> bool:
    """Whether a variable is all that an element holds."""
    return re.search(rf"<([A-Za-z_][\w.-]*)(?:\s[^<>]*)?>\s*{_variable(name)}\s*</\1>", part) is not None


def _variable(name: str) -> str:
    return r"\{\{\s*" + name + r"\s*\}\}"


def _xml_fault(data: str) -> str:
    """Return why the data part, with a text in place of each variable, is no content of an XML element."""
    template = Template.of(data)
    try:
        expat.ParserCreate().Parse(f"<prompt>{template.fill(dict.fromkeys(template.names, 'x'))}</prompt>", True)
    except expat.ExpatError as error:
        return expat.ErrorString(error.code)
    return ""
