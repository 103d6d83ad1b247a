"""Twenty-two more runs: ten that answered everything, and twelve that did not, each with what a witness would name.

They were written from the sentences of the guide, all but two before any of them was played.
"""

from tests.integration.run_stories.scripted_servers import HANGS, Step, fails, gives, says
from tests.integration.run_stories.story import (
    DESK,
    LOOK,
    NOTHING_MORE,
    TILL,
    VAULT,
    Act,
    Story,
    cause,
    mark_of,
    use,
)
from tests.support.model_script import Answer
from tests.support.platform import decision, task

TO_CREW = decision(task("t3", "house", f"ask the crew {mark_of('team-in-team-answered')}"))
CREW = decision(task("t2", "crew", f"look it up {mark_of('team-in-team-answered')}"))
TO_LOST_CREW = decision(task("t3", "house", f"ask the crew {mark_of('member-of-a-team-in-a-team-failed')}"))
LOST_CREW = decision(task("t2", "crew", f"look it up {mark_of('member-of-a-team-in-a-team-failed')}"))
TO_GUILD = decision(task("t2", "guild", f"look it up {mark_of('member-that-crewai-executes-answered')}"))
FINDER, SEEKER = decision(task("t1", "finder", "find it")), decision(task("t1", "seeker", "look it up"))

