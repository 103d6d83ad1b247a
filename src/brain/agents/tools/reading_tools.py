"""The built-in tools `read_artifact` and `read_resource`, which read what earlier results left out."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import Field, ValidationError

from brain.agents.tools.toolbox import Toolbox, not_made
from brain.agents.turn.agent_runtime import TaskExecution
from brain.state import ArtifactRecord
from starling.core.artifacts import READ_ARTIFACT, ArtifactStore
from starling.core.closed_document import ClosedDocument
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.core.json import JsonObject
from starling.core.llm import ToolSpec
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import READ_RESOURCE, ToolCall, ToolOutcome
from starling.core.tracing import SpanKind, Tracer

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
_FRAME_CHARS = 200  # for the note around a part
_CONTEXT_CHARS = 80  # on each side of a match
_SHORTEST_PREFIX = 8  # of an id


class _ArtifactRequest(ClosedDocument):
    artifact: str = ""
    offset: int = Field(default=0, ge=0)
    length: int | None = Field(default=None, ge=1)
    find: str = Field(default="", max_length=1_000)


@dataclass(frozen=True, slots=True)
class ArtifactTool:
    """Answers calls of `read_artifact` within the limits of a tool call."""

    artifacts: ArtifactStore
    limits: Limits
    tracer: Tracer

    async def call(self, execution: TaskExecution, arguments: JsonObject | None) -> ToolOutcome:
        """Return the part that is asked for, or the places of a text. Failures are outcomes."""
        if arguments is None:
            return not_made("The arguments weren't a JSON object.")
        run, budget = execution.context.run, execution.context.budget
        room = max(_FRAME_CHARS, self.limits.tool_result_chars - _FRAME_CHARS)
        reader = _Reader(self.artifacts, run.tenant, run.id, execution.artifacts, execution.cut_results, room)
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": READ_ARTIFACT, "input": arguments}
        with self.tracer.span(f"execute_tool {READ_ARTIFACT}", SpanKind.TOOL, lambda: attributes) as span:
            try:
                async with asyncio.timeout(budget.deadline.cap(self.limits.tool_call_seconds)):
                    outcome = await reader.read(arguments)
            except TimeoutError:
                outcome = ToolOutcome(Observation.TIMED_OUT, "Reading took too long.", code="timeout")
            span.set(lambda: {"starling.status": outcome.status, "output": outcome.text})
        return outcome


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads in the artifacts that one task may see, and in `results`; an answer has at most `room` characters."""

    artifacts: ArtifactStore
    tenant: str
    run_id: str
    visible: Mapping[str, ArtifactRecord]
    results: Mapping[str, str]
    room: int

    async def read(self, arguments: JsonObject) -> ToolOutcome:
        try:
            request = _ArtifactRequest.model_validate(arguments)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            return not_made(f"The arguments don't fit {READ_ARTIFACT}: {wrong}.")
        name = request.artifact
        readable = {key: record for key, record in self.visible.items() if name or record["characters"]}
        fits = [record for key, record in readable.items() if key.startswith(name)]
        is_clear = len(fits) == 1 and (not name or len(name) >= _SHORTEST_PREFIX)
        record = self.visible.get(name) or (fits[0] if is_clear else None)
        if record is None:
            known = "; ".join(f"{key} ({record['name']})" for key, record in self.visible.items())
            return not_made(f"{name!r} names none of the artifacts here. They are: {known}.")
        if not record["characters"]:
            return not_made(f"Artifact {record['id']} of {record['name']} is binary: it has no text to read.")
        try:
            text = await (self._matches(record, request) if request.find else self._part(record, request))
        except NotFoundError as error:
            return ToolOutcome(Observation.TOOL_ERROR, str(error), code="removed")
        except DatabaseUnavailableError as error:
            return ToolOutcome(Observation.TOOL_ERROR, f"It can't be read now. {error.message}", code="tool_error")
        return ToolOutcome(Observation.COMPLETED, text)

    async def _part(self, record: ArtifactRecord, request: _ArtifactRequest) -> str:
        length, total = min(request.length or self.room, self.room), record["characters"]
        if (result := self.results.get(record["id"])) is not None:
            part = result[request.offset : request.offset + length]
        else:
            part = await self.artifacts.part(self.tenant, self.run_id, record["id"], request.offset, length)
        if not part:
            return f"[artifact {record['id']} has only {total:,} characters: nothing begins at {request.offset}]"
        end = request.offset + len(part)
        more = f"; more from offset {end}" if end < total else "; that is its end"
        return f"{part}\n[characters {request.offset} to {end} of {total:,} of artifact {record['id']}{more}]"

    async def _matches(self, record: ArtifactRecord, request: _ArtifactRequest) -> str:
        if (text := self.results.get(record["id"])) is None:
            text = (await self.artifacts.read(self.tenant, self.run_id, record["id"])).content.decode()
        lines, used = list[str](), 0
        wanted = re.compile(re.escape(request.find), re.IGNORECASE)
        for match in wanted.finditer(text, request.offset):
            start, end = max(0, match.start() - _CONTEXT_CHARS), match.end() + _CONTEXT_CHARS
            line = f"{match.start()}: {json.dumps(text[start:end], ensure_ascii=False)}"
            used += len(line) + 1
            if lines and used > self.room:
                return "\n".join([*lines, f"[more from offset {match.start()} on]"])
            lines.append(line[: self.room])
        if lines:
            return "\n".join([*lines, f"[that is all in artifact {record['id']}]"])
        return f"[{request.find[:_CONTEXT_CHARS]!r} isn't in artifact {record['id']} from offset {request.offset} on]"


READ_RESOURCE_SPEC: Final = ToolSpec(
    READ_RESOURCE,
    "Read a resource that a result above names as [resource …], from the server that named it.",
    {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "Its address, exactly as the result has it."}},
        "required": ["uri"],
    },
)


class _ResourceRequest(ClosedDocument):
    uri: str = Field(min_length=1, max_length=10_000)


def reading_tools(execution: TaskExecution, toolbox: Toolbox) -> tuple[ToolSpec, ...]:
    """Return the built-in tools that read what earlier results left out; those that have nothing to read are not shown.

    A server's own tool of the name `read_resource` is what its agent gets.
    """
    found = (READ_ARTIFACT_SPEC,) if any(one["characters"] for one in execution.artifacts.values()) else ()
    return (*found, READ_RESOURCE_SPEC) if offers_resources(execution, toolbox) else found


def offers_resources(execution: TaskExecution, toolbox: Toolbox) -> bool:
    """Whether there is a link to follow, and the name of the tool means nothing else."""
    return bool(execution.links) and READ_RESOURCE not in toolbox.tools


def resource_call(
    execution: TaskExecution, place: tuple[int, int], arguments: JsonObject | None
) -> ToolCall | ToolOutcome:
    """Return the read of a linked resource, on behalf of the tool that linked it, or why there is none.

    `place` is the position of the answer that asks for it, and the index of the call in it.
    """
    try:
        uri = _ResourceRequest.model_validate(arguments).uri
    except ValidationError:
        return not_made(f"{READ_RESOURCE} takes a `uri`, as a result has it.")
    linking = next((tool for tool in execution.card.tools if tool.full_name == execution.links.get(uri)), None)
    if linking is None:
        known = ", ".join(execution.links)
        return not_made(f"No result of this task names the resource {uri!r}. Named are: {known}.")
    reading = linking.reading()
    assert reading.effect is Effect.READ
    return replace(execution.tool_call(reading, {"uri": uri}, *place), resource=uri)
