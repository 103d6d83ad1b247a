"""The form of final texts: JSON around them, and what makes them no answer."""

import pytest

from brain.lifecycle.final_text import fault_of, unwrapped
from starling.core.llm import ModelReply

REQUEST = "How is the disk?"


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('{"answer": "It is fine [1]."}', "It is fine [1]."),
        ('```json\n{"réponse": "Ça va [1]."}\n```', "Ça va [1]."),
        ('{"response": {"text": "It is\nfine."}}', "It is\nfine."),
        ('{"answer": null}', ""),
        ("{}", ""),
        ('{"answer": "It is fine.", "percent": 40}', '{"answer": "It is fine.", "percent": 40}'),
        ('{"answer": "It is fine.", "sources": [1, 2], "error": null}', "It is fine."),
        ('{"title": "Disks", "disks": ["a", "b"]}', '{"title": "Disks", "disks": ["a", "b"]}'),
        ('{"disks": ["a", "b"]}', '{"disks": ["a", "b"]}'),
        ('Write {"answer": "x"}.', 'Write {"answer": "x"}.'),
        ("[1]", "[1]"),
        ('"It is fine."', '"It is fine."'),
    ],
)
def test_only_an_object_with_one_text_is_unwrapped(text: str, inner: str) -> None:
    assert unwrapped(text, REQUEST) == inner


@pytest.mark.parametrize("request_text", ["Answer in JSON.", 'Fill in {"answer": "…"}.'])
def test_json_on_request_stays(request_text: str) -> None:
    assert unwrapped('{"answer": "fine"}', request_text) == '{"answer": "fine"}'


@pytest.mark.parametrize(
    "text",
    [
        "The disk is fine. " * 9,
        "It begins well. " + "Der Zustand der Platte ist gut, und der Zustand der Tür ist gut [1].\n\n" * 3,
        "磁盘状态正常。" * 20,
        "the " * 40,
        "First part. " + "The fan turns, says the log of the fan. " * 5 + "That is all.",
    ],
)
def test_text_of_one_block_again_and_again_repeats_itself(text: str) -> None:
    assert fault_of(ModelReply(text), text, ["other"]) == "repeats itself"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"- Server {number} is up and its disk is fine [1].\n" for number in range(40)),
        "| disk | state | use |\n| --- | --- | --- |\n" + "".join(f"| disk{n} | fine | {n} |\n" for n in range(30)),
        "0 " * 100,
        "-" * 200,
        "The disk is fine [1]. The disk is fine [1].",
    ],
    ids=["list", "table", "numbers", "line", "twice"],
)
def test_lists_and_tables_do_not_repeat_themselves(text: str) -> None:
    assert fault_of(ModelReply(text), text, ["other"]) == ""
