"""Vectors that are kept in Postgres: a text is embedded once for each tenant and model."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import pytest
from sqlalchemy import select

from brain.registry.cards import GENERALIST, AgentCard, Roster
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from starling.core.clock import SystemClock
from starling.core.embeddings import Embedder, Vector
from starling.core.errors import ConfigurationError
from starling.core.json import digest
from starling.core.principal import SHARED
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import Engine, open_engine
from starling.infra.postgres.tables.registry import embeddings


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


def kept(embedder: Embedder, repository: EmbeddingRepository, *others: Embedder) -> PostgresCachingEmbedder:
    """Return the embedder with its cache; of the models that were used before, those of `others` can be built."""
    by_name = {other.name: other for other in others}

    def build(name: str) -> Embedder:
        if name not in by_name:
            raise ConfigurationError(f"{name} is not configured any more.")
        return by_name[name]

    return PostgresCachingEmbedder(embedder, repository, build)


@pytest.fixture
async def engine(database_url: str) -> AsyncGenerator[Engine]:
    engine = open_engine(database_url)
    yield engine
    await engine.dispose()


async def test_known_texts_are_not_embedded_again(engine: Engine) -> None:
    embedder, repository = Counting(), EmbeddingRepository(engine)

    first = await kept(embedder, repository).embed_and_keep(SHARED, ["one", "two", "one"])
    second = await kept(embedder, repository).embed_and_keep(SHARED, ["three", "two"])

    assert embedder.asked == [["one", "two"], ["three"]]
    assert list(first[0]) == list(first[2])
    assert list(second[1]) == pytest.approx(list(first[1]), abs=1e-3)


async def test_vectors_are_kept_by_tenant_and_model(engine: Engine) -> None:
    one, other, repository = Counting(), Counting("other:model"), EmbeddingRepository(engine)

    await kept(one, repository).embed_and_keep("a", ["text"])
    await kept(one, repository).embed_and_keep("b", ["text"])
    await kept(other, repository).embed_and_keep("a", ["text"])

    assert (one.asked, other.asked) == ([["text"], ["text"]], [["text"]])


@pytest.mark.parametrize(
    ("buildable", "found"),
    [
        pytest.param(["first", "second"], "second", id="the newest of several"),
        pytest.param(["first", "partial"], "first", id="one with all texts and an embedder"),
        pytest.param(["partial"], None, id="one that lacks a text"),
        pytest.param([], None, id="none that can be built"),
    ],
)
async def test_former_model_has_vectors_of_all_texts(engine: Engine, buildable: list[str], found: str | None) -> None:
    repository, texts = EmbeddingRepository(engine), {SHARED: ["one", "two"], "a": ["own", "own"]}
    for model in ("first", "second"):
        for tenant, wanted in texts.items():
            await kept(Counting(model), repository).embed_and_keep(tenant, wanted)
    await kept(Counting("partial"), repository).embed_and_keep(SHARED, ["one", "two"])
    embedder = kept(Counting("new"), repository, *(Counting(model) for model in buildable))

    former = await embedder.former(texts)

    assert (former and former.name) == found


async def test_vectors_of_a_tenants_own_agents_are_stored_for_it_and_used_by_no_other(engine: Engine) -> None:
    embedder = Counting("counted")
    own = AgentCard("payer", "custom", "Pays invoices")
    roster = Roster({GENERALIST.name: GENERALIST, own.name: own})

    for tenant in ("a", "b", "a"):
        finder = AgentFinder(kept(embedder, EmbeddingRepository(engine)), SystemClock())
        await finder.rank(AgentSearch(tenant, roster, roster), "pay", 1)

    texts = [text for asked in embedder.asked for text in asked if text != "pay"]
    assert sorted(text.partition(" ")[0] for text in texts) == ["generalist", "payer", "payer"]
    async with engine.connect() as connection:
        rows = await connection.execute(select(embeddings.c.tenant, embeddings.c.hash))
    by_tenant = {(tenant, key) for tenant, key in rows}
    assert {(tenant, key == digest("payer Pays invoices\n")) for tenant, key in by_tenant} == {
        (SHARED, False), ("a", True), ("b", True),
    }  # fmt: skip


async def test_without_postgres_texts_are_embedded() -> None:
    engine = open_engine("postgresql://nobody@127.0.0.1:9/none")

    vectors = await kept(StaticEmbedder(), EmbeddingRepository(engine)).embed_and_keep("a", ["text"])

    assert len(vectors[0]) == 256
    await engine.dispose()
