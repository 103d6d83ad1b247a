"""Errors as `application/problem+json` (RFC 9457): what was wrong, where, and what to do."""

import asyncio
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, cast

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from starling.app.http.openai_errors import is_for_openai, openai_error, openai_error_event
from starling.core.errors import (
    BacklogFullError,
    ConfigurationError,
    ConflictError,
    DatabaseUnavailableError,
    DatabaseUnsuitableError,
    DrainingError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    QuotaExceededError,
    RateLimitedError,
    ServerUnavailableError,
    StarlingError,
    TooManyWrongKeysError,
    UnauthorizedError,
)
from starling.core.principal import Principal
from starling.core.principal import Scope as KeyScope
from starling.core.teams.spec import TeamInvalidError
from starling.core.validation_errors import MOST_FAULTS, fault_list, fault_text, location_path

PROBLEM_TYPE: Final = "application/problem+json"

_log = logging.getLogger(__name__)
_STATUS: Final[Mapping[type[StarlingError], int]] = {
    UnauthorizedError: 401,
    ForbiddenError: 403,
    RateLimitedError: 429,
    TooManyWrongKeysError: 429,
    BacklogFullError: 429,
    InvalidRequestError: 422,
    NotFoundError: 404,
    ConflictError: 409,
    QuotaExceededError: 409,
    ConfigurationError: 500,
    ServerUnavailableError: 502,
    DatabaseUnavailableError: 503,
    DatabaseUnsuitableError: 503,
    DrainingError: 503,
}
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": 'Bearer realm="starling"'},
    503: {"Retry-After": "1"},
}
_OF_THE_DATABASE: Final = (DatabaseUnavailableError, DatabaseUnsuitableError)
_MOST_CHARS: Final = 10_000  # of a detail or a remedy
_FINAL_SEND_SECONDS: Final = 1.0
_INTERNAL: Final = "An internal error occurred; the log of the server has the details."
_SEND_JSON: Final = "Send JSON in UTF-8, with the header `content-type: application/json`."


class Problem(BaseModel):
    """The body of every error."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    remedy: str = ""
    errors: list[dict[str, Any]] = []


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how a route says that it answers with these errors; `describe` adds what their bodies are."""
    return {status: {} for status in statuses}


class ProblemResponse(JSONResponse):
    """A problem; OpenAI's clients get it as an error of theirs."""

    media_type = PROBLEM_TYPE

    def __init__(self, problem: Problem) -> None:
        super().__init__(jsonable_encoder(problem), problem.status, _HEADERS.get(problem.status))
        self._problem, self.reason = problem, problem.detail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, after a log line if it is a failure. An outage of Postgres is logged where it is noticed."""
        if self.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            code = self._problem.code
            quiet = code == DatabaseUnavailableError.code or (code == DrainingError.code and scope["path"] == "/ready")
            more = {"method": scope["method"], "path": scope["path"], "status": self.status_code, "code": code}
            _log.log(logging.DEBUG if quiet else logging.WARNING, "request failed: %s", self.reason, extra=more)
        if not is_for_openai(scope["path"]):
            await super().__call__(scope, receive, send)
            return
        headers = {name: value for name, value in self.headers.items() if not name.startswith("content-")}
        status = 400 if self.status_code == HTTPStatus.UNPROCESSABLE_ENTITY else self.status_code
        await JSONResponse(self.for_openai(), status, headers)(scope, receive, send)

    def for_openai(self) -> dict[str, Any]:
        """Return the body that OpenAI's clients read."""
        found = self._problem
        return openai_error(found.status, found.detail, found.remedy, found.code, found.errors).model_dump()


class BodyTooLargeError(HTTPException):
    """A body has more than its route reads: `excess` says of what and where, `setting` what allows more."""

    def __init__(self, excess: str, setting: str = "") -> None:
        super().__init__(413, f"The body has {excess}")
        self.remedy = f"Send no {excess}{f', or raise `{setting}`' if setting else ''}."


def problem(status: int, title: str, detail: str, code: str, remedy: str = "", **more: Any) -> ProblemResponse:
    """Return the response that carries a problem; `more` are its other fields. Long texts are cut."""
    detail, remedy = detail[:_MOST_CHARS], remedy[:_MOST_CHARS]
    return ProblemResponse(Problem(title=title, status=status, detail=detail, code=code, remedy=remedy, **more))


