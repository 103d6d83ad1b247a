"""What recalls which skill at the cut in use: paraphrases, texts without a skill, and near misses.

Skills are stored in Postgres and recalled as a task recalls them.
"""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from bench.embedders import minilm_embedder, static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import NearMiss, Utterance, clinc, clinc_intents, near_misses
from brain.skills.catalog.repository import ImportedSkill, SkillCatalog
from brain.skills.generalization import MadeCall, TaskTexts, generalized
from brain.skills.memory import SkillMemory
from brain.skills.repository import NewSkill, SkillRepository
from brain.skills.skill import LearnedSkill, SkillCall
from starling.core.clock import SystemClock
from starling.core.embeddings import CachingEmbedder, Vector
from starling.core.ids import new_id
from starling.core.json import JsonObject
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.schema import upgrade

_SIZES: Final = {5: 16, 20: 5, 74: 1}  # skills of a store, and how many stores are sampled
_TASKS: Final = (10, 3)  # of a skill
_OTHERS: Final = 80  # texts without a skill that each store is asked with
_SEED: Final = 1
_TOOL: Final = ToolDefinition("desk", "find", "", {"type": "object"}, None, Effect.READ, "1")


def _names(suffix: str) -> tuple[str, ...]:
    cases = product(("right", "false"), _SIZES, _TASKS)
    return tuple(f"skills.clinc.{what}_{size}_skills_{tasks}_tasks{suffix}" for what, size, tasks in cases)


_NEAR_NAMES: Final = ("skills.near_misses_recalled", "skills.near_misses_recalled_effects")
NAMES: Final = (*_names(""), *_NEAR_NAMES, *_names("_off"))
MINILM_NAMES: Final = _names("_minilm")


@dataclass(slots=True)
class Outcomes:
    """Counts of texts: with a skill, those whose best one is right, those that recall it; without one, false ones."""

    asked: int = 0
    first: int = 0
    right: int = 0
    others: int = 0
    false: int = 0


