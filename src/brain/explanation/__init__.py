"""Explanations of runs from their rows alone, without a model: what was done, what failed first and why."""
