"""Ages, as an admin writes them."""

from datetime import timedelta

import pytest

from starling.app.runtime.retention import age_of
from starling.core.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("written", "age"),
    [
        ("45m", timedelta(minutes=45)),
        ("12h", timedelta(hours=12)),
        (" 30d ", timedelta(days=30)),
        ("8w", timedelta(weeks=8)),
        ("36500d", timedelta(days=36_500)),
    ],
)
def test_an_age_has_a_number_and_a_unit(written: str, age: timedelta) -> None:
    assert age_of(written) == age


@pytest.mark.parametrize(
    "written", ["", "30", "d", "0d", "-1d", "1.5d", "1 d", "30D", "1y", "٣d", "36501d", "9999999w"]
)
def test_what_is_no_age_is_refused_with_how_to_write_one(written: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        age_of(written)

    assert repr(written) in refused.value.message
    assert "30d" in refused.value.remedy
