"""Sessions of the console: links that begin them, what they may do, and when they end; and the console's files."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import func, select, update

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.http.authentication import open_access_control
from starling.app.http.routes import console
from starling.app.services import Services
from starling.core.principal import HOST_ADMIN, Grant, Scope
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.tables.access import console_sessions
from tests.support.http_app import make_app
from tests.support.local_access import TOKEN

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMIN = Actor.local("test")
CODES, SESSIONS, SESSION = "/v1/console/codes", "/v1/console/sessions", "/v1/console/session"


@dataclass(frozen=True, slots=True)
class Door:
    """An application, and what is behind it."""

    app: FastAPI
    services: Services

    async def key(self, *scopes: Scope, grant: Grant | None = None, lifetime: timedelta | None = None) -> str:
        spec = KeySpec("ci", "default", frozenset(scopes), grant, lifetime)
        return (await self.services.storage.keys.create(HOST_ADMIN, spec, ADMIN))[1]

    async def ask(self, method: str, path: str, bearer: str = "", **more: object) -> httpx.Response:
        """Send a request from this machine."""
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 40_000))
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers) as client:
            return await client.request(method, path, **more)  # pyright: ignore[reportArgumentType]

    async def code(self, bearer: str = TOKEN) -> str:
        answer = await self.ask("POST", CODES, bearer)
        assert answer.status_code == 201, answer.text
        return answer.json()["code"]

    async def session(self, bearer: str = TOKEN) -> str:
        answer = await self.ask("POST", SESSIONS, json={"code": await self.code(bearer)})
        assert answer.status_code == 201, answer.text
        return answer.json()["token"]

    async def pass_time(self, kind: str, time: timedelta) -> None:
        """Have time pass for codes or sessions."""
        of_kind = update(console_sessions).where(console_sessions.c.kind == kind)
        async with self.services.storage.engine.begin() as connection:
            await connection.execute(of_kind.values(expires_at=console_sessions.c.expires_at - time))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(module_database_url: str) -> AsyncGenerator[Door]:
    settings = Settings(database_url=SecretStr(module_database_url), rate_per_minute=100_000)
    async with (
        open_services(settings, Database(module_database_url, module_database_url)) as services,
        open_access_control(settings, services.storage.keys, TOKEN) as access,
    ):
        yield Door(make_app(services, "test", access), services)


async def test_session_may_do_what_its_key_may_and_nothing_else(door: Door) -> None:
    token = await door.session(await door.key(Scope.RUN))

    who = (await door.ask("GET", SESSION, token)).json()
    assert (who["tenant"], who["scopes"], who["name"], who["on_host"]) == ("default", ["run"], "ci", False)
    assert (await door.ask("GET", "/v1/runs", token)).status_code == 200
    assert (await door.ask("GET", "/v1/keys", token)).status_code == 403


async def test_session_of_the_local_token_is_that_of_the_machines_admin(door: Door) -> None:
    token = await door.session()

    assert (await door.ask("GET", SESSION, token)).json()["on_host"]
    assert (await door.ask("GET", "/v1/audit", token)).status_code == 200
    forwarded = await door.ask("GET", "/v1/runs", token, headers={"X-Forwarded-For": "203.0.113.7"})
    assert forwarded.status_code == 401


async def test_local_token_lists_changes_of_requests_and_of_commands(door: Door) -> None:
    await door.key(Scope.RUN)
    await door.ask("PUT", "/v1/switches", TOKEN, json={"kind": "server", "name": "shop", "reason": "It is closed."})

    changes = (await door.ask("GET", "/v1/audit", TOKEN)).json()["changes"]

    assert [(one["action"], one["origin"]) for one in changes[:2]] == [
        ("switch.off", "127.0.0.1"),
        ("key.create", "test"),
    ]


async def test_code_begins_one_session_within_sixty_seconds(door: Door) -> None:
    used, late = await door.code(), await door.code()
    assert (await door.ask("POST", SESSIONS, json={"code": used})).status_code == 201
    assert (await door.ask("POST", SESSIONS, json={"code": used})).status_code == 401

    await door.pass_time("code", timedelta(seconds=60))
    refused = await door.ask("POST", SESSIONS, json={"code": late})
    assert (refused.status_code, "older than 60 seconds" in refused.text) == (401, True)


async def test_session_ends_after_twelve_hours(door: Door) -> None:
    token = await door.session()

    await door.pass_time("session", timedelta(hours=11, minutes=59))
    assert (await door.ask("GET", SESSION, token)).status_code == 200
    await door.pass_time("session", timedelta(minutes=1))

    assert (await door.ask("GET", SESSION, token)).status_code == 401


async def test_session_prolongs_itself_by_no_other_one(door: Door) -> None:
    refused = await door.ask("POST", CODES, await door.session())

    assert (refused.status_code, refused.json()["detail"]) == (403, "A session can't begin another one.")


async def test_session_names_its_own_end_or_that_of_its_key_which_is_first(door: Door) -> None:
    short = await door.key(Scope.RUN, lifetime=timedelta(hours=1))
    tokens = await door.session(), await door.session(short), short
    ends = [datetime.fromisoformat((await door.ask("GET", SESSION, token)).json()["expires_at"]) for token in tokens]

    assert timedelta(hours=10, minutes=59) < ends[0] - ends[1] < timedelta(hours=11, minutes=1)
    assert ends[1] == ends[2]


async def test_session_ends_with_its_key_and_leaves_other_sessions(door: Door) -> None:
    key, other = await door.key(Scope.RUN), await door.session(await door.key(Scope.RUN))
    token = await door.session(key)
    key_id = (await door.ask("GET", SESSION, token)).json()["key_id"]

    await door.services.storage.keys.revoke(HOST_ADMIN, key_id, ADMIN)
    door.services.storage.keys._found.clear()  # pyright: ignore[reportPrivateUsage] - what two seconds forget

    assert (await door.ask("GET", SESSION, token)).status_code == 401
    assert (await door.ask("GET", SESSION, other)).status_code == 200


async def test_session_that_is_ended_is_refused_and_its_key_goes_on(door: Door) -> None:
    key = await door.key(Scope.RUN)
    token = await door.session(key)

    assert (await door.ask("DELETE", SESSION, token)).status_code == 204

    assert (await door.ask("GET", SESSION, token)).status_code == 401
    assert (await door.ask("GET", SESSION, key)).status_code == 200


async def test_only_hashes_are_stored_and_ended_rows_are_deleted(door: Door) -> None:
    token, code = await door.session(), await door.code()
    await door.pass_time("session", timedelta(days=1))
    await door.code()

    async with door.services.storage.engine.connect() as connection:
        rows = (await connection.execute(select(console_sessions))).all()
        kept = await connection.scalar(select(func.count()).where(console_sessions.c.kind == "session"))
    assert token not in repr(rows)
    assert code not in repr(rows)
    assert kept == 0


async def test_request_without_a_key_begins_no_session(door: Door, module_database_url: str) -> None:
    assert (await door.ask("POST", CODES)).status_code in (401, 403)
    assert (await door.ask("POST", SESSIONS, json={"code": ""})).status_code == 401


async def test_file_is_sent_with_a_strict_policy_and_every_other_address_is_a_page(
    door: Door, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("console")
    (folder / "assets").mkdir()
    (folder / "index.html").write_text("<title>Starling</title>")
    (folder / "assets" / "main-abc.js").write_text("1")
    (folder.parent / "secret").write_text("secret")
    monkeypatch.setattr(console._FILES, "directory", folder)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(console._FILES, "all_directories", [folder])  # pyright: ignore[reportPrivateUsage]

    page = await door.ask("GET", "/console/runs/1")
    asset = await door.ask("GET", "/console/assets/main-abc.js")
    outside = await door.ask("GET", "/console/..%2f..%2fsecret")

    assert page.text == outside.text == "<title>Starling</title>"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Cache-Control"] == "no-cache"
    assert "immutable" in asset.headers["Cache-Control"]
    assert (await door.ask("GET", "/console/assets/gone.js")).status_code == 404


async def test_checkout_that_was_not_built_says_how(
    door: Door, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    monkeypatch.setattr(console._FILES, "directory", empty)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(console._FILES, "all_directories", [empty])  # pyright: ignore[reportPrivateUsage]

    answer = await door.ask("GET", "/console/")

    assert (answer.status_code, "make console" in answer.text) == (404, True)
