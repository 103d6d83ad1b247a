"""Versions of teams, as they are stored."""
