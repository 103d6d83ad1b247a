"""Models behind OpenAI-compatible endpoints, over one shared aiohttp session and without an SDK."""

import asyncio
import contextlib

import aiohttp
from yarl import URL

from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, LLMTimeout, ModelError
from starling.core.llm import ModelReply, ModelRequest, TextDelta
from starling.core.model_output.json_document import loads_object
from starling.infra.llm.chat_completions import RequestWriter, StreamedAnswer, error_text, read_reply
from starling.infra.llm.chat_model import (
    Endpoint,
    ReplyStream,
    checked_reply,
    excerpt,
    report_failed_attempt,
    status_failure,
)
from starling.infra.llm.endpoint_capabilities import EVERYTHING, EndpointFeatures, used_features
from starling.infra.llm.request_forms import answer_of_schema_tool
from starling.infra.tracing.spans import trace_headers

_BODY_LIMIT = 16 * 1024 * 1024
_ERROR_BODY_LIMIT = 64 * 1024
_CONNECT_SECONDS = 10.0
_DRAIN_SECONDS = 0.1
_KEY_LENGTH = 16  # a shorter one is a placeholder such as "ollama", which may also occur in texts


class EndpointModel:
    """One model behind an OpenAI-compatible endpoint. Learns from refusals which features the endpoint supports."""

    def __init__(self, name: str, model: str, endpoint: Endpoint, session: aiohttp.ClientSession) -> None:
        self.name = name
        self._session = session
        self._url = URL(f"{endpoint.base_url.rstrip('/')}/chat/completions")
        self._host = f"{self._url.host}:{self._url.port}"
        self._key = endpoint.api_key.encode() if len(endpoint.api_key) >= _KEY_LENGTH else b""
        self._headers = {"Content-Type": "application/json"}
        if endpoint.api_key:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key}"
        self._writer = RequestWriter(model)
        self.features = EndpointFeatures(EVERYTHING, endpoint.lacks)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer within `request.timeout` seconds."""
        deadline = _deadline(request)
        try:
            async with await self._send(request, deadline, stream=False) as response:
                return await self._whole(response, request, deadline)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._failure(request, error) from error

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete reply, within `request.timeout` seconds."""
        deadline = _deadline(request)
        try:
            async with await self._send(request, deadline, stream=True) as response:
                if response.content_type == "text/event-stream":
                    answer, text_was_sent = StreamedAnswer(self.name), False
                    while not answer.done and (data := await self._next_bytes(response, deadline)):
                        for text in answer.feed(data):
                            text_was_sent = True
                            yield TextDelta(text)
                    await _drain(response)
                    reply = checked_reply(answer_of_schema_tool(answer.reply(), request), request)
                else:  # an endpoint without streaming, or not an endpoint at all
                    reply, text_was_sent = await self._whole(response, request, deadline), False
                if reply.content and not text_was_sent:
                    yield TextDelta(reply.content)
                yield reply
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._failure(request, error) from error

    async def _send(self, request: ModelRequest, deadline: float, *, stream: bool) -> aiohttp.ClientResponse:
        """Return the successful response; omit refused features, and remember them if this helps."""
        attempt = self.features.attempt()
        while True:
            body = self._writer.write(request, attempt.dialect, stream=stream)
            async with asyncio.timeout_at(deadline):
                headers = {**self._headers, **trace_headers()}
                response = await self._session.post(self._url, data=body, headers=headers, allow_redirects=False)
            if 200 <= response.status < 300:
                attempt.succeed()
                return response
            refusal = await self._refusal(response, deadline)
            used = used_features(attempt.dialect, request, stream=stream)
            if not attempt.reduce(used, refusal.status, refusal.reason):
                raise refusal
            report_failed_attempt(request, refusal)

    async def _whole(self, response: aiohttp.ClientResponse, request: ModelRequest, deadline: float) -> ModelReply:
        data = await self._body(response, _BODY_LIMIT, deadline)
        if data is None:
            raise LLMInvalidResponse(self.name, f"the answer is longer than {_BODY_LIMIT} bytes.")
        body = loads_object(data)
        if body is None:
            reason = f"the answer ({response.content_type}) is not a JSON object: {excerpt(data)!r}"
            raise LLMInvalidResponse(self.name, reason)
        return checked_reply(answer_of_schema_tool(read_reply(self.name, body), request), request)

    async def _refusal(self, response: aiohttp.ClientResponse, deadline: float) -> LLMServerError:
        async with response:
            data = await self._body(response, _ERROR_BODY_LIMIT, deadline) or b""
        body = loads_object(data)
        text = error_text(body) if body is not None else excerpt(data)
        return status_failure(self.name, response.status, text, response.headers.get(aiohttp.hdrs.RETRY_AFTER))

    def _failure(self, request: ModelRequest, error: Exception) -> ModelError:
        return transport_failure(self.name, self._host, request.timeout, error)

    async def _next_bytes(self, response: aiohttp.ClientResponse, deadline: float) -> bytes:
        """Return the next bytes, empty at the end, with the API key masked in case it is echoed."""
        async with asyncio.timeout_at(deadline):
            data = await response.content.readany()
        return data.replace(self._key, b"***") if self._key else data

    async def _body(self, response: aiohttp.ClientResponse, limit: int, deadline: float) -> bytes | None:
        """Return the whole body, or None if it is longer than `limit` bytes."""
        data = b""
        while chunk := await self._next_bytes(response, deadline):
            data += chunk
            if len(data) > limit:
                return None
        return data


def transport_failure(model: str, host: str, timeout: float, error: BaseException) -> ModelError:
    """Return the error for a request without a complete answer from `host` within `timeout` seconds."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return LLMConnectionError(model, f"{host} did not accept the connection in time.", "Check the base URL.")
        case TimeoutError():
            return LLMTimeout(model, f"no complete answer within {timeout:.3g} s.")
        case aiohttp.ClientConnectorError():
            return LLMConnectionError(
                model, f"{host} can't be reached.", "Check the base URL and that the endpoint is running."
            )
        case _:
            return LLMConnectionError(model, f"the connection to {host} broke ({type(error).__name__}).")


def open_session(*, trust_env: bool) -> aiohttp.ClientSession:
    """Return the session shared by all endpoints; the caller closes it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "starling"},
        trust_env=trust_env,
    )


def _deadline(request: ModelRequest) -> float:
    return asyncio.get_running_loop().time() + request.timeout


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the rest of the stream, so that the connection can be reused."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await response.content.readany():
                pass
