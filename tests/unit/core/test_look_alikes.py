"""Texts that look like keys."""

from time import process_time

import pytest

from starling.core.secrets.look_alikes import StreamedText, mask_keys, mask_keys_in

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
KEYS = [
    "sk-proj-4f9vNq7RZk2LmX8sTb1Y",
    "sk-starling-01a1f8c85bee71968facff583af84a69-FblcHHg6XfOzMIgJQj5yZxjSWBawJk4511O93uBofT4",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghijkl",
    "glpat-xyzABC123_def456GHI",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-2048-4096-AbCdEfGhIjKlMnOp",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    PEM,
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:12])
def test_key_is_replaced_wherever_it_stands(key: str) -> None:
    assert mask_keys(f"({key}) and {key}") == "(***) and ***"
    assert mask_keys_in({"a": [key, 1], key: None}) == {"a": ["***", 1], "***": None}


@pytest.mark.parametrize(
    "text", ["the task-force", "sk-learn-contrib-package", "AKIA", "a.eyJ.b", "ghost", "https://hf_mirror.example"]
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert mask_keys(text) == text


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:12])
def test_key_that_is_streamed_in_pieces_is_replaced(key: str, size: int) -> None:
    stream = StreamedText()
    text = f"It is x.{key}, as said. "

    shown = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]

    assert "".join((*shown, stream.end())) == "It is x.***, as said. "


def test_ordinary_words_are_streamed_as_they_come() -> None:
    stream = StreamedText()

    assert [stream.feed(piece) for piece in ("The disk", " is", " 81.4 %", " full.")] == [
        "The disk",
        " is",
        " 81.4 %",
        " full.",
    ]


@pytest.mark.parametrize(
    "text",
    ["sk-" * 100_000, "eyJ-" * 75_000, "-----BEGIN PRIVATE KEY-----" * 10_000, "eyJaaaaaaaa." * 25_000, "-" * 300_000],
)
def test_time_grows_with_the_length_of_the_text(text: str) -> None:
    def seconds(part: str) -> float:
        begun = process_time()
        mask_keys(part)
        return process_time() - begun

    assert seconds(text) < 2.0
