"""Embeddings of OpenAI-compatible endpoints: OpenAI, Ollama, vLLM and any other of `STARLING_PROVIDERS`."""

import asyncio
import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
import orjson
from yarl import URL

from starling.core.embeddings import Vector
from starling.core.errors import LLMInvalidResponse, LLMServerError
from starling.core.json import as_items, as_object
from starling.core.model_output.json_document import loads_object
from starling.infra.embeddings.unit_vectors import unit_vector
from starling.infra.llm.chat_completions import error_text
from starling.infra.llm.chat_model import Endpoint, excerpt, status_failure
from starling.infra.llm.openai_endpoint import transport_failure

_BATCH: Final = 128  # texts in a request; vLLM and Ollama queue longer ones
_SECONDS: Final = 30.0
_REFUSALS: Final = frozenset({400, 413, 422})  # of what was sent: a text that is too long, or isn't allowed
_USABLE_TEXT: Final = "text"
_log = logging.getLogger(__name__)


class EndpointEmbedder:
    """One embedding model behind an endpoint; `/embeddings` is appended to the base URL.

    `open_session` opens the HTTP session, once it is needed.
    """

    def __init__(
        self, name: str, model: str, endpoint: Endpoint, open_session: Callable[[], aiohttp.ClientSession]
    ) -> None:
        self.name = name
        self.dimensions = 0
        self._model = model
        self._open_session = open_session
        self._session: aiohttp.ClientSession | None = None
        self._url = URL(f"{endpoint.base_url.rstrip('/')}/embeddings")
        self._headers = {"Content-Type": "application/json"}
        if endpoint.api_key:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key}"

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text: all zeros for one that the endpoint refuses while it takes others.

        Raises ModelError if the endpoint fails or answers anything else.
        """
        parts = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        return [vector for part in parts for vector in await self._part(part)]

    async def close(self) -> None:
        """Close the HTTP session."""
        if self._session:
            await self._session.close()

    async def _part(self, texts: Sequence[str], *, takes_others: bool = False) -> list[Vector]:
        """Return the vectors of texts that are sent together, or in halves where they are refused."""
        try:
            return await self._asked(texts)
        except LLMServerError as error:
            if error.status not in _REFUSALS:
                raise
            if not takes_others:
                await self._asked([_USABLE_TEXT])
            if len(texts) == 1:
                _log.warning("a text of %d characters has no vector: %s", len(texts[0]), error)
                return [array("f", bytes(4 * self.dimensions))]
        halves = texts[: len(texts) // 2], texts[len(texts) // 2 :]
        return [vector for half in halves for vector in await self._part(half, takes_others=True)]

    async def _asked(self, texts: Sequence[str]) -> list[Vector]:
        self._session = self._session or self._open_session()
        body = orjson.dumps({"model": self._model, "input": [text or " " for text in texts]})
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._session.post(self._url, data=body, headers=self._headers, allow_redirects=False) as response,
            ):
                data = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise transport_failure(self.name, f"{self._url.host}:{self._url.port}", _SECONDS, error) from error
        answer = loads_object(data)
        if response.status != 200:
            text = error_text(answer) if answer is not None else excerpt(data)
            raise status_failure(self.name, response.status, text, response.headers.get(aiohttp.hdrs.RETRY_AFTER))
        return self._vectors(answer or {}, len(texts))

    def _vectors(self, answer: Mapping[str, Any], count: int) -> list[Vector]:
        items = [as_object(item) for item in as_items(answer.get("data"))]
        try:
            in_order = sorted(items, key=lambda item: int(item.get("index") or 0))
            vectors = [unit_vector(item["embedding"]) for item in in_order]
        except (KeyError, TypeError, ValueError) as error:
            raise LLMInvalidResponse(self.name, f"the endpoint's vectors can't be read: {error}.") from error
        sizes = {len(vector) for vector in vectors}
        if len(vectors) != count or len(sizes | ({self.dimensions} - {0})) > 1:
            raise LLMInvalidResponse(
                self.name, f"{count} texts got {len(vectors)} vectors of {sorted(sizes)} dimensions."
            )
        self.dimensions = len(vectors[0]) if vectors else self.dimensions
        return vectors
