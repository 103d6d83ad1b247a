"""Requests that the API refuses, and the problem that it returns."""

import asyncio
import io
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOBODYS = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
GOOD = {"input": "hello", "thread_id": "t"}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "body.input"),
        ({"input": "x"}, "body.thread_id"),
        (GOOD | {"input": ""}, "body.input"),
        (GOOD | {"thread_id": ""}, "body.thread_id"),
        (GOOD | {"thread_id": "a\nb"}, "body.thread_id"),
        (GOOD | {"thread_id": "x" * 201}, "body.thread_id"),
        (GOOD | {"nonsense": 1}, "body.nonsense"),
        (GOOD | {"config": {"mode": "BOLD"}}, "body.config.mode"),
        (GOOD | {"config": {"agent": "no name"}}, "body.config.agent"),
        (GOOD | {"config": {"reflect": False}}, "body.config.reflect"),
        (GOOD | {"config": {"replan": "often"}}, "body.config.replan"),
        (GOOD | {"config": {"limits": {"run_seconds": 0}}}, "body.config.limits.run_seconds"),
    ],
)
async def test_refusal_of_an_invalid_request_names_the_field(api: LiveApi, body: dict[str, Any], where: str) -> None:
    async with api.client.post("/v1/agent/run", json=body) as response:
        problem = await response.json()

    assert response.status == 422
    assert response.content_type == "application/problem+json"
    assert where in [error["where"] for error in problem["errors"]]


async def test_refusal_lists_each_wrong_field_with_its_reason(api: LiveApi) -> None:
    body = {"input": "", "nonsense": 1, "config": {"limits": {"tool_iterations": "many", "run_seconds": 0}}}
    problem = await api.post("/v1/agent/run", json=body, status=422)

    assert set(problem["detail"].split("; ")) == {
        "body.input: must not be empty",
        "body.thread_id: is missing",
        "body.nonsense: there is no such field",
        "body.config.limits.tool_iterations: must be a whole number",
        "body.config.limits.run_seconds: must be greater than 0",
    }
    assert {error["what"] for error in problem["errors"]} >= {"is missing", "there is no such field"}


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/runs", "GET, POST"),
        ("/v1/switches", "DELETE, GET, PUT"),
        (f"/v1/runs/{NOBODYS}", "GET"),
        (f"/v1/runs/{NOBODYS}/cancel", "POST"),
        ("/v1/registry/reload", "POST"),
        ("/health", "GET"),
    ],
)
async def test_unsupported_method_is_refused_with_the_allowed_methods(api: LiveApi, path: str, methods: str) -> None:
    async with api.client.request("PATCH", path) as response:
        problem = await response.json()

    assert (response.status, response.headers["Allow"]) == (405, methods)
    assert (problem["status"], problem["code"]) == (405, "http")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b'{"input": "x", }', "is not JSON: "),  # Pythons differ in what follows
        (b'{"input": "\xff"}', "is not JSON: 'utf-8' codec can't decode"),
        (b'{"input": ' + b"9" * 5_000 + b"}", "is not JSON: Exceeds the limit"),
        (b"1," * 1_000, "is not JSON: "),
        ('{"input": "x"}'.encode("utf-16"), "is not JSON: it has NUL bytes"),
    ],
)
async def test_body_that_is_not_json_is_refused_with_the_reason(api: LiveApi, body: bytes, what: str) -> None:
    problem = await api.post("/v1/runs", data=body, headers={"content-type": "application/json"}, status=422)

    assert (problem["code"], problem["title"]) == ("invalid_request", "Invalid request")
    assert problem["errors"][0]["where"] == "body"
    assert problem["errors"][0]["what"].startswith(what)


async def test_body_with_too_many_levels_is_refused_with_the_limit(api: LiveApi) -> None:
    headers = {"content-type": "application/json"}
    problem = await api.post("/v1/runs", data=b"[" * 65, headers=headers, status=413)

    assert problem["code"] == "http"
    assert "The body has more than 64 levels of lists and objects" in problem["detail"]


async def test_json_sent_as_a_form_is_refused_with_the_content_type_to_send(api: LiveApi) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}  # what curl -d says of itself
    async with api.client.post("/v1/runs", data=json.dumps(GOOD).encode(), headers=form) as response:
        problem = await response.json()

    assert response.status == 422
    assert problem["detail"] == "The body was sent as application/x-www-form-urlencoded."
    assert "`content-type: application/json`" in problem["remedy"]


@pytest.mark.parametrize("announced", [True, False])
async def test_body_over_the_limit_is_refused_before_it_is_read_completely(api: LiveApi, *, announced: bool) -> None:
    body = b'{"input": "' + b"x" * 9_000_000 + b'"}'

    async def in_pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    headers = {"content-type": "application/json"}
    async with api.client.post(
        "/v1/runs", data=io.BytesIO(body) if announced else in_pieces(), headers=headers
    ) as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (413, "http")
    assert "The body has more than 1572864 bytes" in problem["detail"]
    assert "limits.input_chars" in problem["remedy"]


async def test_blank_input_is_refused(api: LiveApi) -> None:
    assert (await api.post("/v1/agent/run", json=GOOD | {"input": " \n "}, status=422))["code"] == "invalid_request"


async def test_input_over_the_maximum_length_is_refused(api: LiveApi) -> None:
    assert "100000" in (await api.post("/process", json=GOOD | {"input": "x" * 100_001}, status=422))["detail"]


async def test_unknown_run_is_not_found(api: LiveApi) -> None:
    problem = await api.get("/v1/runs/01a1f879-6f4e-7816-b2b9-746eb484f8a0/events", status=404)

    assert (problem["code"], problem["title"]) == ("not_found", "Not found")
    assert "GET /v1/runs" in problem["remedy"]


async def test_invalid_run_id_is_refused(api: LiveApi) -> None:
    await api.get("/v1/runs/not-a-run/events", status=422)


async def test_unknown_path_is_answered_with_a_problem_document(api: LiveApi) -> None:
    async with api.client.get("/v2/nothing") as response:
        assert response.status == 404
        assert response.content_type == "application/problem+json"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Host": "[::1"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"X-Forwarded-For": "203.0.113.7"},
        {"X-Forwarded-Server": "proxy.example"},
        {"Via": "1.1 proxy.example"},
        {"Forwarded": "for=203.0.113.7"},
    ],
)
async def test_request_without_a_key_that_is_not_from_this_machine_is_refused(
    api: LiveApi, headers: dict[str, str]
) -> None:
    async with api.client.post("/v1/agent/run", json=GOOD, headers=headers) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await response.json())["code"] == "unauthorized"


async def test_refusal_of_a_forwarded_request_names_the_proxy(api: LiveApi) -> None:
    problem = await api.post("/process", json=GOOD, headers={"X-Forwarded-For": "203.0.113.7"}, status=401)

    assert "the request came through a proxy" in problem["detail"]


async def test_http_1_0_request_without_a_key_is_refused(api: LiveApi) -> None:
    """It puts our own address into `Host`, and no header of its own."""
    address = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)

    writer.write(f"GET /v1/registry HTTP/1.0\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()

    assert b" 401 " in answer.partition(b"\r\n")[0]
    assert b"HTTP/1.0" in answer