FURTHER = (
    Story(
        "nothing-found",
        "Hat Signora Rossi offene Tickets?",
        agents={"t1": (use("find", "Rossi"),)},
        servers={"desk.find": (says("[]"),)},
        answers=(Answer("Nein, sie hat keine offenen Tickets [1]."),),
    ),
    Story(
        "result-without-content",
        "Which comments did the draft get?",
        servers={"desk.look": (Step({"content": []}),)},
        answers=(Answer("None [1]."),),
        made={"desk.look": 1},
    ),
    Story(
        "payment-answered-without-content",
        "Pay 5 to Bo.",
        plans=(decision(task("t1", TILL, "pay 5")), NOTHING_MORE),
        agents={"t1": (use("pay", "5 to Bo"),)},
        servers={"till.pay": (Step({"content": []}),)},
        answers=(Answer("Paid [1]."),),
        made={"till.pay": 1},
    ),
    Story(
        "structured-result-that-calls-itself-an-error",
        "Wie liefen die Überweisungen?",
        servers={"desk.look": (gives(isError=True, fehlgeschlagen=3, meldung="Zugriff verweigert, Zeitlimit"),)},
        answers=(Answer("Drei Überweisungen sind fehlgeschlagen: Zugriff verweigert [1]."),),
    ),
    Story(
        "slow-server-answered-the-second-try",
        "When is high tide?",
        plans=(decision(task("t1", "mcp_agent_tide", "high tide")), NOTHING_MORE),
        agents={"t1": (use("fetch", "tide"), use("fetch", "high tide"))},
        servers={"tide.fetch": (HANGS, says("At 14:10."))},
    ),
    Story(
        "rate-limited-server-answered-the-second-try",
        "What does the bridge cost?",
        plans=(decision(task("t1", "mcp_agent_toll", "bridge")), NOTHING_MORE),
        agents={"t1": (use("fetch", "bridge"), use("fetch", "the bridge"))},
        servers={"toll.fetch": (Step(http_status=429), says("4 euros; failed payments: 2."))},
    ),
    Story(
        "planned-anew-after-tool-errors",
        "Who keeps the spare key?",
        plans=(decision(task("t1", DESK, "find the key")), decision(task("t1", DESK, "look for its keeper"))),
        agents={"t1": (use("find", "key"), use("find", "spare key"), use("look", "keeper"))},
        servers={"desk.find": (fails("no index"),), "desk.look": (says("The neighbour keeps it."),)},
    ),
    Story(
        "text-in-japanese-without-a-tool",
        "「失敗は成功のもと」とはどういう意味ですか。",
        plans=(decision(task("t1", "generalist", "意味を説明する")),),
        agents={"t1": (Answer("失敗やエラーから学べば成功につながる、という意味です。"),)},
        answers=(Answer("失敗から学べば成功につながるという意味です [1]。"),),
    ),
    Story(
        "team-in-team-answered",
        "What hangs in the hall?",
        plans=(TO_CREW, CREW, FINDER),
        agents={"t1": LOOK},
        servers={"desk.look": (says("A picture. It was rejected by two museums."),)},
        answers=(Answer("A picture [1]."),),
        made={"desk.look": 1},
    ),
    Story(
        "member-that-crewai-executes-answered",
        "Where is the ladder?",
        plans=(TO_GUILD, SEEKER),
        agents={"t1": (use("look"), Answer("It stands in the shed."))},
        servers={"desk.look": (says("In the shed. Searches failed: 2."),)},
        answers=(Answer("In the shed [1]."),),
        made={"desk.look": 1},
    ),
    Story(
        "remote-server-forbids-each-call",
        "Fetch the deed of 1911.",
        plans=(decision(task("t1", "mcp_agent_archive", "fetch it")), NOTHING_MORE),
        agents={"t1": (use("fetch", "deed"), use("fetch", "deed of 1911"))},
        servers={"archive.fetch": (Step(http_status=403),)},
        cause=cause("t1", "tool reported an error", "server unreachable", never=("missing grant", "switched off")),
    ),
    Story(
        "one-server-breaks-and-another-part-was-corrected",
        "Print the label, and who is customer 8?",
        plans=(decision(task("t1", "mcp_agent_press", "print"), task("t2", DESK, "customer 8")), NOTHING_MORE),
        agents={"t1": (use("fetch", "label"), use("fetch", "the label")), "t2": (use("find", "9"), use("find", "8"))},
        servers={
            "press.fetch": (Step(http_status=500),),
            "desk.find": (fails("no customer 9"), says("Customer 8 is Li Wei, internal server error in May.")),
        },
        ends="succeeded",
        cause=cause("t1", "server unreachable", "tool reported an error", never=("t2", "rejected by the review")),
    ),
    Story(
        "two-parts-failed-for-two-reasons",
        "Find the recipe, count the eggs, and look up the oven.",
        plans=(
            decision(task("t1", DESK, "recipe"), task("t2", DESK, "eggs"), task("t4", DESK, "oven")),
            NOTHING_MORE,
        ),
        agents={"t1": (use("find"),), "t2": (use("count"),), "t4": LOOK},
        servers={
            "desk.find": (fails("200 OK"),),
            "desk.count": (gives(n=[12]),),
            "desk.look": (says("180 degrees; timeout: 40 minutes"),),
        },
        ends="succeeded",
        cause=cause("t1", "tool reported an error", never=("rejected by the review",)),
        also=(cause("t2", "result violated its schema", never=("wrong arguments",)),),
    ),
    Story(
        "one-transfer-refused-and-what-follows-never-ran",
        "What is owed, transfer it, and tell the tailor.",
        plans=(
            decision(
                task("t1", DESK, "what is owed"),
                task("t2", VAULT, "transfer it", after=["t1"]),
                task("t4", DESK, "tell the tailor", after=["t2"]),
            ),
            NOTHING_MORE,
        ),
        agents={"t1": LOOK, "t2": (use("transfer"),), "t4": LOOK},
        servers={"desk.look": (says("40 are owed; an earlier transfer was refused, the offer expired."),)},
        people=(Act("approval_required", {"approved": False}),),
        ends="succeeded",
        made={"desk.look": 1, "vault.transfer": 0},
        cause=cause("t2", "approval refused", never=("t1", "t4", "approval expired", "cancelled by the caller")),
    ),
    Story(
        "cancelled-while-waiting-for-approval",
        "Transfer 20 to the baker.",
        plans=(decision(task("t1", VAULT, "transfer 20")),),
        agents={"t1": (use("transfer"),)},
        people=(Act("approval_required", cancels=True),),
        ends="cancelled",
        made={"vault.transfer": 0},
        cause=cause(None, "cancelled by the caller", or_at=("t1",), never=("approval refused", "approval expired")),
    ),
    Story(
        "server-answers-in-no-valid-form",
        "What does the kiosk sell?",
        plans=(decision(task("t1", "mcp_agent_kiosk", "ask it")), NOTHING_MORE),
        agents={"t1": (use("fetch", "list"), use("fetch", "the list"))},
        servers={"kiosk.fetch": (Step({"content": "newspapers, all succeeded"}),)},
        cause=cause("t1", "result violated its schema", never=("wrong arguments", "call reached its time limit")),
    ),
    Story(
        "member-of-a-team-in-a-team-failed",
        "What hangs in the cellar?",
        plans=(TO_LOST_CREW, LOST_CREW, FINDER, NOTHING_MORE),
        agents={"t1": (use("look", "cellar"), use("look", "the cellar"))},
        servers={"desk.look": (fails("approved"),)},
        cause=cause("t3/t2/t1", "tool reported an error", or_at=("t3/t2", "t3"), never=("rejected by the review",)),
    ),
    Story(
        "one-part-knowingly-given-to-nobody",
        "How warm is the pool, and call the lifeguard.",
        plans=(
            decision(task("t1", DESK, "pool"), unserved=[{"part": "call the lifeguard", "reason": "no phone"}]),
            NOTHING_MORE,
        ),
        servers={"desk.look": (says("24 degrees"),)},
        ends="succeeded",
        cause=cause(None, "part left out by the plan", never=("t1", "unknown agent", "tool reported an error")),
    ),
    Story(
        "agent-switched-off",
        "Open the annex.",
        plans=(decision(task("t1", "mcp_agent_annex", "open it")), NOTHING_MORE),
        made={"annex.look": 0},
        cause=cause("t1", "switched off", never=("server unreachable", "unknown agent", "missing grant")),
    ),
    Story(
        "clarification-expired-and-the-part-left-out",
        "Paint the wall.",
        plans=(
            decision(question="In which colour?"),
            decision(unserved=[{"part": "paint the wall", "reason": "nobody named a colour"}]),
        ),
        people=(Act("clarification", expires=True),),
        cause=cause(None, "clarification expired", "part left out by the plan", never=("unknown agent",)),
    ),
    Story(
        "more-budget-never-answered",
        "Read all letters of the tenant.",
        servers={"desk.look": (says("12 letters, budget approved"),)},
        people=(Act("budget_required", expires=True),),
        limits={"tokens": 20},
        ends="budget_exhausted",
        cause=cause(None, "budget used up", or_at=("t1",), never=("approval expired", "model failed")),
    ),
    Story(
        "tasks-that-wait-for-each-other",
        "Wash the car and dry it.",
        plans=(decision(task("t1", DESK, "wash", after=["t2"]), task("t2", DESK, "dry", after=["t1"])),),
        cause=cause(
            "t1", "plan in an impossible order", or_at=("t2", None), never=("unknown agent", "server unreachable")
        ),
    ),
)
