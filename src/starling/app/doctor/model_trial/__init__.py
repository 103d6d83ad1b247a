"""Tries what a model can do: ten abilities, each with a request and a check of its answer."""
