"""Settings of Python's garbage collector for a server."""

import gc


def pause_collection() -> None:
    """Stop garbage collection until `freeze_startup_objects`: a start makes objects that stay, and no garbage."""
    gc.disable()


def freeze_startup_objects() -> None:
    """Exclude the objects created during start-up from garbage collection, and begin with it.

    They are most of all objects (modules, compiled graphs); walking them took a sixth of a run's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()
