"""Plans: the decision document of the supervisor and its validation."""
