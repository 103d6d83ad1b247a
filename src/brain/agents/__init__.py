"""What does a task: a turn of an agent, the tools that it calls, and the runtimes of all kinds of agents."""
