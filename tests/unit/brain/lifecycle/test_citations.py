"""Citations in an answer: which numbers in brackets name a source, and which are content."""

import pytest

from brain.lifecycle.citations import cited_of, without_unsourced


@pytest.mark.parametrize(
    ("text", "expected", "removed"),
    [
        ("It is noon [1].", "It is noon [1].", ()),
        ("It is noon [3].", "It is noon.", (3,)),
        ("It is noon[0], and warm [12].", "It is noon, and warm.", (0, 12)),
        ("Both [1, 2, 5].", "Both [1, 2].", (5,)),
        ("Both [1][2][3].", "Both [1][2].", (3,)),
        ("[9] Noon.", "Noon.", (9,)),
    ],
    ids=["source", "none", "several", "group", "adjacent", "first"],
)
def test_citation_without_a_source_is_removed(text: str, expected: str, removed: tuple[int, ...]) -> None:
    checked, found = without_unsourced(text, 2)

    assert (checked, tuple(found)) == (expected, removed)


@pytest.mark.parametrize(
    "text",
    [
        "Take `items[7]` of it [1].",
        "```python\nprint(items[7])\n```",
        "```\nitems[7]",
        "See [7](https://example.org/7).",
        "Sorted they are [7, 8, 9].",
        "The door has the label [ 7 ] [1].",
        "[sic] and [x7]",
    ],
    ids=["code", "block", "open-block", "link", "list", "quoted", "words"],
)
def test_numbers_that_are_content_stay(text: str) -> None:
    checked, found = without_unsourced(text, 2, ["label: [7]"] if "label" in text else [])

    assert (checked, found) == (text, [])


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("It is noon [2].", "b"),
        ("Noon [1][3], and warm [3].", "ac"),
        ("Both [1, 2].", "ab"),
        ("All [2–4].", "bcd"),
        ("It is noon.", "abcd"),
        ("Take `items[2]` of it.", "abcd"),
        ("It is noon [7].", "abcd"),
    ],
    ids=["one", "adjacent", "several", "range", "none", "code", "unsourced"],
)
def test_sources_of_a_text_are_those_that_it_cites_or_all(text: str, cited: str) -> None:
    assert list(cited_of("abcd", text)) == list(cited)
