"""Which skills a text recalls, and that nothing is recalled where nothing fits."""

import asyncio
from operator import mul

import pytest

from brain.retrieval.text_similarity import plain_words
from brain.skills import recall_ranking
from brain.skills.recall_ranking import ranked
from brain.skills.skill import SkillExample
from starling.infra.embeddings.static_vectors import StaticEmbedder

EXAMPLES = [
    ("alarm", "set my alarm for 5pm"),
    ("alarm", "please create an alarm for 12 noon"),
    ("balance", "how much money is in my savings account"),
    ("balance", "tell me my account balance"),
    ("commits", "list the last commits of the repository"),
]
ABSENT = ("how do i learn more about linguistics", "what is the tallest mountain of Peru", "sing a song")


def counted_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts whose characters are counted from now on."""
    counted: list[str] = []

    def counting(text: str) -> list[str]:
        counted.append(text)
        return plain_words(text)

    monkeypatch.setattr(recall_ranking, "plain_words", counting)
    return counted


def recalled(text: str, stored: list[tuple[str, str]], *, vectors: bool) -> list[str]:
    async def embedded() -> list[SkillExample]:
        query, *made = await StaticEmbedder().embed([text, *(example for _, example in stored)])
        return [
            SkillExample(skill, example, sum(map(mul, query, vector)) if vectors else None)
            for (skill, example), vector in zip(stored, made, strict=True)
        ]

    found = ranked("a", text, asyncio.run(embedded()), len(dict(stored)))
    return [skill.skill_id for skill in found.fitting]


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize(
    ("text", "skill"),
    [
        ("set an alarm for 7 in the morning", "alarm"),
        ("what is the balance of my account", "balance"),
        ("list the commits of this repository", "commits"),
    ],
)
def test_like_text_recalls_its_skill_first(text: str, skill: str, *, vectors: bool) -> None:
    assert recalled(text, EXAMPLES, vectors=vectors)[:1] == [skill]


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("text", ABSENT)
@pytest.mark.parametrize("stored", [EXAMPLES, EXAMPLES[:1]], ids=["several skills", "one skill"])
def test_text_without_a_skill_recalls_nothing(text: str, stored: list[tuple[str, str]], *, vectors: bool) -> None:
    assert recalled(text, stored, vectors=vectors) == []


@pytest.mark.parametrize("vectors", [True, False])
def test_two_skills_that_fit_alike_recall_neither_alone(*, vectors: bool) -> None:
    """A text between two skills: recalled together or not at all, never one for certain."""
    stored = [("one", "send the report to Ann"), ("two", "send the report to Ben")]

    assert len(recalled("send the report", stored, vectors=vectors)) in {0, 2}


@pytest.mark.parametrize("vectors", [True, False])
def test_similarity_is_the_sum_of_its_parts(*, vectors: bool) -> None:
    cosine = 0.5 if vectors else None
    stored = [SkillExample("alarm", text, cosine) for text in ("set an alarm", "set my alarm for 5pm")]

    (found,) = ranked("a", "set the alarm", stored).skills

    assert found.similarity == pytest.approx(found.characters + found.meaning)
    assert found.characters > 0
    assert found.meaning == (0.5 if vectors else 0.0)


def test_empty_store_recalls_nothing() -> None:
    assert ranked("a", "anything", []).fitting == ()


@pytest.mark.parametrize("vectors", [True, False])
def test_cut_rises_with_the_store_and_is_lowest_for_three_tasks(*, vectors: bool) -> None:
    def needed(stored: int, tasks: int) -> float:
        examples = [SkillExample("a", f"task {number}", 0.5 if vectors else None) for number in range(tasks)]
        return ranked("a", "a task", examples, stored).cut

    assert needed(1, 3) < needed(5, 3) < needed(74, 3)
    assert needed(5, 3) < needed(5, 10) < needed(5, 1)


@pytest.mark.parametrize("copy", ["Refund the order 17.", "Refund order 17, please.", "Refund the order 17"])
def test_copy_of_a_trusted_skill_does_not_come_before_it(copy: str) -> None:
    trusted = SkillExample("trusted", "Refund the order 17.", 0.9, successes=3)

    found = ranked("a", "Refund the order 18.", [SkillExample("copy", copy, 0.91), trusted]).skills

    assert [skill.skill_id for skill in found] == ["trusted", "copy"]


def test_trusted_skill_of_another_task_does_not_come_before_the_right_one() -> None:
    trusted = SkillExample("trusted", "List the orders of May.", 0.4, successes=30)

    found = ranked("a", "Refund the order 18.", [trusted, SkillExample("right", "Refund order 17.", 0.9)]).skills

    assert [skill.skill_id for skill in found] == ["right", "trusted"]


def test_texts_of_a_tenant_are_counted_whether_or_not_another_one_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = counted_texts(monkeypatch)
    stored = [SkillExample("light", "Switch the porch light on.")]

    for tenant in ("one", "other", "other"):
        ranked(tenant, "Switch the hall light on.", stored)

    assert counted == ["Switch the porch light on.", "Switch the hall light on."] * 2
