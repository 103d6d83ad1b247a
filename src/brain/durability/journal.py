"""The recorded answers and results of a run, by position, so that a resumed run asks for nothing again."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

import orjson

from brain.run_sink import RunSink
from starling.core.errors import JournalDivergedError
from starling.core.json import as_read, storable
from starling.core.llm import ModelReply, ModelRequest, ModelToolCall, TokenUsage
from starling.infra.postgres.runs.writer import JournalEntry

type Kind = Literal["context", "answer", "tool", "result", "failed_call"]


class Journal:
    """Looks up what was recorded before a crash and records what is new through the run's writer."""

    def __init__(self, writer: RunSink, entries: Sequence[JournalEntry] = ()) -> None:
        self._writer = writer
        self._known = {(entry.path, entry.kind, entry.position, entry.index): entry for entry in entries}
        self._counts = Counter((entry.path, entry.kind, entry.position) for entry in entries)

    def find(
        self, path: str, kind: Kind, position: int = 0, index: int = 0, *, request_hash: str | None = ""
    ) -> Mapping[str, Any] | None:
        """Return what was recorded there. Raises JournalDivergedError if it answered another request than this one."""
        entry = self._known.get((path, kind, position, index))
        if entry is None:
            return None
        if request_hash is not None and entry.request_hash != request_hash:
            raise JournalDivergedError(path, position)
        return entry.data

    def tokens_inside(self, path: str) -> TokenUsage:
        """Return what answers inside a path used before this life of the run."""
        inside = (one for one in self._known.values() if one.kind == "answer" and one.path.startswith(f"{path}/"))
        return sum((TokenUsage(**one.data["usage"]) for one in inside), TokenUsage())

    def seconds_inside(self, star: str) -> float:
        """Return the seconds that earlier lives of the run used inside a star, as far as their entries tell."""
        own = [one for one in self._known.values() if one.path == f"{star}.star" and "used" in one.data]
        if not own:
            return 0.0
        last = max(own, key=lambda entry: entry.position).data
        begun = datetime.fromisoformat(last["begun"])
        stored = (one.at for one in self._known.values() if one.at and one.path.startswith(f"{star}/"))
        return last["used"] + (max([begun, *stored]) - begun).total_seconds()

    def knows(self, path: str, kind: Kind, position: int = 0) -> bool:
        """Whether something was recorded there before this life of the run."""
        return (path, kind, position, 0) in self._known

    def record(
        self,
        path: str,
        kind: Kind,
        data: Mapping[str, Any],
        position: int = 0,
        index: int = 0,
        *,
        request_hash: str = "",
    ) -> None:
        """Record it with the next batch; what is emitted right after becomes durable with it."""
        self._writer.record(JournalEntry(path, kind, position, index, request_hash, data))

    def append(self, path: str, kind: Kind, data: Mapping[str, Any], position: int) -> None:
        """Record one more entry of a kind of which a position has several."""
        place = (path, kind, position)
        self.record(path, kind, data, position, self._counts[place])
        self._counts[place] += 1


@dataclass(frozen=True, slots=True)
class _SeenMessage:
    """The members of a message that are hashed, in the order of the first version."""

    role: str
    content: str
    tool_calls: Sequence[ModelToolCall]
    tool_call_id: str | None


def request_hash(request: ModelRequest) -> str:
    """Return the digest of what the model sees; time limits and returned reasoning, which is recorded, don't count."""
    messages = [_SeenMessage(item.role, item.content, item.tool_calls, item.tool_call_id) for item in request.messages]
    seen: list[object] = [request.role, messages, request.tools, request.response, request.temperature]
    if request.model:
        seen.append(request.model)
    try:
        text = orjson.dumps(seen, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a number in a tool's schema that has more than 64 bits
        seen[1] = request.messages
        text = repr(seen).encode("utf-8", "backslashreplace")
    return hashlib.sha256(text).hexdigest()


def storable_reply(reply: ModelReply) -> ModelReply:
    """Return the reply as reading it from the journal gives it: what Postgres can't hold is replaced."""
    return load_reply(cast("Mapping[str, Any]", storable(dump_reply(reply))))


def dump_reply(reply: ModelReply) -> dict[str, Any]:
    """Return a reply as JSON."""
    usage: dict[str, Any] = {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens}
    reasoning = {"reasoning": reply.reasoning, "reasoning_field": reply.reasoning_field} if reply.reasoning else {}
    return {
        "content": reply.content,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "raw_arguments": call.raw_arguments}
            for call in reply.tool_calls
        ],
        "usage": usage | {"estimated": True} if reply.usage.estimated else usage,
        "model": reply.model,
        "finish_reason": reply.finish_reason,
        "warnings": list(reply.warnings),
        **reasoning,
    }


def load_reply(data: Mapping[str, Any]) -> ModelReply:
    """Return the reply that `dump_reply` made `data` from."""
    return ModelReply(
        content=data["content"],
        tool_calls=tuple(
            ModelToolCall(**call | {"arguments": as_read(call["arguments"])}) for call in data["tool_calls"]
        ),
        usage=TokenUsage(**data["usage"]),
        model=data["model"],
        finish_reason=data["finish_reason"],
        warnings=tuple(data["warnings"]),
        reasoning=data.get("reasoning", ""),
        reasoning_field=data.get("reasoning_field", ""),
    )
