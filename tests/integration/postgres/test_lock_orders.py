"""Lock orders: each operation locks rows in one global order, so no deadlock can occur.

The orders, each from left to right (`skips`: locked rows are skipped, so the operation does not wait there; `*`: rows
in the order of their keys):

| operation | locks |
| --- | --- |
| accepting a build of a named team | the epochs' advisory lock, then as any run |
| accepting a run | idempotency key, the thread's advisory lock, on `interrupt` its open runs, branch, new run, job |
| ending a run, also by a cancel | run, then its interrupts, calls and branch; runs that are next (skips), jobs |
| suspending a run | run, branch; runs that are next (skips), jobs |
| answering | run, its interrupts; runs that are next (skips), jobs |
| answering with a message | idempotency key, run, its interrupts; runs that are next (skips), jobs |
| expiring questions | runs (skips), their interrupts; runs that are next (skips), jobs |
| claiming, flushing, flagging, releasing | run; on release its job |
| flushing the results of tasks that had skills | run, skills * |
| renewing leases | runs (skips) |
| sweeping | runs (skips), jobs of these, jobs of dead workers; runs that are next (skips), jobs |
| pruning | runs (skips) and their rows; then keys and audit events (skips) |
| the outbox | audit events (skips locked ones in `take`; in the order of their keys in `settle`) |
| changing the registry | the servers' advisory lock, the epochs' advisory lock, servers, the active epoch, skills * |
| publishing and proving teams | the epochs' advisory lock, the run (shared), the team's versions, the active epoch |
| restoring, importing skills | the epochs' advisory lock, one skill or new ones |
| making vectors of skills | the skills' advisory lock (tried), skills * |
| closing epochs | epochs that aren't active (skips) |
| switching, revoking, using keys, retiring skills | one row |
"""

import asyncio
import gc
import random
from array import array
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from architect.repository import TeamRepository
from architect.team_store import BuiltTeam
from brain.registry.manifest import Manifest
from brain.registry.repository import AgentRepository, EpochRepository, StarRepository
from brain.skills.repository import SkillUse, follow_tools, storing
from starling.app.teams.activation import TeamActivation
from starling.app.teams.publication import TeamPublication
from starling.core.conversation.states import FinishedState
from starling.core.conversation.turn import PlacedState
from starling.core.errors import ConflictError, LeaseLostError, NotFoundError, RunCancelledError
from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.ids import new_id
from starling.core.principal import Principal, Scope
from starling.core.runs import Run, RunResult
from starling.core.settings.schema import Limits
from starling.core.teams.building import BuildOrigin, BuildRequest
from starling.core.teams.proofs import ProofReport
from starling.core.teams.spec import TeamInvalidError, TeamSpec
from starling.infra.postgres.audit import Actor, Outbox
from starling.infra.postgres.engine import ConnectionLimits, open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchRepository, Target
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.acceptance import Claim, IdempotencyKey, OpenClarificationError, RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.conversations import push_turn
from starling.infra.postgres.runs.interrupts import InterruptAnswer, InterruptRepository
from starling.infra.postgres.runs.leases import LeaseRenewer, Leases
from starling.infra.postgres.runs.termination import TerminationRepository
from starling.infra.postgres.runs.writer import Clause, RunWriter
from starling.infra.postgres.skill_vectors import OutdatedSkill, open_skill_vectors
from starling.infra.queue.run_queue import RunQueue
from tests.support.run_factories import claimed, locked, new_question, new_run, wait_for_answer
from tests.support.run_queues import open_queue

