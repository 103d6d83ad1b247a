"""The call of a recalled skill, with the values of its slots from a task with the same words around them."""

import re
from typing import Any

from starling.infra.llm.offline.language import POLITE, RESTRICTING, stems, values_of
from starling.infra.llm.offline.prompt_parsing import Element, parse_json


def skill_call(skill: Element, task: str) -> tuple[str, dict[str, Any]] | None:
    """Return tool and arguments if the task is the skill's but for its slots, each with one possible value."""
    calls: Any = parse_json(skill.child("calls").text)
    template, said = (POLITE.sub("", one, count=1).rstrip(" .?!") for one in (skill.child("similar_task").text, task))
    forms = [re.sub(r"\\\{\w+\\\}", group, re.escape(template)) for group in ("(.+)", "(.+?)")]
    most, least = (re.fullmatch(form, said, re.IGNORECASE) for form in forms)
    if len(calls or ()) != 1 or not most or not least or most.groups() != least.groups():
        return None
    texts, given = set(zip(re.findall(r"\{(\w+)\}", template), most.groups(), strict=True)), calls[0]["arguments"]
    slots: dict[str, Any] = {key: value for key, value in given.items() if isinstance(value, dict | list)}
    filled = {key: _value(slot, dict(texts)) for key, slot in slots.items() if "slot" in slot}
    used = {slots[key]["slot"] for key, value in filled.items() if value is not None}
    return (calls[0]["tool"].rpartition(".")[2], given | filled) if len(used) == len(slots) == len(texts) else None


def _value(slot: dict[str, Any], said: dict[str, str]) -> Any:
    """Return what a task says for a slot, if it is a value like the example: of its kind, or as many words."""
    text, example = said.get(slot["slot"], ""), str(slot.get("example", ""))
    read = [
        [(v.kind, v.value) for v in values_of(f"of {one}") if v.text == one] or [("", one)] for one in (text, example)
    ]
    (own, value), (kind, _) = read[0][0], read[1][0]
    plain = len(text.split()) == len(example.split()) and not stems(text) & RESTRICTING
    return value if text and own == kind and (kind or plain) else None
