"""What does a task: runtimes, the pipeline around them, and the review of their results."""
