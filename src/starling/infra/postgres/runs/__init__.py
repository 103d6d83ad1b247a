"""Queries and writes of runs."""
