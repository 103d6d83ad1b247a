"""Places in a run: `t1` is a task, `t1.2` its second try, `t3/t1` the task t1 of the team that works on t3.

`t3:2/t1` is that of the team's second attempt, after a review rejected what the first one came to. Ids of tasks have
letters, digits, `_` and `-` only, so that no id is taken for anything else.
"""

import re

_NUMBER = re.compile(r"[.:]")
_NODES = frozenset({"supervisor", "qa"})  # of a star: `qa/1` is a place of its own


def star_path(task_path: str, attempt: int) -> str:
    """Return the path of the star that a team is, in an attempt at a task."""
    return task_path if attempt == 1 else f"{task_path}:{attempt}"


def team_task_path(path: str) -> str:
    """Return the path of a task that a team works on, below which no node of the star outside has its places."""
    return f"{path}.1" if path in _NODES else path


def is_within(path: str, task_path: str) -> bool:
    """Whether a path is that of a task, or of anything in the stars of the team that works on it."""
    return path == task_path or path.startswith((f"{task_path}/", f"{task_path}:"))


def without_numbers(path: str) -> str:
    """Return the path of a task whichever try it is: `t1` for `t1.2`, `t3/t1` for `t3.2:2/t1`."""
    return "/".join(_NUMBER.split(name)[0] for name in path.split("/"))
