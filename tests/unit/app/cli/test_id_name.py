"""The run that a command names: id, ending, `last`."""

import httpx
import pytest

from starling.app.cli.id_name import find_run
from starling.app.cli.terminal.formats import short_ids
from starling.client.api import Api
from starling.core.errors import InvalidRequestError, NotFoundError

FIRST = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
SECOND = "01a1f8ac-cbf5-7cdd-97b7-5ad5f773744e"


def listed(*ids: str) -> Api:
    """Return an API that lists these runs, latest first."""

    def answer(request: httpx.Request) -> httpx.Response:
        query = request.url.params
        found = [each for each in ids if each.replace("-", "").endswith(query.get("ending", ""))]
        return httpx.Response(200, json={"runs": [{"run_id": each} for each in found[: int(query["limit"])]]})

    return Api("http://test", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("last", SECOND),
        (FIRST, FIRST),
        (FIRST.upper(), FIRST),
        ("2744e", FIRST),
        ("…2744E", FIRST),
        ("97b7-5ad5f773744e", SECOND),
        ("00000000-0000-7000-8000-000000000000", "00000000-0000-7000-8000-000000000000"),
    ],
)
def test_run_is_found_by_id_ending_or_last(name: str, meant: str) -> None:
    assert find_run(listed(SECOND, FIRST), name) == meant


def test_ending_of_several_runs_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        find_run(listed(SECOND, FIRST), "744e")

    assert refused.value.message == "The ids of several runs end in 744e."
    assert refused.value.remedy.startswith("Write more of the id. `starling run list` shows the ids")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("nonsense", InvalidRequestError, "'nonsense' is not the id of a run."),
        ("", InvalidRequestError, "'' is not the id of a run."),
        ("4e", InvalidRequestError, "'4e' is too short"),
        ("abcd", NotFoundError, "…abcd"),
    ],
)
def test_name_of_no_run_is_refused(name: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        find_run(listed(FIRST), name)


def test_last_of_no_runs_is_refused() -> None:
    with pytest.raises(NotFoundError, match="no runs yet"):
        find_run(listed(), "last")


def test_short_ids_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    alike = "01a1f8ac-cbf5-7cdd-97b7-6ad5f772744e"

    assert short_ids([FIRST, SECOND]) == ["f772744e", "f773744e"]
    assert short_ids([FIRST, alike]) == ["5ad5f772744e", "6ad5f772744e"]
    assert short_ids([]) == []
