"""From a goal in plain words to a team spec: parts, what serves them, what the designer writes."""
