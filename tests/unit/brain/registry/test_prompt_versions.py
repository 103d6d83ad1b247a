"""What runs of an epoch work with: the texts that it pins, else those of the program."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from brain.prompts import program_text, prompt, versions
from brain.registry.manifest import Manifest, PromptOrigin
from brain.registry.prompt_versions import PromptChoice, kept_prompts, pinned_prompts
from brain.registry.repository import PromptRepository, StoredPrompt
from starling.core.llm import PromptVersion

WORDS = program_text("qa").replace("Use no internal names", "Never use internal names")
LATER = WORDS.replace("</degraded>", "</degraded>\n<mood>{{mood}}</mood>")
ORIGIN = PromptOrigin(name="agent_qa", version=2, label="production")
REMOTE = PromptVersion("qa", "7d", "langfuse", 3, "production", "agent_qa")


@dataclass
class Texts(PromptRepository):
    """Stored texts; remembers which were asked for."""

    stored: Mapping[str, str]
    asked: list[set[str]] = field(default_factory=list[set[str]])

    async def texts(self, hashes: Collection[str]) -> Mapping[str, str]:
        self.asked.append({*hashes})
        return {digest: text for digest, text in self.stored.items() if digest in hashes}


def pinning(digest: str, **origins: PromptOrigin) -> Manifest:
    return Manifest(prompts=versions() | {"qa": digest}, prompt_origins=origins)


async def test_pinned_text_is_used_and_names_its_place() -> None:
    stored = Texts({"7d": WORDS})

    found = await pinned_prompts(pinning("7d", qa=ORIGIN), stored)

    assert "".join(found["qa"].system.parts).endswith("Never use internal names of agents or tools.")
    assert found["qa"].used == PromptVersion("qa", "7d", "langfuse", 2, "production", "agent_qa")
    assert found["judge"] == prompt("judge")
    assert stored.asked == [{"7d"}]


async def test_texts_of_the_program_are_not_read_from_the_database() -> None:
    stored = Texts({})

    await pinned_prompts(Manifest(prompts=versions()), stored)

    assert stored.asked == []


@pytest.mark.parametrize(
    ("stored", "logged"), [({}, False), ({"7d": LATER}, True)], ids=["not stored", "with a variable of another version"]
)
async def test_text_that_cannot_be_used_is_replaced_by_that_of_the_program(
    caplog: pytest.LogCaptureFixture, stored: Mapping[str, str], logged: bool
) -> None:
    found = await pinned_prompts(pinning("7d"), Texts(stored))

    assert found["qa"] == prompt("qa")
    assert ("doesn't fill: mood" in caplog.text) is logged


def test_manifest_without_langfuse_is_the_document_that_it_was() -> None:
    assert "prompt_origins" not in Manifest(prompts=versions()).model_dump(mode="json")


def test_other_changes_keep_pins_and_origins() -> None:
    before = pinning("7d", qa=ORIGIN).model_copy(update={"prompts": {"qa": "7d", "former": "8e"}})

    kept = kept_prompts(before)

    assert kept == {"prompts": versions() | {"qa": "7d"}, "prompt_origins": {"qa": ORIGIN}}


@pytest.mark.parametrize(("keep_remote", "hash_"), [(True, "7d"), (False, prompt("qa").used.hash)])
def test_local_text_replaces_one_of_langfuse_unless_that_is_kept(keep_remote: bool, hash_: str) -> None:
    choice = PromptChoice({"qa": StoredPrompt(program_text("qa"), prompt("qa").used)}, keep_remote=keep_remote)

    after = choice.applied(pinning("7d", qa=ORIGIN))

    assert after.prompts["qa"] == hash_
    assert ("qa" in after.prompt_origins) is keep_remote
    assert bool(choice.pinned_by(after)) is not keep_remote


def test_text_of_langfuse_is_pinned_with_its_place() -> None:
    after = PromptChoice({"qa": StoredPrompt(WORDS, REMOTE)}).applied(Manifest(prompts=versions()))

    assert after.prompt_version("qa") == REMOTE
