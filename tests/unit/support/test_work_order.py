from collections import Counter

from tests.support.work_order import dealt

LONG = [f"tests/{kind}/test_{file}.py::{number}" for kind in ("chaos", "e2e") for file in "abc" for number in range(2)]
MIDDLE = [f"tests/integration/http/test_{file}.py::{number}" for file in "abcd" for number in range(3)]
SHORT = [f"tests/unit/test_{file}.py::{number}" for file in "abcdefgh" for number in range(20)]
TESTS = LONG + MIDDLE + SHORT


def file_of(test: str) -> str:
    return test.partition("::")[0]


def test_each_worker_begins_with_its_share_of_the_long_files_and_ends_with_short_tests() -> None:
    workers = 3

    order = dealt(TESTS, workers, file_of)

    part = len(TESTS) // workers
    for begin in range(0, part * workers, part):
        kinds = [test.split("/")[1] for test in order[begin : begin + part]]
        assert {*kinds[:4]} <= {"chaos", "e2e"}
        assert kinds[4] == "integration"
        assert {*kinds[10:]} == {"unit"}


def test_every_test_is_in_the_order_once_and_long_files_stay_whole() -> None:
    for workers in (1, 2, 3, 8):
        order = dealt(TESTS, workers, file_of)

        assert Counter(order) == Counter(TESTS)
        for test in LONG + MIDDLE:
            file = file_of(test)
            places = [place for place, other in enumerate(order) if file_of(other) == file]
            assert places[-1] - places[0] == len(places) - 1
