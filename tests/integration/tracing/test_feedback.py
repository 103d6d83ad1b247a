"""Feedback on runs on its way to Langfuse."""

from starling.core.ids import trace_id_of
from starling.infra.postgres.audit import Actor
from tests.integration.tracing.conftest import Open
from tests.support.otlp_collector import Collector
from tests.support.platform import ScriptedModel, decision

LOCAL, KEY = Actor("default", "local", "test"), Actor("default", "key_1", "test")


def feedback_in(collector: Collector) -> list[tuple[str, float, str]]:
    found = [score for score in collector.scores if score["name"] == "user_feedback"]
    return [(score["id"], score["value"], score.get("comment", "")) for score in found]


async def test_feedback_is_a_score_of_the_trace_that_later_feedback_replaces(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(reply="Hello!"))
    keys = {"langfuse_public_key": "pk-lf-1", "langfuse_secret_key": "sk-lf-secret"}

    async with opened(**keys, langfuse_host=collector.url) as platform:
        run = (await platform.ask("Hi.")).key
        give = platform.services.runs.feedback.give
        for number, (score, actor) in enumerate(((0.0, LOCAL), (1.0, KEY), (0.5, LOCAL)), start=1):
            await give(run, score, "", actor)
            await collector.until(lambda found, number=number: len(feedback_in(found)) == number)

    scores = [score for score in collector.scores if score["name"] == "user_feedback"]
    first, other, replaced = scores
    assert collector.refused == []
    assert [score["value"] for score in scores] == [0.0, 1.0, 0.5]
    assert {(score["traceId"], "observationId" in score) for score in scores} == {(trace_id_of(run.id), False)}
    assert (first["id"], first["timestamp"]) == (replaced["id"], replaced["timestamp"])
    assert other["id"] != first["id"]


async def test_feedback_that_langfuse_did_not_take_is_sent_later(
    opened: Open, script: ScriptedModel, collector: Collector
) -> None:
    script.supervisor(decision(reply="Hello!"))
    keys = {"langfuse_public_key": "pk-lf-1", "langfuse_secret_key": "sk-lf-secret"}
    async with opened() as platform:
        run = (await platform.ask("Hi.")).key
        await platform.services.runs.feedback.give(run, 0.5, "Short.", LOCAL)  # where there is no Langfuse

    async with opened(**keys, langfuse_host=collector.url):
        await collector.until(lambda found: len(feedback_in(found)) == 1)

    assert [found[1:] for found in feedback_in(collector)] == [(0.5, "Short.")]
