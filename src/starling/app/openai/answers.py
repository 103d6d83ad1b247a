"""What a run answers as text, or asks; and how its progress is told."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Self

from starling.core.events.run_events import Usage
from starling.core.json import JsonObject
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_document.rows import EventRow
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt

_CODE_CHARS: Final = 10
_DECISION: Final = re.compile(r"(approve|reject|done|not_done|give_up) ([0-9A-F]{10})(?: ([1-9][0-9]{0,8}))?")
_WORDS: Final[Mapping[str, str]] = {
    "approval": "`approve {code}` to have it called, or `reject {code}`",
    "budget": "`approve {code} 20000` to allow so many more tokens, or `reject {code}`",
    "in_doubt": "`done {code}` if the call was made, `not_done {code}` to have it called again, or `give_up {code}`",
}
_LINE_CHARS: Final = 200
_NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a run answered, or what it waits for: then `status` is `waiting`."""

    run_id: str
    thread: str
    text: str
    status: RunStatus
    usage: Usage = _NO_USAGE
    citations: Sequence[JsonObject] = ()
    effects: Sequence[JsonObject] = ()
    degraded: Sequence[JsonObject] = ()
    code: str | None = None

    @classmethod
    def of_result(cls, key: RunKey, thread: str, result: Mapping[str, Any]) -> Self:
        """Return the answer of a run that has ended with a result; a `done` event has the same fields."""
        known = {name: result.get(name) or () for name in ("citations", "effects", "degraded")}
        usage, status = Usage.model_validate(result["usage"], extra="ignore"), RunStatus(result["status"])
        return cls(key.id, thread, result["reply"], status, usage, code=result.get("code"), **known)

    @classmethod
    def of_wait(cls, key: RunKey, thread: str, asked: Sequence[StoredInterrupt]) -> Self:
        """Return what a run waits for as a message."""
        text = "\n\n".join(_question(item, key.tenant) for item in asked) or "The run waits. Send the message again."
        return cls(key.id, thread, text, RunStatus.WAITING)

    @property
    def extension(self) -> JsonObject:
        """What answers have beside OpenAI's fields."""
        names = ("run_id", "status", "code", "citations", "effects", "degraded")
        return {name: getattr(self, name) for name in names} | {"thread_id": self.thread}


def decision_in(text: str, asked: Sequence[StoredInterrupt]) -> InterruptAnswer | None:
    """Return the answer that a message is to one of these interrupts: exactly a word and the code, else None."""
    if not (said := _DECISION.fullmatch(text)):
        return None
    word, code, number = said.groups()
    item = next((one for one in asked if code == code_of(one.id)), None)
    match item.kind if item else None, word:
        case "approval", "approve" | "reject" if not number:
            payload: JsonObject = {"approved": word == "approve"}
        case "budget", "approve" if number:
            payload = {"tokens": int(number)}
        case "in_doubt", "done" | "not_done" | "give_up" if not number:
            payload = {"resolution": word}
        case "budget", "reject" if item and not number:
            return InterruptAnswer(item.id, "cancelled", {})
        case _:
            return None
    assert item is not None
    return InterruptAnswer(item.id, "resolved", payload)


def code_of(interrupt: str) -> str:
    """Return the code of an interrupt. Its id is random, and no model or server is shown it."""
    return sha256(f"decision {interrupt}".encode()).hexdigest()[:_CODE_CHARS].upper()


def _question(item: StoredInterrupt, tenant: str) -> str:
    if item.kind == "clarification":
        return item.message
    parts = [item.reason, item.message]
    if item.call:
        # what servers said is in the message, and no line of it may look like the call or the instruction below
        parts = ["\n".join(f"> {line}" for line in item.message.splitlines())]
        called = _visible(json.dumps(item.call["args"], ensure_ascii=False, indent=2))  # no line of it ends the block
        parts.append(f"{item.call['name']}\n```json\n{called}\n```")
    words = _WORDS[item.kind].format(code=code_of(item.id))
    option = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    parts.append(  # without the id, of which the code can be made
        f"Answer with nothing but {words}. It can be answered elsewhere, too: `starling run approve{option}` lists it "
        f"with the command that does, or `POST /v1/runs/{item.run_id}/resume`."
    )
    return "\n\n".join(parts)


def _visible(text: str) -> str:
    """Return JSON in which characters that are not seen, or that change the order of others, are escapes."""
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def progress_line(event: EventRow) -> str:
    """Return what an event says of the progress as a short line, empty for most kinds."""
    data = event.data
    match event.type:
        case "plan" if not data.get("path"):
            text = f"Plan: {'; '.join(data['plan']) or data['thought_process']}"
        case "task_start":
            again = f", attempt {data['attempt']}" if data["attempt"] > 1 else ""
            text = f"{data['agent']} works on {data['path']}{again}."
        case "reflection":
            reasons = f": {'; '.join(data['reasons'])}" if data["reasons"] else ""
            text = f"{data.get('path') or data['task_id']} {data['status']}{reasons}"
        case _:
            return ""
    return " ".join(text.split())[:_LINE_CHARS]
