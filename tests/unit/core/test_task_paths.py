"""Paths of tasks: of further tries, of teams, and of a team's further attempts."""

import pytest

from starling.core.task_paths import is_within, star_path, team_task_path, trial_path, without_numbers


@pytest.mark.parametrize(
    ("path", "task"),
    [
        ("t1", "t1"),
        ("t1.2", "t1"),
        ("t3/t1", "t3/t1"),
        ("t3.2:2/t1.3", "t3/t1"),
        ("t3:2", "t3"),
        ("t4.2.case1/t3.2:2/t1.3", "t4.case1/t3/t1"),
        ("", ""),
    ],
)
def test_path_without_numbers_is_that_of_the_task_in_any_try(path: str, task: str) -> None:
    assert without_numbers(path) == task


@pytest.mark.parametrize(
    ("path", "is_inside"),
    [
        ("t3", True),
        ("t3/t1", True),
        ("t3:2/t1", True),
        ("t3.case1/t1", True),
        ("t3.2", False),
        ("t3.2/t1", False),
        ("t3.2.case1/t1", False),
        ("t31", False),
        ("t", False),
    ],
)
def test_path_is_within_a_task_that_it_is_inside(path: str, is_inside: bool) -> None:
    assert is_within(path, "t3") is is_inside


def test_trial_has_a_path_that_no_team_or_further_try_of_its_task_has() -> None:
    assert trial_path("t3", "case1") == "t3.case1"
    assert not is_within(trial_path("t3", "case1"), star_path("t3", 2))


@pytest.mark.parametrize(("path", "below"), [("t1", "t1"), ("qa", "qa.1"), ("supervisor", "supervisor.1")])
def test_task_of_a_team_has_no_path_that_a_node_has_its_places_below(path: str, below: str) -> None:
    assert team_task_path(path) == below
