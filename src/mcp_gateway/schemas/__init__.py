"""JSON schemas of tools: checks of values, and instances."""
