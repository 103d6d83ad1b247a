"""Vectors that are kept in Postgres: a text is embedded once for each tenant and model."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import pytest

from starling.core.embeddings import Vector
from starling.core.principal import SHARED
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import Engine, open_engine


@dataclass
class Counting(StaticEmbedder):
    """The built-in embedder under a name, with what it was asked."""

    name: str = "static"
    asked: list[Sequence[str]] = field(default_factory=list[Sequence[str]])

    def __post_init__(self) -> None:
        super().__init__()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.asked.append(texts)
        return await super().embed(texts)


@pytest.fixture
async def engine(database_url: str) -> AsyncGenerator[Engine]:
    engine = open_engine(database_url)
    yield engine
    await engine.dispose()


async def test_known_texts_are_not_embedded_again(engine: Engine) -> None:
    embedder, repository = Counting(), EmbeddingRepository(engine)

    first = await PostgresCachingEmbedder(embedder, repository).embed_and_keep(SHARED, ["one", "two", "one"])
    second = await PostgresCachingEmbedder(embedder, repository).embed_and_keep(SHARED, ["three", "two"])

    assert embedder.asked == [["one", "two"], ["three"]]
    assert list(first[0]) == list(first[2])
    assert list(second[1]) == pytest.approx(list(first[1]), abs=1e-3)


async def test_vectors_are_kept_by_tenant_and_model(engine: Engine) -> None:
    one, other, repository = Counting(), Counting("other:model"), EmbeddingRepository(engine)

    await PostgresCachingEmbedder(one, repository).embed_and_keep("a", ["text"])
    await PostgresCachingEmbedder(one, repository).embed_and_keep("b", ["text"])
    await PostgresCachingEmbedder(other, repository).embed_and_keep("a", ["text"])

    assert (one.asked, other.asked) == ([["text"], ["text"]], [["text"]])


async def test_without_postgres_texts_are_embedded() -> None:
    engine = open_engine("postgresql://nobody@127.0.0.1:9/none")

    vectors = await PostgresCachingEmbedder(StaticEmbedder(), EmbeddingRepository(engine)).embed_and_keep("a", ["text"])

    assert len(vectors[0]) == 256
    await engine.dispose()
