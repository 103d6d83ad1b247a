"""The runtimes: one for each kind of agent."""
