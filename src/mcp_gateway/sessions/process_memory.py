"""The memory of server processes, each with all processes that it has started."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

import psutil


def memory_of(roots: Collection[int], each: float, together: float) -> Mapping[int, int]:
    """Return the resident bytes of the process trees below these children of this process.

    The sum of resident sizes (RSS) costs one read a process, but counts what processes share several times: libraries,
    and what a fork has not changed. Where it exceeds `each` or `together`, the proportional size (PSS) is read, in
    which shared pages are divided; where the system has none, the unshared size (USS).
    """
    if not roots:
        return {}
    trees = _trees(roots)
    resident = {root: sum(map(_resident, processes)) for root, processes in trees.items()}
    if sum(resident.values()) > together:
        return {root: sum(map(_proportional, processes)) for root, processes in trees.items()}
    return {root: sum(map(_proportional, trees[root])) if size > each else size for root, size in resident.items()}


def kill(root: int) -> None:
    """Kill the processes below a child of this process, which reaps them."""
    _kill_all(process for process in _trees([root])[root] if process.pid != root)


def _kill_all(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _trees(roots: Collection[int]) -> Mapping[int, list[psutil.Process]]:
    """Return the processes of each tree; one scan of all processes."""
    trees: dict[int, list[psutil.Process]] = {root: [] for root in roots}
    tree_of = {root: root for root in roots}
    for process in psutil.Process().children(recursive=True):  # parents before their children
        with suppress(psutil.Error):
            root = tree_of.get(process.pid) or tree_of.get(process.ppid())
            if root is not None:
                tree_of[process.pid] = root
                trees[root].append(process)
    return trees


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0  # it has ended


def _proportional(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
    except psutil.AccessDenied:  # of another user
        return _resident(process)
    except psutil.Error:
        return 0
    return getattr(full, "pss", full.uss)
