"""Tests of texts in any language."""

import pytest

from brain.explanation.texts import quoted, unsupported_numbers


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It's Ann's.", "“It's Ann's.”"),
        ("It wrote: “no “Limaa””.", "“It wrote: ‘no “Limaa”’.”"),
        ("five”, “six”", "“five’, ‘six’”"),
        ('{"error":\n"busy"}', '“{"error": "busy"}”'),
    ],
)
def test_quotation_inside_of_a_quotation_has_the_other_marks(text: str, shown: str) -> None:
    assert quoted(text, 99) == shown


@pytest.mark.parametrize(
    ("text", "source", "unsupported"),
    [
        ("There are 71 boxes.", "there are 17 boxes", ["71"]),
        ("Es sind 1.000,50 EUR.", "1000.5 EUR", []),
        ("It costs 1,000.50 EUR.", "1.000,50 EUR", []),
        ("Es sind 3.456,50 EUR.", "1000.5 EUR", ["3.456,50"]),
        ("The sum of both is 12.", "5 apples, 7 pears", []),
        ("They are 3, 14 and 15.", "[3,14,15]", []),
        ("[3,14,16]", "3, 14, 15", ["3,14,16"]),
        ("At 10:45.", "10:40", ["45"]),
    ],
)
def test_number_is_supported_however_its_language_writes_it(text: str, source: str, unsupported: list[str]) -> None:
    assert unsupported_numbers(text, [source]) == unsupported
