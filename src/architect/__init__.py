"""Building of agent teams from a description."""
