"""A run as one value: what it is made of, and how it is read from its rows and its events."""
