"""What error responses tell whom."""

import logging
from typing import cast

import pytest
from starlette.types import Receive

from starling.app.http.problems import BodyTooLargeError, ProblemResponse, problem_of
from starling.core.errors import (
    BacklogFullError,
    ConfigurationError,
    DatabaseUnavailableError,
    DatabaseUnsuitableError,
    DrainingError,
    RateLimitedError,
    ServerUnavailableError,
    StarlingError,
    TooManyWrongKeysError,
)
from starling.core.principal import Principal, Scope

DETAIL = "password authentication failed for user 'owner' at db.internal"


def caller(*scopes: Scope) -> Principal:
    return Principal("default", "k1", frozenset(scopes))


async def answer(response: ProblemResponse, path: str) -> None:
    async def send(_: object) -> None:
        pass

    await response({"type": "http", "method": "POST", "path": path}, cast("Receive", None), send)


@pytest.mark.parametrize(
    ("error", "path", "level", "status"),
    [
        (ConfigurationError("No model."), "/process", logging.WARNING, 500),
        (ServerUnavailableError("time", "it is away."), "/v1/servers/time/test", logging.WARNING, 502),
        (DrainingError("Being stopped."), "/process", logging.WARNING, 503),
        (DrainingError("Being stopped."), "/ready", logging.DEBUG, 503),
        (DatabaseUnsuitableError("It is too old."), "/ready", logging.WARNING, 503),
        (DatabaseUnavailableError("It is away."), "/process", logging.DEBUG, 503),
    ],
)
async def test_answers_that_are_failures_have_a_line_in_the_log_at_debug_if_their_cause_has_one(
    error: StarlingError, path: str, level: int, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await answer(problem_of(error), path)

    (line,) = [record for record in caplog.records if record.name.startswith("starling")]
    assert line.levelno == level
    assert {"method": "POST", "path": path, "status": status, "code": error.code}.items() <= vars(line).items()


@pytest.mark.parametrize("kind", [DatabaseUnavailableError, DatabaseUnsuitableError])
@pytest.mark.parametrize("asker", [None, caller(Scope.RUN, Scope.TEAMS, Scope.SERVERS)])
async def test_error_of_the_database_tells_only_admins_and_the_log_its_details(
    kind: type[StarlingError], asker: Principal | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        response = problem_of(kind(DETAIL, "Set DATABASE_URL."), asker)
        await answer(response, "/process")

    assert response.status_code == 503
    assert b"db.internal" not in response.body
    assert b"DATABASE_URL" not in response.body
    assert kind.code.encode() in response.body
    assert DETAIL in caplog.text
    assert DETAIL.encode() in problem_of(kind(DETAIL), caller(Scope.ADMIN)).body


def test_other_errors_are_told_whole_to_everybody() -> None:
    assert b"being stopped" in problem_of(DrainingError("This process is being stopped.")).body


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(RateLimitedError(60, 0.2), "1"), (BacklogFullError(8, 5), "5"), (TooManyWrongKeysError(2.5), "3")],
)
def test_refusal_of_too_many_requests_says_when_to_try_again(error: StarlingError, seconds: str) -> None:
    response = problem_of(error)

    assert (response.status_code, response.headers["Retry-After"]) == (429, seconds)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            BodyTooLargeError("more than 9 bytes", "limits.input_chars"),
            "Send no more than 9 bytes, or raise `limits.input_chars`.",
        ),
        (
            BodyTooLargeError("more than 10,000 keys and items"),
            "Send no more than 10,000 keys and items.",
        ),
    ],
)
def test_remedy_of_a_body_that_is_too_large_names_its_limit(error: BodyTooLargeError, remedy: str) -> None:
    assert error.remedy == remedy
