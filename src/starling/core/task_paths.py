"""Places in a run: `t1` is a task, `t1.2` its second try, `t3/t1` the task t1 of the team that works on t3.

`t3:2/t1` is that of the team's second attempt, after a review rejected the result of the first one. `t4.case1` is where
the task t4, which builds a team, tries it on a case, and `t4.case1/t1` a task of the team there. Ids of tasks have
letters, digits, `_` and `-` only, so that no id is taken for anything else.
"""

import re

_NUMBER = re.compile(r"[.:]\d+")
_REPEATED = re.compile(r"[.:](?!1\b)\d+")
_ATTEMPT = re.compile(r":(\d+)$")
_INSIDE = re.compile(r"[/:]|\.[a-z]")  # what follows the path of a task; `.2` is another try of it
_NODES = frozenset({"supervisor", "qa"})  # of a star: `qa/1` is a place of its own


def star_path(task_path: str, attempt: int) -> str:
    """Return the path of the star that a team is, in an attempt at a task."""
    return task_path if attempt == 1 else f"{task_path}:{attempt}"


def trial_path(task_path: str, name: str) -> str:
    """Return the path of the star that a task tries on a case. `name` begins with a letter: `case1`, `case-usual`."""
    return f"{task_path}.{name}"


def team_task_path(path: str) -> str:
    """Return the path of a task that a team works on, below which no node of the star outside has its places."""
    return f"{path}.1" if path in _NODES else path


def is_within(path: str, task_path: str) -> bool:
    """Whether a path is that of a task, or of anything in the stars of the team that works on it, or that it tries."""
    if not path.startswith(task_path):
        return False
    return len(path) == len(task_path) or _INSIDE.match(path, len(task_path)) is not None


def enclosing(path: str) -> list[tuple[str, int]]:
    """Return the tasks that a path is inside, each with the attempt at it: for `t3:2/t1` that is `t3` and 2."""
    stars = [path[: place.start()] for place in re.finditer("/", path)]
    found = ((star, _ATTEMPT.search(star)) for star in stars)
    return [(star[: number.start()], int(number[1])) if number else (star, 1) for star, number in found]


def root_task(path: str) -> str:
    """Return the task of the main star that a path is inside, whichever try it is: `t3` for `t3.2:2/t1`."""
    return without_numbers(path.partition("/")[0])


def is_repeated(path: str) -> bool:
    """Whether a path is that of another try or attempt than the first one, or inside of one."""
    return _REPEATED.search(path) is not None


def without_numbers(path: str) -> str:
    """Return the path of a task whichever try it is: `t1` for `t1.2`, `t3/t1` for `t3.2:2/t1`."""
    return _NUMBER.sub("", path)
