"""The parts that a goal in ordinary words is split into."""

from time import process_time

import pytest

from architect.design.goal_parts import MOST_PARTS, coordinated, parts_of


@pytest.mark.parametrize(
    ("goal", "parts"),
    [
        pytest.param("Tell the time. Show the disk!", ["Tell the time.", "Show the disk!"], id="sentences"),
        pytest.param(
            "tell the time; show the disk\nread mail", ["tell the time", "show the disk", "read mail"], id="; and lines"
        ),
        pytest.param("- tell the time\n* show it\n2) read", ["tell the time", "show it", "read"], id="items of a list"),
        pytest.param("tell the time and show the disk", ["tell the time", "show the disk"], id="and before an order"),
        pytest.param("read mail, then answer it", ["read mail", "answer it"], id="then"),
        pytest.param("read mail, what is new and send it", ["read mail", "what is new", "send it"], id="questions"),
        pytest.param(
            "the time in Rome and Paris, daily", ["the time in Rome and Paris, daily"], id="no order after and"
        ),
        pytest.param('save "read this and send it"', ['save "read this and send it"'], id="quoted text"),
        pytest.param(
            "Build me a team that watches disks and writes a report",
            ["watches disks", "writes a report"],
            id="a team that",
        ),
        pytest.param("I want a research team to find papers", ["find papers"], id="a team to"),
        pytest.param(
            "A team that summarises news, posts it", ["summarises news", "posts it"], id="a team without a verb"
        ),
        pytest.param("I'm a blogger. Find photos.", ["Find photos."], id="about the caller"),
        pytest.param("I'm a blogger.", ["I'm a blogger."], id="only about the caller"),
        pytest.param(
            "Tell the time. Additionally, show it", ["Tell the time.", "Additionally, show it"], id="connecting word"
        ),
        pytest.param("Tell the time. Please help me with that. Thanks!", ["Tell the time."], id="politeness"),
        pytest.param(" \n ?! ", [], id="no words"),
        pytest.param('"Tell the time. Show it!"', ["Tell the time.", "Show it!"], id="wholly quoted"),
    ],
)
def test_goal_is_split_into_what_it_orders_or_asks(goal: str, parts: list[str]) -> None:
    assert parts_of(goal) == parts


@pytest.mark.parametrize(
    ("part", "pieces"),
    [
        ("newest Maven libraries and npm packages", ["newest Maven libraries", "npm packages"]),
        ("mail, post und Zeit", ["mail", "post", "Zeit"]),
        ('save "a and b"', []),
    ],
)
def test_part_has_pieces_at_conjunctions_and_commas(part: str, pieces: list[str]) -> None:
    assert coordinated(part) == pieces


def test_parts_beyond_the_most_are_one() -> None:
    parts = parts_of("\n".join(f"read page {number}" for number in range(20)))

    assert len(parts) == MOST_PARTS
    assert parts[-1].endswith("read page 19")


@pytest.mark.parametrize(
    "text", [" ,", "and ", "\n", "i ", '"', "please, ", "“", " \t", "- ", "can you ", "read, ", "a\n"]
)
def test_goal_of_a_million_characters_is_split_within_seconds(text: str) -> None:
    begun = process_time()

    parts_of(text * (1_000_000 // len(text)))

    assert process_time() - begun < 5
