"""Skills: tasks that were solved and approved, recalled by the text of a later task."""
