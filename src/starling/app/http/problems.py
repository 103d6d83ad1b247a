"""Errors as `application/problem+json` (RFC 9457): what was wrong, where, and what to do."""

import logging
import math
from collections.abc import Mapping
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
from starlette.types import Receive, Scope, Send

from starling.app.http.openai_errors import is_for_openai, openai_error, openai_status
from starling.app.http.openapi import PROBLEM_TYPE
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
_REMEDIES: Final = {413: "Send less at once; of a run's request only `limits.input_chars` characters are read."}
_MOST_CHARS: Final = 10_000  # of a detail or a remedy
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
    """Return how `/openapi.json` describes that a route answers with these errors."""
    return {status: {"model": Problem} for status in statuses}


class ProblemResponse(JSONResponse):
    """A problem; OpenAI's clients get it as an error of theirs."""

    media_type = PROBLEM_TYPE

    def __init__(self, problem: Problem) -> None:
        super().__init__(jsonable_encoder(problem), problem.status, _HEADERS.get(problem.status))
        self._problem = problem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if not is_for_openai(scope["path"]):
            await super().__call__(scope, receive, send)
            return
        found = self._problem
        message = " ".join(filter(None, (found.detail, found.remedy)))
        body = openai_error(found.status, message, found.code, found.errors)
        headers = {name: value for name, value in self.headers.items() if not name.startswith("content-")}
        await JSONResponse(body.model_dump(), openai_status(found.status), headers)(scope, receive, send)


def problem(status: int, title: str, detail: str, code: str, remedy: str = "", **more: Any) -> ProblemResponse:
    """Return the response that carries a problem; `more` are its other fields. Long texts are cut."""
    detail, remedy = detail[:_MOST_CHARS], remedy[:_MOST_CHARS]
    return ProblemResponse(Problem(title=title, status=status, detail=detail, code=code, remedy=remedy, **more))


def problem_of(error: StarlingError, caller: Principal | None = None) -> ProblemResponse:
    """Return the response that carries an error of ours; what it says of the database is for admins only."""
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    if isinstance(error, _OF_THE_DATABASE) and not (caller and KeyScope.ADMIN in caller.scopes):
        _log.warning("answered 503: %s", error)
        error = type(error)("The database can't be used now.", "Try again; the log of the server has the details.")
    title = error.code.replace("_", " ").capitalize()
    more: dict[str, Any] = {"remedy": error.remedy}
    if isinstance(error, TeamInvalidError):
        more = {"remedy": "\n".join(map(str, error.findings)), "errors": [asdict(one) for one in error.findings]}
    response = problem(status, title, error.message, error.code, **more)
    if isinstance(error, RateLimitedError | BacklogFullError | TooManyWrongKeysError):
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return response


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
    remedy = _REMEDIES.get(error.status_code, "See /docs of the API for its paths.")
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
    return problem(
        500, "Internal error", "An internal error occurred; the log of the server has the details.", "internal"
    )
