"""`starling prompt diff` and `pull` where Langfuse can't be asked."""

import pytest

from tests.support.command_line import new_workspace
from tests.support.scripted_platform import ScriptedPlatform

AWAY = {"changes": {}, "warnings": {"langfuse": "Langfuse can't be asked for prompts: it is away."}}
REFUSED = {"changes": {}, "warnings": {"qa": "The file of `qa` can't be used: It has no instructions."}}


@pytest.mark.parametrize(
    ("answer", "diffed", "pulled"),
    [
        (AWAY, (0, "The local texts have nothing new."), (1, "Nothing was stored.")),
        (REFUSED, (0, "The sources have nothing new."), (0, "The sources have nothing new.")),
    ],
)
def test_source_that_was_not_asked_is_not_said_to_have_nothing_new(
    answer: dict[str, object], diffed: tuple[int, str], pulled: tuple[int, str]
) -> None:
    answers = {"/v1/prompts/diff": answer, "/v1/prompts/pull": answer}

    with (
        ScriptedPlatform(answers=answers).serving() as platform,
        new_workspace(STARLING_URL=platform.url) as workspace,
    ):
        done = [workspace.starling("prompt", command) for command in ("diff", "pull")]

    assert [(one.returncode, one.stdout.splitlines()[-1]) for one in done] == [diffed, pulled]
    assert all(one.stdout.startswith("! prompt ") for one in done)
