"""The built-in tool that reads on in what was too long: results of the task's own calls, and of those it builds on."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brain.agents.runtime import TaskExecution
from brain.state import ArtifactRecord
from starling.core.artifacts import READ_ARTIFACT, ArtifactStore
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.core.json import JsonObject
from starling.core.llm import ToolSpec
from starling.core.tools import ToolOutcome
from starling.core.tracing import Attributes, SpanKind

READ_ARTIFACT_SPEC: Final = ToolSpec(
    READ_ARTIFACT,
    "Read on in a result that was cut off and kept as an artifact, or find where a text stands in it.",
    {
        "type": "object",
        "properties": {
            "artifact": {"type": "string", "description": "Its id, or the beginning of it; needless if there is one."},
            "offset": {"type": "integer", "minimum": 0, "description": "The character to begin with; 0 by default."},
            "length": {"type": "integer", "minimum": 1, "description": "How many characters; as many as fit without."},
            "find": {"type": "string", "description": "A text to look for from `offset` on, instead of reading."},
        },
        "required": [],
    },
)
_FRAME_CHARS = 200  # for what is said around a part
_CONTEXT_CHARS = 80  # on each side of what was found
_SHORTEST = 8  # beginning of an id that counts


class _ReadRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    artifact: str = ""
    offset: int = Field(default=0, ge=0)
    length: int | None = Field(default=None, ge=1)
    find: str = Field(default="", max_length=1_000)


@dataclass(frozen=True, slots=True)
class ArtifactReader:
    """What one call of the tool may read, and how many characters it may answer with."""

    artifacts: ArtifactStore
    tenant: str
    run_id: str
    visible: Mapping[str, ArtifactRecord]
    room: int

    async def __call__(self, arguments: JsonObject) -> ToolOutcome:
        """Return the part that is asked for, or where a text stands. Failures are outcomes."""
        try:
            wish = _ReadRequest.model_validate(arguments)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            return ToolOutcome("failed", f"The arguments don't fit {READ_ARTIFACT}: {wrong}.", code="invalid_arguments")
        found = self._meant(wish.artifact)
        if found is None:
            return ToolOutcome("failed", self._unknown(wish.artifact), code="invalid_arguments")
        try:
            return ToolOutcome("succeeded", await (self._found(found, wish) if wish.find else self._part(found, wish)))
        except NotFoundError as error:
            return ToolOutcome("failed", str(error), code="removed")
        except DatabaseUnavailableError as error:
            return ToolOutcome("failed", f"It can't be read now. {error.message}", code="tool_error")

    def _meant(self, said: str) -> ArtifactRecord | None:
        if said in self.visible:
            return self.visible[said]
        fits = [record for key, record in self.visible.items() if key.startswith(said)]
        return fits[0] if len(fits) == 1 and (not said or len(said) >= _SHORTEST) else None

    def _unknown(self, said: str) -> str:
        there = "; ".join(f"{key} ({record['name']})" for key, record in self.visible.items())
        return f"{said!r} names none of the artifacts here. They are: {there}."

    async def _part(self, record: ArtifactRecord, wish: _ReadRequest) -> str:
        length, total = min(wish.length or self.room, self.room), record["characters"]
        part = await self.artifacts.part(self.tenant, self.run_id, record["id"], wish.offset, length)
        if not part:
            return f"[artifact {record['id']} has only {total:,} characters: nothing begins at {wish.offset}]"
        end = wish.offset + len(part)
        more = f"; more from offset {end}" if end < total else "; that is its end"
        return f"{part}\n[characters {wish.offset} to {end} of {total:,} of artifact {record['id']}{more}]"

    async def _found(self, record: ArtifactRecord, wish: _ReadRequest) -> str:
        content = await self.artifacts.read(self.tenant, self.run_id, record["id"])
        lines, used = list[str](), 0
        for at, line in _places(content.text, wish.find, wish.offset):
            used += len(line) + 1
            if lines and used > self.room:
                return "\n".join([*lines, f"[more from offset {at} on]"])
            lines.append(line[: self.room])
        if lines:
            return "\n".join([*lines, f"[that is all in artifact {record['id']}]"])
        return f"[{wish.find[:_CONTEXT_CHARS]!r} isn't in artifact {record['id']} from offset {wish.offset} on]"


async def read(work: TaskExecution, arguments: JsonObject | None) -> ToolOutcome:
    """Do what a call of the tool asks for, within the limits of a tool's call."""
    if arguments is None:
        return ToolOutcome("failed", "The arguments weren't a JSON object.", code="invalid_arguments")
    context = work.context
    room = max(_FRAME_CHARS, context.limits.tool_result_chars - _FRAME_CHARS)
    reading = ArtifactReader(context.artifacts, context.run.tenant, context.run.id, work.artifacts, room)
    with context.tracer.span(f"execute_tool {READ_ARTIFACT}", SpanKind.TOOL, lambda: _asked(arguments)) as span:
        try:
            async with asyncio.timeout(context.deadline.cap(context.limits.tool_call_seconds)):
                outcome = await reading(arguments)
        except TimeoutError:
            outcome = ToolOutcome("failed", "Reading took too long.", code="timeout")
        span.set(lambda: {"starling.status": outcome.status, "output": outcome.text})
    return outcome


def _asked(arguments: JsonObject) -> Attributes:
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": READ_ARTIFACT, "input": arguments}


def _places(text: str, wanted: str, offset: int) -> Iterator[tuple[int, str]]:
    """Yield where a text stands, upper or lower case, and a line that shows it with what is around it."""
    for match in re.compile(re.escape(wanted), re.IGNORECASE).finditer(text, offset):
        start, end = max(0, match.start() - _CONTEXT_CHARS), match.end() + _CONTEXT_CHARS
        yield match.start(), f"{match.start()}: {json.dumps(text[start:end], ensure_ascii=False)}"
