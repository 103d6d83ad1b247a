"""Core types: value objects, errors, ids, clock, settings and the ports between packages."""
