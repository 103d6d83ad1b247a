"""Runs that fail by what they may do no longer: their tokens, their key, an approval that nobody gave in time."""

from starling.app.access.keys import KeySpec
from starling.core.agents import Persona
from starling.core.principal import Scope
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.kill_switches import Target
from tests.support.model_script import Answer
from tests.support.platform import RunStream, calls, decision, task
from tests.support.seeded_runs import ADMIN, ARCHIVE, BILLING, DEPOT, TRAVEL, SeededRun, Stage

_PERSONA = Persona(role="travel agent", goal="arrange trips")
_TRAVELLERS = StarSpec(
    name="travellers",
    purpose="Arranges trips.",
    members=(
        Member(name="gatekeeper", persona=_PERSONA, server="travel", tools=("travel.gate",), runtime="native"),
        Member(name="booker", persona=_PERSONA, server="travel", tools=("travel.book",), runtime="native"),
    ),
)
_BOOK = calls(("book", {"flight": "LH454", "seats": 1}))
_RESERVE = calls(("reserve", {"item": "paper", "boxes": 4}))


async def _no_more_tokens(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.retried("tea")
    plan.quick("gate", after=["tea"])
    plan.fixed("hall", after=["gate"])
    plan.slow("background", after=["hall"])
    plan.warned("paper", after=["background"])
    plan.give(reply="What was found [1].")
    key = await stage.accept(limits={"tokens": 150})
    await stage.begin(key)
    await stage.answered(key)
    return await stage.finish(key)


async def _tokens_granted_once(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.slow("background")
    plan.rejected_once("gate")
    plan.warned("paper")
    write = calls(("write_document", {"name": "paper-count", "text": "260"}))
    plan.task("write", ARCHIVE, "Write down the boxes of paper.", write, after=["paper", "gate", "background"])
    plan.quick("last_gate", after=["write"])
    plan.retried("tea", after=["last_gate"])
    plan.give(reply="What was found [1].")
    key = await stage.accept(limits={"tokens": 100})
    await stage.begin(key)
    await stage.answered(key, tokens=60)
    await stage.begin(key)
    return await stage.unanswered(key)


async def _revoked_key(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.retried("tea")
    plan.fixed("hall")
    plan.slow("background")
    plan.task(
        "seat",
        TRAVEL,
        "Book a seat on flight LH454.",
        Answer("", _BOOK.tool_calls, hold=stage.gate),
        _BOOK,
        after=["tea", "hall", "background"],
    )
    plan.quick("gate", after=["seat"])
    plan.give(reply="The seat is not booked.")
    row, _ = await stage.platform.services.storage.keys.create(
        KeySpec("test", stage.tenant, frozenset([Scope.RUN])), ADMIN
    )
    key = await stage.accept(key_id=row.id)
    async with stage.held_at(key, "seat") as life:
        await stage.platform.services.storage.keys.revoke(row.id, ADMIN)
        await stage.refused("travel", "gate", {"flight": "LH760"}, caller=row.id)
    return await life


async def _key_revoked_while_a_team_works(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.rejected_once("gate")
    plan.warned("paper")
    plan.task("trip", "travellers", f"Find the gate of LH454 and book 2 seats on it {stage.run.reference}.")
    plan.fixed("hall", after=["paper"])
    plan.retried("tea", after=["trip"])
    inside = (
        task("find", "gatekeeper", "Find the gate of LH454."),
        task("reserve_seats", "booker", "Book 2 seats on LH454.", ["find"]),
    )
    stage.script.agent("find", calls(("gate", {"flight": "LH454"})))
    stage.script.agent("reserve_seats", Answer("", _BOOK.tool_calls, hold=stage.gate), _BOOK)
    stage.script.supervisor(decision(*plan.tasks), decision(*inside), decision())
    plan.give(reply="LH454 leaves from B12 [3]; no seats are booked.")
    row, _ = await stage.platform.services.storage.keys.create(
        KeySpec("desk", stage.tenant, frozenset([Scope.RUN])), ADMIN
    )
    key = await stage.accept(key_id=row.id)
    async with stage.held_at(key, "trip/reserve_seats") as life:
        await stage.platform.services.storage.keys.revoke(row.id, ADMIN)
        await stage.refused("depot", "stock", {"item": "tea"}, caller=row.id)
    return await life


async def _switched_off_server(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.task("order", DEPOT, "Reserve 4 boxes of paper.", Answer("", _RESERVE.tool_calls, hold=stage.gate), _RESERVE)
    plan.rejected_once("other_gate", after=["gate"])
    plan.slow("background", after=["gate"])
    write = calls(("write_document", {"name": "orders", "text": "4 boxes of paper"}))
    plan.task("file", ARCHIVE, "Write the order down.", write, after=["order"])
    plan.give(reply="The paper is not reserved.")
    key = await stage.accept()
    async with stage.held_at(key, "order") as life:
        await stage.platform.services.storage.switches.off(
            Target("server", "depot", stage.tenant), "Stock-taking.", ADMIN
        )
        await stage.refused("depot", "stock", {"item": "tea"}, tenant=stage.tenant)
    return await life


async def _nobody_approved(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.warned("paper")
    plan.slow("background", after=["gate"])
    plan.task(
        "bill", BILLING, "Charge the customer for the lamps.", calls(("charge", {"what": "lamps"})), after=["paper"]
    )
    plan.fixed("hall", after=["bill"])
    plan.give(reply="The customer is not charged; the gate is C03 [1].")
    key = await stage.accept()
    await stage.begin(key)
    return await stage.unanswered(key)


async def _second_approval_expired(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.task("deposit", BILLING, "Charge the deposit.", calls(("charge", {"what": "deposit"})))
    plan.retried("tea")
    plan.rejected_once("gate", after=["tea"])
    plan.task(
        "invoice_rest",
        BILLING,
        "Invoice the rest of the sum.",
        calls(("invoice", {"what": "rest", "answer": "number"})),
        after=["deposit", "gate"],
    )
    plan.slow("background")
    write = calls(("write_document", {"name": "rest", "text": "invoiced"}))
    plan.task("file", ARCHIVE, "File the invoice of the rest.", write, after=["invoice_rest"])
    plan.give(decision(), reply="The deposit is charged [1]; the rest is not invoiced.")
    key = await stage.accept()
    await stage.begin(key)
    await stage.answered(key, approved=True)
    await stage.begin(key)
    return await stage.unanswered(key)


PERMISSION_FAILURES = (
    SeededRun(
        "no-more-tokens", "lost_budget", "Count the tea, note the paper, find my gate, and look after the hall.",
        _no_more_tokens, ("background", "paper"),
    ),
    SeededRun(
        "tokens-granted-once", "lost_budget", "Look up the fair, write the paper down, and find both gates.",
        _tokens_granted_once, ("write", "last_gate"),
    ),
    SeededRun(
        "revoked-key", "revoked_grant", "Book me a seat on LH454 once the tea is counted.",
        _revoked_key, (TRAVEL, "travel.book", "seat"),
    ),
    SeededRun(
        "revoked-in-team", "revoked_grant", "Let the travellers find my gate and book two seats on LH454.",
        _key_revoked_while_a_team_works, ("booker", "travel.book", "reserve_seats"), (_TRAVELLERS,),
    ),
    SeededRun(
        "stock-taking", "switched_off", "Order four boxes of paper and file the order.",
        _switched_off_server, (DEPOT, "depot", "order"),
    ),
    SeededRun(
        "nobody-approved", "expired_approval", "Charge the customer for the lamps and tell me my gate.",
        _nobody_approved, (BILLING, "billing.charge", "bill"),
    ),
    SeededRun(
        "second-approval", "expired_approval", "Charge the deposit, then invoice the rest and file the invoice.",
        _second_approval_expired, (BILLING, "billing.invoice", "invoice_rest"),
    ),
)  # fmt: skip
