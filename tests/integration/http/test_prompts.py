"""Prompts over HTTP, and in the runs that they were used in."""

import pytest

from brain.prompts import NAMES, program_text, prompt
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_prompts_in_force_are_listed_and_shown_by_name_and_hash(api: LiveApi) -> None:
    listed = await api.get("/v1/prompts")
    digest = prompt("qa").used.hash
    named, hashed = await api.get("/v1/prompts/qa"), await api.get(f"/v1/prompts/{digest[:6]}")

    assert [one["name"] for one in listed["prompts"]] == list(NAMES)
    assert {(one["source"], one["since"]) for one in listed["prompts"]} == {("local", 1)}
    assert (named["text"], named["in_force"], named["hash"]) == (program_text("qa"), True, digest)
    assert "results" in named["variables"]
    assert hashed == named


@pytest.mark.parametrize("path", ["/v1/prompts/poet", f"/v1/prompts/{'0' * 64}", "/v1/prompts/diff?name=poet"])
async def test_unknown_prompt_is_not_found(api: LiveApi, path: str) -> None:
    problem = await api.get(path, status=404)

    assert "starling prompt list" in problem["remedy"]


async def test_run_names_its_wordings_and_is_found_by_each(api: LiveApi) -> None:
    events = await api.ask("How full is this disk?")
    run_id = events[0].data["run_id"]

    run = await api.get(f"/v1/runs/{run_id}?include=prompts")
    names = [one["name"] for one in run["prompts"]]

    assert names == ["supervisor", "specialist", "reflection", "qa"]
    assert [one["hash"] for one in run["prompts"]] == [prompt(name).used.hash for name in names]
    for wanted in ("qa", prompt("specialist").used.hash[:12]):
        assert run_id in [one["run_id"] for one in (await api.get(f"/v1/runs?prompt={wanted}"))["runs"]]
    assert (await api.get("/v1/runs?prompt=coder"))["runs"] == []
    await api.get("/v1/runs?prompt=poet", status=404)


async def test_sources_without_news_change_nothing_by_diff_and_pull(api: LiveApi) -> None:
    pulled = await api.post("/v1/prompts/pull")

    assert pulled == await api.get("/v1/prompts/diff") == {"changes": {}, "warnings": {}}
