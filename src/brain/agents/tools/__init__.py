"""The tools of agents: those of their server, and those that are built in."""
