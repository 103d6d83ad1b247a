"""Runs as the edges see them: accepted, answered, cancelled, waited for."""
