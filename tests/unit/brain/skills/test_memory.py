"""What a task is compared by."""

from collections.abc import Sequence

from brain.skills.memory import SkillMemory
from brain.skills.repository import SkillRepository
from starling.core.clock import SystemClock
from starling.core.embeddings import Vector
from starling.core.tracing import NOOP_TRACER
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.postgres.engine import open_engine

REFUSED = "Look at the unmentionable disk."


class RefusingEmbedder(StaticEmbedder):
    """The built-in embedder, which has no vector of one text."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await super().embed(["" if text == REFUSED else text for text in texts])


async def test_task_that_the_embedding_model_refuses_is_compared_by_words_and_the_next_one_by_its_vector() -> None:
    repository = SkillRepository(open_engine("postgresql://nobody@127.0.0.1:9/none"))
    memory = SkillMemory(repository, RefusingEmbedder(), lambda text: text, NOOP_TRACER, SystemClock())

    refused, other = await memory.query("a", REFUSED), await memory.query("a", "Look at the left disk.")

    assert (refused.vector, refused.model, bool(refused.words)) == (None, None, True)
    assert (other.vector is not None, other.model) == (True, "static")
