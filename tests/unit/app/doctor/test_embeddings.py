"""What the doctor says of embeddings: fast, slow, missing, off."""

import asyncio
from pathlib import Path

import pytest

from starling.app.doctor import embeddings
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.embeddings import static_vectors
from starling.infra.embeddings.static_vectors import StaticEmbedder
from tests.support.embedding_server import EmbeddingServer


@pytest.mark.parametrize(("seconds", "state"), [(0.5, "ok"), (0.51, "warning")])
def test_slow_embedder_is_a_warning_that_says_what_it_means(seconds: float, state: str) -> None:
    finding = embeddings.speed(StaticEmbedder(), seconds)

    assert finding.state == state
    assert f"in {seconds * 1000:.0f} ms" in finding.message
    assert ("each search waits for one" in finding.message, bool(finding.remedy)) == ((state == "warning"),) * 2


@pytest.mark.parametrize(
    ("server", "limit", "said"),
    [
        (EmbeddingServer(may_answer=asyncio.Event(), waiting_from=1), 0.5, "local:small made no vector within 0.5 s"),
        (EmbeddingServer(answer=lambda _: (404, {"error": {"message": "no such model"}})), 60, "no such model"),
    ],
    ids=["no answer", "refusal"],
)
async def test_endpoint_without_a_vector_is_a_warning_that_says_what_still_works(
    monkeypatch: pytest.MonkeyPatch, server: EmbeddingServer, limit: float, said: str
) -> None:
    monkeypatch.setattr(embeddings, "_LIMIT_SECONDS", limit)
    async with server.running() as url:
        [finding] = await embeddings.check(
            Settings(embeddings="local:small", providers={"local": ProviderSettings(base_url=url)})
        )

    assert (finding.subject, finding.state) == ("embeddings", "warning")
    assert said in finding.message
    assert "agents are found by words only" in finding.message


async def test_missing_files_of_the_built_in_model_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_vectors, "_WEIGHTS", Path("missing"))
    vars(static_vectors)["_token_vectors"].cache_clear()  # another test may have read it

    [finding] = await embeddings.check(Settings(embeddings="static"))

    assert finding.state == "warning"
    assert "The built-in embeddings are missing" in finding.message
    assert "agents are found by words only" in finding.message
    assert "Install Starling again" in f"{finding.message} {finding.remedy}"


async def test_embeddings_that_are_off_are_no_problem() -> None:
    [finding] = await embeddings.check(Settings(embeddings="off"))

    assert finding.state == "ok"