_TENANTS: Final = ("one", "two")
_THREADS: Final = ("a", "b")
_TEAMS: Final = ("poets", "painters", "singers")
_TOOLS: Final = ("s.one", "s.two", "s.three")
_CALLERS, _DEEDS = 12, 60
_CONNECTIONS: Final = ConnectionLimits(size=24)
_LOCAL = Actor.local("test")
_LEGAL = (
    ConflictError,
    OpenClarificationError,
    LeaseLostError,
    NotFoundError,
    RunCancelledError,
    TeamInvalidError,
)  # when another operation was first
_SOME_RUN = "SELECT tenant, id::text FROM runs WHERE ended_at IS NULL ORDER BY random() LIMIT 1"
_SOME_QUESTION = "SELECT tenant, run_id::text, id::text FROM interrupts WHERE state = 'open' ORDER BY random() LIMIT 1"
_OTHERS = """
SELECT FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""
_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"""
_LEARN = """
INSERT INTO skills (tenant, id, task, template, calls, outcome, tools, shape, agent_kind, agent, provenance, words)
SELECT %(tenant)s, id, 'Look.', 'Look.', '[]', 'Done.', jsonb_build_object(tool, '1'), id, 'specialist', 'a', 'run', ''
FROM unnest(%(ids)s::uuid[], %(tools)s::text[]) AS item (id, tool)"""
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@dataclass
class Crowd:
    """Everybody who changes something, over one database; each does what the dice say."""

    engine: AsyncEngine
    url: str
    queue: RunQueue
    dice: random.Random
    done: Counter[str] = field(default_factory=Counter[str])
    held: deque[Run] = field(default_factory=lambda: deque[Run](maxlen=10))
    over: bool = False
    executions: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    skills: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # ids by tenant

    def __post_init__(self) -> None:
        self.runs = RunRepository(self.engine, self.queue.defer, cap=3)
        self.leases = Leases(self.engine, self.queue.defer, self.runs.admit, graph_version=1)
        self.interrupts = InterruptRepository(self.engine, self.runs)
        self.stopping = TerminationRepository(self.engine)
        self.switches = SwitchRepository(self.engine)
        self.epochs = EpochRepository(self.engine)
        activation = TeamActivation(
            self.epochs,
            TeamRepository(self.engine),
            StarRepository(self.engine),
            AgentRepository(self.engine),
            Limits(),
        )
        self.store = TeamPublication(activation, KeyRepository(self.engine))
        self.outbox = Outbox(self.engine)
        self.retention = Retention(self.engine, runs_at_once=3, rows_at_once=3)

    @property
    def actions(self) -> dict[Callable[[], Awaitable[object]], int]:
        """What callers and sweeps do, and how often."""
        return {
            self.ask: 8,
            self.publish: 3,
            self.tell: 12,
            self.answer: 4,
            self.cancel: 2,
            self.renew: 2,
            self.sweep: 3,
            self.expire: 3,
            self.prune: 2,
            self.deliver: 2,
            self.switch: 1,
            self.embed_skills: 2,
            self.change_registry: 1,
            self.close_epochs: 1,
        }

    async def come_and_go(self) -> None:
        for _ in range(_DEEDS):
            (action,) = self.dice.choices([*self.actions], [*self.actions.values()])
            try:
                await action()
            except _LEGAL as error:
                self.done[type(error).__name__] += 1
            self.done[getattr(action, "__name__", "")] += 1

    def key(self) -> IdempotencyKey | None:
        return self.dice.choice([None, IdempotencyKey(f"key {self.dice.randrange(5)}", "hash")])

    async def ask(self) -> None:
        new = new_run(tenant=self.dice.choice(_TENANTS), thread=self.dice.choice(_THREADS))
        policy = self.dice.choice(["enqueue", "enqueue", "reject", "interrupt"])
        build = BuildRequest(goal="Write.", name=self.dice.choice(_TEAMS)) if self.dice.random() < 0.2 else None
        await self.runs.accept(replace(new, policy=policy, idempotency=self.key(), build=build))

    async def publish(self) -> None:
        """Publish a team as one of the latest claimed runs."""
        if self.held:
            await self.publish_of(self.dice.choice(self.held))

    async def publish_of(self, run: Run) -> None:
        origin = BuildOrigin(Principal(run.tenant, "", frozenset(Scope)), run.id, run.fence, "t1", "t", 1)
        writer = {"name": "writer", "role": "Writer", "goal": "Write."}
        name = (run.build and run.build.name) or self.dice.choice(_TEAMS)
        spec = TeamSpec.model_validate({"name": name, "purpose": "Writes.", "members": [writer]})
        proof = ProofReport(
            state="proven", score=1, threshold=1, cases=(), spec_hash=spec.hash, tools={}, run_id=run.id, trace_id="t"
        )
        await self.store.publish(origin, BuiltTeam(spec, "Write.", proof, activate=True))
        self.done["published"] += 1

    async def tell(self) -> None:
        principal = Principal(self.dice.choice(_TENANTS), "", frozenset(Scope))
        if await self.interrupts.answer_thread(principal, self.dice.choice(_THREADS), "That one.", self.key()):
            self.done["told"] += 1

    async def answer(self) -> None:
        if found := await self.one(_SOME_QUESTION):
            tenant, run, question = found
            answer = InterruptAnswer(question, "resolved", {"answer": "This one."})
            await self.interrupts.answer(RunKey(tenant, run), [answer], "somebody")

    async def cancel(self) -> None:
        if (found := await self.one(_SOME_RUN)) and (claim := await self.stopping.stop(RunKey(*found))):
            await self.end(claim)

    async def sweep(self) -> None:
        await self.leases.sweep(grace_seconds=0.05, lease_seconds=60)

    async def expire(self) -> None:
        await self.interrupts.expire()

    async def prune(self) -> None:
        await self.retention.prune(PruneSelection(timedelta(milliseconds=50)))

    async def deliver(self) -> None:
        told = await self.outbox.take(10, lease_seconds=0.01)
        await self.outbox.settle(told[::2], told[1::2])

    async def renew(self) -> None:
        await asyncio.to_thread(self._renew)

    def _renew(self) -> None:
        with LeaseRenewer(self.url, lease_seconds=60) as renewals:
            renewals.renew(list(self.held))

    async def switch(self) -> None:
        target = Target("server", self.dice.choice("st"))
        await self.switches.off(target, "It is broken.", _LOCAL)
        await self.switches.on(target, _LOCAL)

    async def change_registry(self) -> None:
        manifest = Manifest(prompts={"supervisor": new_id()})
        async with self.engine.begin() as connection:
            await self.epochs.activate(connection, _LOCAL, lambda _: manifest)
            await follow_tools(connection, dict.fromkeys(self.dice.sample(_TOOLS, 2), "1"))

    async def learn_skills(self) -> None:
        """Store skills of each tenant, active and with one tool each."""
        for tenant in _TENANTS:
            self.skills[tenant] = [new_id() for _ in range(6)]
            tools = [self.dice.choice(_TOOLS) for _ in self.skills[tenant]]
            async with await AsyncConnection.connect(self.url, autocommit=True) as connection:
                await connection.execute(_LEARN, {"tenant": tenant, "ids": self.skills[tenant], "tools": tools})

    async def embed_skills(self) -> None:
        async with open_skill_vectors(self.url) as vectors:
            skills = [OutdatedSkill(tenant, found, "Look.") for tenant, ids in self.skills.items() for found in ids]
            if vectors is not None:
                await vectors.store(
                    "a model", self.dice.sample(skills, len(skills)), [array("f", [1.0, 0.0])] * len(skills)
                )

    def uses(self, run: Run) -> Clause:
        """Return the part of a flush that counts uses of some skills."""
        used = self.dice.sample(self.skills[run.tenant], 3)
        return storing([], [SkillUse(skill, success=self.dice.random() < 0.9) for skill in used])

    async def close_epochs(self) -> None:
        await self.epochs.close_unheld()

    async def work(self, key: RunKey) -> None:
        """Execute a run once, as a worker does."""
        if not self.over:
            execution = asyncio.get_running_loop().create_task(self.execute(key))
            self.executions.add(execution)
            execution.add_done_callback(self.executions.discard)
            await asyncio.shield(execution)

    async def execute(self, key: RunKey) -> None:
        lease = self.dice.choice([0.02, 60])
        claim = await self.leases.claim(key, worker=new_id(), lease_seconds=lease, run_seconds=60)
        if claim is None:
            return
        writer = RunWriter(self.engine, claim, Broadcast())
        self.held.append(claim.run)
        try:
            for word in ("one", "two"):
                writer.emit(Thinking(content=word, message_id="m"))
                if self.skills:
                    writer.add(partial(self.uses, claim.run))
                await asyncio.gather(writer.flush(), *([self.publish_of(claim.run)] if claim.run.build else []))
            await self.dice.choice([self.finish, self.wait, self.wait, self.hand_back])(writer)
        except (LeaseLostError, RunCancelledError, TeamInvalidError):
            self.done["lost"] += 1
        finally:
            await writer.close()

    async def end(self, claim: Claim) -> None:
        writer = RunWriter(self.engine, claim, Broadcast())
        await self.finish(writer)
        await writer.close()

    async def finish(self, writer: RunWriter) -> None:
        done = Done(usage=Usage(), status="succeeded", reply="Done.")
        push = push_turn(writer.run, [PlacedState(FinishedState(), 1.0)], agents=["somebody"], unasked=True)
        await writer.end(RunResult(status="succeeded", reply="Done."), done, self.runs, [push])
        self.done["ended"] += 1

    async def asking_run(self, tenant: str, thread: str) -> RunKey:
        """Return a run that waits for the answer to one question."""
        new = new_run(tenant=tenant, thread=thread)
        await self.runs.accept(new)
        writer = RunWriter(self.engine, await claimed(self.leases, new.key), Broadcast())
        await self.wait(writer, seconds=60)
        await writer.close()
        return new.key

    async def wait(self, writer: RunWriter, seconds: float | None = None) -> None:
        question = new_question(writer.run.id, seconds=seconds or self.dice.choice([0.1, 60]))
        await wait_for_answer(writer, question, self.interrupts)
        self.done["waited"] += 1

    async def hand_back(self, writer: RunWriter) -> None:
        await self.leases.release(writer.run)

    async def one(self, query: str) -> tuple[Any, ...] | None:
        async with await AsyncConnection.connect(self.url, autocommit=True) as connection:
            return await (await connection.execute(query.encode())).fetchone()


