"""Settings of Python's garbage collector for a server."""

import gc


def freeze_startup_objects() -> None:
    """Exclude the objects created during start-up from garbage collection.

    They are most of all objects (modules, compiled graphs); walking them took a sixth of a run's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
