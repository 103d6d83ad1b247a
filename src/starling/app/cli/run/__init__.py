"""`starling run`: list, show, tail, answer and cancel runs."""