def problem_of(error: StarlingError, caller: Principal | None = None) -> ProblemResponse:
    """Return the response that carries an error of ours; what it says of the database is for admins only."""
    reason, status = str(error), next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    if isinstance(error, _OF_THE_DATABASE) and not (caller and KeyScope.ADMIN in caller.scopes):
        error = type(error)("The database can't be used now.", "Try again; the log of the server has the details.")
    title = error.code.replace("_", " ").capitalize()
    more: dict[str, Any] = {"remedy": error.remedy}
    if isinstance(error, TeamInvalidError):
        more = {"remedy": "\n".join(map(str, error.findings)), "errors": [asdict(one) for one in error.findings]}
    response = problem(status, title, error.message, error.code, **more)
    response.reason = reason
    if isinstance(error, RateLimitedError | BacklogFullError | TooManyWrongKeysError):
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return response


class EndableResponse:
    """A response that may have to be ended early: `send` forwards the messages of the application."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.streams = False
        self._scope, self._receive, self._send = scope, receive, send
        self._begun = self._ended = False  # as far as the server has taken the messages

    async def send(self, message: Message) -> None:
        """Forward a message of the application."""
        for name, value in message.get("headers", ()):
            self.streams |= name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        await self._send(message)
        self._begun = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def end(self, error: Exception) -> None:
        """Answer with an error, or complete a response that has begun.

        A client that reads nothing for a second does not get the end. OpenAI's clients take any end of a stream for
        that of the answer: theirs has the error as its last event.
        """
        known = (one for one in (error, error.__cause__) if isinstance(one, StarlingError))
        answer, path = problem_of(next(known, StarlingError(_INTERNAL))), self._scope["path"]
        if not self._begun:
            await answer(self._scope, self._receive, self._send)
        elif not self._ended:
            body = openai_error_event(path, answer.for_openai()) if self.streams and is_for_openai(path) else b""
            with suppress(TimeoutError):
                async with asyncio.timeout(_FINAL_SEND_SECONDS):
                    await self._send({"type": "http.response.body", "body": body, "more_body": False})


def install(app: FastAPI) -> None:
    """Translate errors once, here."""
    app.add_exception_handler(StarlingError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarlingError)
    return problem_of(error, cast("Principal | None", getattr(request.state, "principal", None)))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):  # FastAPI parses JSON only if the content type is JSON
        return _unread(
            f"was sent as {request.headers.get('content-type') or 'an unnamed content type'}", "content_type"
        )
    if found := next((item for item in error.errors() if item["type"] == "json_invalid"), None):
        return _unread(f"is not JSON: {found['ctx']['error']} at character {found['loc'][-1]}", "json_invalid")
    faults = error.errors()
    errors = [
        {"where": location_path(item["loc"]), "what": fault_text(item), "type": item["type"]}
        for item in faults[:MOST_FAULTS]
    ]
    return problem(
        422, "Invalid request", fault_list(faults), "invalid_request", "See /docs for the fields.", errors=errors
    )


def _unread(what: str, kind: str) -> JSONResponse:
    errors = [{"where": "body", "what": what, "type": kind}]
    return problem(422, "Invalid request", f"The body {what}.", "invalid_request", errors=errors, remedy=_SEND_JSON)


async def _plain(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 400 and isinstance(error.__cause__, ValueError | RecursionError):
        return _unread(f"is not JSON: {error.__cause__}", "json_invalid")  # what json.loads raises besides its own
    detail = f"{request.method} {request.url.path}: {error.detail}."
    remedy = error.remedy if isinstance(error, BodyTooLargeError) else "See /docs of the API for its paths."
    response = problem(error.status_code, HTTPStatus(error.status_code).phrase, detail, "http", remedy=remedy)
    response.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # each route knows only its own methods, so all routes are compared
        routes = [route for route in iter_route_contexts(request.app.routes) if route.path and route.methods]
        fitting = [route for route in routes if compile_path(route.path or "")[0].match(request.url.path)]
        response.headers["Allow"] = ", ".join(sorted({name for route in fitting for name in route.methods or ()}))
    return response


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "Internal error", _INTERNAL, "internal")
