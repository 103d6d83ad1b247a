"""Errors on the routes that OpenAI's clients call: the status, the headers and the form that these read."""

import json
from typing import Any

import pytest
from starlette.types import Message

from starling.app.http.openai_errors import openai_error
from starling.app.http.problems import problem_of
from starling.core.errors import (
    DrainingError,
    InvalidRequestError,
    RateLimitedError,
    StarlingError,
    UnauthorizedError,
)


async def sent(error: StarlingError, path: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Return the status, the headers and the body that an error is answered with."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    await problem_of(error)({"type": "http", "path": path, "method": "POST"}, receive, send)
    headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], headers, json.loads(messages[1]["body"])


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (UnauthorizedError("No key."), 401, "authentication_error", "invalid_api_key"),
        (RateLimitedError(60, 1.5), 429, "rate_limit_error", "rate_limit_exceeded"),
        (InvalidRequestError("Too long.", "Shorten it."), 400, "invalid_request_error", "invalid_request"),
        (DrainingError("It ends."), 503, "server_error", "draining"),
    ],
)
async def test_errors_have_the_form_of_openai(error: StarlingError, status: int, kind: str, code: str) -> None:
    found, headers, body = await sent(error, "/v1/chat/completions")

    assert (found, headers["content-type"]) == (status, "application/json")
    assert body == {
        "error": {"message": f"{error.message} {error.remedy}".strip(), "type": kind, "param": None, "code": code}
    }


def test_message_has_a_stop_before_the_remedy_and_names_fields_as_clients_do() -> None:
    found = openai_error(422, "body.messages: is missing; body.n: is body.n", "See /docs.", "invalid_request", [])

    assert found.error.message == "messages: is missing; n: is body.n. See /docs."


async def test_headers_of_an_error_are_kept() -> None:
    _, limited, _ = await sent(RateLimitedError(60, 1.5), "/v1/models")
    _, unknown, _ = await sent(UnauthorizedError("No key."), "/v1/responses/resp_1")

    assert limited["Retry-After".lower()] == "2"
    assert unknown["www-authenticate"] == 'Bearer realm="starling"'


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/modelsandmore", "/v1/chat"])
async def test_errors_of_other_routes_are_problems(path: str) -> None:
    status, headers, body = await sent(InvalidRequestError("Too long."), path)

    assert (status, headers["content-type"], body["code"]) == (422, "application/problem+json", "invalid_request")
