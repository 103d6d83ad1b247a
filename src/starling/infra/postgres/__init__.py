"""Postgres: the embedded server, the engine, the tables and the one writer of a run."""
