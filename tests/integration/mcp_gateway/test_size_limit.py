"""What is too long for a model is cut, and the whole of it is kept for its run, as what is binary."""

import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from mcp_gateway.connections import connect
from mcp_gateway.gateway import Gateway
from mcp_gateway.registration.repository import ServerRepository
from starling.core.artifacts import ArtifactStore, artifact_id
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.json import canonical
from starling.core.settings.schema import Limits
from starling.core.tools import ServerListing, ToolCall, ToolOutcome
from starling.infra.postgres.artifacts import PostgresArtifacts, Quota
from starling.infra.postgres.engine import open_engine
from tests.support.absent_services import open_gateway
from tests.support.gateway_harness import SERVERS, GatewayHarness, listed, python
from tests.support.in_memory_run import make_execution
from tests.support.mcp_servers.verbose import picture, poem, rows

LIMIT = 1_000
PLENTY = Quota(2**20, 2**22)


@dataclass
class Talk:
    """Calls of the verbose server, made for one run."""

    gateway: Gateway
    listing: ServerListing
    artifacts: ArtifactStore
    run: str

    async def __call__(self, tool: str, lines: int, *, seconds: float = 20, wanted: str = "") -> ToolOutcome:
        definition = next(found for found in self.listing.tools if found.name == tool)
        record = make_execution().context.ledger  # that of a run
        call = ToolCall(f"t1.0.{lines}", self.run, "t1", definition, {"lines": lines}, wanted=wanted)
        return await self.gateway.call(call, Deadline(SystemClock(), seconds), record)

    async def whole(self, outcome: ToolOutcome) -> tuple[str, str]:
        """Return the media type and the text of what was kept."""
        content = await self.artifacts.read("default", self.run, outcome.artifact)
        text = content.content.decode()
        assert outcome.characters == len(text)
        return content.media_type, text


async def talk_of(harness: GatewayHarness, artifacts: ArtifactStore) -> AsyncGenerator[Talk]:
    limits, repository = Limits(tool_result_chars=LIMIT), ServerRepository(harness.engine)
    async with open_gateway(repository, connect, limits, harness.environment, artifacts=artifacts) as gateway:
        config = python(SERVERS / "verbose.py", str(harness.record), effect="read")
        yield Talk(gateway, await listed(gateway, config), artifacts, new_id())


@pytest.fixture
async def talk(harness: GatewayHarness, engine: AsyncEngine) -> AsyncGenerator[Talk]:
    async for talk in talk_of(harness, PostgresArtifacts(engine, PLENTY)):
        yield talk


async def test_long_text_is_cut_at_the_offset_where_its_artifact_continues(talk: Talk) -> None:
    outcome = await talk("recite", 500)

    end = outcome.text.index("\n[cut off")
    assert (outcome.status, outcome.truncated) == ("succeeded", True)
    assert len(outcome.text) <= LIMIT
    assert await talk.whole(outcome) == ("text/plain", poem(500))
    assert poem(500).startswith(outcome.text[:end])
    assert outcome.text[end:] == (
        f"\n[cut off: the whole result has {len(poem(500)):,} characters; it is artifact {outcome.artifact},"
        f" and read_artifact reads on from offset {end}]"
    )
    (listed,) = await talk.artifacts.of_run("default", talk.run)
    assert (listed.id, listed.name, listed.call_id) == (outcome.artifact, "a.recite", "t1.0.500")


@pytest.mark.parametrize(
    ("tool", "wanted", "item"),
    [
        ("recite", "What is on line 00321?", "\nline 00321: and so on\n"),
        ("tabulate", "Which number has row 321?", '{"name":"row 321","number":321}'),
        ("render", "Which number has row 321?", '{\n      "number": 321,\n      "name": "row 321"\n    }'),
        ("mix", "Which number has row 321?", '{"name":"row 321","number":321}'),
    ],
)
async def test_long_result_is_fitted_to_what_the_call_is_made_for(
    talk: Talk, tool: str, wanted: str, item: str
) -> None:
    outcome = await talk(tool, 500, wanted=wanted)

    _, whole = await talk.whole(outcome)
    assert len(outcome.text) <= LIMIT
    assert item in outcome.text
    assert outcome.text.endswith(
        f"\n[parts are left out: the whole result has {len(whole):,} characters; it is artifact {outcome.artifact},"
        " and read_artifact reads on from the offset of a gap]"
    )
    count, offset = re.findall(r"\[left out: [\d,]+ items?, ([\d,]+) characters from ([\d,]+) on\]", outcome.text)[0]
    begin, end = int(offset.replace(",", "")), int(offset.replace(",", "")) + int(count.replace(",", ""))
    assert f"{whole[:begin]}\n[left out" in outcome.text or f"{whole[:begin]}[left out" in outcome.text
    assert f"on]\n{whole[end : end + 10]}" in outcome.text


async def test_result_within_the_limit_is_unchanged_and_has_no_artifact(talk: Talk) -> None:
    outcomes = [await talk("recite", 3), await talk("tabulate", 3), await talk("repeat", 3)]

    assert [(outcome.truncated, outcome.artifact) for outcome in outcomes] == [(False, "")] * 3
    assert outcomes[1].data == rows(3)
    assert await talk.artifacts.of_run("default", talk.run) == []


async def test_long_structured_content_is_kept_as_canonical_json(talk: Talk) -> None:
    outcome = await talk("tabulate", 200)

    assert outcome.data is None
    assert outcome.text.startswith("200 rows\n[left out: structured content of ")
    assert outcome.text.endswith(f"; it is artifact {outcome.artifact}, and read_artifact reads on from offset 0]")
    assert await talk.whole(outcome) == ("application/json", canonical(rows(200)))


