"""Artifacts over HTTP."""

import hashlib
from typing import Any

import aiohttp
import pytest
from psycopg import AsyncConnection

from starling.core.artifacts import ArtifactOrigin
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

POEM = "<script>alert(1)</script>\n" + "λ and so on\n" * 2_000


async def run_with(api: LiveApi, *contents: tuple[str | bytes, str]) -> tuple[str, list[str]]:
    """Return a run and the ids of what is kept of it, one for each call."""
    events = await api.ask("Say hello.")
    run = events[0].data["run_id"]
    kept: list[str] = []
    for index, (content, media_type) in enumerate(contents):
        sent = content.encode() if isinstance(content, str) else content
        origin = ArtifactOrigin(DEFAULT_TENANT, run, f"t1.0.{index}", "poet.recite")
        found = await api.services.storage.artifacts.put(origin, sent, media_type)
        assert isinstance(found, str)
        kept.append(found)
    return run, kept


async def get(api: LiveApi, path: str, **headers: str) -> tuple[aiohttp.ClientResponse, bytes]:
    async with api.client.get(path, headers=headers) as response:
        return response, await response.read()


async def test_artifacts_of_a_run_are_listed_with_their_calls(api: LiveApi) -> None:
    run, (poem, _, table) = await run_with(
        api, (POEM, "text/plain"), (POEM, "text/plain"), ('{"rows":[1]}', "application/json")
    )

    listed: list[dict[str, Any]] = (await api.get(f"/v1/runs/{run}/artifacts"))["artifacts"]

    assert [(item["id"], item["call_id"]) for item in listed] == [
        (poem, "t1.0.0"),
        (poem, "t1.0.1"),
        (table, "t1.0.2"),
    ]
    first, _, last = listed
    assert (first["name"], first["media_type"], first["bytes"]) == ("poet.recite", "text/plain", len(POEM.encode()))
    assert (first["characters"], last["media_type"]) == (len(POEM), "application/json")


async def test_artifact_is_returned_unchanged_as_an_attachment(api: LiveApi) -> None:
    run, (poem, table) = await run_with(api, (POEM, "text/plain"), ('{"rows":[1]}', "application/json"))

    response, body = await get(api, f"/v1/runs/{run}/artifacts/{poem}")
    other, rows = await get(api, f"/v1/runs/{run}/artifacts/{table}")

    assert (response.status, body.decode(), rows) == (200, POEM, b'{"rows":[1]}')
    assert hashlib.sha256(body).hexdigest() == poem
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert other.headers["Content-Type"] == "application/json"
    assert response.headers["Content-Disposition"] == f'attachment; filename="{poem[:12]}.txt"'
    assert other.headers["Content-Disposition"] == f'attachment; filename="{table[:12]}.json"'
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response.headers["Content-Security-Policy"]
    assert response.headers["Cache-Control"] == "private, max-age=31536000, immutable"


PNG, JPEG, WEBP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\0", b"RIFF\0\0\0\0WEBP"


@pytest.mark.parametrize(
    ("content", "media_type", "disposition"),
    [
        (PNG, "image/png", "inline; png"),
        (JPEG, "image/jpeg", "inline; jpg"),
        (b"GIF89a\0", "image/gif", "inline; gif"),
        (WEBP, "image/webp", "inline; webp"),
        (b"<svg/>\0", "image/png", "attachment; png"),
        (b"<svg/>", "image/svg+xml", "attachment; bin"),
        (b"<script>\xff", "text/html", "attachment; bin"),
        (b"GIF89a of text", "text/plain; charset=utf-8", "attachment; txt"),
        (b"RIFF\0\0\0\0WAVE", "audio/wav", "attachment; wav"),
    ],
)
async def test_only_what_is_an_image_is_shown_inline(
    api: LiveApi, content: bytes, media_type: str, disposition: str
) -> None:
    run, (key,) = await run_with(api, (content, media_type.partition(";")[0]))

    response, body = await get(api, f"/v1/runs/{run}/artifacts/{key}")

    shown, ending = disposition.split("; ")
    assert (body, response.headers["Content-Type"]) == (content, media_type)
    assert response.headers["Content-Disposition"] == f'{shown}; filename="{key[:12]}.{ending}"'
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    ("written", "status"), [('"{}"', 304), ('W/"{}"', 304), ('"x", "{}"', 304), ("*", 304), ('"x"', 200)]
)
async def test_artifact_with_a_matching_etag_is_not_sent_again(api: LiveApi, written: str, status: int) -> None:
    run, (poem,) = await run_with(api, (POEM, "text/plain"))

    response, body = await get(api, f"/v1/runs/{run}/artifacts/{poem}", **{"If-None-Match": written.format(poem)})

    assert (response.status, bool(body)) == (status, status == 200)
    assert response.headers["ETag"] == f'"{poem}"'


async def test_artifact_is_found_through_its_own_run_only(api: LiveApi) -> None:
    run, (poem,) = await run_with(api, (POEM, "text/plain"))
    other, _ = await run_with(api)

    missing = [
        await get(api, path, **{"If-None-Match": f'"{poem}"'})
        for path in (
            f"/v1/runs/{other}/artifacts/{poem}",
            f"/v1/runs/{new_id()}/artifacts/{poem}",
            f"/v1/runs/{run}/artifacts/{'0' * 64}",
            f"/v1/runs/{new_id()}/artifacts",
        )
    ]
    malformed, _ = await get(api, f"/v1/runs/{run}/artifacts/..%2f{poem}")
    short, _ = await get(api, f"/v1/runs/{run}/artifacts/{poem[:12]}")
    _, listed = await get(api, f"/v1/runs/{other}/artifacts")

    assert [response.status for response, _ in missing] == [404] * 4
    assert (malformed.status in (404, 422), short.status) == (True, 422)
    assert listed == b'{"artifacts":[]}'


async def test_pruned_artifact_is_not_found(api: LiveApi, module_database_url: str) -> None:
    run, (poem,) = await run_with(api, ("pruned " * 3_000, "text/plain"))
    async with await AsyncConnection.connect(module_database_url) as connection:
        await connection.execute("DELETE FROM run_artifacts WHERE run_id = %s", [run])

    response, body = await get(api, f"/v1/runs/{run}/artifacts/{poem}")

    assert response.status == 404
    assert b"There is no artifact" in body
