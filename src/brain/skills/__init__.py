"""Skills: tasks that were solved and approved, recalled by what a later task says."""
