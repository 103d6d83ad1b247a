"""Durations as options write them."""

from datetime import timedelta

import pytest

from starling.app.cli.terminal.formats import parse_duration
from starling.core.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("written", "duration"),
    [
        ("45m", timedelta(minutes=45)),
        ("12h", timedelta(hours=12)),
        (" 30d ", timedelta(days=30)),
        ("8w", timedelta(weeks=8)),
        ("36500d", timedelta(days=36_500)),
    ],
)
def test_number_with_unit_is_a_duration(written: str, duration: timedelta) -> None:
    assert parse_duration(written) == duration


@pytest.mark.parametrize(
    "written", ["", "30", "d", "0d", "-1d", "1.5d", "1 d", "30D", "1y", "٣d", "36501d", "9999999w"]
)
def test_other_text_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_duration(written)

    assert repr(written) in refused.value.message
    assert "30d" in refused.value.remedy
