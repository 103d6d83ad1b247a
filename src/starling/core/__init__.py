"""The kernel: value objects, errors, ids, clock, settings and ports."""
