"""Many completions at once: none of them fails."""

import asyncio
from collections import Counter
from itertools import count

import pytest

from tests.support.chat_platform import ChatDialogue, extension_of, text_of
from tests.support.command_line import new_workspace
from tests.support.openai_clients import openai_client
from tests.support.soak import rounds

CLIENTS = 32
TURNS = 4  # of a conversation


@rounds(48, soak=1_000, name="completions")
@pytest.mark.timeout(900)
async def test_completions_of_many_clients_all_succeed(database_url: str, completions: int) -> None:
    numbers, users, found = iter(range(completions)), count(), Counter[str]()
    runs = set[str]()

    async def client(url: str, key: str) -> None:
        dialogue, turn = ChatDialogue(own := openai_client(url, key), user=str(next(users))), 0
        async with own:
            for _ in numbers:
                if turn == TURNS:
                    dialogue, turn = ChatDialogue(own, user=str(next(users))), 0
                answer = await dialogue.say("hello")  # raises where the status is an error
                turn += 1
                assert text_of(answer)
                found[extension_of(answer)["status"]] += 1
                runs.add(extension_of(answer)["run_id"])

    with new_workspace(DATABASE_URL=database_url) as workspace, workspace.running("up", "--port", "0") as service:
        key = workspace.admin_headers["Authorization"].removeprefix("Bearer ")
        await asyncio.gather(*(client(service.url, key) for _ in range(CLIENTS)))

    assert found == {"succeeded": completions}
    assert len(runs) == completions