async def deadlocks(url: str) -> int:
    """Return the number of deadlocks, after all other connections have closed and reported their statistics."""
    gc.collect()  # closes those that were given up while they were opened
    async with asyncio.timeout(60), await AsyncConnection.connect(url, autocommit=True) as connection:
        while (await connection.execute(_OTHERS.encode())).rowcount:
            pass
        (found,) = await (await connection.execute(_DEADLOCKS)).fetchone() or (0,)
        return found


async def waiting_for_locks(url: str, count: int) -> None:
    """Return once so many wait for a lock."""
    async with asyncio.timeout(60), await AsyncConnection.connect(url, autocommit=True) as connection:
        while (await (await connection.execute(_WAITING.encode())).fetchone() or (0,))[0] < count:
            pass


@asynccontextmanager
async def a_crowd(url: str, seed: int) -> AsyncGenerator[Crowd]:
    engine = open_engine(url, _CONNECTIONS)
    async with open_queue(url) as queue:
        yield Crowd(engine, url, queue, random.Random(seed))
    await engine.dispose()


async def test_all_kinds_of_concurrent_transactions_never_deadlock(database_url: str) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")

    async with a_crowd(database_url, seed) as crowd:
        await crowd.learn_skills()
        working = asyncio.get_running_loop().create_task(
            crowd.queue.work(crowd.work, concurrency=8, per_tenant=8, isolated=1)
        )
        await asyncio.gather(*(crowd.come_and_go() for _ in range(_CALLERS)))
        crowd.over = True
        await asyncio.gather(*crowd.executions)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    print(crowd.done)
    assert await deadlocks(database_url) == 0


