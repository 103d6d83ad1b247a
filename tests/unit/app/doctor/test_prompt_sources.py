"""The doctor's check of the sources of prompts."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from brain.prompts import program_text
from starling.app.doctor import prompt_sources
from starling.core.settings.schema import Settings
from tests.support.langfuse_server import PUBLIC_KEY, SECRET_KEY, LangfuseServer


def settings(server: LangfuseServer, **more: object) -> Settings:
    reached = {"langfuse_host": server.url, "langfuse_public_key": PUBLIC_KEY}
    return Settings.model_validate({**reached, "langfuse_secret_key": SecretStr(SECRET_KEY), **more})


async def test_prompts_of_langfuse_are_named_and_unusable_ones_are_warnings() -> None:
    async with LangfuseServer() as server:
        server.publish("agent_orchestrator", program_text("supervisor"), "production")
        server.publish("agent_qa", "Answer. {{mood}}", "production")

        answers, refused = await prompt_sources.check(settings(server))

    assert answers.state == "ok"
    assert answers.message == "Langfuse answers; with the label `production` it has: supervisor, qa."
    assert (refused.subject, refused.state) == ("prompt qa", "warning")
    assert "names the unknown variable {{mood}}" in refused.message


@pytest.mark.parametrize(
    ("more", "told"),
    [({"langfuse_secret_key": SecretStr("no")}, "refuses the keys"), ({"langfuse_host": "http://[::1]:9"}, "reached")],
)
async def test_langfuse_without_an_answer_is_a_problem(more: dict[str, object], told: str) -> None:
    async with LangfuseServer() as server:
        [found] = await prompt_sources.check(settings(server, **more))

    assert (found.subject, found.state) == ("prompts", "problem")
    assert told in found.message


@pytest.mark.parametrize("more", [{"langfuse_prompt_label": ""}, {"langfuse_secret_key": None}])
async def test_nothing_is_asked_without_keys_or_a_label(more: dict[str, object]) -> None:
    async with LangfuseServer() as server:
        assert await prompt_sources.check(settings(server, **more)) == []
        assert server.requested == []


async def test_unusable_files_of_the_folder_are_warnings(tmp_path: Path) -> None:
    (tmp_path / "qa.md").write_text("Answer. {{mood}}")
    (tmp_path / "poet.md").write_text("Rhyme.")
    (tmp_path / "coder.md").write_bytes(b"\xff")
    (tmp_path / "judge.md").write_text(program_text("judge"))

    found = await prompt_sources.check(Settings(prompts_dir=tmp_path))

    assert {one.subject: one.state for one in found} == {
        "prompt qa": "warning", "prompt poet.md": "warning", "prompt coder": "warning",
    }  # fmt: skip


async def test_missing_folder_is_a_warning(tmp_path: Path) -> None:
    [found] = await prompt_sources.check(Settings(prompts_dir=tmp_path / "nothing"))

    assert "is not a folder" in found.message
