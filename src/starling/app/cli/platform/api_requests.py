"""Requests to the HTTP API that have one answer, by the standard library: importing httpx costs more than they do."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from starling.core.errors import (
    ConfigurationError,
    ConflictError,
    DatabaseUnavailableError,
    DatabaseUnsuitableError,
    ForbiddenError,
    InvalidRequestError,
    StarlingError,
    UnauthorizedError,
)

JSON_LINES: Final = "application/jsonl"
_SECONDS = 60.0
_PROBE_SECONDS = 2.0
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_BODY = "body."  # what the places of faults in what was sent begin with
_SET_KEY = "Set STARLING_API_KEY to a key that is active there; `starling key create` makes one."
_START = "Start it with `starling up`, or give its address with --url or STARLING_URL."


class ApiUnavailableError(StarlingError):
    """The API at the address does not answer."""

    code = "api_unavailable"

    def __init__(self, url: str, error: Exception, remedy: str = _START) -> None:
        reason = _ERRNO.sub("", str(error)).rstrip(".") or type(error).__name__
        super().__init__(f"The API at {url} does not answer: {reason}.", remedy)


class NoPlatformError(StarlingError):
    """Neither this machine nor the settings have a platform to ask."""

    code = "api_unavailable"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Start one with `starling up`, or give the address of one in STARLING_URL.")


class Api(ABC):
    """The API, wherever it is served. Raises the errors that it answers with, as `refusal` returns them."""

    __slots__ = ()

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is: its address, or the database."""

    @abstractmethod
    def send(self, method: str, path: str, body: object = None, *, seconds: float | None = None) -> tuple[str, bytes]:
        """Return the media type and the content of the answer to a request that was not refused.

        A body is sent as JSON, bytes as the JSON lines that they are. `seconds` is how long the answer may take;
        default: a minute.
        """

    def get(self, path: str, **query: str | int) -> Any:
        """Return the JSON document at `path`."""
        return json.loads(self.send("GET", with_query(path, **query))[1])

    def put(self, path: str, body: object) -> Any:
        """Store a JSON document at `path` and return the answer."""
        return json.loads(self.send("PUT", path, body)[1])

    def post(self, path: str, body: object = None, *, seconds: float | None = None) -> Any:
        """Send a document to `path`, as `send` does, and return the answer."""
        return json.loads(self.send("POST", path, body, seconds=seconds)[1])


@dataclass(frozen=True, slots=True)
class ApiRequests(Api):
    """The API at `url`, called with `key` if there is one.

    Raises ApiUnavailableError; InvalidRequestError, ForbiddenError, ConflictError and StarlingError with the message of
    the API.
    """

    url: str
    key: str = ""

    @property
    def place(self) -> str:
        return self.url

    def answers(self) -> bool:
        """Return whether Starling answers at the address."""
        try:
            status, _, content = self._exchange("GET", "/health", None, _PROBE_SECONDS)
            return status == 200 and json.loads(content) == {"status": "ok"}
        except (OSError, HTTPException, ValueError):
            return False

    def send(self, method: str, path: str, body: object = None, *, seconds: float | None = None) -> tuple[str, bytes]:
        """Return the media type and the content of the answer to a request that was not refused."""
        try:
            status, kind, content = self._exchange(method, path, body, seconds or _SECONDS)
        except (OSError, HTTPException) as error:
            raise ApiUnavailableError(self.url, error) from error
        if status >= 400:
            raise refusal(f"{self.url}{path}", status, content)
        return kind.partition(";")[0], content

    def _exchange(self, method: str, path: str, body: object, seconds: float) -> tuple[int, str, bytes]:
        parts = urlsplit(self.url)
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"{self.url!r} is not the address of an API.", "Write one like http://host:8000.")
        connection = connect(parts.hostname, parts.port, timeout=seconds)
        headers: Mapping[str, str] = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None:
            headers = {**headers, "Content-Type": JSON_LINES if isinstance(body, bytes) else "application/json"}
        try:
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, parts.path.rstrip("/") + path, sent, dict(headers))
            response: HTTPResponse = connection.getresponse()
            return response.status, response.headers.get("content-type", ""), response.read()
        finally:
            connection.close()


def with_query(path: str, **query: str | int) -> str:
    """Return the path with a query."""
    return f"{path}?{urlencode(query)}" if query else path


def refusal(url: str, status: int, content: bytes) -> StarlingError:
    """Return the error that an answer with an error status stands for."""
    try:
        problem = json.loads(content)
        detail, remedy, code = str(problem["detail"]), str(problem.get("remedy", "")), problem.get("code")
        if faults := [one for one in problem.get("errors", ()) if str(one.get("where")).startswith(_BODY)]:
            detail = "; ".join(f"{one['where'].removeprefix(_BODY)}: {one['what']}" for one in faults)
            remedy = "`--help` after the command describes its options."
    except (ValueError, KeyError, TypeError, AttributeError):
        detail, remedy, code = f"{url} answered {status}.", "Check that the address is that of Starling's API.", None
    match status:
        case 401 if code == UnauthorizedError.code:
            return InvalidRequestError(detail, _SET_KEY)
        case 503 if code == DatabaseUnsuitableError.code:
            return DatabaseUnsuitableError(detail, remedy)
        case 503:
            return DatabaseUnavailableError(detail, remedy)
        case 403:
            return ForbiddenError(detail, remedy)
        case 409:
            return ConflictError(detail, remedy)
        case _:
            return InvalidRequestError(detail, remedy) if status < 500 else StarlingError(detail, remedy)
