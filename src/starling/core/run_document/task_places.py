"""Where tasks stand in the drawing of their star's plan."""

from collections.abc import Sequence
from dataclasses import replace

from starling.core.graph_layout import layout
from starling.core.run_document.document import TaskRecord


def with_places(tasks: Sequence[TaskRecord]) -> tuple[TaskRecord, ...]:
    """Return the tasks with `column` and `row`, each behind the first tries of what it depends on."""
    first: dict[tuple[str, str], str] = {}  # paths, by star and id
    for task in tasks:
        first.setdefault((task.star, task.id), task.path)
    places: dict[str, tuple[int, int]] = {}
    for star in {task.star for task in tasks}:
        own = [task for task in tasks if task.star == star]
        before = {task.path: [first.get((star, one), "") for one in task.depends_on] for task in own}
        places |= {path: (place.column, place.row) for path, place in layout(before).items()}
    return tuple(replace(task, column=places[task.path][0], row=places[task.path][1]) for task in tasks)
