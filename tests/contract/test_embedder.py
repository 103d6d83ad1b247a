"""What every embedder does. Endpoints are real HTTP servers whose vectors are those of the built-in embedder."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

from starling.core.embeddings import Embedder
from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, ModelError
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.langchain_vectors import LangChainEmbedder
from starling.infra.embeddings.openai_vectors import EndpointEmbedder
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.llm.chat_model import Endpoint
from starling.infra.llm.openai_endpoint import open_session
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import open_engine
from tests.support.embedding_server import EmbeddingServer

TEXTS = ["What time is it in Lima?", "List the commits of the repository", "Current time in Peru"]


class _Static(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[2 * x for x in vector] for vector in await StaticEmbedder().embed(texts)]


@pytest.fixture
def server() -> EmbeddingServer:
    return EmbeddingServer()


@pytest.fixture
async def endpoint(server: EmbeddingServer) -> AsyncGenerator[EndpointEmbedder]:
    async with server.running() as url:
        embedder = EndpointEmbedder(
            "local:small", "small", Endpoint(url, "key"), partial(open_session, trust_env=False)
        )
        yield embedder
        await embedder.close()


def _cached(embedder: Embedder) -> Embedder:
    """Return the embedder with the cache of vectors, which `embed` doesn't ask."""
    engine = open_engine("postgresql://nobody@127.0.0.1:9/none")
    return PostgresCachingEmbedder(embedder, EmbeddingRepository(engine), lambda _: None)


@pytest.fixture(params=["static", "endpoint", "langchain", "cached"])
def embedder(request: pytest.FixtureRequest, endpoint: EndpointEmbedder) -> Embedder:
    adapters: dict[str, Embedder] = {
        "static": StaticEmbedder(), "endpoint": endpoint, "langchain": LangChainEmbedder("other:small", _Static()),
        "cached": _cached(endpoint),
    }  # fmt: skip
    return adapters[request.param]


async def test_vectors_come_in_the_order_of_the_texts_with_length_1(embedder: Embedder) -> None:
    vectors = await embedder.embed(TEXTS)

    expected = await StaticEmbedder().embed(TEXTS)
    assert [list(vector) for vector in vectors] == [pytest.approx(list(vector), abs=1e-5) for vector in expected]
    assert embedder.dimensions == len(vectors[0]) == 256


async def test_no_text_gives_no_vector(embedder: Embedder) -> None:
    assert await embedder.embed([]) == []


async def test_empty_text_has_a_vector(embedder: Embedder) -> None:
    assert len(await embedder.embed(["", "text"])) == 2


async def test_many_texts_are_sent_in_parts_with_the_key(endpoint: EndpointEmbedder, server: EmbeddingServer) -> None:
    vectors = await endpoint.embed([f"text {number}" for number in range(300)])

    assert len(vectors) == 300
    assert [len(body["input"]) for body in server.asked] == [128, 128, 44]
    assert {(body["model"], body["authorization"]) for body in server.asked} == {("small", "Bearer key")}


UNUSABLE: list[tuple[tuple[int, Any], type[ModelError]]] = [
    ((429, {"error": {"message": "slow down"}}), LLMServerError),
    ((200, {"data": []}), LLMInvalidResponse),
    ((200, {"data": [{"index": 0, "embedding": "text"}]}), LLMInvalidResponse),
    ((200, {"data": [{"index": 0}]}), LLMInvalidResponse),
    ((200, {"data": [{"index": 0, "embedding": [1.0, "x"]}]}), LLMInvalidResponse),
    ((200, ["a list"]), LLMInvalidResponse),
]


@pytest.mark.parametrize(("answer", "error"), UNUSABLE)
async def test_answer_without_vectors_is_an_error(
    endpoint: EndpointEmbedder, server: EmbeddingServer, answer: tuple[int, Any], error: type[ModelError]
) -> None:
    server.answer = lambda _: answer

    with pytest.raises(error, match="local:small"):
        await endpoint.embed(["text"])


async def test_vectors_of_another_size_than_before_are_an_error(
    endpoint: EndpointEmbedder, server: EmbeddingServer
) -> None:
    await endpoint.embed(["text"])
    server.answer = lambda texts: (200, {"data": [{"index": 0, "embedding": [1.0, 0.0]} for _ in texts]})

    with pytest.raises(LLMInvalidResponse, match="dimensions"):
        await endpoint.embed(["text"])


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_text_that_the_endpoint_refuses_has_no_vector_and_the_others_have_theirs(
    endpoint: EndpointEmbedder, server: EmbeddingServer, status: int
) -> None:
    texts = [*TEXTS, "refused", *TEXTS]
    server.refused = {"refused": status}

    vectors = await endpoint.embed(texts)
    (alone,) = await endpoint.embed(["refused"])

    expected = [*await StaticEmbedder().embed(TEXTS), alone] * 2
    assert [list(vector) for vector in vectors] == [pytest.approx(list(of), abs=1e-5) for of in expected[:-1]]
    assert not any(alone)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
async def test_endpoint_that_refuses_every_text_fails_at_once(
    endpoint: EndpointEmbedder, server: EmbeddingServer, status: int
) -> None:
    await endpoint.embed(["text"])
    server.answer = lambda _: (status, {"error": {"message": "no such model"}})

    with pytest.raises(LLMServerError, match="no such model"):
        await endpoint.embed([f"text {number}" for number in range(100)])

    assert len(server.asked) <= 1 + 2


async def test_unreachable_endpoint_is_a_connection_error() -> None:
    away = EndpointEmbedder(
        "local:small", "small", Endpoint("http://127.0.0.1:9/v1"), partial(open_session, trust_env=False)
    )

    with pytest.raises(LLMConnectionError, match=r"127\.0\.0\.1:9"):
        await away.embed(["text"])
    await away.close()
