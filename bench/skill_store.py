"""What recall takes in a large store: 100,000 skills of one tenant among 200,000, with embedding, SQL and cut."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final
from uuid import UUID

import psycopg
from pgvector import HalfVector
from sqlalchemy import make_url

from bench.embedders import static_embedder
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import clinc, server_rows
from brain.registry.cards import AgentCard
from brain.retrieval.text_similarity import content_words
from brain.skills.embedding_upkeep import SkillUpkeep
from brain.skills.memory import SkillMemory
from brain.skills.repository import Candidates, SkillQuery, SkillRepository
from starling.core.clock import SystemClock
from starling.core.embeddings import Embedder
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import NOOP_TRACER
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import connected, open_engine
from starling.infra.postgres.schema import upgrade

NAMES: Final = ("skills.recall_ms_100k", "skills.recall_ms_100k_one_server", "skills.empty_recall_ratio")
_SKILLS, _SERVERS, _SEED = 200_000, 100, 1
_WARM_UP, _REQUESTS, _SCANS = 100, 100, 5
_TENANT, _OTHER, _WITHOUT_SKILLS = "measured", "other", "without skills"
_EMPTY_RECALLS: Final = 500
_COPY: Final = """
COPY skills (tenant, id, task, template, calls, outcome, tools, shape, agent_kind, agent, provenance, model, embedding,
    words) FROM STDIN"""


class ScanningRepository(SkillRepository):
    """Compares each skill of the tenant, however many there are."""

    async def candidates_by_index(self, tenant: str, tools: Mapping[str, str], query: SkillQuery) -> Candidates:
        return await self.candidates(tenant, tools, query)


@dataclass(frozen=True, slots=True)
class Requests:
    """Tasks to recall skills for, and the agents that get them: one with all servers, one with one server."""

    warm_up: Sequence[str]
    measured: Sequence[str]
    wide: AgentCard
    narrow: AgentCard


async def measure(setup: BenchSetup) -> list[Figure]:
    """Fill a store, let the upkeep index it, and measure recall with and without the indexes."""
    setup.say("Recall from 100,000 skills among 200,000")
    folder = setup.folder / "skills"
    folder.mkdir(mode=0o711)
    embedder = static_embedder()
    with EmbeddedPostgres(folder, durable=False) as server:
        await upgrade(server.url)
        await _fill(server.url, embedder)
        await SkillUpkeep(server.url, embedder).sweep()
        engine = open_engine(server.url)
        try:
            indexed = _memory(SkillRepository(engine), embedder)
            figures = await _figures(indexed, _memory(ScanningRepository(engine), embedder))
            return [*figures, await _empty_recall(server.url, indexed)]
        finally:
            await engine.dispose()


def _memory(repository: SkillRepository, embedder: Embedder) -> SkillMemory:
    return SkillMemory(repository, embedder, lambda text: text, NOOP_TRACER, SystemClock())


async def _figures(indexed: SkillMemory, scanning: SkillMemory) -> list[Figure]:
    requests = _requests()
    figures: list[Figure] = []
    for name, card in zip(NAMES[:2], (requests.wide, requests.narrow), strict=True):
        await _milliseconds(indexed, card, requests.warm_up)
        found = await _milliseconds(indexed, card, requests.measured)
        scanned = await _milliseconds(scanning, card, requests.measured[:_SCANS])
        figures.append(Figure(name, median(found), "ms", median(scanned), "each skill of the tenant compared"))
    return figures


async def _empty_recall(url: str, filled: SkillMemory) -> Figure:
    """Compare the recall of a tenant without skills with that in a store without any, in turns."""
    async with connected(url) as connection:
        await connection.execute("CREATE DATABASE empty")
    without = make_url(url).set(database="empty").render_as_string(hide_password=False)
    await upgrade(without)
    engine = open_engine(without)
    try:
        memories = filled, _memory(SkillRepository(engine), static_embedder())
        requests = _requests()
        found: tuple[list[float], list[float]] = [], []
        for number in range(_WARM_UP + _EMPTY_RECALLS):
            task = [requests.measured[number % _REQUESTS]]
            for memory, times in zip(memories, found, strict=True):
                times.extend(await _milliseconds(memory, requests.wide, task, _WITHOUT_SKILLS))
    finally:
        await engine.dispose()
    beside, alone = (median(times[_WARM_UP:]) for times in found)
    against = f"a store without skills, {alone:.2f} ms; beside {_SKILLS:,} skills of others {beside:.2f} ms"
    return Figure(NAMES[2], beside / alone, "", 1.0, against)


async def _milliseconds(
    memory: SkillMemory, card: AgentCard, tasks: Sequence[str], tenant: str = _TENANT
) -> list[float]:
    found: list[float] = []
    for task in tasks:
        begun = perf_counter()
        await memory.recall(tenant, card, task)
        found.append((perf_counter() - begun) * 1000)
    return found


async def _fill(url: str, embedder: Embedder) -> None:
    """Store the skills, every second one of the measured tenant."""
    rng = random.Random(_SEED)
    tasks = dict[str, None]()
    wishes, works = _phrases()
    while len(tasks) < _SKILLS:
        tasks[f"{rng.choice(wishes).capitalize()}, then {rng.choice(works)}."] = None
    texts = list(tasks)
    vectors = await embedder.embed(texts)
    with psycopg.connect(url) as connection, connection.cursor().copy(_COPY) as copy:
        for number, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
            server = f"server{rng.randrange(_SERVERS)}"
            tool = f"{server}.get"
            calls = json.dumps([{"tool": tool, "arguments": {}}])
            words = " ".join(f"'{word}'" for word in dict.fromkeys(content_words(text)))
            tenant, key = (_TENANT, _OTHER)[number % 2], str(UUID(int=number))
            solved = (text, text, calls, "Done.", json.dumps({tool: "1"}), text, "specialist", server, "run")
            copy.write_row((tenant, key, *solved, embedder.name, HalfVector(list(vector)).to_text(), words))


def _requests() -> Requests:
    """Return requests that are worded differently from the stored tasks, some near to one and some to none."""
    rng = random.Random(_SEED + 1)
    wishes, works = _phrases()
    tasks = [f"Please {rng.choice(wishes)} and {rng.choice(works)}" for _ in range(_WARM_UP + _REQUESTS)]
    return Requests(tasks[:_WARM_UP], tasks[_WARM_UP:], _card(range(_SERVERS)), _card([7]))


def _phrases() -> tuple[Sequence[str], Sequence[str]]:
    """Return what users say, and what tools do."""
    stored, asked = clinc()
    tools = [tool for row in server_rows("stabletoolbench", 811) for tool in row["tools"] if tool["description"]]
    return [one.text for one in (*stored, *asked)], [tool["description"].split(".")[0][:80] for tool in tools]


def _card(servers: Sequence[int]) -> AgentCard:
    tools = tuple(ToolDefinition(f"server{n}", "get", "", {"type": "object"}, None, Effect.READ, "1") for n in servers)
    return AgentCard("agent", "custom", "", None, tools)
