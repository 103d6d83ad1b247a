"""Checks of values against JSON schemas that others wrote."""
