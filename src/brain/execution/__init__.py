"""Executes stars: the graph of a star, and the runs and teams that are executed as one."""