async def test_data_repeated_in_the_text_is_stored_once(talk: Talk) -> None:
    repeated, rendered = await talk("repeat", 500), await talk("render", 200)

    assert await talk.whole(repeated) == ("text/plain", poem(500))
    assert await talk.whole(rendered) == ("application/json", json.dumps(rows(200), indent=2))
    assert repeated.data is rendered.data is None


async def test_too_long_data_that_the_text_repeats_needs_no_artifact(talk: Talk) -> None:
    lines = 44
    assert len(poem(lines)) <= LIMIT < len(canonical({"result": poem(lines)}))

    outcome = await talk("repeat", lines)

    assert (outcome.text, outcome.data, outcome.truncated, outcome.artifact) == (poem(lines), None, True, "")


async def test_artifact_of_text_and_different_data_holds_both(talk: Talk) -> None:
    outcome = await talk("mix", 300)

    assert await talk.whole(outcome) == ("text/plain", f"{poem(300)}\n\n{canonical(rows(300))}")


async def test_characters_that_postgres_cannot_store_are_replaced_in_the_artifact(talk: Talk) -> None:
    outcome = await talk("garble", 300)

    assert await talk.whole(outcome) == ("text/plain", "a\N{REPLACEMENT CHARACTER}b \N{REPLACEMENT CHARACTER} " * 300)


async def test_long_error_text_is_stored_as_an_artifact(talk: Talk) -> None:
    outcome = await talk("fail", 500)

    assert (outcome.status, outcome.code) == ("failed", "tool_error")
    assert await talk.whole(outcome) == ("text/plain", poem(500))


@pytest.mark.parametrize("size", [100, 400_000])  # a message that is read here, and one that a process reads
async def test_image_in_a_result_is_kept_and_named_in_its_place(talk: Talk, size: int) -> None:
    outcome = await talk("draw", size)

    image = artifact_id(picture(size))
    assert outcome.text == f"drawn\n[image, image/png, {size + 8:,} bytes, artifact {image}]"
    assert (outcome.status, outcome.binary_artifacts, outcome.artifact) == ("succeeded", (image,), "")
    content = await talk.artifacts.read("default", talk.run, image)
    assert (content.content, content.media_type) == (picture(size), "image/png")
    (listed,) = await talk.artifacts.of_run("default", talk.run)
    assert (listed.bytes, listed.characters, listed.call_id) == (size + 8, 0, f"t1.0.{size}")


@pytest.mark.parametrize("lines", [1, 40_000])
async def test_binary_parts_that_are_not_what_they_should_be_are_kept_as_they_are(talk: Talk, lines: int) -> None:
    outcome = await talk("lie", lines, wanted="recordings")

    listed = {one.id: one.media_type for one in await talk.artifacts.of_run("default", talk.run)}
    script, broken = artifact_id(b"<script>\0"), artifact_id(b"no base64!" * lines)
    assert (listed[script], listed[broken]) == ("application/octet-stream", "text/plain")
    whole = (await talk.whole(outcome))[1].splitlines()
    assert whole[0] == f"[image, application/octet-stream, declared as image/png, 9 bytes, artifact {script}]"
    assert whole[1].startswith("[audio, text/plain, not base64 as it should be, ")
    assert whole[-1].endswith(", 0 bytes, not kept: a result may have 100]")


async def test_binary_part_that_cannot_be_kept_is_named_with_the_reason(
    harness: GatewayHarness, engine: AsyncEngine
) -> None:
    async for talk in talk_of(harness, PostgresArtifacts(engine, Quota(300, 2**20))):
        outcome = await talk("draw", 400)

        assert (outcome.status, outcome.binary_artifacts) == ("succeeded", ())
        assert outcome.text.endswith("408 bytes, not kept: it has 408 bytes, more than limits.artifact_bytes allows]")


async def test_call_outside_a_run_stores_no_artifact(talk: Talk, engine: AsyncEngine) -> None:
    definition = next(found for found in talk.listing.tools if found.name == "recite")
    call = ToolCall("x", talk.run, "t1", definition, {"lines": 500})

    outcome = await talk.gateway.call(call, Deadline(SystemClock(), 20))

    assert outcome.text.endswith("the rest wasn't kept: no run would read it]")
    assert await talk.artifacts.of_run("default", talk.run) == []


async def test_call_succeeds_once_while_postgres_is_unavailable(harness: GatewayHarness, database_url: str) -> None:
    away = open_engine(f"{database_url.rpartition('@')[0]}@127.0.0.1:1/nowhere")
    async for talk in talk_of(harness, PostgresArtifacts(away, PLENTY, retry_seconds=0.1)):
        outcome = await talk("recite", 500)

        assert (outcome.status, outcome.artifact) == ("succeeded", "")
        assert outcome.text.endswith("; the rest wasn't kept: Postgres couldn't be used]")
    assert harness.recorded() == ["recite 500"]
    await away.dispose()


async def test_call_does_not_wait_for_a_blocked_artifact_store_beyond_its_deadline(
    harness: GatewayHarness, engine: AsyncEngine, database_url: str
) -> None:
    async with engine.connect() as blocker:
        await blocker.exec_driver_sql("LOCK TABLE artifacts")
        async for talk in talk_of(harness, PostgresArtifacts(engine, PLENTY)):
            await talk("recite", 3)  # opens the session
            outcome = await talk("recite", 500, seconds=4)

            assert (outcome.status, outcome.artifact) == ("succeeded", "")
            assert outcome.text.endswith("; the rest wasn't kept: there was no time for it]")
