"""What goes to collectors: names of Langfuse go to Langfuse alone, and to any other what they hold under our names."""

import gzip
import re
from typing import Any

from tests.integration.tracing.conftest import Open
from tests.support.model_script import Answer
from tests.support.otlp_collector import Collector
from tests.support.platform import BENCH, ScriptedModel, calls, decision, task, verdict

OURS = re.compile(r"^langfuse\.(observation\.|trace\.)?")


async def test_only_langfuse_gets_its_attributes_and_others_get_the_same_values_under_our_names(
    opened: Open, script: ScriptedModel
) -> None:
    async def traced(to: Collector, **tracing: Any) -> None:
        script.forget()
        script.supervisor(decision(task("t1", BENCH), task("t2", BENCH)), decision())
        script.agent("t1", calls(("look", {"thing": "disk"})))
        script.agent("t2", calls(("fail", {"why": "no fan"})))
        script.reviewer(verdict("APPROVED"))
        script.qa(Answer("It is fine [1]."))
        async with opened(**tracing) as platform:
            await platform.ask("How are disk and fan?", thread=to.url)

    async with Collector() as langfuse, Collector() as other:
        await traced(langfuse, langfuse_public_key="pk", langfuse_secret_key="sk", langfuse_host=langfuse.url)
        await traced(other, otlp_endpoint=other.url)

    theirs, ours = (one.one("run.segment").attributes for one in (langfuse, other))
    renamed = {name for name in theirs if name.startswith("langfuse.") and ".metadata." not in name}
    assert b"langfuse." not in b"".join(gzip.decompress(body) for body in other.bodies if body[:2] == b"\x1f\x8b")
    assert not any(b"langfuse." in body for body in other.bodies)
    assert len(renamed) > 3
    assert {OURS.sub("starling.", name) for name in renamed} <= ours.keys()
    assert set(ours["starling.tags"]) == set(theirs["langfuse.trace.tags"])  # the tasks end in any order