@dataclass(frozen=True, slots=True)
class _KeptVectors:
    """An embedder that embeds each text once: the same ones are asked of many stores."""

    embedder: CachingEmbedder
    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self.embedder.embed_and_keep("", texts)

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Store:
    """Skills of many tenants, each a store of its own."""

    memory: SkillMemory
    catalog: SkillCatalog

    async def add(self, tenant: str, skills: Sequence[Sequence[LearnedSkill]]) -> list[str]:
        """Store skills, each with its further tasks, and return their ids."""
        rows: list[NewSkill] = []
        ids: list[str] = []
        for main, *further in skills:
            ids.append(new_id())
            rows.append(NewSkill(ids[-1], main, await self.memory.query(tenant, main.task)))
            rows += [NewSkill(new_id(), one, await self.memory.query(tenant, one.task), ids[-1]) for one in further]
        async with self.catalog.changing() as connection:
            await self.catalog.store(connection, tenant, [ImportedSkill(row, "active") for row in rows], "bench")
        return ids


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure recall with the built-in vectors and by words and characters only."""
    setup.say("Recall of skills")
    async with _open_store(setup, static_embedder()) as store:
        figures = [*await _clinc("", store), *await _near_misses(store)]
    async with _open_store(setup, None) as store:
        return [*figures, *await _clinc("_off", store)]


async def measure_minilm(setup: BenchSetup) -> list[Figure]:
    """Measure recall with MiniLM."""
    setup.say("Recall of skills with MiniLM")
    async with minilm_embedder() as embedder, _open_store(setup, embedder) as store:
        return await _clinc("_minilm", store)


@asynccontextmanager
async def _open_store(setup: BenchSetup, embedder: CachingEmbedder | None) -> AsyncGenerator[Store]:
    folder = setup.folder / f"recall {embedder.name if embedder else 'off'}".replace(":", " ")
    folder.mkdir(mode=0o711)
    if embedder:
        await embedder.embed_and_keep("", [one.text for part in clinc() for one in part])
    kept = _KeptVectors(embedder, embedder.name, embedder.dimensions) if embedder else None
    with EmbeddedPostgres(folder, durable=False) as server:
        await upgrade(server.url)
        engine = open_engine(server.url)
        try:
            memory = SkillMemory(SkillRepository(engine), kept, lambda text: text, NOOP_TRACER, SystemClock())
            yield Store(memory, SkillCatalog(engine))
        finally:
            await engine.dispose()


async def _clinc(suffix: str, store: Store) -> list[Figure]:
    right: list[Figure] = []
    false: list[Figure] = []
    for size, tasks in product(_SIZES, _TASKS):
        found, rng, end = Outcomes(), random.Random(_SEED), f"_{size}_skills_{tasks}_tasks{suffix}"
        for number in range(_SIZES[size]):
            await _ask_store(store, f"{size} {tasks} {number}", rng, found, size=size, tasks=tasks)
        shares = found.right / found.asked, found.first / found.asked, found.false / found.others
        right.append(Figure(f"skills.clinc.right{end}", shares[0], "", shares[1], "the best skill is right"))
        false.append(Figure(f"skills.clinc.false{end}", shares[2], "", shares[0], "right ones"))
    return [*right, *false]


async def _ask_store(store: Store, tenant: str, rng: random.Random, found: Outcomes, *, size: int, tasks: int) -> None:
    """Sample a store, ask it for paraphrases and for texts without a skill, and count what it recalls."""
    stored, asked = clinc()
    half, others = clinc_intents(judged=True), [one for one in asked if one.skill is None]
    names = rng.sample(half if size <= len(half) else [*half, *clinc_intents(judged=False)], size)
    known = [_learned(name, rng.sample([one for one in stored if one.skill == name], tasks)) for name in names]
    ids = dict(zip(await store.add(tenant, known), names, strict=True))
    without = rng.sample(others[1::2], _OTHERS) if size <= len(half) else others
    for one in [one for one in asked if one.skill in names] + without:
        search = await store.memory.search(tenant, [_TOOL], one.text)
        best = ids[search.ranked[0].skill_id] if search.ranked else None
        if one.skill is None:
            found.others += 1
            found.false += bool(search.recalled)
        else:
            found.asked += 1
            found.first += best == one.skill
            found.right += best == one.skill and bool(search.recalled)


def _learned(name: str, tasks: Sequence[Utterance]) -> list[LearnedSkill]:
    calls = (SkillCall(_TOOL.full_name, {"intent": name}),)
    hashes = {_TOOL.full_name: _TOOL.hash}
    return [LearnedSkill(one.text, one.text, calls, "Done.", hashes, "specialist", "desk", "") for one in tasks]


async def _near_misses(store: Store) -> list[Figure]:
    """Measure how many texts that mean something else recall the only skill of a store, beside its paraphrases."""
    figures: list[Figure] = []
    for name, effect in zip(_NEAR_NAMES, (Effect.READ, Effect.UNSAFE), strict=True):
        pairs = [pair for pair in near_misses() if pair.reads == (effect is Effect.READ)]
        found = [await recalled(store, f"{name} {number}", pair, effect) for number, pair in enumerate(pairs)]
        near, same = (sum(which) / len(pairs) for which in zip(*found, strict=True))
        figures.append(Figure(name, near, "", 1.0, f"all; of paraphrases {same:.0%} recall it"))
    return figures


async def recalled(store: Store, tenant: str, pair: NearMiss, effect: Effect) -> tuple[bool, bool]:
    """Return whether a near miss recalls a skill, and whether a paraphrase does."""
    server, _, name = pair.tool.partition(".")
    properties: JsonObject = {argument: {} for argument in pair.arguments}
    tool = replace(_TOOL, server=server, name=name, effect=effect, input_schema={"properties": properties})
    made = [MadeCall(tool.full_name, pair.arguments, "Done.")]
    template, calls = generalized(TaskTexts(pair.known, pair.known), made, lambda text: text)
    hashes = {tool.full_name: tool.hash}
    await store.add(tenant, [[LearnedSkill(pair.known, template, calls, "", hashes, "specialist", "desk", "")]])
    near, same = [(await store.memory.search(tenant, [tool], text)).recalled for text in (pair.near, pair.paraphrase)]
    return bool(near), bool(same)
