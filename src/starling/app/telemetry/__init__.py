"""Logs, metrics and the wrappers that measure."""
