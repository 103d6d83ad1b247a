"""Near misses of tasks whose tools change something: the rule that `skills.near_misses_recalled_effects` measures."""

import pytest

from bench.labelled_texts import near_misses
from bench.skill_recall import Store, recalled
from brain.skills.catalog.repository import SkillCatalog
from brain.skills.memory import SkillMemory
from brain.skills.repository import SkillRepository
from starling.core.clock import SystemClock
from starling.core.embeddings import Embedder
from starling.core.tool_calls import Effect
from starling.core.tracing import NOOP_TRACER
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.postgres.engine import Engine


@pytest.mark.parametrize("embedder", [StaticEmbedder(), None], ids=["vectors", "words only"])
async def test_near_miss_of_a_task_with_effects_recalls_nothing(engine: Engine, embedder: Embedder | None) -> None:
    memory = SkillMemory(SkillRepository(engine), embedder, lambda text: text, NOOP_TRACER, SystemClock())
    store, pairs = Store(memory, SkillCatalog(engine)), [pair for pair in near_misses() if not pair.reads]

    by_effect = {
        effect: [(await recalled(store, f"{effect} {at}", pair, effect))[0] for at, pair in enumerate(pairs)]
        for effect in (Effect.READ, Effect.IDEMPOTENT, Effect.UNSAFE)
    }

    assert len(pairs) == 30
    assert any(by_effect[Effect.READ])  # so it is the effect that keeps them from being recalled
    assert not any(by_effect[Effect.IDEMPOTENT] + by_effect[Effect.UNSAFE])
