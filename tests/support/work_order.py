"""The order of tests for several worker processes: each begins with long tests and ends with short ones.

pytest-xdist's `worksteal` gives each worker an equal number of consecutive tests, and moves tests from the end of the
longest queue to a worker that has none left. With this order, what is left at the end of a run are short tests.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

_LONG: Final = (("tests/e2e/", "tests/chaos/"), ("tests/integration/",))  # longest first; all others are short


def dealt[T](tests: Sequence[T], workers: int, file_of: Callable[[T], str]) -> list[T]:
    """Return the tests in an order of which each worker's part begins with its share of the long files.

    Files of long tests stay whole, because their tests share processes. `file_of` returns a test's path below the root.
    """
    parts: list[list[T]] = [[] for _ in range(workers)]
    for kind in _LONG:
        files = groupby((test for test in tests if file_of(test).startswith(kind)), file_of)
        for number, (_, members) in enumerate(files):
            parts[number % workers] += members
    short = [test for test in tests if not any(file_of(test).startswith(kind) for kind in _LONG)]
    begun, left = 0, len(tests)
    for number, part in enumerate(parts):
        size = left // (workers - number)  # as `worksteal` divides them
        left -= size
        missing = max(0, size - len(part))
        part.extend(short[begun : begun + missing])
        begun += missing
    return [test for part in parts for test in part] + short[begun:]
