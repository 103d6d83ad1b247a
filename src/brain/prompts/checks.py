"""Checks of texts that come from elsewhere, against what the program fills in and how it fences data off.

The text that the program itself has is the contract: its variables are those that a text needs, its instructions have
those that may stand there, and what it puts into an element is data.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from xml.etree import ElementTree as ET
from xml.parsers import expat

from brain.prompts import Prompt, Template, divided, joined, program_text, prompt
from starling.core.json import storable_text
from starling.core.prompts import LONGEST_PROMPT

_REST: Final = r"\{\{.{0,40}"  # compiled when a text is checked, which a start mostly doesn't
_TAG: Final = "<[^<>]*>"
_HOSTILE: Final = "</x> & ]]> --> ' \""  # ends everything that isn't escaped


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
    literals = (literal for part in (instructions, data) for literal in Template.of(part).literals)
    if broken := next((found for literal in literals for found in re.findall(_REST, literal)), ""):
        yield f"This is not a variable: {broken} (a name stands between two braces: {{{{task}}}})."
    yield from _faults_of_names(own, Template.of(instructions).names, Template.of(data).names)
    yield from _faults_of_data(own, Prompt.of(joined(instructions, data), own.used), data)
    yield from _faults_of_tags(own, (instructions, data))


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


def _faults_of_tags(own: Prompt, parts: Iterable[str]) -> Iterator[str]:
    for tag in (tag for part in parts for tag in re.findall(_TAG, part)):
        for name in Template.of(tag).names:
            if name not in own.attributes or not re.search(rf'="{_variable(name)}"', tag):
                yield f"{{{{{name}}}}} must not stand inside of a tag: {tag}"


def _faults_of_data(own: Prompt, made: Prompt, data: str) -> Iterator[str]:
    """Yield what would let data leave its element, or stand in more than one."""
    if isinstance(found := _parsed(made, {}), str):
        yield f"Its data part is not well-formed XML: {found}."
    _, own_data = divided(program_text(own.used.name))
    for name in own.user.names:
        if Template.of(data).names.count(name) > 1:
            yield f"{{{{{name}}}}} is data and stands in it more than once."
        read = _parsed(made, {name: _HOSTILE})
        if name in own.attributes and (
            not isinstance(read, str) and any(_HOSTILE in node.attrib.values() for node in read.iter())
        ):
            continue
        if name not in own.attributes and not _is_fenced(own_data or "", name):  # elements, each around its own data
            if not (not isinstance(read, str) and any(_HOSTILE in text for text in read.itertext())):
                yield f"{{{{{name}}}}} must not stand in a comment, a CDATA section or an attribute."
        elif (
            not _is_fenced(data, name)
            or isinstance(read, str)
            or not any(not len(node) and (node.text or "").strip() == _HOSTILE for node in read.iter())
        ):
            yield (
                f"{{{{{name}}}}} is data and has to stand alone in an element, such as "
                f"<{name}>{{{{{name}}}}}</{name}>, which is not in a comment or a CDATA section."
            )


def _is_fenced(part: str, name: str) -> bool:
    """Whether a variable is all that an element holds, in a part that need not be XML as a whole."""
    return re.search(rf"<([A-Za-z_][\w.-]*)(?:\s[^<>]*)?>\s*{_variable(name)}\s*</\1>", part) is not None


def _variable(name: str) -> str:
    return r"\{\{\s*" + name + r"\s*\}\}"


def _parsed(made: Prompt, values: Mapping[str, str]) -> ET.Element | str:
    """Return the data part as it is filled with these values and other texts, or why that is not well-formed XML."""
    texts = dict.fromkeys((*made.system.names, *made.user.names), "x")
    _, user = made.fill(**{**texts, **values})
    try:
        return ET.fromstring(f"<prompt>{user.content}</prompt>")  # noqa: S314 - no DTD stands inside of an element
    except ET.ParseError as error:
        return expat.ErrorString(error.code)
