"""What a task is compared by."""

from collections.abc import Sequence

import pytest

from brain.registry.cards import AgentCard
from brain.skills.memory import FinishedTask, SkillMemory
from brain.skills.repository import SkillRepository, SkillUse
from brain.skills.skill import PromptSkill
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


MEMORY = SkillMemory(
    SkillRepository(open_engine("postgresql://nobody@127.0.0.1:9/none")),
    RefusingEmbedder(),
    lambda text: text,
    NOOP_TRACER,
    SystemClock(),
)


@pytest.mark.parametrize(
    ("code", "uses"), [("rejected", [SkillUse("one", failure=True)]), ("llm_connection_failed", [])]
)
async def test_task_that_an_outage_ended_is_no_use_of_its_skills(code: str, uses: list[SkillUse]) -> None:
    recalled = [PromptSkill("one", "Look.", (), "shape")]

    lesson = await MEMORY.lesson(
        FinishedTask("a", "t1", AgentCard("a", "specialist", ""), "", "", recalled, (), code=code)
    )

    assert list(lesson.uses) == uses


async def test_task_that_the_embedding_model_refuses_is_compared_by_words_and_the_next_one_by_its_vector() -> None:
    refused, other = await MEMORY.query("a", REFUSED), await MEMORY.query("a", "Look at the left disk.")

    assert (refused.vector, refused.model, bool(refused.words)) == (None, None, True)
    assert (other.vector is not None, other.model) == (True, "static")