async def test_answer_and_interruption_under_one_idempotency_key_do_not_deadlock(
    database_url: str,
) -> None:
    key, loop = IdempotencyKey("key", "hash"), asyncio.get_running_loop()
    async with a_crowd(database_url, 0) as crowd:
        asks = await crowd.asking_run("one", "a")
        interrupting = replace(new_run(tenant="one", thread="a"), policy="interrupt", idempotency=key)
        async with locked("runs", database_url):
            told = loop.create_task(
                crowd.interrupts.answer_thread(Principal("one", "", frozenset(Scope)), "a", "That.", key)
            )
            await waiting_for_locks(database_url, 1)
            accepted = loop.create_task(crowd.runs.accept(interrupting))
            await waiting_for_locks(database_url, 2)
        answered, acceptance = await asyncio.gather(told, accepted)

    assert answered is None or answered[0] == asks
    assert acceptance.started.run_id == (interrupting.key.id if answered is None else asks.id)
    assert await deadlocks(database_url) == 0


async def test_concurrent_settlements_of_the_same_events_do_not_deadlock(database_url: str) -> None:
    loop = asyncio.get_running_loop()
    async with a_crowd(database_url, 0) as crowd:
        for thread in "ab":
            await crowd.runs.accept(new_run(thread=thread))
        one, two = await crowd.outbox.take(2, lease_seconds=60)
        async with locked("audit_events", database_url):
            settling = [
                loop.create_task(crowd.outbox.settle([told], [undelivered]))
                for told, undelivered in ((one, two), (two, one))
            ]
            await waiting_for_locks(database_url, 2)
        await asyncio.gather(*settling)

    assert await deadlocks(database_url) == 0


async def test_suspending_and_resuming_skills_locks_them_in_the_order_of_their_keys(database_url: str) -> None:
    async with (
        a_crowd(database_url, 0) as crowd,
        await AsyncConnection.connect(database_url, autocommit=True) as other,
        crowd.engine.connect() as connection,
    ):
        older, newer = ids = sorted(new_id() for _ in range(2))
        await other.execute(_LEARN, {"tenant": "one", "ids": ids, "tools": ["s.one", "s.two"]})
        await other.execute("UPDATE skills SET state = 'suspended' WHERE id = %s", (older,))
        async with other.transaction():
            await other.execute("SELECT FROM skills WHERE id = %s FOR UPDATE", (older,))
            following = asyncio.get_running_loop().create_task(follow_tools(connection, {"s.one": "1"}))
            await waiting_for_locks(database_url, 1)
            await other.execute("SELECT FROM skills WHERE id = %s FOR UPDATE NOWAIT", (newer,))
        await following
        await connection.commit()
        states = await (await other.execute("SELECT state FROM skills ORDER BY id")).fetchall()

    assert states == [("active",), ("suspended",)]


async def test_closing_epochs_waits_for_no_lock(database_url: str) -> None:
    async with a_crowd(database_url, 0) as crowd:
        for _ in range(2):
            await crowd.change_registry()
        async with locked("epochs", database_url):
            meanwhile = await crowd.epochs.close_unheld()

        assert (meanwhile, await crowd.epochs.close_unheld()) == ({1, 2}, {2})
